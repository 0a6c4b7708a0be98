"""The summary table of a timed run: at most 100 columns, plain text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pytest_gemm.problem import Problem
from pytest_gemm.record import Record
from pytest_gemm.report.text import percent, rate, seconds

WIDTH = 100
HEADINGS = ("kernel", "problem", "result", "median", "+-", "rate", "step", "change", "verdict")
_LEFT = frozenset({"kernel", "problem", "result", "verdict"})
_SHRINKS = ("kernel", "problem")


def table(records: Sequence[Record]) -> list[str]:
    """One line per timed case, in the order of the records, under a heading."""
    medians = {
        (r.case.kernel.id, r.case.problem): r.result.estimate.median
        for r in records
        if r.result.estimate
    }
    rows = [HEADINGS, *(_row(record, medians) for record in records)]
    widths = _widths(rows)
    return [_line(row, widths) for row in rows]


def _row(record: Record, medians: Mapping[tuple[str, Problem], float]) -> tuple[str, ...]:
    kernel, problem = record.case.kernel, record.case.problem
    estimate, verdict = record.result.estimate, record.verdict
    head = (kernel.id, problem.id, _RESULT[record.result.outcome])
    if estimate is None:
        return (*head, "", "", "", "", "", "")
    median = estimate.median
    before = medians.get((kernel.derived_from, problem))
    change = verdict.change if verdict else None
    work, unit = (problem.bytes, "B/s") if problem.op == "add" else (problem.flops, "FLOP/s")
    return (
        *head,
        seconds(median),
        percent((estimate.high - estimate.low) / 2 / median, signed=False),
        rate(work / median, unit),
        f"{before / median:.2f}x" if before else "",
        percent(change) if change is not None else "",
        record.gate,
    )


_RESULT = {"passed": "ok", "failed": "WRONG", "skipped": "skip"}


def _widths(rows: Iterable[Sequence[str]]) -> list[int]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    excess = sum(widths) + 2 * (len(widths) - 1) - WIDTH
    for name in _SHRINKS:
        place = HEADINGS.index(name)
        cut = max(0, min(excess, widths[place] - 12))
        widths[place] -= cut
        excess -= cut
    return widths


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = [
        _fit(cell, width) if heading in _LEFT else cell.rjust(width)
        for cell, width, heading in zip(row, widths, HEADINGS, strict=True)
    ]
    return "  ".join(cells).rstrip()


def _fit(cell: str, width: int) -> str:
    if len(cell) <= width:
        return cell.ljust(width)
    keep = (width - 2) // 2
    return f"{cell[: width - 2 - keep]}..{cell[len(cell) - keep :]}"
