"""The figures of each study, from what was measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pytest_gemm.report.fitted import value_at
from pytest_gemm.studies.block_size import by_kernel, side_of
from pytest_gemm.studies.cpu_vs_gpu import DEGREES, curves_of, transfers_of
from pytest_gemm.studies.cpu_vs_gpu_report import TITLES, named
from pytest_gemm.studies.document import Measured, Study
from pytest_gemm.studies.plot import Series, plot

MS = 1e3
"""Milliseconds in a second."""

STEPS = 120
"""Points of a fitted curve."""


def figures(study: Study) -> Iterator[tuple[str, str]]:
    """Names without a suffix, and SVG documents."""
    yield from {"ladder": _ladder, "cpu-vs-gpu": _cpu_vs_gpu, "block-size": _block_size}[
        study.name
    ](study)


def _ladder(study: Study) -> Iterator[tuple[str, str]]:
    points: dict[str, list[tuple[float, float]]] = {
        rung["kernel"]: [] for rung in study.findings["rungs"]
    }
    for m in study.timed:
        points[m.name].append((m.N, MS * m.seconds))
    series = [Series(name, own) for name, own in points.items()]
    drawn = [one for one in series if one.points]
    if drawn:
        yield "ladder", plot("Time of one product", "N", "ms", drawn, log=True)


def _cpu_vs_gpu(study: Study) -> Iterator[tuple[str, str]]:
    curves = [curve for curve in curves_of(study.timed) if curve.way in ("alone", "pageable")]
    for op in DEGREES:
        drawn = [
            Series(named(c, study), [(n, MS * p.median) for n, p in c.points.items()])
            for c in curves
            if c.op == op
        ]
        if drawn:
            title = f"{TITLES[op]} of n x n matrices"
            yield f"cpu-vs-gpu-{op}", plot(title, "n", "ms", drawn, log=True)
    parts = [(kind, part) for kind in ("pageable", "pinned") for part in ("upload", "download")]
    ways = [
        Series(f"{kind}, {'to the device' if part == 'upload' else 'back'}", points)
        for kind, part in parts
        if (points := _transfers(study, f"{kind}_{part}_s"))
    ]
    if ways:
        title = "Transfers: two matrices to the device, one back"
        yield "cpu-vs-gpu-transfers", plot(title, "n", "ms", ways, log=True)


def _transfers(study: Study, counter: str) -> list[tuple[float, float]]:
    rows = transfers_of(study.timed)
    return [(n, MS * counters[counter]) for n, counters in rows.items()]


def _block_size(study: Study) -> Iterator[tuple[str, str]]:
    for name, measured in by_kernel(study.timed).items():
        fits = study.findings[name]
        times = [(side_of(m), MS * m.seconds) for m in measured]
        rates = [(side_of(m), m.rate / 1e9) for m in measured]
        about = f"{name} on {measured[0].problem}"
        side = "side of the block"
        drawn = [Series("measured", times), *_curve(measured, fits["time"], MS)]
        yield f"block-size-{name}-time", plot(f"Time, {about}", side, "ms", drawn, log=False)
        drawn = [Series("measured", rates), *_curve(measured, fits["rate"], 1e-9)]
        yield f"block-size-{name}-rate", plot(f"Rate, {about}", side, "GFLOP/s", drawn, log=False)


def _curve(measured: Sequence[Measured], fit: Mapping[str, Any], scale: float) -> list[Series]:
    """The fitted curve, where there is a fit."""
    if fit["reason"]:
        return []
    first, last = side_of(measured[0]), side_of(measured[-1])
    sides = [first + (last - first) * k / STEPS for k in range(STEPS + 1)]
    points = [(s, scale * value_at(fit, s)) for s in sides]
    return [Series(f"{fit['model']} fit, R^2 = {fit['r_squared']:.3f}", points, smooth=True)]
