"""What is tried, the likeliest first: values of what is fixed when compiling, and blocks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product
from math import prod

from pytest_gemm.adopt.kinds import ELEMENTS
from pytest_gemm.adopt.launches import LaunchCode
from pytest_gemm.adopt.source import Source
from pytest_gemm.errors import SpecError
from pytest_gemm.expressions import compile_expression
from pytest_gemm.kernelspec import MAX_THREADS

ONE_VALUE = (16, 32, 8, 64, 4)
"""What is tried for a parameter whose name says nothing."""

BLOCK_SIZES = ((64, 8, 8), (128, 8, 8), (64, 16, 4), (32, 8, 4), (128, 16, 8), (32, 32, 2))
"""(side, depth, side per thread) of tiles that published kernels have."""


_TRUTH = {"true": "1", "false": "0"}


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

    def with_macro(self, name: str, value: int) -> Variant:
        return replace(self, params=tuple(sorted({**self.values, name: value}.items())))


def variants(source: Source) -> Iterator[Variant]:
    """What the launches in the file say, then what is usual."""
    template = source.function.template
    plain = "" if source.is_only else source.function.name
    if not template:
        yield from (Variant(plain, (), launch) for launch in source.launches[:4])
        if not source.launches:
            yield Variant(plain)
        return
    names = [parameter.name for parameter in template]
    integers = [name for name in names if name not in source.types]
    found: dict[object, Variant] = {}
    for launch in source.launches:
        known, types = _launched_params(launch, names, integers), _launched_types(launch, names)
        # A launcher may be a template itself: what it leaves open gets usual values.
        complete = len(known) == len(integers)
        for values in [known] if complete else _usual(source, integers):
            variant = _instance(source, names, {**values, **known}, launch, types)
            found.setdefault((variant.entry, variant.params), variant)
    if not found:
        for values in _usual(source, integers):
            variant = _instance(source, names, values, None, ())
            found[variant.entry, variant.params] = variant
    fitting = [v for v in found.values() if v.launch is None or _has_block(source, v)]
    yield from fitting or found.values()


def _has_block(source: Source, variant: Variant) -> bool:
    """Whether the launch's block is one that a device takes."""
    assert variant.launch is not None
    texts = launch_texts(source, variant, variant.launch.block)
    return prod(number_of(text, variant.values) or 1 for text in texts) <= MAX_THREADS


def _instance(
    source: Source,
    names: Sequence[str],
    values: Mapping[str, int],
    launch: LaunchCode | None,
    types: tuple[tuple[str, str], ...],
) -> Variant:
    """A template with values for its parameters; types that are not known are float."""
    known = {name: "float" for name in names if name in source.types} | dict(types)
    given = ", ".join(known.get(name, name) for name in names)
    entry = f"{source.function.name}<{given}>"
    return Variant(entry, tuple(sorted(values.items())), launch, tuple(sorted(known.items())))


def _launched_types(launch: LaunchCode, names: Sequence[str]) -> tuple[tuple[str, str], ...]:
    found = []
    for name, tokens in zip(names, launch.template or (), strict=False):
        text = " ".join(launch.host.code.texts[at] for at in tokens)
        if text in ELEMENTS:
            found.append((name, text))
    return tuple(found)


def _launched_params(
    launch: LaunchCode, names: Sequence[str], integers: Sequence[str]
) -> dict[str, int]:
    """The values of a launch's template arguments, as far as the file says."""
    found: dict[str, int] = {}
    for name, tokens in zip(names, launch.template or (), strict=False):
        if name in integers:
            value = number_of(launch.host.text(tokens, _TRUTH.get), {})
            if value is not None:
                found[name] = value
    return found


def _usual(source: Source, names: Sequence[str]) -> Iterator[dict[str, int]]:
    """Values that published kernels have; defaults, and every combination of truth values."""
    flags = [name for name in names if name in source.flags]
    sizes = [name for name in names if name not in source.flags]
    for values in _usual_sizes(sizes):
        for chosen in product((0, 1), repeat=len(flags)):
            yield values | source.defaults | dict(zip(flags, chosen, strict=True))


def _usual_sizes(names: Sequence[str]) -> Iterator[dict[str, int]]:
    if not names:
        yield {}
        return
    if len(names) < 2:
        yield from (dict.fromkeys(names, value) for value in ONE_VALUE)
        return
    for side, depth, per_thread in BLOCK_SIZES:
        yield {name: _size(name, side, depth, per_thread) for name in names}
    yield from (dict.fromkeys(names, value) for value in ONE_VALUE[:2])


def _size(name: str, side: int, depth: int, per_thread: int) -> int:
    if re.match(r"t|.*per_?thread|wpt|.*wpt", name, re.IGNORECASE) and not name.lower().startswith(
        "tile"
    ):
        return per_thread
    return depth if name.lower().endswith("k") else side


def number_of(text: str | None, values: Mapping[str, int]) -> int | None:
    """The value of an expression, where the names in it are known."""
    if text is None:
        return None
    with suppress(SpecError):
        return int(compile_expression(text).evaluate(values))
    return None


def resolver(source: Source, variant: Variant) -> dict[str, str]:
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


def launch_texts(source: Source, variant: Variant, tokens: Iterable[range]) -> list[str | None]:
    """Expressions of the launch code as those of a declaration."""
    known = resolver(source, variant)
    assert variant.launch is not None
    host = variant.launch.host
    return [host.text(part, known.get) for part in tokens]


def blocks(source: Source, variant: Variant) -> list[tuple[str, ...]]:
    """Blocks to try: that of the launch code, those that constants suggest, usual ones."""
    found: list[tuple[str, ...]] = []

    def add(*sides: str | int | None) -> None:
        texts = tuple(str(side) for side in sides)
        while len(texts) > 1 and texts[-1] == "1":
            texts = texts[:-1]
        numbers = [number_of(text, variant.values) for text in texts]
        threads = 1
        for number in numbers:
            threads *= number or 0
        if 0 < threads <= MAX_THREADS and texts not in found:
            found.append(texts)

    if variant.launch is not None:
        add(*launch_texts(source, variant, variant.launch.block))
    # What is fixed in the code says more than what is usual; larger ones are numbers of threads.
    sides = sorted({*variant.values.values(), *_used(source).values()} & {*range(4, 65)})
    bound = number_of(source.function.launch_bounds.partition(",")[0], _used(source))
    flat = [bound] if bound else []
    flat += _thread_counts(variant.values or _used(source))
    flat += [side * side for side in sides] + sides
    if source.is_flat:
        # Fragments belong to a warp, of which one alone is enough.
        usual = (32, 64, 128, 256) if "wmma" in source.words else (256, 128, 64, 32, 1024, 512)
        for count in (*flat, *usual):
            add(count)
    for side in reversed(sides):
        add(side, side)
    for x, y in _thread_tiles(variant.values or _used(source)):
        add(x, y)
    for x, y in ((16, 16), (32, 32), (8, 8), (32, 8), (32, 4), (16, 8), (8, 32)):
        add(x, y)
    for side in reversed(sides):
        for part in (2, 4, 8):
            if side % part == 0 and side > part:
                add(side, side // part)
                add(side // part, side // part)
    if not source.is_flat:
        for count in (*flat, 256, 64):
            add(count)
    return found[:3] if source.is_free else found


def _used(source: Source) -> dict[str, int]:
    """Constants of the file that its device part uses."""
    return {name: value for name, value in source.constants.items() if name in source.words}


def _sides(values: Mapping[str, int]) -> tuple[list[int], list[int]]:
    """The sides of a tile, and those of a thread's part of it, as names tell."""
    by_name = {name.lower(): value for name, value in values.items() if value > 0}
    sides = [v for n, v in by_name.items() if not n.startswith(("t", "w")) and not n.endswith("k")]
    parts = [v for n, v in by_name.items() if n.startswith("t") and not n.startswith("tile")]
    return sides, parts


def _thread_tiles(values: Mapping[str, int]) -> list[tuple[int, int]]:
    """Blocks of two dimensions for tiles of which each thread has a part."""
    sides, parts = _sides(values)
    lengths = [side // part for side in sides for part in parts if side % part == 0]
    lengths = list(dict.fromkeys(lengths))[:3]
    return [(x, y) for x in lengths for y in lengths]


def _thread_counts(values: Mapping[str, int]) -> list[int]:
    """Threads of a tile whose sides, and whose part of a thread, are among the values."""
    sides, parts = _sides(values)
    found = []
    for a in sides:
        for b in sides:
            per_thread = 1
            for part in parts:
                per_thread *= part
            if a * b % per_thread == 0:
                found.append(a * b // per_thread)
    return list(dict.fromkeys(count for count in found if 0 < count <= MAX_THREADS))
