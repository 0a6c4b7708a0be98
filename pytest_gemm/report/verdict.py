"""A verdict in words."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_gemm.case import Case
from pytest_gemm.report.text import percent, seconds
from pytest_gemm.result import Result
from pytest_gemm.verdict import Verdict


def sentence(case: Case, result: Result, verdict: Verdict) -> str:
    """One line that is complete in itself."""
    title = case.title
    told = verdict.change is not None and verdict.outcome != "withheld"
    if not told or result.estimate is None:
        return f"{title}: {verdict.outcome}: {'; '.join(verdict.notes)}"
    change = percent(verdict.change or 0.0)
    if verdict.outcome in ("slower", "faster"):
        change = f"by {percent(abs(verdict.change or 0.0), signed=False)}"
    if verdict.outcome == "drifted" and verdict.drift is not None:
        change = f"by {percent(verdict.drift, signed=False)} from the anchor"
    if verdict.against:
        change += f" against {verdict.against}"
    return f"{title}: {verdict.outcome} {change} ({', '.join(_times(result, verdict))})"


def _times(result: Result, verdict: Verdict) -> Iterator[str]:
    assert result.estimate is not None
    yield seconds(result.estimate.median)
    if verdict.baseline_median is not None:
        other = "that one" if verdict.against and not verdict.sessions else "was"
        yield f"{other} {seconds(verdict.baseline_median)}"
    if verdict.decided_by == "duet":
        yield "measured side by side"
    if verdict.threshold is not None and verdict.outcome != "drifted":
        yield f"fails above {percent(verdict.threshold)}"


def explain(case: Case, result: Result, verdict: Verdict, repeat: str, accept: str) -> str:
    """The sentence, then how it was decided, and the commands to repeat it and to accept it.

    What was measured against something that is not stored is not accepted by storing it.
    """
    lines = [sentence(case, result, verdict)]
    if verdict.change is not None and verdict.low is not None and verdict.high is not None:
        lines.append(
            f"  change {percent(verdict.change)}, between {percent(verdict.low)} and "
            f"{percent(verdict.high)}"
        )
        lines.append(f"  decided by {grounds(verdict)}")
    if verdict.smallest_slowdown is not None:
        lines.append(f"  smallest slowdown that is found: {percent(verdict.smallest_slowdown)}")
    if verdict.change is not None:
        lines += [f"  {note}" for note in verdict.notes]
    lines.append(f"  repeat: {repeat}")
    if verdict.sessions or not verdict.against:
        lines.append(f"  accept: {accept}")
    return "\n".join(lines)


def grounds(verdict: Verdict) -> str:
    """How the outcome was decided."""
    stored = f"{verdict.sessions} stored session{'s' * (verdict.sessions != 1)}"
    if verdict.decided_by == "duet":
        rounds = f"{verdict.rounds} round{'s' * (verdict.rounds != 1)}"
        other = verdict.against or "the stored kernel"
        text = f"a duet of {other} and this one: {verdict.workers} processes, {rounds}"
        if verdict.stored_change is not None:
            text += f"; against {stored}: {percent(verdict.stored_change)}"
        return text
    if verdict.decided_by == "prior":
        return f"{stored}, too few to know how much they scatter (provisional)"
    if verdict.decided_by == "anchor":
        return f"the distance from the anchor, with {stored}"
    if verdict.decided_by == "program":
        return f"the program, which is the stored one, and not by its time against {stored}"
    return stored
