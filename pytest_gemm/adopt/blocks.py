"""Blocks to try, the likeliest first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod

from pytest_gemm.adopt.source import Source
from pytest_gemm.adopt.variant import Variant, launch_texts, number_of
from pytest_gemm.kernelspec import MAX_THREADS

PAIRS = ((16, 16), (32, 32), (8, 8), (32, 8), (32, 4), (16, 8), (8, 32))
COUNTS = (256, 128, 64, 32, 1024, 512)
MOST_ALIKE = 3
"""How many are tried where one does as well as another."""

WARPS = (32, 64, 128, 256)
"""For fragments, which belong to a warp: one alone is enough."""


def blocks(source: Source, variant: Variant) -> list[tuple[str, ...]]:
    """That of the launch code, those that constants suggest, then usual ones."""
    found = _Blocks(variant.values)
    if variant.launch is not None:
        found.add(*launch_texts(source, variant, variant.launch.block))
    constants = _used(source)
    values = variant.values or constants
    # Larger constants are numbers of threads or of elements.
    sides = sorted({*variant.values.values(), *constants.values()} & {*range(4, 65)}, reverse=True)
    bound = number_of(source.function.launch_bounds.partition(",")[0], constants)
    counts = [bound] if bound else []
    counts += [*_thread_counts(values), *(side * side for side in sides), *sides]
    if source.is_flat:
        counts += WARPS if "wmma" in source.words else COUNTS
        found.add_each((count,) for count in counts)
    found.add_each((side, side) for side in sides)
    found.add_each(_thread_tiles(values))
    found.add_each(PAIRS)
    for side in sides:
        parts = [side // part for part in (2, 4, 8) if side % part == 0 and side > part]
        found.add_each(block for part in parts for block in ((side, part), (part, part)))
    if not source.is_flat:
        found.add_each((count,) for count in (*counts, *COUNTS[:1]))
    return found.texts[:MOST_ALIKE] if source.is_free else found.texts


class _Blocks:
    """Blocks that a device takes, each once."""

    def __init__(self, values: Mapping[str, int]) -> None:
        self._values = values
        self.texts: list[tuple[str, ...]] = []

    def add(self, *sides: str | int | None) -> None:
        texts = tuple(str(side) for side in sides)
        while len(texts) > 1 and texts[-1] == "1":
            texts = texts[:-1]
        threads = prod(number_of(text, self._values) or 0 for text in texts)
        if 0 < threads <= MAX_THREADS and texts not in self.texts:
            self.texts.append(texts)

    def add_each(self, blocks: Iterable[tuple[int, ...]]) -> None:
        for block in blocks:
            self.add(*block)


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
    """Threads of a tile of which each has a part."""
    sides, parts = _sides(values)
    per_thread = prod(parts)
    return [a * b // per_thread for a in sides for b in sides if a * b % per_thread == 0]
