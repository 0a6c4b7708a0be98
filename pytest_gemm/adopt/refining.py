"""What is found out of a reading once it is exact: the rest of its declaration."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from itertools import permutations
from typing import Any

from pytest_gemm.adopt import tiling
from pytest_gemm.adopt.found import Found
from pytest_gemm.adopt.kinds import Kind
from pytest_gemm.adopt.names import size_scores
from pytest_gemm.adopt.prober import Prober
from pytest_gemm.adopt.reading import Reading
from pytest_gemm.adopt.sizes import Sizes
from pytest_gemm.adopt.source import Source
from pytest_gemm.adopt.variant import by_meaning, launch_texts
from pytest_gemm.kernelspec import LEADING_DIMENSIONS, MAX_SHARED_MEM
from pytest_gemm.problem import BATCH, Problem

GAP = 8
"""Elements between the matrices of a batch where strides are tried."""

PADDING = 4
"""Elements behind each row where a leading dimension is tried."""


def with_shared_mem(source: Source, prober: Prober, found: Found) -> Reading:
    """The reading with as much dynamic shared memory as the launch code says, or as it needs."""
    reading = found.reading
    if reading.shared_mem == "0":
        return reading
    launch = found.variant.launch
    if launch is not None and launch.shared_mem:
        (text,) = launch_texts(source, found.variant, [launch.shared_mem])
        if text is not None:
            text = by_meaning(text, reading.args)
            own = replace(reading, shared_mem=text)
            attempt = prober.attempt(own, found.problem)
            if attempt.is_exact:
                return own
    least = tiling.least_shared_mem(prober, reading, found.problem, MAX_SHARED_MEM)
    longer = Sizes(found.problem, reading.requires).moved({"K": found.problem.K})
    more = tiling.least_shared_mem(prober, reading, longer, MAX_SHARED_MEM)
    each, rest = divmod(more - least, longer.K - found.problem.K) if longer.K else (0, 0)
    fixed = least - each * found.problem.K
    grows = each > 0 and not rest and fixed >= 0
    text = f"{each} * K" + (f" + {fixed}" if fixed else "") if grows else str(max(least, more))
    return replace(reading, shared_mem=text)


def with_leading_dimensions(
    source: Source, prober: Prober, reading: Reading, problem: Problem
) -> Reading:
    """Arguments that are the distance between rows, and so far a size that happens to be the same.

    Only a launch with padded rows tells them apart, and of one that the kernel does not use only
    its name.
    """
    for position in source.signature.integers:
        known = distance_of(source.signature.names[position])
        for name in sorted(LEADING_DIMENSIONS, key=lambda name: name != known):
            again = reading.args.count(reading.args[position]) > 1
            if name != known and not (again and source.uses(position)):
                continue
            other = with_padding(reading, problem, position, name)
            if other and prober.attempt(*other).is_exact:
                reading = other[0]
                break
    return reading


def distance_of(name: str) -> str:
    """Which leading dimension an integer's name speaks for; empty where it does for none."""
    return next((role for role in size_scores(name) if role in LEADING_DIMENSIONS), "")


def with_padding(
    reading: Reading, problem: Problem, position: int, name: str
) -> tuple[Reading, Problem] | None:
    """The reading with a leading dimension for an argument, and a problem where that is no size.

    None where the argument is another size, or where it is unknown which one it is.
    """
    if any("==" in text and "%" not in text for text in reading.requires):
        return None
    names = {field.name for field in fields(Kind)}
    kind = Kind(**{key: value for key, value in reading.more if key in names})
    dense = kind.meanings[name]
    if reading.args[position] != dense:
        return None
    problem = problem if reading.requires else Sizes(problem, ()).with_residues()
    distance: dict[str, Any] = {name: getattr(problem, dense) + PADDING}
    return with_argument(reading, position, name), replace(problem, **distance)


def with_argument(reading: Reading, position: int, arg: str) -> Reading:
    return replace(reading, args=(*reading.args[:position], arg, *reading.args[position + 1 :]))


def with_batch(source: Source, prober: Prober, reading: Reading, problem: Problem) -> Reading:
    """The reading with a layer of blocks for each product, where arguments are a batch's.

    Names may not say which these are. They are among those that make no difference to one product,
    and several products, with gaps between their matrices, tell.
    """
    if not source.has_layers or len(reading.grid) > 2:
        return reading
    x, y = (*reading.grid, "1")[:2]
    layers = reading.with_grid(x, y, BATCH[0])
    if {*BATCH} & {*reading.args}:
        return layers
    M, N, K = problem.M, problem.N, problem.K
    several = replace(
        problem, batch=2, strideA=M * K + GAP, strideB=K * N + 2 * GAP, strideC=M * N + 3 * GAP
    )
    free = [*_free(source, prober, reading, problem)]
    for roles in permutations(BATCH, len(free)):
        candidate = layers
        for position, role in zip(free, roles, strict=True):
            candidate = with_argument(candidate, position, role)
        if prober.attempt(candidate, several).is_exact:
            return candidate
    return reading


def _free(source: Source, prober: Prober, reading: Reading, problem: Problem) -> Iterator[int]:
    """The arguments that are used, and may be another size without a difference."""
    sizes = problem.sizes
    for position in filter(source.uses, source.signature.integers):
        own = sizes.get(reading.args[position])
        other = next((name for name, size in sizes.items() if own not in (None, size)), None)
        if other and prober.attempt(with_argument(reading, position, other), problem).is_exact:
            yield position


def with_names(source: Source, reading: Reading) -> Reading:
    """Whether each argument is called what it is, so that it need not be said."""
    return replace(reading, by_name=reading.args == tuple(source.signature.names))
