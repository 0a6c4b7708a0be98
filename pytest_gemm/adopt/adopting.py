"""Finds the declaration of a kernel, and what to know of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from pytest_gemm.adopt.grids import grids, usual
from pytest_gemm.adopt.notes import (
    on_ambiguity,
    on_block,
    on_keys,
    on_launch,
    on_layers,
    on_rows,
    why_equal,
)
from pytest_gemm.adopt.prober import Prober
from pytest_gemm.adopt.reading import Reading
from pytest_gemm.adopt.refining import (
    with_batch,
    with_leading_dimensions,
    with_names,
    with_shared_mem,
)
from pytest_gemm.adopt.restrictions import restrictions, sentences
from pytest_gemm.adopt.search import Search
from pytest_gemm.adopt.sizes import Sizes
from pytest_gemm.adopt.source import Source
from pytest_gemm.problem import Problem

ORDER = "C depends on the order of the threads"
ATOMIC = re.compile(r"atomic\w+").match
MORE = 512
"""Rows and columns that no block covers alone unless it covers all there are; terms that no array
holds unless it holds all."""

SHORT = "not all that there is was tried: the time was over, and --seconds gives more"
OLD_C = "the old C is read although beta = 0"
FINITE = (
    "reads C also where beta = 0, which BLAS does not, and 0 x NaN is NaN: declared as finite_c = "
    "true, so what launches it must fill C first; or write "
    "beta == 0 ? alpha * sum : alpha * sum + beta * C[i]"
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
        nearest = _nearest(search, prober)
        late = (SHORT,) if prober.seconds_left < 0 else ()
        return replace(nearest, notes=(*nearest.notes, *late))
    progress("for which sizes it is exact")
    reading = with_shared_mem(source, prober, found)
    needed = restrictions(prober, reading, found.problem)
    notes = [*why_equal(prober, found), *sentences(needed), *on_keys(reading)]
    conditions = (item.condition for item in needed)
    reading = replace(reading, requires=(*reading.requires, *conditions))
    reading = with_leading_dimensions(source, prober, reading, found.problem)
    reading = with_batch(source, prober, reading, found.problem)
    reading = with_names(source, reading)
    notes += [*on_layers(source, reading), *on_launch(source, prober, found, reading)]
    notes += [*on_rows(source, prober, reading, found.problem)]
    notes += on_ambiguity(source, found, reading)
    progress("checking it as pytest does")
    failure = prober.check(reading).partition("\n")[0]
    if ORDER in failure and any(map(ATOMIC, source.words)):
        reading = replace(reading, more=(*reading.more, ("deterministic", False)))
        notes.append("atomics add in any order: declared as deterministic = false")
        failure = prober.check(reading).partition("\n")[0]
    if OLD_C in failure:
        reading = replace(reading, more=(*reading.more, ("finite_c", True)))
        notes.append(f"{_place_of_old_c(source, reading)} {FINITE}")
        failure = prober.check(reading).partition("\n")[0]
    if failure and (narrower := _narrower(reading)) and not prober.check(narrower):
        reading, failure = narrower, ""
        notes.append("it rounds to float16 before it adds: declared as acc_dtype = float16")
    failure = failure or _on_more(prober, reading, found.problem)
    if failure:
        notes += on_block(source, found.variant)
    return Adoption(reading, tuple(notes), failure)


def _narrower(reading: Reading) -> Reading | None:
    """The reading with sums of A's and B's type, if that says something else."""
    keys = dict(reading.more)
    if keys.get("dtype") != "float16" or "acc_dtype" in keys:
        return None
    return replace(reading, more=(*reading.more, ("acc_dtype", "float16")))


def _place_of_old_c(source: Source, reading: Reading) -> str:
    """The line that reads the old C and multiplies it with beta, if it can be told."""
    given = dict(zip(reading.args, source.signature.names, strict=True))
    return (source.place_of(given["beta"], given["C"]) if "beta" in given else "") or "it"


def _on_more(prober: Prober, reading: Reading, problem: Problem) -> str:
    """What goes wrong with more rows and columns than the check's problems have, or with more
    terms, if anything."""
    sizes = Sizes(problem, reading.requires)
    sides = [group[0] for group in sizes.groups if "K" not in group]
    depths = [group[0] for group in sizes.groups if "K" in group and sides]
    for larger in (sizes.moved(dict.fromkeys(names, MORE)) for names in (sides, depths)):
        attempt = prober.attempt(reading, larger)
        if not (attempt.is_exact or attempt.is_slow):
            return f"on {larger.id}, {attempt.first_fault}"
    return ""


def _nearest(search: Search, prober: Prober) -> Adoption:
    """What came closest, and its first fault."""
    found = search.nearest
    if found is None:
        why = search.impossible
        return Adoption(None, (), "nothing that was tried could be launched" + (why and f": {why}"))
    source, problem = search.source, found.problem
    reading = found.reading
    if reading.grid == ("1",):
        every = [*grids(source, prober, found), usual(found)]
        attempts = [(prober.attempt(reading.with_grid(*g), problem), g) for g in every]
        best, grid = min(attempts, key=lambda a: (a[0].strays, a[0].wrong))
        reading = reading.with_grid(*grid)
        found = replace(found, reading=reading, attempt=best)
    reading = with_shared_mem(source, prober, found)
    fault = found.attempt.first_fault
    reading = with_names(source, reading)
    if not found.attempt.seen and not found.attempt.fault:
        sizes = Sizes(problem, reading.requires)
        whole = tuple(f"{group[0]} % {sizes.tile(group)} == 0" for group in sizes.groups)
        # As it was tried: that C is read at beta = 0 is not what is wrong.
        finite = (("finite_c", True),) if "beta" in reading.args else ()
        requires, more = (*reading.requires, *whole), (*reading.more, *finite)
        told = prober.check(replace(reading, requires=requires, more=more))
        fault = told.partition("\n")[0] or fault
    notes = (*on_layers(source, reading), *on_block(source, found.variant))
    return Adoption(reading, notes, _fixed(source) or fault or "it was not exact")


def _fixed(source: Source) -> str:
    """What a kernel lacks that takes no sizes."""
    if source.signature.integers:
        return ""
    known = [f"{n} = {v}" for n, v in source.constants.items() if n in source.used]
    which = f" ({', '.join(known)})" if known else ""
    return (
        f"{source.function.name} takes no sizes, and computes with what the file fixes{which}: "
        "make M, N and K its arguments"
    )
