"""The grid of a kernel, measured: which part of C one block writes, and where the next one goes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from pytest_gemm.adopt.attempt import Extent
from pytest_gemm.adopt.prober import Prober
from pytest_gemm.adopt.reading import Reading
from pytest_gemm.adopt.sizes import Sizes
from pytest_gemm.problem import Problem

LONG = 1024
"""More rows, or columns, than a block can have threads."""


def grids(
    prober: Prober, reading: Reading, problem: Problem, *, strides: int = 0
) -> Iterator[tuple[str, ...]]:
    """Grids that may cover C, where what one block writes says so; the likeliest first.

    ``strides`` says along how many axes a block goes on by the grid's size, so that any will do.
    """
    one = prober.attempt(reading.with_grid("1"), problem).extent
    if one.is_empty or one.rows[0] or one.columns[0]:
        return
    if strides and (one.rows[1], one.columns[1]) == (problem.M, problem.N):
        threads = [int(size) for size in reading.block if size.isdecimal()]
        if strides > 1:
            yield _parts("N", threads[0]), _parts("M", [*threads, 1][1])
        yield (_parts("M * N", prod(threads)),)
    if elements := _elements(prober, reading, problem):
        yield (_parts("M * N", elements),)
        return
    tile, problem = _tile(prober, reading, problem)
    if not tile:  # a block does it all
        yield ("1",)
        return
    first, along_x, along_y = (
        prober.attempt(reading.with_grid(*grid), problem).extent
        for grid in (("1",), ("2",), ("1", "2"))
    )
    x, y = _step(first, along_x, problem), _step(first, along_y, problem)
    sides = {name: _parts(name, side) for name, side in tile.items()}
    if x and y and x != y and len(tile) == 2:
        yield sides[x], sides[y]
    elif x and x in tile:
        yield (" * ".join(sides[name] for name in ("N", "M") if name in tile),)
    elif y and len(tile) == 1 and y in tile:
        yield "1", sides[y]


def _elements(prober: Prober, reading: Reading, problem: Problem) -> int:
    """How many elements a block writes that takes them one after another, row by row or column by
    column; 0 where it does not.

    Whole rows are such a run as well, of another length where rows are longer.
    """
    sizes = Sizes(problem, reading.requires)
    one, two = (prober.attempt(reading.with_grid(count), problem).extent for count in ("1", "2"))
    for kind, name in (("run", "N"), ("column_run", "M")):
        run = int(getattr(one, kind))
        if not run or getattr(two, kind) != min(2 * run, problem.M * problem.N):
            continue
        wider = prober.attempt(reading.with_grid("1"), sizes.moved({_first(sizes, name): 8}))
        down = prober.attempt(reading.with_grid("1", "2"), problem).extent
        if run < problem.M * problem.N and getattr(wider.extent, kind) == run and down == one:
            return run
    return 0


def _tile(prober: Prober, reading: Reading, problem: Problem) -> tuple[dict[str, int], Problem]:
    """The rows (M) and columns (N) of a block, and a problem in which several fit side by side.

    A side of which a block does all, however long it is, is left out.
    """
    sizes = Sizes(problem, reading.requires)
    tile: dict[str, int] = {}
    steps: dict[str, int] = {}
    one = prober.attempt(reading.with_grid("1"), problem).extent
    for name, end in (("M", one.rows[1]), ("N", one.columns[1])):
        if end >= getattr(problem, name):
            step = {_first(sizes, name): LONG}
            longer = sizes.moved(step)
            extent = prober.attempt(reading.with_grid("1"), longer).extent
            end = extent.rows[1] if name == "M" else extent.columns[1]
            if extent.is_empty or end >= getattr(longer, name):
                continue
            steps |= step
        tile[name] = end
    return tile, sizes.moved(steps)


def _first(sizes: Sizes, name: str) -> str:
    return sizes.group_of(name)[0]


def _parts(size: str, part: int) -> str:
    return f"cdiv({size}, {part})" if part > 1 else size


def _step(one: Extent, two: Extent, problem: Problem) -> str:
    """Along which size a second block goes, if it goes anywhere."""
    rows, columns = one.rows[1], one.columns[1]
    if not (one.is_block and two.is_block) or two.rows[0] or two.columns[0]:
        return ""
    if two.columns[1] > columns and two.rows[1] == rows:
        return "N" if two.columns[1] == min(2 * columns, problem.N) else ""
    if two.rows[1] > rows and two.columns[1] == columns:
        return "M" if two.rows[1] == min(2 * rows, problem.M) else ""
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
