"""What holds on every machine, held against what is stored: the bits of C, and memory traffic."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from hashlib import sha256

from pytest_gemm.baselines import BaselineStore, Fact
from pytest_gemm.case import Case
from pytest_gemm.pipeline import TIMED_RECIPE
from pytest_gemm.problem import Problem
from pytest_gemm.result import Result
from pytest_gemm.traffic import counted, loads_on

TRAFFIC = "traffic"
"""In the place of a recipe: the counts of a launch do not depend on the operands."""


def facts_of(case: Case, result: Result) -> Iterator[Fact]:
    """What of a result is stored for every machine."""
    if case.settings.architecture:
        yield _code_fact(case, result)
        return
    if result.digest:
        yield Fact(case.kernel.id, case.id, case.settings.seed, TIMED_RECIPE, result.digest)
    if result.traffic:
        yield _traffic_fact(case, result.traffic)


def changes(case: Case, result: Result, store: BaselineStore, *, strict: bool) -> Iterator[str]:
    """A sentence for each fact that is not the stored one, or not stored where that is strict.

    Raises BaselineError for a file that cannot be used.
    """
    facts = store.load_exact(case.kernel.id)
    for fact in facts_of(case, result):
        stored = facts.get(fact.key)
        what = "traffic" if fact.recipe == TRAFFIC else "digest of C"
        if stored is None:
            if strict:
                yield f"no {what} is stored"
        elif fact.recipe == TRAFFIC:
            if dict(stored.counters) != dict(fact.counters):
                yield _moved(case.problem, stored.counters, fact.counters)
        elif stored.digest != fact.digest:
            yield (
                f"the bits of C changed (stored {stored.digest}, now {fact.digest}), as after "
                "another order of summation"
            )


def _traffic_fact(case: Case, traffic: Mapping[str, int]) -> Fact:
    benchmark = f"{case.kernel.id}-{counted(case.kernel).label}"
    digest = sha256(json.dumps(traffic, sort_keys=True).encode()).hexdigest()[:32]
    return Fact(case.kernel.id, benchmark, 0, TRAFFIC, f"sha256:{digest}", dict(traffic))


def _code_fact(case: Case, result: Result) -> Fact:
    """The toolchain stands in the place of a recipe: another one makes other code."""
    toolchain = str(result.environment["toolchain"])
    return Fact(case.kernel.id, case.id, 0, toolchain, result.digest, result.counters)


def _moved(problem: Problem, before: Mapping[str, float], now: Mapping[str, float]) -> str:
    """``loads per element of C 2K/16 -> 2K (global_load_words 196608 -> 3145728, ...)``."""
    counts = [
        f"{name} {_count(before, name)} -> {_count(now, name)}"
        for name in sorted({*before, *now})
        if before.get(name) != now.get(name)
    ]
    counts_of = [{k: int(v) for k, v in traffic.items()} for traffic in (before, now)]
    loads = [loads_on(problem, traffic) for traffic in counts_of]
    title = "memory traffic changed"
    if loads[0] != loads[1]:
        title += f": loads per element of C {loads[0]} -> {loads[1]}"
    return f"{title} ({', '.join(counts)})"


def _count(counts: Mapping[str, float], name: str) -> str:
    return str(int(counts[name])) if name in counts else "none"
