"""Finds the declaration of a kernel, and what to know of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

from pytest_gemm.adopt import tiling
from pytest_gemm.adopt.candidates import launch_texts, number_of
from pytest_gemm.adopt.kinds import Kind
from pytest_gemm.adopt.names import size_scores
from pytest_gemm.adopt.prober import Prober
from pytest_gemm.adopt.reading import Reading
from pytest_gemm.adopt.restrictions import first_fault, restrictions, sentences
from pytest_gemm.adopt.search import Found, Search, by_meaning
from pytest_gemm.adopt.sizes import Sizes
from pytest_gemm.adopt.source import Source
from pytest_gemm.kernelspec import LEADING_DIMENSIONS, MAX_SHARED_MEM
from pytest_gemm.problem import BATCH, Problem

PADDING = 4
"""Elements behind each row where a leading dimension is tried."""


ORDER = "C depends on the order of the threads"
ATOMIC = re.compile(r"atomic\w+").match
OLD_C = "the old C is read although beta = 0"
ADVICE = (
    "; write beta == 0 ? alpha * sum : alpha * sum + beta * C[i], as BLAS does not read C either"
)


@dataclass(frozen=True)
class Adoption:
    """What was found: the reading, sentences to know, and what is wrong, if anything is.

    Without a reading, nothing could be launched at all.
    """

    reading: Reading | None
    notes: tuple[str, ...] = ()
    failure: str = ""


def adopt(source: Source, prober: Prober, progress: Callable[[str], None]) -> Adoption:
    """Find how a kernel is launched. Raises Uncompilable, BackendError."""
    search = Search(source, prober, progress)
    found = search.run()
    if found is None:
        return _nearest(search, prober)
    progress("for which sizes it is exact")
    reading = _with_shared_mem(search, found)
    needed = restrictions(prober, reading, found.problem)
    notes = [*_squares(search, found), *sentences(needed)]
    if ("beta", 1) in reading.more:
        notes.append("it adds the product to what C holds, which is beta = 1")
    conditions = (item.condition for item in needed)
    reading = replace(reading, requires=(*reading.requires, *conditions))
    if ("different_barriers", True) in reading.more:
        notes.append("threads of a block pass one barrier in different lines, as a GPU allows")
    reading = _with_leading_dimensions(source, prober, reading, found.problem)
    reading = _with_batch(source, reading)
    reading = _by_name(source, reading)
    notes += [*_launch_notes(search, found, reading), *_ambiguity(source, found)]
    progress("checking it as pytest does")
    failure = prober.check(reading).partition("\n")[0]
    if ORDER in failure and any(map(ATOMIC, source.words)):
        reading = replace(reading, more=(*reading.more, ("deterministic", False)))
        notes.append("atomics add in any order: declared as deterministic = false")
        failure = prober.check(reading).partition("\n")[0]
    if OLD_C in failure:
        failure += ADVICE
    return Adoption(reading, tuple(notes), failure)


def _nearest(search: Search, prober: Prober) -> Adoption:
    """What came closest, and its first fault."""
    found = search.nearest
    if found is None:
        return Adoption(None, (), "nothing that was tried could be launched")
    source, problem = search.source, found.problem
    reading = found.reading
    if reading.grid == ("1",):
        grids = [*search.grids(found), _usual_grid(found)]
        attempts = [(prober.attempt(reading.with_grid(*g), problem), g) for g in grids]
        best, grid = min(attempts, key=lambda a: (a[0].strays, a[0].wrong))
        reading = reading.with_grid(*grid)
        found = replace(found, reading=reading, attempt=best)
    reading = _with_shared_mem(search, found)
    fault = first_fault(found.attempt)
    reading = _by_name(source, reading)
    if not found.attempt.seen and not found.attempt.fault:
        sizes = Sizes(problem, reading.requires)
        whole = tuple(f"{group[0]} % {sizes.side} == 0" for group in sizes.groups)
        told = prober.check(replace(reading, requires=(*reading.requires, *whole)))
        fault = told.partition("\n")[0] or fault
    return Adoption(reading, (), fault or "it was not exact")


def _usual_grid(found: Found) -> tuple[str, ...]:
    values = found.variant.values
    sides = [number_of(text, values) or 1 for text in found.reading.block]
    if len(sides) == 1:
        return (f"cdiv(M * N, {sides[0]})",)
    return f"cdiv(N, {sides[0]})", f"cdiv(M, {sides[1]})"


def _with_shared_mem(search: Search, found: Found) -> Reading:
    """The reading with as much dynamic shared memory as the launch code says, or as it needs."""
    reading, prober = found.reading, search.prober
    if reading.shared_mem == "0":
        return reading
    launch = found.variant.launch
    if launch is not None and launch.shared_mem:
        (text,) = launch_texts(search.source, found.variant, [launch.shared_mem])
        if text is not None:
            text = by_meaning(text, reading.args)
            own = replace(reading, shared_mem=text)
            attempt = prober.attempt(own, found.problem)
            if attempt.is_exact and attempt.is_clean:
                return own
    least = tiling.least_shared_mem(prober, reading, found.problem, MAX_SHARED_MEM)
    return replace(reading, shared_mem=str(least))


def _squares(search: Search, found: Found) -> Iterator[str]:
    """Why sizes must be equal: what the reading does where they are not."""
    ties = found.reading.requires
    if not ties:
        return
    what = "squares" if len(ties) > 1 or found.problem.op == "add" else ties[0]
    others = Sizes(found.problem, ()).with_residues()
    side = Sizes(found.problem, ()).side
    rectangle = replace(others, M=3 * side, N=2 * side, K=side if others.K else 0)
    attempt = search.prober.attempt(replace(found.reading, requires=()), rectangle)
    yield f"correct for {what} only: on {rectangle.id}, {first_fault(attempt)}"


def _with_leading_dimensions(
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
            if attempt.is_exact and attempt.is_clean:
                reading = other
                break
    return reading


def _with_batch(source: Source, reading: Reading) -> Reading:
    """The reading with a layer of blocks for each product, where arguments are a batch's."""
    if not source.has_layers or not {*BATCH} & {*reading.args} or len(reading.grid) > 2:
        return reading
    x, y = (*reading.grid, "1")[:2]
    return reading.with_grid(x, y, BATCH[0])


def _by_name(source: Source, reading: Reading) -> Reading:
    """Whether each argument is called what it is, so that it need not be said."""
    return replace(reading, by_name=reading.args == tuple(source.signature.names))


def _launch_notes(search: Search, found: Found, reading: Reading) -> Iterator[str]:
    """Where the launch code in the file would not compute what this reading does."""
    launch = found.variant.launch
    hint = search.hinted_grid(found.variant, found.reading.args)
    if launch is None or not any(re.search(r"\b[MN]\b", text) for text in hint):
        return
    whole_tiles = any("%" in condition for condition in reading.requires)
    odd = Sizes(found.problem, found.reading.requires).with_residues()
    problem = found.problem if whole_tiles else odd
    if launch.has_equal_sizes:
        problem = replace(problem, M=problem.N, K=problem.N if problem.K else 0)
    values = {**problem.sizes, **found.variant.values}
    own = [number_of(text, values) for text in found.reading.grid]
    theirs = [number_of(text, values) for text in hint]
    if own == theirs or None in theirs:
        return
    attempt = search.prober.attempt(found.reading.with_grid(*hint), problem)
    if not attempt.is_exact:
        yield (
            f"the launch in line {launch.line} has another grid, [{', '.join(hint)}]: with it, on "
            f"{problem.id}, {first_fault(attempt)}"
        )


def _ambiguity(source: Source, found: Found) -> Iterator[str]:
    if not found.others or found.reading.args == tuple(source.signature.names):
        return
    texts = [f"[{', '.join(args)}]" for args in found.others]
    yield (
        f"other arguments are exact as well, and names decided: {' or '.join(texts)}; "
        "choose by what the author meant"
    )
