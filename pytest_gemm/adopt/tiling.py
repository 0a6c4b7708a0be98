"""The grid of a kernel, measured: which part of C one block writes, and where the next one goes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod
from typing import Any

from pytest_gemm.adopt.attempt import Extent
from pytest_gemm.adopt.prober import Prober
from pytest_gemm.adopt.reading import Reading
from pytest_gemm.adopt.sizes import Sizes
from pytest_gemm.problem import Problem

LONG = 1024
"""More rows, or columns, than a block can have threads."""


def grids(
    prober: Prober, reading: Reading, problem: Problem, *, strides: bool = False
) -> Iterator[tuple[str, ...]]:
    """Grids that may cover C, where what one block writes says so; the likeliest first.

    ``strides`` says whether a block goes on by the size of the grid, so that any will do.
    """
    one = prober.attempt(reading.with_grid("1"), problem).extent
    if one.is_empty or one.rows[0] or one.columns[0]:
        return
    if one.rows[1] >= problem.M and one.columns[1] >= problem.N:
        yield from _of_longer(prober, reading, problem, strides)
        return
    along_x = prober.attempt(reading.with_grid("2"), problem).extent
    along_y = prober.attempt(reading.with_grid("1", "2"), problem).extent
    x, y = _step(one, along_x, problem), _step(one, along_y, problem)
    sides = {
        "across": _parts("N", one.columns[1]),
        "down": _parts("M", one.rows[1]),
    }
    if x and y and x != y:
        yield sides[x], sides[y]
        return
    if one.run and along_x.run == min(2 * one.run, problem.M * problem.N):
        # Whole rows are a run as well: of another length where rows are longer.
        wider = Sizes(problem, reading.requires).moved({"N": 8})
        if prober.attempt(reading.with_grid("1"), wider).extent.run == one.run:
            yield (_parts("M * N", one.run),)
            return
    if x:
        if (x == "across" and one.rows[1] >= problem.M) or (
            x == "down" and one.columns[1] >= problem.N
        ):
            yield (sides[x],)
        yield (f"{sides['across']} * {sides['down']}",)
    elif y:
        yield "1", sides[y]


def _of_longer(
    prober: Prober, reading: Reading, problem: Problem, strides: bool
) -> Iterator[tuple[str, ...]]:
    """Grids for a block that writes all of C, which a longer C may tell apart."""
    side = min(filter(None, (problem.M, problem.N, problem.K)))
    if not reading.requires:
        for name in ("M", "N"):
            sizes: dict[str, Any] = {
                "M": side,
                "N": side,
                "K": min(side, problem.K),
                name: side + LONG,
            }
            longer = replace(problem, **sizes)
            extent = prober.attempt(reading.with_grid("1"), longer).extent
            covered = extent.rows[1] if name == "M" else extent.columns[1]
            if extent.is_block and covered < side + LONG:
                yield (_parts(name, covered),)
    threads = prod(int(size) for size in reading.block if size.isdecimal())
    if strides:
        yield (_parts("M * N", threads),)
    yield ("1",)


def _parts(size: str, part: int) -> str:
    return f"cdiv({size}, {part})" if part > 1 else size


def _step(one: Extent, two: Extent, problem: Problem) -> str:
    """Whether a second block goes ``across``, ``down``, or nowhere."""
    rows, columns = one.rows[1], one.columns[1]
    if not (one.is_block and two.is_block) or two.rows[0] or two.columns[0]:
        return ""
    if two.columns[1] > columns and two.rows[1] == rows:
        return "across" if two.columns[1] == min(2 * columns, problem.N) else ""
    if two.rows[1] > rows and two.columns[1] == columns:
        return "down" if two.rows[1] == min(2 * rows, problem.M) else ""
    return ""


def least_shared_mem(prober: Prober, reading: Reading, problem: Problem, most: int) -> int:
    """The fewest bytes of dynamic shared memory with which a launch stays as clean as with most."""

    def is_enough(size: int) -> bool:
        attempt = prober.attempt(replace(reading, shared_mem=str(size)), problem)
        return attempt.is_right and not any(
            "dynamic shared memory" in seen.text for seen in attempt.seen
        )

    low, high = 0, most // 4  # words; high is enough
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(4 * middle) else (middle + 1, high)
    return 4 * high
