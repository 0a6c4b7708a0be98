"""A file that is to be adopted: its kernel, its host code, and what they say of constants."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path

from pytest_gemm.adopt.launches import LaunchCode, find_launches, launches_of
from pytest_gemm.adopt.signature import Signature, read_signature, struct_names, type_parameters
from pytest_gemm.cuda_items import Code, Item, Unbalanced
from pytest_gemm.cuda_source import (
    Function,
    blank,
    find_kernels,
    identifiers,
    integer_constants,
    locate,
)
from pytest_gemm.errors import ConfigError, SpecError
from pytest_gemm.expressions import compile_expression
from pytest_gemm.includes import expand, read_text
from pytest_gemm.schema import NAME
from pytest_gemm.slicing import device_part, slice_source

_TOGETHER = re.compile(r"__shared__|__sync|__shfl|__ballot|__all|__any|__reduce|atomic|cooperative")
_TEMPLATES = {(">", "class"), (">", "typename")}
TRUTH = {"true": "1", "false": "0"}


@dataclass(frozen=True)
class Source:
    """``text`` has its includes expanded; ``code`` is the whole of it, host code included.

    ``launches`` are those of the kernel, in the order of the file; ``is_only`` says whether it is
    the file's only kernel, declarations included.
    """

    path: Path
    shown: str
    text: str
    code: Code
    function: Function
    signature: Signature
    launches: tuple[LaunchCode, ...]
    is_only: bool

    @cached_property
    def name(self) -> str:
        """What the kernel is to be called: empty for the file's name, unless that can name none."""
        return "" if NAME.fullmatch(self.path.stem) else self.function.unqualified

    @cached_property
    def device(self) -> str:
        """The part that is compiled."""
        return device_part(self.text, self.shown)

    @cached_property
    def words(self) -> frozenset[str]:
        """Every word of the device part, less the other kernels."""
        return identifiers(self._own)

    @cached_property
    def _own(self) -> str:
        """The device part without the other kernels, which tell nothing of this one."""
        code = Code(self.device)
        text = self.device
        for item in _kernels(code):
            if code.name(item) != self.function.unqualified:
                start, end = code.tokens[item.first].start, code.tokens[item.last].end
                text = text[:start] + blank(text[start:end]) + text[end:]
        return text

    @cached_property
    def used(self) -> frozenset[str]:
        """The words in the kernel's body."""
        return self.code.words(self._body) if self._body else self.words

    def uses(self, position: int) -> bool:
        """Whether the kernel's body names a parameter."""
        return self.signature.names[position] in self.used

    def place_of(self, *names: str) -> str:
        """File and line of the first assignment in the kernel's body of what has all these names.

        Empty where there is none.
        """
        value: list[int] = []
        for at in self._body:
            if self.code.texts[at] in (";", "{", "}"):
                if self.code.words(value).issuperset(names):
                    last = max(i for i in value if self.code.texts[i] in names)
                    above = self.text.count("\n", 0, self.code.tokens[last].start)
                    file, line = locate(self.text, above + 1)
                    return f"{file or self.shown}:{line}"
                value = []
            elif value or self.code.texts[at] == "=":
                value.append(at)
        return ""

    @cached_property
    def constants(self) -> dict[str, int]:
        """The values of ``#define`` and ``const`` integers."""
        known: dict[str, int] = {}
        for name, text in integer_constants(self.text).items():
            with suppress(SpecError):
                known[name] = compile_expression(text.replace("/", "//")).evaluate(known)
        return known

    @cached_property
    def types(self) -> frozenset[str]:
        """The kernel's template parameters that are types."""
        return type_parameters(self.function, self.code)

    @cached_property
    def templates(self) -> frozenset[str]:
        """The kernel's template parameters that are templates."""
        texts = self.code.texts
        triples = zip(texts, texts[1:], texts[2:], strict=False)
        return frozenset(c for a, b, c in triples if (a, b) in _TEMPLATES and c in self.types)

    @cached_property
    def structs(self) -> frozenset[str]:
        """The names of the structs and classes that the file declares."""
        return struct_names(self.code)

    @cached_property
    def enumerations(self) -> Mapping[str, str]:
        """The kernel's template parameters of types that the file declares, with these types."""
        names = {parameter.name for parameter in self.function.template or ()}
        pairs = pairwise(self.code.texts)
        return {name: type_ for type_, name in pairs if name in names and type_ in self._declared}

    @cached_property
    def _declared(self) -> frozenset[str]:
        """``enum class X``, ``enum X``."""
        texts = self.code.texts
        found = set()
        for at, text in enumerate(texts):
            if text == "enum":
                found.add(texts[at + 1 + (self.code.text(at + 1) in ("class", "struct"))])
        return frozenset(found)

    @cached_property
    def has_dynamic_shared_memory(self) -> bool:
        return any(
            text == "extern" and "__shared__" in self._texts[at : at + 3]
            for at, text in enumerate(self._texts)
        )

    @cached_property
    def is_flat(self) -> bool:
        """Whether blocks have one dimension: nothing reads ``threadIdx.y``."""
        code = " ".join(self._texts)
        return not re.search(r"\bthread(?:Idx|_index \( \)) \. y\b", code)

    @cached_property
    def is_free(self) -> bool:
        """Whether one block does as well as another: threads neither share nor wait."""
        return "blockDim" in self.words and not any(map(_TOGETHER.match, self.words))

    @cached_property
    def flags(self) -> frozenset[str]:
        """The kernel's template parameters that are truth values."""
        names = {parameter.name for parameter in self.function.template or ()}
        pairs = pairwise(self.code.texts)
        return frozenset(name for type_, name in pairs if type_ == "bool" and name in names)

    @cached_property
    def defaults(self) -> dict[str, int]:
        """The numbers and truth values that the kernel's template parameters are by default."""
        names = [parameter.name for parameter in self.function.template or ()]
        texts = self.code.texts
        return {
            name: int(TRUTH.get(value, value))
            for name, equals, value in zip(texts, texts[1:], texts[2:], strict=False)
            if name in names and equals == "=" and (value.isdecimal() or value in TRUTH)
        }

    @cached_property
    def has_loops(self) -> bool:
        return bool({"for", "while"} & self.words)

    @cached_property
    def grid_strides(self) -> int:
        """Along how many axes blocks go on by the size of the grid; 0 where they do not."""
        code = " ".join(self._texts)
        return len({axis for axis in "xyz" if f"gridDim . {axis}" in code})

    @cached_property
    def has_layers(self) -> bool:
        """Whether blocks are told apart by z, as those of a batch are."""
        return "blockIdx . z" in " ".join(self._texts)

    @cached_property
    def _body(self) -> range:
        """The tokens of the kernel's body, from its brace on; none where it is not to be found."""
        for item in _kernels(self.code):
            if self.code.name(item) == self.function.unqualified:
                return range(item.body, self.code.closers[item.body])
        return range(0)

    @cached_property
    def _texts(self) -> list[str]:
        return Code(self._own).texts


def _kernels(code: Code) -> Iterator[Item]:
    """Each kernel with a body, from its mark on."""
    marks = {name for name, body in code.macros.items() if "__global__" in body and "{" not in body}
    for first, text in enumerate(code.texts):
        if text in {"__global__", *marks}:
            item = code.item(first, len(code.tokens))
            if item.body >= 0:
                yield item


def read_source(path: Path, entry: str = "") -> Source:
    """Read a file and choose its kernel.

    Raises ConfigError where ``entry`` must be given, or names none, and SpecError for a file that
    cannot be read and a kernel that no declaration can launch.
    """
    shown = path.as_posix()
    text = expand(read_text(path, shown), path, shown)
    device = device_part(text, shown)
    every = find_kernels(text)
    kernels = [kernel for kernel in every if kernel.is_definition]
    code = _code(text, device, shown)
    launches = tuple(find_launches(code, text))
    function = _chosen(kernels, launches, entry, shown, code)
    signature = read_signature(function, code, shown)
    _check_libraries(function, text, shown)
    return Source(
        path,
        shown,
        text,
        code,
        function,
        signature,
        tuple(launches_of(function.name, launches)),
        len(every) == 1,
    )


def _code(text: str, device: str, shown: str) -> Code:
    """The whole file, or the device part where that is all that can be read. Raises SpecError."""
    with suppress(Unbalanced):
        return Code(text)
    try:
        return Code(device)
    except Unbalanced as error:
        file, line = locate(device, device.count("\n", 0, error.position) + 1)
        raise SpecError(f"{error}: mend the brackets", path=file or shown, line=line) from None


def _check_libraries(function: Function, text: str, shown: str) -> None:
    own = slice_source(text, shown).host_names.get(function.unqualified)
    if own and own.library:
        raise SpecError(
            f"{function.name} uses {own.library} of a host library, which is not compiled here: "
            "give it types of C++ or CUDA",
            path=function.file or shown,
            line=function.line,
        )


def _chosen(
    kernels: list[Function],
    launches: tuple[LaunchCode, ...],
    entry: str,
    shown: str,
    code: Code,
) -> Function:
    names = ", ".join(kernel.name for kernel in kernels)
    if not kernels:
        made = [name for name, body in code.macros.items() if "__global__" in body]
        why = f"the macro {made[0]} makes some: write one out" if made else "there is no kernel"
        raise ConfigError(f"{shown} has no __global__ function with a body: {why}")
    if entry:
        own = [k for k in kernels if entry in (k.name, k.unqualified)]
        if not own:
            raise ConfigError(f"--entry {entry}: {shown} has the kernels {names}")
        return own[0]
    if len(kernels) > 1:
        launched = [kernel for kernel in kernels if launches_of(kernel.name, launches)]
        if len(launched) != 1:
            raise ConfigError(f"{shown} has several kernels: choose one with --entry: {names}")
        return launched[0]
    return kernels[0]
