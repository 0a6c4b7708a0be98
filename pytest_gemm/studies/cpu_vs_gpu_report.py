"""The report of ``cpu_vs_gpu``: tables of rates, times and transfers; crossovers; fits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pytest_gemm.fits import is_told
from pytest_gemm.markdown import NOTHING, code, digits, giga, table, with_error
from pytest_gemm.report.text import seconds
from pytest_gemm.studies.cpu_vs_gpu import DEGREES, WAYS, Curve, curves_of, operations, transfers_of
from pytest_gemm.studies.document import Study

TITLES = {"add": "Addition", "gemm": "Multiplication"}

NAMES = {"c": "C", "numpy": "NumPy"}


def report(study: Study) -> Iterator[str]:
    """Lines of Markdown."""
    if study.is_host:
        yield (
            "There is no GPU here: on the device's side stand the same kernels, run by this CPU, "
            "which has nothing to transfer. What follows is a check of the method, not a GPU's "
            "merit."
        )
        yield ""
    curves = curves_of(study.timed)
    if not curves:
        yield "Nothing was timed."
        yield ""
        return
    sizes = sorted({n for curve in curves for n in curve.points})
    yield "GFLOP/s, at n^2 operations of an addition (+), 2 n^3 - n^2 of a multiplication (\\*):"
    yield ""
    rated = [c for c in curves if c.way in ("alone", "pageable")]
    yield from _over_sizes(
        sizes,
        [(_heading(curve, study), _rates(curve)) for curve in rated],
    )
    for op, title in TITLES.items():
        own = [c for c in curves if c.op == op]
        if own:
            yield f"{title}, time of one:"
            yield ""
            yield from _over_sizes(
                sizes, [(_heading(curve, study), _times(curve)) for curve in own]
            )
    yield from _transfers(study)
    yield from _crossovers(study)
    yield from _fits(study)


def _rates(curve: Curve) -> dict[int, str]:
    return {n: giga(operations(curve.op, n) / p.median) for n, p in curve.points.items()}


def _times(curve: Curve) -> dict[int, str]:
    return {n: seconds(point.median) for n, point in curve.points.items()}


def _over_sizes(
    sizes: Sequence[int], columns: Sequence[tuple[str, Mapping[int, str]]]
) -> Iterator[str]:
    yield from table(
        ["n", *(heading for heading, _ in columns)],
        (
            [str(n), *(cells.get(n, NOTHING) for _, cells in columns)]
            for n in sizes
            if any(n in cells for _, cells in columns)
        ),
    )


def _transfers(study: Study) -> Iterator[str]:
    rows = transfers_of(study.timed)
    if not rows:
        return
    parts = [(kind, part) for kind in ("pageable", "pinned") for part in ("upload", "download")]
    yield "Transfers: A and B to the device, C back (half as much), between events on the stream:"
    yield ""
    yield from table(
        [
            "n",
            "bytes of C",
            *(f"{kind}, {'to the device' if p == 'upload' else 'back'}" for kind, p in parts),
        ],
        (
            [
                *(str(n), f"{4 * n * n:,}"),
                *(
                    _transfer(counters[f"{kind}_{part}_s"], 4 * n * n * (1 + (part == "upload")))
                    for kind, part in parts
                ),
            ]
            for n, counters in rows.items()
        ),
    )
    yield (
        "Pageable memory is what malloc and NumPy give; CUDA copies it by way of its own. Pinned "
        "memory (cudaHostAlloc) the device reads itself; to allocate it is not in the time."
    )
    yield ""


def _transfer(taken: float, nbytes: int) -> str:
    return f"{seconds(taken)} ({digits(nbytes / taken / 1e9)} GB/s)"


def _crossovers(study: Study) -> Iterator[str]:
    if not study.findings["crossovers"]:
        return
    yield (
        "From which n on the device is faster; in brackets 95 % of what the medians' errors, and "
        "the scatter from size to size, make of it:"
    )
    yield ""
    yield from table(
        ["", "against", "the device's time", "n"],
        (
            [
                f"{TITLES[found['op']].lower()}, {code(found['kernel'])}",
                NAMES[found["baseline"]],
                _way(found["way"], study),
                found["text"],
            ]
            for found in study.findings["crossovers"]
        ),
    )


def _fits(study: Study) -> Iterator[str]:
    if not study.findings["fits"]:
        return
    ratios = {(r["kernel"], r["way"]): r for r in study.findings["ratios"]}
    yield "Polynomials in n through the times, each weighted by 1 / time; leading coefficients:"
    yield ""
    yield from table(
        ["", "degree", "points", "leading coefficient in s", "C's over this one", "rms residual"],
        (
            [
                f"{TITLES[fit['op']].lower()}, {_of(fit, study)}",
                str(DEGREES[fit["op"]]),
                str(fit["n"]),
                *_leading(fit, ratios.get((fit["kernel"], fit["way"]))),
            ]
            for fit in study.findings["fits"]
            if fit["way"] in ("alone", "pageable")
        ),
    )


def _leading(fit: Mapping[str, Any], ratio: Mapping[str, float] | None) -> list[str]:
    if fit["reason"]:
        return [f"no fit: {fit['reason']}", NOTHING, NOTHING]
    name = f"c{DEGREES[fit['op']]}"
    value, error = fit["coefficients"][name], fit["errors"][name]
    shown = NOTHING if is_told(value, error) else "not told from 0"
    if ratio is not None:
        shown = f"{digits(ratio['value'])} +- {digits(ratio['error'])}"
    return [with_error(value, error), shown, f"{100 * fit['residual']:.2g} %"]


def _heading(curve: Curve, study: Study) -> str:
    sign = "+" if curve.op == "add" else "\\*"
    return f"{_of(vars(curve), study)} {sign}"


def named(curve: Curve, study: Study) -> str:
    """What a curve is called where there is no markup."""
    return _who(curve.side, curve.kernel, curve.way, study)


def _of(found: Mapping[str, Any], study: Study) -> str:
    kernel = found["kernel"] if found["side"] in NAMES else code(found["kernel"])
    return _who(found["side"], kernel, found["way"], study)


def _who(side: str, kernel: str, way: str, study: Study) -> str:
    if side in NAMES:
        return NAMES[side]
    name = f"{kernel} on the CPU" if study.is_host else kernel
    return name if way == "alone" else f"{name}, {WAYS[way]}"


def _way(way: str, study: Study) -> str:
    return f"{WAYS[way]}, run by the CPU" if study.is_host else WAYS[way]
