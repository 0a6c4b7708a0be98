"""What a kernel's author declares, and a kernel ready to be compiled and launched.

``KernelSpec`` is the author's declaration; ``Kernel`` is that declaration with every parameter
bound to a value. Both are plain data. Expressions are kept as text and evaluated per problem.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Container, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import product
from math import prod
from typing import Any, Generic, NamedTuple, NoReturn, TypeVar

from pytest_gemm.cuda_source import (
    Parameter,
    identifiers,
    integer_constants,
    integer_range,
    kind_of,
)
from pytest_gemm.errors import ConfigError, SpecError
from pytest_gemm.expressions import compile_expression
from pytest_gemm.frontmatter import strip_front_matter
from pytest_gemm.includes import unnumbered
from pytest_gemm.limits import Limits
from pytest_gemm.problem import BATCH, Problem
from pytest_gemm.slicing import device_part

BACKENDS = ("host", "cuda")
BUFFERS = ("A", "B", "C")
SCALARS = ("alpha", "beta")
LEADING_DIMENSIONS = ("lda", "ldb", "ldc")
STREAM = "stream"

MAX_THREADS = 1024
MAX_BLOCK = (1024, 1024, 64)
MAX_GRID = (2**31 - 1, 65535, 65535)
MAX_SHARED_MEM = 227 * 1024
"""Bytes of shared memory that a block can have (compute capability 9.0)."""
MAX_COMBINATIONS = 256
"""Most kernels that the sweeps of one declaration may make."""

Dim3 = tuple[int, int, int]
Limit = tuple[str, str, float]
"""The key that limits a kernel's time, the id of a problem (empty for every one), the limit."""
T = TypeVar("T")


@dataclass(frozen=True)
class PerBackend(Generic[T]):
    """A list that may differ between back ends; call it with the back end's name."""

    host: tuple[T, ...] = ()
    cuda: tuple[T, ...] = ()

    def __call__(self, backend: str) -> tuple[T, ...]:
        if backend not in BACKENDS:
            raise ConfigError(f"{backend!r} is no back end: {' or '.join(BACKENDS)}")
        return self.host if backend == "host" else self.cuda


class Launch(NamedTuple):
    """Grid and block in CUDA's (x, y, z) order, dynamic shared memory in bytes.

    ``different_barriers``: see ``KernelSpec``.
    """

    grid: Dim3
    block: Dim3
    shared_mem: int
    different_barriers: bool = False


class ProgramFields(NamedTuple):
    """What is compiled; the fields of ``backends.base.CudaProgram`` in its order."""

    source: str
    filename: str
    entry: str
    defines: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class _Common:
    """The fields that a declaration and the kernels bound from it share.

    ``path`` and ``line`` are where the kernel is declared; ``filename`` is the file with its
    source (another one where a sidecar declares it). ``source`` is complete: local includes are
    expanded, and ``#line`` directives name their files. ``args``, ``block``, ``grid``,
    ``shared_mem`` and ``requires`` hold expressions. ``callable`` is ``path::qualname`` of a
    Python kernel and empty for CUDA. From ``dtype`` to ``finite_c`` are the fields of
    ``Problem`` that a size does not say; ``leading`` holds expressions for those of lda, ldb and
    ldc that are declared. ``different_barriers``: threads of a block may pass one
    barrier at different lines. ``margin`` is a fraction where there is one, ``limits`` what the
    kernel must keep. ``lines`` are the lines of the keys, for errors.
    """

    name: str
    path: str = ""
    line: int = 0
    filename: str = ""
    source: str = ""
    entry: str = ""
    op: str = "gemm"
    args: tuple[str, ...] = ()
    block: tuple[str, ...] = ()
    grid: tuple[str, ...] = ()
    shared_mem: str = "0"
    params: tuple[tuple[str, int], ...] = ()
    requires: tuple[str, ...] = ()
    sizes: PerBackend[str] = PerBackend()
    dtype: str = "float32"
    out_dtype: str = ""
    acc_dtype: str = ""
    layout: str = "row-major"
    transa: str = "N"
    transb: str = "N"
    leading: tuple[tuple[str, str], ...] = ()
    alpha: float = 1.0
    beta: float = 0.0
    batch: int = 1
    reference: str = ""
    reference_reads_c: bool = False
    finite_c: bool = False
    derived_from: str = ""
    change: str = ""
    deterministic: bool = True
    different_barriers: bool = False
    margin: PerBackend[float] = PerBackend()
    limits: PerBackend[Limit] = PerBackend()
    launch_bounds: str = ""
    callable: str = ""
    lines: tuple[tuple[str, int], ...] = ()

    @property
    def is_python(self) -> bool:
        return bool(self.callable)

    @property
    def scalars(self) -> tuple[str, ...]:
        """Which of alpha and beta the kernel takes; without one it computes with 1 and 0."""
        return tuple(name for name in SCALARS if name in self.args)

    @property
    def uses_ld(self) -> tuple[str, ...]:
        """Which of lda, ldb and ldc the kernel is told."""
        texts = self._integer_arguments
        names = frozenset[str]().union(*(compile_expression(text).names for text in texts))
        return tuple(name for name in LEADING_DIMENSIONS if name in names)

    @property
    def uses_batch(self) -> tuple[str, ...]:
        """Which of batch, strideA, strideB and strideC the kernel or its grid depends on."""
        used = frozenset(self.args) if self.is_python else frozenset[str]()
        texts = (*self._integer_arguments, *self.block, *self.grid)
        used = used.union(*(compile_expression(text).names for text in texts))
        return tuple(name for name in BATCH if name in used)

    @property
    def _integer_arguments(self) -> tuple[str, ...]:
        return tuple(a for a in self.args if a not in (*BUFFERS, *SCALARS, STREAM))

    def fail(self, key: str, message: str) -> NoReturn:
        """Raise SpecError at the line of a key."""
        line = dict(self.lines).get(key, self.line)
        raise SpecError(f"{self._label}: {message}", path=self.path, line=line)

    @property
    def _label(self) -> str:
        return self.name


@dataclass(frozen=True)
class KernelSpec(_Common):
    """A kernel as its author declared it; ``sweep`` holds the values of each swept parameter."""

    signature: tuple[Parameter, ...] = ()
    sweep: tuple[tuple[str, PerBackend[int]], ...] = ()
    backends: tuple[str, ...] = BACKENDS

    def kernels(self, backend: str) -> tuple[Kernel, ...]:
        """One kernel for each combination of the swept parameters, values in declared order.

        Empty where the declaration is for another back end.
        """
        names = tuple(name for name, _ in self.sweep)
        choices = [values(backend) for _, values in self.sweep]
        code = device_part(self.source, self.filename)
        macros = macro_names(code, self.entry, {*names, *dict(self.params)})
        if backend not in self.backends:
            return ()
        shared = {
            field: getattr(self, field)
            for field in _Common.__dataclass_fields__
            if field not in ("params", "entry")
        }
        result = []
        for values in product(*choices):
            params = dict(self.params) | dict(zip(names, values, strict=True))
            result.append(
                Kernel(
                    **shared,
                    entry=substitute(self.entry, params),
                    params=tuple(sorted(params.items())),
                    swept=names,
                    defines=tuple(
                        (name, value)
                        for name, value in sorted(params.items())
                        if name in macros and not self.is_python
                    ),
                    arg_types=tuple(parameter.type for parameter in self.signature),
                )
            )
        return tuple(result)


@dataclass(frozen=True)
class Kernel(_Common):
    """One kernel that can be compiled and launched: see ``KernelSpec.kernels``.

    ``entry`` has its parameters substituted, ``defines`` are the macros (the other parameters
    that the source's code uses), ``swept`` the names of the parameters that tell it from its
    siblings, ``arg_types`` the C types of its parameters.
    """

    swept: tuple[str, ...] = ()
    defines: tuple[tuple[str, int], ...] = ()
    arg_types: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """``tiled``, or ``block_size[SIDE:16]`` with the swept parameters, sorted by name."""
        params = dict(self.params)
        swept = "+".join(f"{name}:{params[name]}" for name in self.swept)
        return f"{self.name}[{swept}]" if swept else self.name

    @property
    def _label(self) -> str:
        return self.id

    @property
    def program_fields(self) -> ProgramFields:
        """What is compiled (CUDA kernels)."""
        return ProgramFields(self.source, self.filename, self.entry, self.defines)

    @cached_property
    def code(self) -> str:
        """The source without its front matter: what a baseline stores and compares."""
        if self.is_python:
            return self.source
        return unnumbered(strip_front_matter(self.source), self.filename)

    @property
    def source_hash(self) -> str:
        """SHA-256 of all that makes another program or another launch.

        The front matter counts by what it says of these, so that a new ``sizes`` or ``change``
        leaves the hash as it is.
        """
        parts = (
            *(self.code, self.entry, self.params, self.args),
            *(self.block, self.grid, self.shared_mem),
        )
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    def problem(self, size: str) -> Problem:
        """The kernel's problem of that size, as it is timed. Raises ConfigError for no size."""
        return self.of_kind(Problem.parse(size, self.op, self.dtype))

    def of_kind(self, problem: Problem, free: Container[str] = ()) -> Problem:
        """A problem of the same sizes, with all else as the kernel is declared.

        Leading dimensions that are not declared, or are ``free``, stay as they are. One may be
        less than what it must span: see ``skip_reason``.
        """
        own = replace(
            problem,
            alpha=self.alpha,
            beta=self.beta,
            dtype=self.dtype,
            out_dtype=self.out_dtype,
            acc_dtype=self.acc_dtype,
            layout=self.layout,
            transa=self.transa,
            transb=self.transb,
            batch=self.batch,
            reference=self.reference,
            reference_reads_c=self.reference_reads_c,
            finite_c=self.finite_c,
        )
        values = self._values(own)
        for name, text in self.leading:
            if name in free:
                continue
            _, least = own.stored(name[2:].upper())
            ld = self._evaluate(name, text, values)
            own = replace(own, **dict[str, Any]({name: ld if ld != least else 0}))
        return own

    def launch(self, problem: Problem) -> Launch:
        """Grid, block and dynamic shared memory for a problem; all ones for a Python kernel.

        Raises SpecError, with the numbers, for what no GPU can launch.
        """
        values = self._values(problem)
        sizes = self._grid(values), self._block(values), self._shared_mem(values)
        return Launch(*sizes, self.different_barriers)

    def arguments(self, problem: Problem) -> tuple[str | int | float, ...]:
        """The kernel's arguments in order.

        Buffers (and a Python kernel's stream) as their names, alpha and beta as floats (as ints
        where C holds integers), the rest as ints. Raises SpecError for an integer that its C type
        cannot hold.
        """
        values = self._values(problem)
        scalars: dict[str, int | float] = {"alpha": problem.alpha, "beta": problem.beta}
        if problem.types["C"].is_integer:
            scalars = {name: int(value) for name, value in scalars.items()}
        result: list[str | int | float] = []
        for index, arg in enumerate(self.args):
            if arg in (*BUFFERS, STREAM):
                result.append(arg)
            elif arg in scalars:
                result.append(scalars[arg])
            else:
                value = self._evaluate("args", arg, values)
                type_ = self.arg_types[index] if self.arg_types else ""
                low, high = integer_range(type_)
                if kind_of(type_) == "integer" and not low <= value <= high:
                    self.fail("args", f"{arg} = {value} does not fit into {type_} ({problem.id})")
                result.append(value)
        return tuple(result)

    def skip_reason(self, problem: Problem) -> str:
        """Why the kernel is not for a problem, or an empty text.

        The first ``requires`` condition that it does not meet, or a leading dimension that is less
        than what it must span.
        """
        values = self._values(problem)
        for name in BUFFERS:
            (_, least), ld = problem.stored(name), problem.ld(name)
            if ld < least:
                return f"ld{name.lower()} = {ld} is less than {least}"
        for condition in self.requires:
            if not self._evaluate("requires", condition, values):
                return f"requires {condition}"
        return ""

    def margin_on(self, backend: str) -> float | None:
        """The slowdown that the author tolerates, a fraction; None where that is not said."""
        return next(iter(self.margin(backend)), None)

    def limits_on(self, backend: str, problem: Problem) -> Limits:
        """What the author demands on a problem."""
        own = self.limits(backend)
        return Limits(**{name: value for name, of, value in own if of in ("", problem.id)})

    def check(self) -> None:
        """Raise SpecError for a launch that is wrong whatever the problem."""
        values = dict(self.params)
        if _names(self.block) <= values.keys():
            self._block(values)
        if _names(self.grid) <= values.keys():
            self._grid(values)
        if _names((self.shared_mem,)) <= values.keys():
            self._shared_mem(values)

    def to_dict(self) -> dict[str, Any]:
        """Plain dicts, tuples, strings and numbers, ready for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Kernel:
        """The kernel that ``to_dict`` described, also after a trip through JSON."""
        fields = {key: _tuples(value) for key, value in data.items()}
        for field in ("sizes", "margin", "limits"):
            values = {backend: _tuples(own) for backend, own in data[field].items()}
            fields[field] = PerBackend(**values)
        return cls(**fields)

    def _values(self, problem: Problem) -> dict[str, int]:
        return problem.sizes | dict(self.params)

    def _evaluate(self, key: str, text: str, values: Mapping[str, int]) -> int:
        try:
            return compile_expression(text).evaluate(values)
        except SpecError as error:
            self.fail(key, f"{key}: {error.message}")

    def _dim3(self, key: str, texts: Iterable[str], values: Mapping[str, int]) -> Dim3:
        x, y, z = ([self._evaluate(key, text, values) for text in texts] + [1, 1, 1])[:3]
        if min(x, y, z) < 1:
            self.fail(key, f"the {key} ({x}, {y}, {z}) has an entry below 1")
        return x, y, z

    def _block(self, values: Mapping[str, int]) -> Dim3:
        block = self._dim3("block", self.block, values)
        threads = prod(block)
        if threads > MAX_THREADS:
            sides = " x ".join(map(str, block))
            self.fail("block", f"a block of {sides} = {threads} threads exceeds {MAX_THREADS}")
        if block[2] > MAX_BLOCK[2]:
            self.fail("block", f"the block's z = {block[2]} exceeds {MAX_BLOCK[2]}")
        bound = self._launch_bound
        if bound and threads > bound:
            self.fail("block", f"a block of {threads} threads exceeds __launch_bounds__({bound})")
        return block

    def _grid(self, values: Mapping[str, int]) -> Dim3:
        grid = self._dim3("grid", self.grid, values)
        for axis, size, limit in zip("xyz", grid, MAX_GRID, strict=True):
            if size > limit:
                self.fail("grid", f"the grid's {axis} = {size} exceeds {limit} (grid {grid})")
        return grid

    def _shared_mem(self, values: Mapping[str, int]) -> int:
        size = self._evaluate("shared_mem", self.shared_mem, values)
        if not 0 <= size <= MAX_SHARED_MEM:
            self.fail("shared_mem", f"shared_mem = {size} bytes is not within 0..{MAX_SHARED_MEM}")
        return size

    @cached_property
    def _launch_bound(self) -> int:
        """The most threads that the source promises, or 0 where only a compiler can tell."""
        first = self.launch_bounds.partition(",")[0]
        known = dict(self.params)  # as macros, they stand before the file's own constants
        texts = {**integer_constants(self.source), "": first} if first else {}
        for name, text in texts.items():
            if name not in known:
                with suppress(SpecError):
                    known[name] = compile_expression(text.replace("/", "//")).evaluate(known)
        return known.get("", 0)


def macro_names(source: str, entry: str, params: Iterable[str]) -> frozenset[str]:
    """The parameters that become ``-D`` macros: in the source's code and not in the entry."""
    return (frozenset(params) - entry_names(entry)) & identifiers(source)


def entry_names(entry: str) -> frozenset[str]:
    """The identifiers among an entry's template arguments."""
    return frozenset(re.findall(r"\b[A-Za-z_]\w*", entry.partition("<")[2]))


def substitute(entry: str, params: Mapping[str, int]) -> str:
    """``gemm<BM, 8>`` with the parameters' values, whole identifiers only."""
    name, bracket, rest = entry.partition("<")
    values = re.sub(r"\b[A-Za-z_]\w*", lambda m: str(params.get(m[0], m[0])), rest)
    return name + bracket + values


def _names(texts: Iterable[str]) -> frozenset[str]:
    return frozenset[str]().union(*(compile_expression(text).names for text in texts))


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list | tuple) else value
