"""Holds what was found against the limits that a kernel's author set, whatever is stored."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from pytest_gemm.judging import disturbance
from pytest_gemm.limits import check_limits
from pytest_gemm.record import Record


def within_limits(record: Record, *, strict: bool) -> Record:
    """The record with its limits checked, failed where its median breaks one.

    A disturbed time breaks none: that limit counts as not checked. ``strict``: fail for those too.
    """
    case, result = record.case, record.result
    if result.estimate is None:
        return record
    found = check_limits(
        case.kernel.limits_on(result.device["kind"], case.problem),
        seconds=result.estimate.median,
        flops=case.problem.flops,
        percent_of_cublas=result.counters.get("percent_of_cublas"),
    )
    if found.broken and (reason := disturbance(result)):
        disturbed = tuple(f"{phrase}, but {reason}" for phrase in found.broken)
        found = replace(found, broken=(), unchecked=(*disturbed, *found.unchecked))
    record = replace(record, limits=found)
    failing = (*found.broken, *(found.unchecked if strict else ()))
    if not failing:
        return record
    sentence = f"{record.case.title}: {'; '.join(failing)}"
    return replace(
        record,
        outcome="failed",
        # A failed case is not stored.
        gate="withheld" if record.gate == "stored" else record.gate,
        message="\n".join(filter(None, (sentence, record.message))),
    )


def unchecked_limits(records: Iterable[Record]) -> list[str]:
    """A line for each limit that could not be checked, with the cases that passed all the same."""
    titles: dict[str, list[str]] = {}
    for record in records:
        if record.outcome == "passed":
            for phrase in record.limits.unchecked:
                titles.setdefault(phrase, []).append(record.case.title)
    return [
        f"limit not checked: {first}{f' and {len(rest)} more' if rest else ''}: {phrase}"
        for phrase, (first, *rest) in titles.items()
    ]
