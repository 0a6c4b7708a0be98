"""All studies, and what they have in common: measuring, findings, a report."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from pytest_gemm.markdown import code, plain
from pytest_gemm.studies import block_size, cpu_vs_gpu, cpu_vs_gpu_report, ladder
from pytest_gemm.studies.document import LeftOut, Measured, Study
from pytest_gemm.studies.lab import Lab


@dataclass(frozen=True)
class Kind:
    """A study: what it measures in a lab, what that shows (plain values), its lines of Markdown.

    ``measure`` raises NoCase where there is no case for it.
    """

    summary: str
    measure: Callable[[Lab], None]
    findings: Callable[[Sequence[Measured]], Mapping[str, Any]]
    report: Callable[[Study], Iterator[str]]


STUDIES = {
    "ladder": Kind(
        "kernels that are derived from each other, step by step over N",
        *(ladder.measure, ladder.findings, ladder.report),
    ),
    "cpu-vs-gpu": Kind(
        "plain C and NumPy against the device: rates, transfers, crossovers, fits",
        *(cpu_vs_gpu.measure, cpu_vs_gpu.findings, cpu_vs_gpu_report.report),
    ),
    "block-size": Kind(
        "a kernel with square blocks over the side of the block, with fits",
        *(block_size.measure, block_size.findings, block_size.report),
    ),
}


def carry_out(name: str, lab: Lab) -> Study:
    """Measure a study. Raises NoCase and other ConfigErrors, BackendError."""
    kind = STUDIES[name]
    date = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    kind.measure(lab)
    (device,) = lab.device.executor.devices()
    study = Study(
        name,
        date,
        device.about,
        dict(device.environment),
        lab.cpu,
        dict(lab.start),
        lab.measured,
        lab.left_out,
    )
    return replace(study, findings=kind.findings(study.measured))


def _left_out(cases: Sequence[LeftOut]) -> Iterator[str]:
    """A line for each kernel and reason; of what takes too long, the first says enough."""
    slow = [left for left in cases if left.seconds is not None]
    firsts = {left.kernel: left for left in reversed(slow)}
    for kernel, left in reversed(firsts.items()):
        more = sum(other.kernel == kernel for other in slow) > 1
        yield f"- {code(kernel)} on {left.problem}{' and larger' if more else ''}: {left.reason}"
    for left in cases:
        if left.seconds is None:
            yield f"- {code(left.kernel)} on {left.problem}: {plain(left.reason)}"


def report(study: Study) -> Iterator[str]:
    """A study as Markdown."""
    kind = STUDIES[study.name]
    yield f"## {study.name}: {kind.summary}"
    yield ""
    beside = ""
    if study.cpu and not study.is_host:
        beside = f", C and NumPy on {plain(study.cpu['description'])}"
    yield f"{plain(study.device['description'])}{beside}; {study.date[:10]}."
    if study.cpu:
        yield f"C: {plain(study.cpu['compiler_version'])}, {plain(study.cpu['flags'])}."
    cores = (study.cpu or study.environment).get("cores")
    if cores and study.load > cores:
        by_the_wall = any(m.side == "numpy" for m in study.measured)
        yield (
            f"The CPU was busy with other work: a load of up to {study.load:.1f} on {cores} cores."
            + " Times by the clock on the wall, NumPy's, suffer most." * by_the_wall
        )
    yield ""
    yield from kind.report(study)
    if study.failures:
        yield "Failed, and not in the tables:"
        yield ""
        yield from (f"- {plain(failure)}" for failure in study.failures)
        yield ""
    if study.left_out:
        yield "Left out:"
        yield ""
        yield from _left_out(study.left_out)
        yield ""
