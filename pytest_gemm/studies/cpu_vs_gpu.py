"""From which size on does a GPU pay, against plain C and against NumPy?

On the device's side stand the kernels that are not derived from others, the plain definitions; a
user's join by their front matter. Sizes are those of square matrices.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from pytest_gemm.case import Case
from pytest_gemm.fits import Fit, leading_ratio, polynomial
from pytest_gemm.problem import Problem
from pytest_gemm.studies.crossover import crossover
from pytest_gemm.studies.document import Measured, Side
from pytest_gemm.studies.lab import Lab, NoCase
from pytest_gemm.studies.sides import DTYPE, c_kernels, numpy_kernels

SIZES = (
    *("10", "16", "24", "35", "50", "75", "100", "150", "200", "350"),
    *("500", "750", "1000", "2000", "4000"),
)

DEGREES = {"add": 2, "gemm": 3}
"""Of the polynomial in n that a time follows."""

WAYS = {
    "alone": "the kernel alone",
    "launch": "one launch between events",
    "pageable": "with transfers, pageable memory",
    "pinned": "with transfers, pinned memory",
}
"""What may count as the device's time."""

COUNTER = {
    "launch": "pageable_launch_s",
    "pageable": "pageable_total_s",
    "pinned": "pinned_total_s",
}


SIDES: tuple[Side, ...] = ("c", "numpy", "device")
"""In the order of their curves; the first two are what the device is compared with."""


class Point(NamedTuple):
    """A time in seconds and the standard error of its logarithm."""

    median: float
    log_error: float


@dataclass(frozen=True)
class Curve:
    """Times of a kernel over n; ``way`` is one of ``WAYS``."""

    op: str
    side: Side
    kernel: str
    way: str
    points: Mapping[int, Point]


def operations(op: str, n: int) -> int:
    """n^2 for an addition, 2 n^3 - n^2 for a multiplication: the first product is not added."""
    return n * n if op == "add" else 2 * n**3 - n * n


def measure(lab: Lab) -> None:
    """Time C, NumPy and the device's kernels at every size.

    Raises NoCase where there is no kernel for the device's side.
    """
    sizes = lab.sizes or SIZES
    cases = [
        replace(case, settings=replace(case.settings, trips=True))
        for case in lab.project.cases(sizes)
        if is_plain(case)
    ]
    if not cases:
        raise NoCase(
            f"no kernel can be compared with C and NumPy: that takes a {DTYPE} kernel of square, "
            "row-major matrices without derived_from and without a sweep"
        )
    settings = replace(cases[0].settings, check="off", trips=False)
    numpy, _ = numpy_kernels()
    ops = [op for op in DEGREES if any(case.problem.op == op for case in cases)]
    for op in ops:
        own = [case for case in cases if case.problem.op == op]
        for size in sizes:
            problem = Problem.parse(size, op, DTYPE)
            lab.serial.run(Case(c_kernels()[op], problem, settings), "c")
            lab.serial.run(Case(numpy[op], problem, settings), "numpy")
            for case in own:
                if case.problem == problem:
                    lab.device.run(case)


def is_plain(case: Case) -> bool:
    """Whether a case is one that C and NumPy have too, and its kernel no variation of another."""
    kernel, problem = case.kernel, case.problem
    same = problem == Problem.parse(str(problem.N), problem.op, DTYPE)
    return same and not kernel.derived_from and not kernel.swept


def findings(measured: Sequence[Measured]) -> dict[str, Any]:
    """``crossovers`` of each device kernel in each way, and ``fits`` of each curve.

    ``ratios`` are those of C's leading coefficient to that of each other curve of the operation,
    where both are told from 0.
    """
    curves = curves_of(measured)
    fits = {(c.op, c.side, c.kernel, c.way): _fit(c) for c in curves}
    c_fits = {op: fit for (op, side, *_), fit in fits.items() if side == "c"}
    pairs = [
        (base, curve)
        for base in curves
        for curve in curves
        if base.side != "device" and curve.side == "device" and curve.op == base.op
    ]
    ratios = {key: leading_ratio(c_fits[key[0]], fits[key]) for key in fits if key[0] in c_fits}
    return {
        "crossovers": [found for pair in pairs for found in _crossover(*pair)],
        "fits": [{**_about(key), **fit.to_dict()} for key, fit in fits.items()],
        "ratios": [
            {**_about(key), "value": ratio.value, "error": ratio.error}
            for key, ratio in ratios.items()
            if ratio is not None and key[1] != "c"
        ],
    }


def _about(key: tuple[str, Side, str, str]) -> dict[str, str]:
    return dict(zip(("op", "side", "kernel", "way"), key, strict=True))


def _crossover(base: Curve, curve: Curve) -> Iterator[dict[str, Any]]:
    sizes = sorted(curve.points.keys() & base.points.keys())
    if sizes:
        slow, fast = ([c.points[n] for n in sizes] for c in (base, curve))
        found = crossover(sizes, slow, fast)
        about = _about((curve.op, curve.side, curve.kernel, curve.way))
        yield {**about, "baseline": base.side, "text": str(found), **found.to_dict()}


def curves_of(measured: Sequence[Measured]) -> list[Curve]:
    """Every curve that was measured, C's and NumPy's first; none in ways that a device lacks."""
    points: dict[tuple[str, Side, str, str], dict[int, Point]] = {}
    for m in measured:
        if m.estimate is None:
            continue
        found = {"alone": Point(m.estimate.median, m.estimate.log_error)}
        for way, counter in COUNTER.items():
            if counter in m.counters:
                error = m.counters.get(counter.removesuffix("_s") + "_error", math.inf)
                found[way] = Point(m.counters[counter], error)
        for way, point in found.items():
            points.setdefault((m.op, m.side, m.kernel, way), {})[m.N] = point
    curves = [Curve(*key, by_size) for key, by_size in points.items()]
    ops = list(DEGREES)
    return sorted(curves, key=lambda curve: (ops.index(curve.op), SIDES.index(curve.side)))


def transfers_of(measured: Sequence[Measured]) -> dict[int, Mapping[str, float]]:
    """Counters by n of the device's first kernel that moved two matrices there and one back.

    An addition where there is one: what is moved is the same for a multiplication.
    """
    found: dict[int, Mapping[str, float]] = {}
    ops = list(DEGREES)
    for m in sorted(measured, key=lambda m: (m.N, ops.index(m.op))):
        if m.side == "device" and "pageable_upload_s" in m.counters:
            found.setdefault(m.N, m.counters)
    return found


def _fit(curve: Curve) -> Fit:
    sizes = sorted(curve.points)
    return polynomial(sizes, [curve.points[n].median for n in sizes], DEGREES[curve.op])
