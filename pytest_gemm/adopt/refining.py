"""What is found out of a reading once it is exact: the rest of its declaration."""

from __future__ import annotations

from dataclasses import fields, replace
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

    Only a launch with padded rows tells them apart.
    """
    if any("==" in text and "%" not in text for text in reading.requires):
        return reading
    names = {field.name for field in fields(Kind)}
    kind = Kind(**{key: value for key, value in reading.more if key in names})
    odd = Sizes(problem, ()).with_residues()
    problem = problem if reading.requires else odd
    for position in source.signature.integers:
        known = size_scores(source.signature.names[position])
        for name in LEADING_DIMENSIONS:
            dense = kind.meanings[name]
            again = reading.args.count(dense) > 1
            if reading.args[position] != dense or not (again or name in known):
                continue
            args = (*reading.args[:position], name, *reading.args[position + 1 :])
            distance: dict[str, Any] = {name: getattr(problem, dense) + PADDING}
            padded = replace(problem, **distance)
            other = replace(reading, args=args)
            attempt = prober.attempt(other, padded)
            if attempt.is_exact:
                reading = other
                break
    return reading


def with_batch(source: Source, reading: Reading) -> Reading:
    """The reading with a layer of blocks for each product, where arguments are a batch's."""
    if not source.has_layers or not {*BATCH} & {*reading.args} or len(reading.grid) > 2:
        return reading
    x, y = (*reading.grid, "1")[:2]
    return reading.with_grid(x, y, BATCH[0])


def with_names(source: Source, reading: Reading) -> Reading:
    """Whether each argument is called what it is, so that it need not be said."""
    return replace(reading, by_name=reading.args == tuple(source.signature.names))
