"""Values of what is fixed when a kernel is compiled, and the launch code in their words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from pytest_gemm.adopt.launches import LaunchCode
from pytest_gemm.adopt.source import Source
from pytest_gemm.errors import SpecError
from pytest_gemm.expressions import compile_expression


@dataclass(frozen=True)
class Variant:
    """Values of what is fixed when a kernel is compiled; ``launch`` is where they stand, if any.

    ``types`` are those of the template parameters that are types.
    """

    entry: str
    params: tuple[tuple[str, int], ...] = ()
    launch: LaunchCode | None = None
    types: tuple[tuple[str, str], ...] = ()

    @property
    def values(self) -> dict[str, int]:
        return dict(self.params)

    def title(self, source: Source) -> str:
        """The kernel and its values, for people."""
        values = ", ".join(f"{name} = {value}" for name, value in self.params)
        return source.function.name + (f" with {values}" if values else "")

    def with_macro(self, name: str, value: int) -> Variant:
        return replace(self, params=tuple(sorted({**self.values, name: value}.items())))


def number_of(text: str | None, values: Mapping[str, int]) -> int | None:
    """The value of an expression, where the names in it are known."""
    if text is None:
        return None
    with suppress(SpecError):
        return int(compile_expression(text).evaluate(values))
    return None


def launch_texts(source: Source, variant: Variant, tokens: Iterable[range]) -> list[str | None]:
    """Expressions of the launch code as those of a declaration."""
    known = _resolver(source, variant)
    launch = variant.launch
    return [launch.host.text(part, known.get) for part in tokens] if launch else []


def hinted_grid(source: Source, variant: Variant, args: Sequence[str]) -> tuple[str, ...]:
    """The grid of the launch code, its variables by what the arguments mean; empty if unclear."""
    found: list[str] = []
    for text in launch_texts(source, variant, variant.launch.grid if variant.launch else ()):
        if text is None:
            return ()
        found.append(by_meaning(text, args))
    while len(found) > 1 and found[-1] == "1":
        found.pop()
    return tuple(found)


def by_meaning(text: str, args: Sequence[str]) -> str:
    """An expression of the launch code with what each argument means for its name."""

    def meant(match: re.Match[str]) -> str:
        role = args[int(match[1])]
        return role if role.isalnum() else f"({role})"

    return re.sub(r"\barg(\d+)\b", meant, text).replace("((M * N),", "(M * N,")


def _resolver(source: Source, variant: Variant) -> dict[str, str]:
    """What names in the launch code stand for in a declaration: parameters, and arguments.

    An integer argument at position i is written ``arg<i>`` until it is known what it means.
    """
    launch = variant.launch
    if launch is None:
        return {}
    known = {name: name for name in variant.values}
    template = source.function.template or ()
    for parameter, tokens in zip(template, launch.template or (), strict=False):
        texts = [launch.host.code.texts[at] for at in tokens]
        if len(texts) == 1 and parameter.name in variant.values and not texts[0].isdecimal():
            known[texts[0]] = parameter.name
    for position, name in enumerate(launch.names()):
        if name and position in source.signature.integers:
            known.setdefault(name, f"arg{position}")
    return known
