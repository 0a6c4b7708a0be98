"""A verdict in words."""

from __future__ import annotations

from pytest_gemm.case import Case
from pytest_gemm.report.text import percent, seconds
from pytest_gemm.result import Result
from pytest_gemm.verdict import Verdict


def sentence(case: Case, result: Result, verdict: Verdict) -> str:
    """One line that is complete in itself."""
    title = f"{case.kernel.id} on {case.problem.id}"
    told = verdict.change is not None and verdict.outcome != "withheld"
    if not told or result.estimate is None or verdict.baseline_median is None:
        return f"{title}: {verdict.outcome}: {'; '.join(verdict.notes)}"
    times = f"{seconds(result.estimate.median)}, was {seconds(verdict.baseline_median)}"
    limit = f", fails above {percent(verdict.threshold)}" if verdict.threshold is not None else ""
    change = percent(verdict.change or 0.0)
    if verdict.outcome in ("slower", "faster"):
        change = f"by {percent(abs(verdict.change or 0.0), signed=False)}"
    return f"{title}: {verdict.outcome} {change} ({times}{limit})"


def explain(case: Case, result: Result, verdict: Verdict, repeat: str) -> str:
    """The sentence, then how it was decided, and how to repeat it (a command) and to accept it."""
    lines = [sentence(case, result, verdict)]
    if verdict.change is not None and verdict.low is not None and verdict.high is not None:
        lines.append(
            f"  change {percent(verdict.change)}, between {percent(verdict.low)} and "
            f"{percent(verdict.high)}"
        )
        lines.append(
            f"  decided by {verdict.decided_by}: {verdict.sessions} stored"
            f"{' (provisional)' if verdict.provisional else ''}"
        )
    if verdict.smallest_slowdown is not None:
        lines.append(
            f"  smallest slowdown that this baseline can see: {percent(verdict.smallest_slowdown)}"
        )
    if verdict.change is not None:
        lines += [f"  {note}" for note in verdict.notes]
    lines.append(f"  repeat: {repeat}")
    lines.append(f"  accept: {repeat} --gemm-baseline=update")
    return "\n".join(lines)
