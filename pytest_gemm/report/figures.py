"""The figures of a run: rates over sizes, rooflines, ladders, sweeps; and a case's times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pytest_gemm.report.fitted import curve, goodness
from pytest_gemm.report.marks import (
    FAINT,
    INK,
    SERIES,
    Axis,
    Figure,
    Spec,
    decades,
    layered,
    line,
    points,
    series,
    shapes,
    tooltip,
    whisker,
)
from pytest_gemm.report.model import Line, Report, told_rate
from pytest_gemm.report.text import percent, rate, seconds

GIGA = 1e9
OPS = {"gemm": "multiplication", "add": "addition"}

LEAST_SWEEP = 3
"""Values of a parameter that make a curve."""

TIPS = tooltip(kernel="kernel", problem="problem", rate_text="rate", time_text="time", state="said")


def figures(report: Report) -> list[Figure]:
    """Every figure that there are data for."""
    timed = [own for own in report.lines if own.median is not None]
    return [*_rates(timed), *_rooflines(timed), *_ladders(timed), *_sweeps(timed)]


def notes(report: Report) -> list[str]:
    """Why there are figures that a reader may miss."""
    timed = [own for own in report.lines if own.median is not None]
    if not timed or any(own.ceiling for own in timed):
        return []
    return [
        "No roofline: its ceilings are what the vendor's own routines reach, and this device has "
        "none."
    ]


def _rates(timed: Sequence[Line]) -> Iterator[Figure]:
    for op, dtype in _kinds(timed):
        own = [x for x in timed if (x.op, x.dtype) == (op, dtype) and not x.swept]
        names = _by_interest(own)
        if not own:
            continue
        unit = f"G{own[0].unit}"
        rows = [_row(x) for x in sorted(own, key=lambda x: (x.kernel, x.size))]
        sizes = sorted({x.size for x in own})
        values = {"values": sizes} if len(sizes) <= 12 else {}
        encoding = {
            "x": Axis(
                "size", "N", base=2, options={**values, "format": ",.0f", "labelOverlap": True}
            ).to_dict(),
            "y": Axis("rate", unit, _log_if_wide([x.rate or 0 for x in own]), zero=True).to_dict(),
            **series("kernel", names),
        }
        square = all(len(set(x.problem.split("x"))) == 1 for x in own if x.op == "gemm")
        yield Figure(
            id=f"rate-{op}-{dtype}",
            title=f"Rate of {OPS.get(op, op)}, {dtype}",
            text=f"{unit} against N; bars are 95 % intervals of medians.",
            spec=layered(
                encoding,
                line("size"),
                whisker(encoding["y"], "rate_low", "rate_high"),
                points(TIPS, shapes("kernel", names)),
            ),
            rows=tuple(rows),
            choice="kernel",
            series=tuple(names),
            notes=() if square else ("N is the side of a square problem with as many operations.",),
        )


def _rooflines(timed: Sequence[Line]) -> Iterator[Figure]:
    for dtype in dict.fromkeys(x.dtype for x in timed):
        own = [x for x in timed if x.dtype == dtype and not x.swept]
        compute = max((x.ceiling or 0 for x in own if x.op == "gemm"), default=0)
        memory = max((x.ceiling or 0 for x in own if x.op == "add"), default=0)
        if not compute and not memory:
            continue
        # In the order, and so the colours, of the rates' figure.
        products = [x for x in own if x.op == "gemm"]
        others = [x for x in own if x.op != "gemm"]
        names = [*_by_interest(products), *_by_interest(others)]
        rows = [
            {
                **_row(x),
                "intensity": x.intensity,
                "intensity_text": f"{x.intensity:.4g}",
                "rate": _rounded(_flops_per_s(x) / GIGA),
            }
            for x in own
        ]
        reach = [x.intensity for x in own]
        roof = _roof(min(reach), max(reach), compute, memory)
        ends = [point["intensity"] for point in roof]
        rates = [*(_flops_per_s(x) / GIGA for x in own), *(point["rate"] for point in roof)]
        names_of = {x.op: x.reference for x in own if x.ceiling}
        told = [
            f"{names_of.get('gemm')}: {rate(compute, 'FLOP/s')}" if compute else "",
            f"{names_of.get('add')}: {rate(memory, 'B/s')}" if memory else "",
        ]
        encoding = {
            "x": Axis(
                "intensity", "FLOP per byte of the least traffic", 10, options=decades(ends)
            ).to_dict(),
            "y": Axis("rate", "GFLOP/s", 10, options=decades(rates)).to_dict(),
        }
        ceiling: Spec = {
            "data": {"values": roof},
            "mark": {"type": "line", "stroke": INK, "strokeWidth": 2, "strokeDash": [6, 4]},
            "encoding": {"description": {"value": f"measured ceilings: {'; '.join(told)}"}},
        }
        marks = points(
            [*TIPS, *tooltip(intensity_text="FLOP per byte")],
            series("kernel", names) | shapes("kernel", names),
        )
        yield Figure(
            id=f"roofline-{dtype}",
            title=f"Roofline, {dtype}",
            text="Rate against arithmetic intensity, below what was measured of this device.",
            spec=layered(encoding, ceiling, marks),
            rows=tuple(rows),
            choice="kernel",
            series=tuple(names),
            notes=(f"Measured ceilings: {'; '.join(filter(None, told))}.",),
        )


def _flops_per_s(own: Line) -> float:
    """Of an addition too, whose rate is in bytes."""
    return (own.rate or 0.0) * (own.intensity if own.unit == "B/s" else 1.0)


def _roof(low: float, high: float, compute: float, memory: float) -> list[dict[str, float]]:
    """The ceiling's corners, a little beyond the points on both sides."""
    ends = [low / 2, high * 2]
    ridge = compute / memory if compute and memory else 0.0
    corners = sorted({*ends, *([ridge] if ends[0] < ridge < ends[1] else [])})
    limits = (
        (x, [limit for limit in (compute, memory * x) if limit]) for x in corners
    )  # where one was not measured the other stands alone
    return [{"intensity": x, "rate": min(limit) / GIGA} for x, limit in limits]


def _ladders(timed: Sequence[Line]) -> Iterator[Figure]:
    """Each chain of kernels on the largest problem that all of it has."""
    for op, dtype in _kinds(timed):
        own = [x for x in timed if (x.op, x.dtype) == (op, dtype) and not x.swept]
        for problem in _largest_shared(own):
            rungs = _in_order([x for x in own if x.problem == problem])
            if len(rungs) < 2:
                continue
            before = {x.kernel: x for x in rungs}
            rows = [_rung(i, x, before.get(x.derived_from)) for i, x in enumerate(rungs)]
            order = [row["kernel"] for row in rows]
            encoding: Spec = {
                "y": {"field": "kernel", "type": "nominal", "sort": order, "axis": {"title": None}},
                "x": Axis("rate", f"G{rungs[0].unit}", zero=True).to_dict(),
            }
            # Room for what is written at the longest bar's end.
            most = max(x.rate or 0.0 for x in rungs) / GIGA
            encoding["x"]["scale"] = {"domain": [0, 1.18 * most], "nice": False}
            bar: Spec = {
                "mark": {"type": "bar", "fill": "var(--series-1)", "cornerRadiusEnd": 4,
                         "height": {"band": 0.6}},
                "encoding": {"tooltip": [*TIPS, *tooltip(change="changed", step="step")]},
            }  # fmt: skip
            label: Spec = {
                "mark": {"type": "text", "align": "left", "dx": 6, "fill": INK, "aria": False},
                "encoding": {"text": {"field": "step", "type": "nominal"}},
            }
            yield Figure(
                id=f"ladder-{op}-{dtype}",
                title=f"Ladder on {problem}, {dtype}",
                text="Each kernel's rate, and how many times the rate of the one that it is "
                "derived from.",
                spec=layered(encoding, bar, label),
                rows=tuple(rows),
                height=60 + 38 * len(rows),
                notes=tuple(f"{x.kernel}: {x.change_made}" for x in rungs if x.change_made),
            )
            break


def _rung(index: int, own: Line, before: Line | None) -> dict[str, object]:
    step = ""
    if before is not None and before.median and own.median:
        step = f"{before.median / own.median:.2f}x"
    row = _row(own)
    return {**row, "order": index, "change": own.change_made, "step": step}


def _largest_shared(own: Sequence[Line]) -> list[str]:
    """Problems by how many kernels have them, then by size."""
    kernels: dict[str, set[str]] = {}
    sizes: dict[str, float] = {}
    for x in own:
        kernels.setdefault(x.problem, set()).add(x.kernel)
        sizes[x.problem] = x.size
    return sorted(kernels, key=lambda p: (-len(kernels[p]), -sizes[p]))


def _in_order(own: Sequence[Line]) -> list[Line]:
    """The chains only, each kernel after the one that it is derived from."""
    by_name = {x.kernel: x for x in own}
    used = {x.derived_from for x in own if x.derived_from in by_name}
    chained = [x for x in own if x.kernel in used or x.derived_from in by_name]

    def depth(x: Line) -> int:
        seen = set()
        while x.derived_from in by_name and x.kernel not in seen:
            seen.add(x.kernel)
            x = by_name[x.derived_from]
        return len(seen)

    return sorted(chained, key=lambda x: (depth(x), x.kernel))


def _sweeps(timed: Sequence[Line]) -> Iterator[Figure]:
    swept = [x for x in timed if len(x.swept) == 1]
    keys = dict.fromkeys((x.family, x.swept[0][0], x.dtype) for x in swept)
    for family, parameter, dtype in keys:
        own = [x for x in swept if (x.family, x.swept[0][0], x.dtype) == (family, parameter, dtype)]
        if len({x.swept[0][1] for x in own}) < LEAST_SWEEP:
            continue
        rows = [
            {**_row(x), "value": x.swept[0][1]} for x in sorted(own, key=lambda x: x.swept[0][1])
        ]
        problems = list(dict.fromkeys(x.problem for x in own))
        fit = _fit_over_sides(own) if len(problems) == 1 else None
        fitted = curve(fit, [x.swept[0][1] for x in own], "value", "rate", GIGA)
        bars = "bars are 95 % intervals of medians"
        encoding = {
            "x": Axis("value", parameter).to_dict(),
            "y": Axis("rate", f"G{own[0].unit}", zero=True).to_dict(),
            **series("problem", problems),
        }
        yield Figure(
            id=f"sweep-{len(family)}-{family}-{parameter}-{dtype}",
            title=f"{family} over {parameter}, {dtype}",
            text=f"Rate against {parameter}; {bars}{', the curve is a fit' if fitted else ''}.",
            spec=layered(
                encoding,
                *fitted,
                line("value"),
                whisker(encoding["y"], "rate_low", "rate_high"),
                points(TIPS, shapes("problem", problems)),
            ),
            rows=tuple(rows),
            choice="problem",
            series=tuple(problems),
            notes=tuple(goodness(fit)),
        )


def _fit_over_sides(own: Sequence[Line]) -> dict[str, Any] | None:
    """The logarithmic fit of the rates, where the side of a square block was swept."""
    if not all(x.is_side for x in own):
        return None
    from pytest_gemm.fits import logarithmic

    points = [(x.swept[0][1], x.rate or 0.0) for x in own]
    return logarithmic(*zip(*points, strict=True)).to_dict()


def of_a_case() -> dict[str, Spec]:
    """What the page fills with the rows of one case: its ``history``, and ``samples`` old and new.

    Rows: ``date``, ``order``, ``time``, ``low``, ``high``, and ``now`` (0 or 1) for this run; in
    ``samples`` low and high are the first and last decile.
    """
    tips = tooltip(
        date="session", time_text="median", between="interval", commit="commit", program="program"
    )
    now = {
        "condition": {"test": "datum.now === 1", "value": "var(--series-8)"},
        "value": "var(--series-1)",
    }
    ordinal = {
        "field": "date", "type": "ordinal", "sort": {"field": "order"},
        "axis": {"title": None, "labelAngle": -45, "labelLimit": 130, "labelOverlap": True},
    }  # fmt: skip
    time = Axis("time", "time").to_dict()
    across: Spec = {"y": {**ordinal, "axis": {"title": None, "labelLimit": 130}}}
    history = layered(
        {"x": ordinal, "y": time},
        {"mark": {"type": "line", "stroke": FAINT, "strokeWidth": 2, "aria": False},
         "encoding": {"order": {"field": "order", "type": "quantitative"},
                      "detail": {"field": "epoch", "type": "nominal"}}},
        {"mark": {"type": "rule", "strokeWidth": 2, "aria": False},
         "encoding": {"y": {**time, "field": "low"}, "y2": {"field": "high"}, "color": now}},
        {"mark": {"type": "point", "filled": True, "size": 70, "opacity": 1},
         "encoding": {"color": now, "tooltip": tips}},
    )  # fmt: skip
    stored = [{"filter": "isValid(datum.low)"}]
    samples = layered(
        {**across, "x": time},
        {"transform": stored,
         "mark": {"type": "rule", "strokeWidth": 7, "strokeCap": "round", "opacity": 0.45,
                  "aria": False},
         "encoding": {"x": {**time, "field": "low"}, "x2": {"field": "high"}, "color": now}},
        {"transform": [{"filter": "!isValid(datum.low)"}],
         "mark": {"type": "tick", "opacity": 0.5, "thickness": 1.5, "aria": False},
         "encoding": {"color": now}},
        {"transform": stored,
         "mark": {"type": "point", "filled": True, "size": 60, "opacity": 1},
         "encoding": {"color": now, "tooltip": tips}},
    )  # fmt: skip
    return {"history": history, "samples": samples}


def _row(own: Line) -> dict[str, object]:
    median, low, high = own.median or 0.0, own.low or 0.0, own.high or 0.0
    half = (high - low) / 2 / median if median else 0.0
    return {
        "kernel": own.kernel,
        "problem": own.problem,
        "size": own.size,
        "rate": _rounded((own.rate or 0.0) / GIGA),
        "rate_low": _rounded(own.work / high / GIGA) if high else None,
        "rate_high": _rounded(own.work / low / GIGA) if low else None,
        "rate_text": told_rate(own),
        "time_text": f"{seconds(median)} ± {percent(half, signed=False)}",
        "state": own.state,
    }


def _kinds(timed: Sequence[Line]) -> list[tuple[str, str]]:
    """Operations and types, multiplication first."""
    found = dict.fromkeys((x.op, x.dtype) for x in timed)
    return sorted(found, key=lambda kind: (list(OPS).index(kind[0]), kind[1]))


def _by_interest(own: Sequence[Line]) -> list[str]:
    """Kernels as they are declared; of more than can be told apart, those that failed first."""
    names = list(dict.fromkeys(x.kernel for x in sorted(own, key=lambda x: x.place)))
    if len(names) <= SERIES:
        return names
    failing = {x.kernel for x in own if x.fails}
    best: dict[str, float] = {}
    for x in own:
        best[x.kernel] = max(best.get(x.kernel, 0.0), x.rate or 0.0)
    return sorted(names, key=lambda name: (name not in failing, -best[name]))


def _log_if_wide(rates: Sequence[float]) -> int | None:
    """A logarithmic axis where a linear one would press most points to the bottom."""
    known = [value for value in rates if value > 0]
    return 10 if known and max(known) > 50 * min(known) else None


def _rounded(value: float) -> float:
    return float(f"{value:.5g}")
