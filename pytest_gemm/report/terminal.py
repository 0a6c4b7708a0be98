"""The summary table of a timed run: at most 100 columns, plain text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytest_gemm.problem import Problem
from pytest_gemm.record import Record
from pytest_gemm.report.text import percent, rate, seconds
from pytest_gemm.traffic import loads_on

WIDTH = 100
"""Most columns of a line."""

LEAST = 12
"""Columns that a name keeps when it has to be cut."""

_LEFT = frozenset({"kernel", "problem", "result", "verdict"})
_SHRINKS = ("kernel", "problem")
_RESULT = {"passed": "ok", "failed": "FAIL", "skipped": "skip"}

Row = Mapping[str, str]


def table(records: Sequence[Record]) -> list[str]:
    """One line per timed case (at least one) under a heading; empty columns are left out."""
    medians = {
        (r.case.kernel.id, r.case.problem): r.result.estimate.median
        for r in records
        if r.result.estimate
    }
    rows = [_row(record, medians) for record in sorted(records, key=_place)]
    headings = [name for name in rows[0] if any(row[name] for row in rows)]
    widths = {name: max(len(name), *(len(row[name]) for row in rows)) for name in headings}
    gap = "  " if _total(widths, 2) <= WIDTH else " "
    widths = _cut(widths, _total(widths, len(gap)) - WIDTH)
    return [_line(row, widths, gap) for row in ({name: name for name in headings}, *rows)]


def _place(record: Record) -> tuple[object, ...]:
    """Kernels as they are declared, the largest problem first: cases may run in any order."""
    kernel, problem = record.case.kernel, record.case.problem
    params = dict(kernel.params)
    return kernel.path, kernel.line, [params[name] for name in kernel.swept], -problem.bytes


def _row(record: Record, medians: Mapping[tuple[str, Problem], float]) -> Row:
    kernel, problem, result = record.case.kernel, record.case.problem, record.result
    median = result.estimate.median if result.estimate else None
    half = (result.estimate.high - result.estimate.low) / 2 if result.estimate else 0.0
    before = medians.get((kernel.derived_from, problem))
    change = record.verdict.change if record.verdict else None
    work, unit = (problem.bytes, "B/s") if problem.op == "add" else (problem.flops, "FLOP/s")
    reference = next((v for k, v in result.counters.items() if k.startswith("percent_of_")), None)
    return {
        "kernel": kernel.id,
        "problem": problem.id,
        "result": _RESULT[result.outcome],
        "median": seconds(median) if median else "",
        "+-": _short(half / median, signed=False) if median else "",
        "rate": rate(work / median, unit) if median else "",
        "loads": loads_on(problem, result.traffic),
        "of ref": f"{reference:.0f}%" if reference else "",
        "step": f"{before / median:.2f}x" if before and median else "",
        "change": _short(change) if change is not None else "",
        "verdict": record.gate,
    }


def _short(fraction: float, signed: bool = True) -> str:
    return percent(fraction, signed).replace(" ", "")


def _total(widths: Mapping[str, int], gap: int) -> int:
    return sum(widths.values()) + gap * (len(widths) - 1)


def _cut(widths: Mapping[str, int], excess: int) -> dict[str, int]:
    """Widths with names cut, the kernel's first, until the excess is gone."""
    cut = dict(widths)
    for name in _SHRINKS:
        shorter = max(min(cut[name], LEAST), cut[name] - max(0, excess))
        excess -= cut[name] - shorter
        cut[name] = shorter
    return cut


def _line(row: Row, widths: Mapping[str, int], gap: str) -> str:
    cells = [
        _fit(row[name], width) if name in _LEFT else row[name].rjust(width)
        for name, width in widths.items()
    ]
    return gap.join(cells).rstrip()


def _fit(cell: str, width: int) -> str:
    if len(cell) <= width:
        return cell.ljust(width)
    keep = (width - 2) // 2
    return f"{cell[: width - 2 - keep]}..{cell[len(cell) - keep :]}"
