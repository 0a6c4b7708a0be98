"""The keys of a kernel's declaration, and typed access to a table of them."""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from difflib import get_close_matches
from typing import Any, NoReturn

from pytest_gemm.dtypes import OUTPUTS
from pytest_gemm.errors import ConfigError, SpecError
from pytest_gemm.expressions import RESERVED, compile_expression
from pytest_gemm.kernelspec import (
    BACKENDS,
    BUFFERS,
    LEADING_DIMENSIONS,
    SCALARS,
    STREAM,
    Limit,
    PerBackend,
)
from pytest_gemm.limits import Limits, margin_of_percent
from pytest_gemm.problem import BATCH, LAYOUTS, STRIDES, TRANSPOSITIONS, Problem


def _one_of(texts: Iterable[str]) -> str:
    return " or ".join(map(repr, texts))


_BY_PROBLEM = "or a table with host and cuda, or with problems of sizes"

KEYS: Mapping[str, str] = {
    "name": "a name such as 'tiled'",
    "op": "'gemm' or 'add'",
    "entry": "a function's name or a template expression such as 'gemm<BM, 8>'",
    "args": "a list such as ['C', 'A', 'B', 'M', 'N * 2']",
    "block": "a list of one to three integers or expressions such as [16, 16]",
    "grid": "a list of one to three integers or expressions such as ['cdiv(N, 16)']",
    "shared_mem": "a number of bytes or an expression such as '2 * TILE * TILE * 4'",
    "params": "a table of integers such as params.TILE = 16",
    "sweep": "a table of lists such as sweep.TILE = [8, 16, 32]",
    "requires": "a list of conditions such as ['K % 16 == 0']",
    "sizes": "a list such as ['512', '256x384x128'], or a table with host and cuda lists",
    "dtype": f"the type of A and B: {_one_of(OUTPUTS)}",
    "out_dtype": "the type of C, such as 'float32' with dtype = 'float16'",
    "acc_dtype": "the type in which sums are kept, such as 'float32' with dtype = 'float16'",
    "layout": _one_of(LAYOUTS),
    "transa": f"{_one_of(TRANSPOSITIONS)}, as in BLAS",
    "transb": f"{_one_of(TRANSPOSITIONS)}, as in BLAS",
    "lda": "a number of elements or an expression such as 'K + 8'",
    "ldb": "a number of elements or an expression such as 'N + 8'",
    "ldc": "a number of elements or an expression such as 'N + 8'",
    "alpha": "a number such as 2",
    "beta": "a number such as 1",
    "batch": "a number of products such as 8",
    "reference": "a Python file and a function in it, such as 'refs.py:gemm_relu'",
    "derived_from": "the name of another kernel",
    "change": "a text that says what differs from derived_from",
    "deterministic": "true or false",
    "different_barriers": "true or false",
    "finite_c": "true or false",
    "margin": "a number of percent such as 2, or a table with host and cuda",
    "max_us": f"a number of microseconds such as 900, {_BY_PROBLEM}",
    "min_gflops": f"a number of GFLOP/s such as 20000, {_BY_PROBLEM}",
    "min_percent_of_cublas": f"a number of percent such as 60, {_BY_PROBLEM}",
}
"""Every key of front matter and what it takes."""

LIMITS = tuple(field.name for field in fields(Limits))
"""The keys that limit a kernel's time."""

SIDECAR_KEYS: Mapping[str, str] = {"source": "the path of a .cu file, from the sidecar", **KEYS}

PYTHON_KEYS: Mapping[str, str] = {
    key: KEYS[key]
    for key in (
        *("name", "op", "sizes", "requires", "params", "sweep"),
        *("dtype", "out_dtype", "acc_dtype", "layout", "transa", "transb", "lda", "ldb", "ldc"),
        *("alpha", "beta", "batch", "reference"),
        *("derived_from", "change", "deterministic", "finite_c", "margin", *LIMITS),
    )
} | {"backend": "'host', 'cuda' or None"}

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,99}")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_PROBLEM_NAMES = {*BUFFERS, *SCALARS, *LEADING_DIMENSIONS, *BATCH, STREAM, "M", "N", "K"}
_CPP_WORD = re.compile(
    "alignas|auto|bool|case|char|class|const|constexpr|decltype|default|delete|do|double|else|enum"
    "|explicit|export|extern|false|float|for|friend|goto|if|inline|int|long|mutable|namespace|new"
    "|noexcept|nullptr|operator|private|protected|public|register|return|short|signed|sizeof|static"
    "|struct|switch|template|this|throw|true|try|typedef|typename|union|unsigned|using|virtual|void"
    "|volatile|while"
)


class Reader:
    """Typed access to a table's keys; every mistake becomes one SpecError with its line."""

    def __init__(
        self, data: Mapping[str, Any], line_of: Callable[..., int], path: str, noun: str = "key"
    ) -> None:
        self.data = data
        self.line_of = line_of
        self.path = path
        self.noun = noun

    def fail(self, message: str, *keys: str) -> NoReturn:
        raise SpecError(message, path=self.path, line=self.line_of(*keys))

    def reject_unknown(self, keys: Mapping[str, str]) -> None:
        for key in self.data:
            if key in keys:
                continue
            if key in STRIDES:
                self.fail(f"{key} is no key: a kernel that takes {key} gets it as an argument", key)
            close = get_close_matches(key.lower(), keys, 1)
            advice = f"did you mean {close[0]!r}?" if close else f"the keys are {', '.join(keys)}"
            self.fail(f"unknown {self.noun} {short(key)}: {advice}", key)

    def wrong_type(self, key: str, *inner: str) -> NoReturn:
        value: Any = self.data[key]
        for step in inner:
            value = value[step]
        title = ".".join((key, *inner))
        wanted = {**SIDECAR_KEYS, **PYTHON_KEYS}[key]
        self.fail(f"{title} is {_kind(value)}: it takes {wanted}", key, *inner)

    def text(self, key: str, default: str = "") -> str:
        value = self.data.get(key, default)
        if not isinstance(value, str) or (key in self.data and not value.strip()):
            self.wrong_type(key)
        if not value.isprintable():
            self.fail(f"{key} holds a line break or control character: write one line", key)
        return value.strip()

    def boolean(self, key: str, default: bool) -> bool:
        value = self.data.get(key, default)
        if not isinstance(value, bool):
            self.wrong_type(key)
        return value

    def choice(self, key: str, default: str, choices: Sequence[str]) -> str:
        value = self.text(key, default)
        if value not in choices:
            self.fail(f"{key} = {short(value)} is not supported: it is {' or '.join(choices)}", key)
        return value

    def scalar(self, key: str, default: float) -> float:
        value = self.data.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.wrong_type(key)
        if not abs(value) < 2**53:
            self.fail(f"{key} = {short(value)} cannot be: it is a finite number", key)
        return float(value)

    def count(self, key: str, default: int) -> int:
        value = self.data.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int):
            self.wrong_type(key)
        if not 1 <= value < 2**31:
            self.fail(f"{key} = {short(value)} cannot be: it is at least 1", key)
        return value

    def name(self, default: str) -> str:
        name = self.text("name", default)
        if not NAME.fullmatch(name):
            self.fail(
                f"{short(name)} cannot name a kernel: use letters, digits, _ . + - "
                "and give it with name",
                "name",
            )
        return name

    def expression(self, key: str, default: str, known: Sequence[str]) -> str:
        value = self.data.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | str):
            self.wrong_type(key)
        return self.one_expression(key, value, known)

    def expressions(self, key: str, known: Sequence[str]) -> tuple[str, ...]:
        return tuple(self.one_expression(key, value, known) for value in self.items(key, int | str))

    def conditions(self, key: str, known: Sequence[str]) -> tuple[str, ...]:
        if key not in self.data:
            return ()
        return tuple(
            self.one_expression(key, value, known, is_condition=True)
            for value in self.items(key, str, min_length=0)
        )

    def dimensions(self, key: str, known: Sequence[str]) -> tuple[str, ...]:
        if key not in self.data:
            example = "[16, 16]" if key == "block" else '["cdiv(N, 16)", "cdiv(M, 16)"]'
            self.fail(f"{key} is missing: add one to three entries such as {key} = {example}")
        texts = self.expressions(key, known)
        if len(texts) > 3:
            self.fail(f"{key} has {len(texts)} entries: it takes one to three (x, y, z)", key)
        return texts

    def one_expression(
        self, key: str, value: int | str, known: Sequence[str], *, is_condition: bool = False
    ) -> str:
        text = str(value).strip()
        try:
            expression = compile_expression(text)
            if not expression.names:
                expression.evaluate({})
        except SpecError as error:
            self.fail(f"{key}: {error.message}", key)
        for name in sorted(expression.names - set(known)):
            close = get_close_matches(name, known, 1, 0.5)
            advice = f"did you mean {close[0]}?" if close else f"known are {', '.join(known)}"
            self.fail(f"{key}: {text!r} uses the unknown name {name!r}: {advice}", key)
        if is_condition and not expression.is_condition:
            self.fail(f"{key}: {text!r} is a number: write a condition such as 'K % 16 == 0'", key)
        if expression.is_condition and not is_condition:
            self.fail(f"{key}: {text!r} is a condition: write a number", key)
        return text

    def items(self, key: str, types: Any, min_length: int = 1) -> list[Any]:
        values = self.data[key]
        if not isinstance(values, list | tuple):
            self.wrong_type(key)
        for value in values:
            if isinstance(value, bool) or not isinstance(value, types):
                self.fail(f"{key} holds {_kind(value)}: it takes {KEYS[key]}", key)
        if len(values) < min_length:
            self.fail(f"{key} is empty: it takes {KEYS[key]}", key)
        return list(values)

    def parameters(
        self,
    ) -> tuple[tuple[tuple[str, int], ...], tuple[tuple[str, PerBackend[int]], ...]]:
        """``params`` and ``sweep``, each sorted by name."""
        params, sweep = self._table("params"), self._table("sweep")
        for key, table in (("params", params), ("sweep", sweep)):
            for name in table:
                self._check_parameter_name(key, name)
                if key == "sweep" and name in params:
                    self.fail(f"{name} is in both params and sweep: keep one", key, name)
        for name, value in params.items():
            self._check_integer(value, "params", name)
        swept = {name: self._swept(name, value) for name, value in sweep.items()}
        return tuple(sorted(params.items())), tuple(sorted(swept.items()))

    def _table(self, key: str) -> Mapping[str, Any]:
        table = self.data.get(key, {})
        if not isinstance(table, Mapping):
            self.wrong_type(key)
        return table

    def _check_parameter_name(self, key: str, name: object) -> None:
        if not isinstance(name, str) or not _IDENTIFIER.fullmatch(name):
            self.fail(f"{key}: {short(name)} cannot name a parameter: use letters, digits, _", key)
        if name in _PROBLEM_NAMES:
            self.fail(
                f"{key}.{name} hides the problem's own {name}: call the parameter otherwise",
                key,
                name,
            )
        if name in RESERVED or keyword.iskeyword(name) or _CPP_WORD.fullmatch(name) or "__" in name:
            self.fail(f"{key}.{name} is a reserved word: call the parameter otherwise", key, name)

    def _check_integer(self, value: object, *keys: str) -> None:
        if isinstance(value, bool) or not isinstance(value, int):
            self.fail(f"{'.'.join(keys)} holds {_kind(value)}: a parameter is an integer", *keys)
        if not -(2**31) <= value < 2**31:
            self.fail(f"{'.'.join(keys)} does not fit into 32 bits: {short(value)}", *keys)

    def _swept(self, name: str, value: object) -> PerBackend[int]:
        if isinstance(value, Mapping):
            lists = self._per_backend("sweep", value, name)
            if missing := [backend for backend in BACKENDS if backend not in lists]:
                self.fail(f"sweep.{name} lacks {missing[0]}: give host and cuda", "sweep", name)
        else:
            lists = dict.fromkeys(BACKENDS, value)
        for backend, values in lists.items():
            keys = ("sweep", name, backend) if isinstance(value, Mapping) else ("sweep", name)
            title = ".".join(keys)
            if not isinstance(values, list | tuple):
                self.fail(f"{title} is {_kind(values)}: it takes a list such as [8, 16]", *keys)
            if not values:
                self.fail(f"{title} is empty: it takes a list such as [8, 16]", *keys)
            for item in values:
                self._check_integer(item, *keys)
            self._check_unique(title, values, *keys)
        return PerBackend(**{backend: tuple(values) for backend, values in lists.items()})

    def _per_backend(self, key: str, table: Mapping[Any, Any], *inner: str) -> dict[str, Any]:
        for backend in table:
            if backend not in BACKENDS:
                title = ".".join((key, *inner))
                self.fail(
                    f"{title} has the key {short(backend)}: it takes host and cuda", key, *inner
                )
        return dict(table)

    def _check_unique(self, title: str, values: Sequence[object], *keys: str) -> None:
        seen = set()
        for value in values:
            if value in seen:
                self.fail(f"{title} holds {value} twice: drop one", *keys)
            seen.add(value)

    def sizes(self, op: str, dtype: str) -> PerBackend[str]:
        if "sizes" not in self.data:
            return PerBackend()
        value = self.data["sizes"]
        by_table = isinstance(value, Mapping)
        lists = self._per_backend("sizes", value) if by_table else dict.fromkeys(BACKENDS, value)
        result: dict[str, tuple[str, ...]] = {}
        for backend, values in lists.items():
            keys = ("sizes", backend) if by_table else ("sizes",)
            title = ".".join(keys)
            if not isinstance(values, list | tuple):
                self.fail(f"{title} is {_kind(values)}: it takes {KEYS['sizes']}", *keys)
            if not values:
                self.fail(f"{title} is empty: it takes {KEYS['sizes']}", *keys)
            for item in values:
                if isinstance(item, bool) or not isinstance(item, int | str):
                    self.fail(f"{title} holds {_kind(item)}: it takes {KEYS['sizes']}", *keys)
            problems = [self._problem(item, op, dtype, keys) for item in values]
            self._check_unique(title, [problem.id for problem in problems], *keys)
            result[backend] = tuple(str(item) for item in values)
        return PerBackend(**result)

    def _problem(self, text: int | str, op: str, dtype: str, keys: tuple[str, ...]) -> Problem:
        if len(str(text)) > 40:
            self.fail(f"{keys[0]}: {short(text)} is too long for a size", *keys)
        try:
            return Problem.parse(str(text), op, dtype)
        except ConfigError as error:
            self.fail(f"{keys[0]}: {error}", *keys)

    def margin(self) -> PerBackend[float]:
        """``margin`` as a fraction, of each back end that has one."""
        return PerBackend(
            **{
                backend: (self._margin(value, keys),)
                for keys, backends, value in self._parts("margin")
                for backend in backends
            }
        )

    def _margin(self, value: object, keys: tuple[str, ...]) -> float:
        percent = self._number(value, keys, zero=True)
        try:
            return margin_of_percent(percent)
        except ValueError as error:
            self.fail(f"{'.'.join(keys)} = {short(value)} cannot be: {error}", *keys)

    def limits(self, op: str, dtype: str, sizes: PerBackend[str]) -> PerBackend[Limit]:
        """The limits of each back end; those of a problem only where ``sizes`` has it."""
        found: dict[str, list[Limit]] = {backend: [] for backend in BACKENDS}
        for name in LIMITS:
            if op == "add" and name == "min_percent_of_cublas" and name in self.data:
                self.fail(f"{name} is for op = 'gemm': cuBLAS is no yardstick of an addition", name)
            for keys, backends, value in self._parts(name):
                if not isinstance(value, Mapping):
                    for backend in backends:
                        found[backend].append((name, "", self._number(value, keys)))
                    continue
                if not value:
                    self.fail(f"{'.'.join(keys)} is empty: it takes {KEYS[name]}", *keys)
                problems = [self._problem(text, op, dtype, keys).id for text in value]
                self._check_unique(".".join(keys), problems, *keys)
                for (text, limit), problem in zip(value.items(), problems, strict=True):
                    inner = (*keys, str(text))
                    own = [b for b in backends if problem in self._ids(sizes(b), op, dtype)]
                    if not own:
                        title = ".".join(keys)
                        self.fail(f"{title} has {text}, which sizes has not: add it there", *inner)
                    for backend in own:
                        found[backend].append((name, problem, self._number(limit, inner)))
        return PerBackend(**{backend: tuple(limits) for backend, limits in found.items()})

    def _ids(self, sizes: Sequence[str], op: str, dtype: str) -> set[str]:
        return {Problem.parse(size, op, dtype).id for size in sizes}

    def _parts(self, key: str) -> Iterator[tuple[tuple[str, ...], tuple[str, ...], Any]]:
        """Where each part of a value stands, the back ends that it is for, and the part."""
        value = self.data.get(key)
        if isinstance(value, Mapping) and not value:
            self.fail(f"{key} is empty: it takes {KEYS[key]}", key)
        for name in value if isinstance(value, Mapping) else ():
            close = get_close_matches(str(name).lower(), BACKENDS, 1)
            if close and name not in BACKENDS:
                self.fail(f"{key} has the key {short(name)}: did you mean {close[0]}?", key, name)
        if isinstance(value, Mapping) and set(value) & {*BACKENDS}:
            for backend, part in self._per_backend(key, value).items():
                yield (key, backend), (backend,), part
        elif key in self.data:
            yield (key,), BACKENDS, value

    def _number(self, value: object, keys: tuple[str, ...], *, zero: bool = False) -> float:
        title = ".".join(keys)
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.fail(f"{title} is {_kind(value)}: it takes {KEYS[keys[0]]}", *keys)
        if not 0 <= value < 2**53 or not (value or zero):
            least = "of at least" if zero else "above"
            self.fail(f"{title} = {short(value)} cannot be: it is a number {least} 0", *keys)
        return float(value)


def _kind(value: object) -> str:
    if isinstance(value, bool):
        return "a truth value"
    names = {str: "a text", int: "an integer", float: "a float", list: "a list", tuple: "a list"}
    if isinstance(value, Mapping):
        return "a table"
    title = names.get(type(value), f"a {type(value).__name__}")
    return f"the empty text {value!r}" if value == "" else title


def short(value: object) -> str:
    text = repr(value) if not isinstance(value, int) else str(value)
    return text if len(text) <= 40 else text[:36] + "...'"
