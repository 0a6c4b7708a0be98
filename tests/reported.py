"""Made-up runs, for the tests of reports."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pytest_gemm.baselines import Session
from pytest_gemm.case import Case, Settings
from pytest_gemm.kernelspec import Kernel
from pytest_gemm.problem import Problem
from pytest_gemm.record import Record
from pytest_gemm.report.document import Document, Past
from pytest_gemm.result import Result
from pytest_gemm.stats import summarize
from pytest_gemm.verdict import Verdict

DEVICE = {"kind": "host", "name": "host-1", "description": "a scripted CPU, 2 cores"}
ENVIRONMENT = {"compiler": "g++", "compiler_version": "g++ 12.2"}

HOSTILE = (
    "<script>alert(1)</script>\"&amp;'</script><!--",
    "a|b`c``d*e*_f_[x](http://x)@somebody #1",
    "Ελληνικά \u202e gnirts \u2028\u2029 日本語 \U0001f9ee",
    "n" * 300,
    "{{ 7 * 7 }}{% raw %}${7*7}",
)
"""Names that must stay text."""


def times(median: float, n: int = 24) -> tuple[float, ...]:
    """Samples around a median, a percent to either side."""
    return tuple(median * (1 + 0.02 * (i / (n - 1) - 0.5)) for i in range(n))


def record(
    name: str = "tiled",
    size: int = 256,
    median: float | None = 0.002,
    *,
    op: str = "gemm",
    verdict: Verdict | None = None,
    outcome: str = "passed",
    gate: str | None = None,
    message: str = "",
    counters: dict[str, float] | None = None,
    **kernel: Any,
) -> Record:
    """A case of a square problem; ``kernel`` are fields of the kernel."""
    fields: dict[str, Any] = {"path": f"kernels/{name}.cu", "line": 3, **kernel}
    problem = Problem(op, size, size, 0 if op == "add" else size)
    case = Case(Kernel(name, op=op, **fields), problem, Settings(timed=median is not None))
    result = Result(
        outcome if not verdict else "passed",
        device=DEVICE,
        environment=ENVIRONMENT,
        counters=counters or {},
        conditions={"before": {"load": 0.5}, "after": {"load": 0.75}},
    )
    if median is not None:
        samples = times(median)
        result = replace(result, samples=samples, launches=8, estimate=summarize(samples))
    said = verdict.outcome if verdict else ""
    return Record(case, result, outcome, said if gate is None else gate, message, verdict)


def slower(name: str = "tiled", change: float = 0.3, **fields: Any) -> Record:
    """A regression."""
    median = 0.002 * (1 + change)
    verdict = Verdict(
        "slower", change=change, low=change - 0.1, high=change + 0.1, threshold=0.1,
        decided_by="sessions", baseline_median=0.002, sessions=4, smallest_slowdown=0.12,
        notes=("the source changed",),
    )  # fmt: skip
    message = f"{name} on 256: slower\n  change\n  accept: pytest --gemm-baseline=update"
    plain = {"median": median, "verdict": verdict, "outcome": "failed", "message": message}
    return record(name, **plain | fields)


def same(name: str = "naive", median: float = 0.004, **fields: Any) -> Record:
    """A case within its noise."""
    verdict = Verdict(
        "same", change=0.001, low=-0.05, high=0.05, threshold=0.1, decided_by="sessions",
        baseline_median=median / 1.001, sessions=4, smallest_slowdown=0.12,
    )  # fmt: skip
    return record(name, median=median, verdict=verdict, **fields)


def past(median: float = 0.002, day: int = 1, *, deciles: bool = True) -> Past:
    """A stored session."""
    estimate = summarize(times(median))
    session = Session(
        "host-1", "tiled", "tiled", f"2026-01-{day:02}T12:00:00Z", estimate, 8, 0, "uniform",
        "a" * 64, {}, ENVIRONMENT, {}, commit="c" * 40,
    )  # fmt: skip
    return Past.of(session, deciles=deciles)


def document(*records: Record, **fields: Any) -> Document:
    """A run of these cases; each was stored on four days before."""
    history = {
        r.case.id: tuple(past(0.002 * (1 + 0.01 * day), day) for day in range(1, 5))
        for r in records
        if r.verdict
    }
    plain: dict[str, Any] = {
        "date": "2026-02-01T12:00:00+00:00", "commit": "d" * 40, "baseline": "auto",
        "partial": False, "missing": (), "records": records, "history": history,
    }  # fmt: skip
    return Document(**plain | fields)


GPU = {"kind": "cuda", "name": "gpu-1", "description": "a made-up GPU"}

CHAIN = {
    "naive": ("", ""),
    "tiled": ("naive", "tiles in shared memory"),
    "tiled32": ("tiled", "larger tiles"),
    "blocked": ("tiled32", "a block per thread"),
}


def everything(*more: Record) -> Document:
    """A run on a GPU with a chain, a sweep, ceilings, a regression, a gain and a wrong result."""
    records = [*more]
    for i, (name, (parent, change)) in enumerate(CHAIN.items()):
        for size in (256, 512, 1024, 2048):
            median = 2 * size**3 / (1e12 * (i + 1) * min(1.0, size / 1024))
            fields: dict[str, Any] = {
                "size": size, "median": median, "derived_from": parent, "change": change,
                "counters": {"percent_of_cublas": 100 * 2 * size**3 / median / 2e13},
            }  # fmt: skip
            if (name, size) == ("tiled32", 1024):
                del fields["change"]
                records.append(slower(name, 0.06, **fields))
            elif (name, size) == ("blocked", 2048):
                records.append(record(name, verdict=Verdict("faster", change=-0.08), **fields))
            else:
                records.append(same(name, **fields))
    for size in (1024, 4096):
        median = 12 * size**2 / 2e12
        copied = {"percent_of_copy": 80.0}
        records.append(same("add", median, size=size, op="add", counters=copied))
    for side in (4, 8, 16, 32):
        swept = {"params": (("SIDE", side),), "swept": ("SIDE",)}
        records.append(same("block_size", 1e-3 / side, size=512, **swept))
    wrong = "odd on 64x64x64: C[0, 3] is 7, not 8\n  column 3 differs"
    records.append(record("odd", 64, None, outcome="failed", message=wrong))
    on_gpu = [replace(r, result=replace(r.result, device=GPU)) for r in records]
    return document(*on_gpu, missing=("vanished: old is stored, but is no case",))


def thousands(count: int) -> Document:
    """Kernels of 20 sizes each, every case with 20 stored sessions, one in forty slower."""
    records = []
    for i in range(count):
        name, size = f"kernel_{i // 20:03}", 64 * (i % 20 + 1)
        judged = slower(name, size=size) if i % 40 == 0 else same(name, size=size)
        records.append(judged)
    stored = tuple(past(0.002, day) for day in range(1, 21))
    return document(*records, history={record.case.id: stored for record in records})
