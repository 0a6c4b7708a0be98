"""Grids that may cover C: measured, in the launch code's words where these say the same."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pytest_gemm.adopt import tiling
from pytest_gemm.adopt.found import Found
from pytest_gemm.adopt.prober import Prober
from pytest_gemm.adopt.source import Source
from pytest_gemm.adopt.variant import Variant, hinted_grid, number_of

AXES = 3

_ELSEWHERE = {"M": 1000, "N": 771, "K": 513}
"""Sizes for which two expressions that mean different things differ."""


def grids(source: Source, prober: Prober, found: Found) -> Iterator[tuple[str, ...]]:
    """For a reading of one block, the likeliest first.

    Where one block alone is wrong, all together may be right: with the launch's grid.
    """
    hint = hinted_grid(source, found.variant, found.reading.args)
    if len(hint) == AXES:
        yield hint  # what lies along z, such as parts of K, is not to be seen
    if found.attempt.is_right:
        values = {**found.problem.sizes, **found.variant.values}
        strides = source.grid_strides
        for grid in tiling.grids(prober, found.reading, found.problem, strides=strides):
            yield _in_words(grid, hint, found.variant, values)
    if hint:
        yield hint
    if found.attempt.is_right:
        yield usual(found)  # where the first block does not write the first tile


def usual(found: Found) -> tuple[str, ...]:
    """A thread for each element of C."""
    sides = [number_of(text, found.variant.values) or 1 for text in found.reading.block]
    if len(sides) == 1:
        return (f"cdiv(M * N, {sides[0]})",)
    return f"cdiv(N, {sides[0]})", f"cdiv(M, {sides[1]})"


def _in_words(
    grid: tuple[str, ...], hint: tuple[str, ...], variant: Variant, values: dict[str, int]
) -> tuple[str, ...]:
    """The grid with parameters for numbers: as in the launch code, else where one has the value."""
    if len(hint) == len(grid) and any(name in " ".join(hint) for name in variant.values):
        known = (values, {**values, **_ELSEWHERE})
        pairs = [(a, b, v) for a, b in zip(grid, hint, strict=True) for v in known]
        if all(number_of(a, v) == number_of(b, v) for a, b, v in pairs):
            return hint
    return tuple(_with_parameter(text, variant) for text in grid)


def _with_parameter(text: str, variant: Variant) -> str:
    def named(match: re.Match[str]) -> str:
        size, number = match[1], int(match[2])
        own = [name for name, value in variant.params if value == number]
        fits = [name for name in own if name.lower().endswith(size.lower())]
        close = fits or (own if len(own) == 1 else [])
        return f"cdiv({size}, {close[0]})" if close else match[0]

    return re.sub(r"cdiv\((M|N), (\d+)\)", named, text)
