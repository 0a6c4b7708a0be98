"""How the side of a square block changes time and rate.

Kernels join by their front matter: one swept parameter that is both sides of the block.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any

from pytest_gemm.errors import GemmError
from pytest_gemm.fits import exponential, logarithmic
from pytest_gemm.kernelspec import Kernel
from pytest_gemm.markdown import NOTHING, code, digits, table
from pytest_gemm.report.text import rate, seconds
from pytest_gemm.static.occupancy import occupancy
from pytest_gemm.studies.document import Measured, Study
from pytest_gemm.studies.lab import Lab, NoCase


def measure(lab: Lab) -> None:
    """Time each kernel at each side, on the first of its own sizes or of those asked for.

    Raises NoCase where no kernel has such a sweep.
    """
    swept = [case for case in lab.project.cases(lab.sizes) if side_name(case.kernel)]
    first = {case.kernel.name: case.problem for case in reversed(swept)}
    cases = [case for case in swept if case.problem == first[case.kernel.name]]
    if not cases:
        raise NoCase(
            "no kernel sweeps the side of its block: declare one with [sweep.SIDE] and "
            'block = ["SIDE", "SIDE"]'
        )
    for case in cases:
        lab.device.run(case)


def side_name(kernel: Kernel) -> str:
    """The parameter that is swept and is both sides of the block; empty where there is none."""
    if len(kernel.swept) == 1 and kernel.block == kernel.swept * 2:
        return kernel.swept[0]
    return ""


def side_of(measured: Measured) -> int:
    """The side of its block."""
    return measured.block[0]


def findings(measured: Sequence[Measured]) -> dict[str, Any]:
    """By kernel: an exponential ``time`` (s) and a logarithmic ``rate`` (FLOP/s) over the side."""
    found = {}
    for name, points in by_kernel(measured).items():
        sides = [side_of(m) for m in points]
        fits = {
            "time": exponential(sides, [m.seconds for m in points]),
            "rate": logarithmic(sides, [m.rate for m in points]),
        }
        found[name] = {what: fit.to_dict() for what, fit in fits.items()}
    return found


def occupancy_of(measured: Measured, environment: Mapping[str, Any]) -> float | None:
    """The part of a multiprocessor's warps that resident blocks fill; None where nobody can say."""
    counters = measured.counters
    capability = str(environment.get("compute_capability", "")).replace(".", "")
    if not capability or "registers" not in counters:
        return None
    threads = prod(measured.block)
    shared = int(counters.get("static_shared_bytes", 0)) + measured.shared_mem
    try:
        found = occupancy(f"sm_{capability}", threads, int(counters["registers"]), shared)
    except GemmError:
        return None
    return found.fraction


def report(study: Study) -> Iterator[str]:
    """A table for each kernel, and its fits."""
    for name, points in by_kernel(study.timed).items():
        yield f"{code(name)} on {points[0].problem}:"
        yield ""
        if study.is_host:
            yield (
                "A CPU runs the threads of a block one after another: a smaller problem is enough, "
                "and there is no occupancy."
            )
            yield ""
        rows = []
        for m in points:
            filled = occupancy_of(m, study.environment)
            side = side_of(m)
            rows.append(
                [
                    *(str(side), str(side * side), seconds(m.seconds), rate(m.rate, "FLOP/s")),
                    NOTHING if filled is None else f"{100 * filled:.0f} %",
                ]
            )
        heading = ["side", "threads", "time", "rate", "theoretical occupancy"]
        if study.is_host:
            heading, rows = heading[:-1], [row[:-1] for row in rows]
        yield from table(heading, rows)
        fits = study.findings[name]
        yield f"- time over side s, exponential: {_exponential(fits['time'])}"
        yield f"- rate over side s, logarithmic: {_logarithmic(fits['rate'])}"
        yield ""


def _exponential(fit: Mapping[str, Any]) -> str:
    if fit["reason"]:
        return f"no fit: {fit['reason']}"
    c, e = fit["coefficients"], fit["errors"]
    return (
        f"{_pair(c, e, 'floor', 1e3)} ms + {_pair(c, e, 'height', 1e3)} ms * "
        f"exp(-{_pair(c, e, 'rate')} s); {_goodness(fit)}"
    )


def _logarithmic(fit: Mapping[str, Any]) -> str:
    if fit["reason"]:
        return f"no fit: {fit['reason']}"
    c, e = fit["coefficients"], fit["errors"]
    return (
        f"{_pair(c, e, 'offset', 1e-9)} GFLOP/s + {_pair(c, e, 'slope', 1e-9)} GFLOP/s * ln(s); "
        f"{_goodness(fit)}"
    )


def _pair(c: Mapping[str, float], e: Mapping[str, float], name: str, scale: float = 1) -> str:
    return f"({digits(scale * c[name])} +- {digits(scale * e[name])})"


def _goodness(fit: Mapping[str, Any]) -> str:
    return f"R^2 = {fit['r_squared']:.4f}, rms residual {100 * fit['residual']:.2g} %"


def by_kernel(measured: Sequence[Measured]) -> dict[str, list[Measured]]:
    """Those that were timed, by the kernel's name, in the order of their sides."""
    found: dict[str, list[Measured]] = {}
    for m in measured:
        if m.estimate is not None:
            found.setdefault(m.name, []).append(m)
    return {name: sorted(points, key=side_of) for name, points in found.items()}
