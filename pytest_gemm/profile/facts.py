"""What follows from counters: numbers that mean something for a kernel. Pure functions."""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

from pytest_gemm.problem import Problem
from pytest_gemm.profile.counters import Counters
from pytest_gemm.profile.metrics import STALLS
from pytest_gemm.traffic import COUNTED, Traffic

WARP = 32


class Stall(NamedTuple):
    """What warps wait for, and the fraction of their time that they do."""

    reason: str
    share: float


def elements(problem: Problem) -> int:
    """Of C, in all matrices of a batch."""
    return problem.M * problem.N * problem.batch


def counted_loads(problem: Problem, traffic: Traffic) -> float | None:
    """Elements loaded per element of C, as counted on the CPU on ``traffic.COUNTED``."""
    if "global_load_words" not in traffic:
        return None
    return traffic["global_load_words"] * 4 / _itemsize(problem) / _of_counted(problem)


def predicted_loads(problem: Problem, traffic: Traffic) -> float | None:
    """Elements loaded per element of C at the problem's K: the same part of 2 K as counted.

    Exact on whole tiles for a kernel that loads nothing but A and B; without a product the count
    itself.
    """
    counted = counted_loads(problem, traffic)
    if counted is None or problem.op != "gemm":
        return counted
    return counted * problem.K / COUNTED["gemm"].K


def measured_loads(problem: Problem, counters: Counters, traffic: Traffic) -> float | None:
    """Elements loaded per element of C, from the requests of whole warps.

    How many words a request loads for each thread is the counted mean (one without counts).
    """
    if "global_loads" not in counters:
        return None
    words = 1.0
    if traffic.get("global_loads"):
        words = traffic["global_load_words"] / traffic["global_loads"]
    return WARP * counters["global_loads"] * words * 4 / _itemsize(problem) / elements(problem)


def stalls(counters: Counters) -> list[Stall]:
    """What warps wait for, the longest first; to be issued (``selected``) is no waiting."""
    waits = {reason: counters.get(f"stall.{reason}", 0.0) for reason in STALLS}
    total = sum(waits.values())
    found = [Stall(r, wait / total) for r, wait in waits.items() if wait and r != "selected"]
    return sorted(found, key=lambda stall: -stall.share)


def derived(problem: Problem, counters: Counters, traffic: Traffic) -> dict[str, Any]:
    """Numbers by name, None where a counter for them is missing.

    ``loads`` see ``measured_loads``; ``sectors_per_load`` of a warp's request (4 where 32 words
    lie side by side); ``l1_hits``, ``l2_hits``: the part of the sectors asked for that a cache
    had; ``dram_bytes``; ``intensity`` in operations per byte of DRAM traffic;
    ``instructions_per_multiply_add`` of warps; ``loads_per_multiply_add``, from global and shared
    memory; ``bank_cycles_per_multiply_add``: cycles in which the data banks of a multiprocessor's
    L1 and shared memory are busy; ``conflicts``: the part of shared memory's cycles that bank
    conflicts take.
    """
    have = counters.get
    dram = _sum(have("dram_read"), have("dram_written"))
    products = _ratio(have("multiply_adds"), WARP)
    loads = _sum(have("global_loads"), have("shared_loads"))
    return {
        "loads": measured_loads(problem, counters, traffic),
        "sectors_per_load": _ratio(have("global_load_sectors"), have("global_loads")),
        # Not ncu's own rates: they divide by what another replay counted, and go beyond 100 %.
        **{f"{cache}_hits": _hits(counters, cache) for cache in ("l1", "l2")},
        "dram_bytes": dram,
        "intensity": _ratio(problem.flops, dram),
        "instructions_per_multiply_add": _ratio(have("instructions"), products),
        "loads_per_multiply_add": _ratio(loads, products),
        "bank_cycles_per_multiply_add": _ratio(_bank_cycles(counters), products),
        "conflicts": _ratio(
            _sum(have("load_conflicts"), have("store_conflicts")), have("shared_waves")
        ),
    }


def _hits(counters: Counters, cache: str) -> float | None:
    found, missed = (counters.get(f"{cache}_{what}") for what in ("found", "missed"))
    return _ratio(found, _sum(found, missed))


def _bank_cycles(counters: Counters) -> float | None:
    """Of all multiprocessors, from the part of the launch in which their banks are busy."""
    needed = ("shared", "time", "clock", "units")
    if not all(name in counters for name in needed):
        return None
    return prod(counters[name] for name in needed) / 100


def _itemsize(problem: Problem) -> int:
    return problem.types["A"].itemsize


def _of_counted(problem: Problem) -> int:
    counted = COUNTED[problem.op]
    return counted.M * counted.N * problem.batch


def _sum(*values: float | None) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _ratio(value: float | None, by: float | None) -> float | None:
    return value / by if value is not None and by else None
