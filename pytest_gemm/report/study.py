"""The figures of ``pytest-gemm study``, made from its JSON (``studies.document``)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from pytest_gemm.report.fitted import curve, goodness
from pytest_gemm.report.marks import (
    INK,
    Axis,
    Figure,
    Row,
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
from pytest_gemm.report.text import rate, seconds

Study = Mapping[str, Any]
Measured = Mapping[str, Any]

GIGA = 1e9

WAYS = {
    "alone": ("", "kernel alone"),
    "pageable": ("pageable_total_s", "with transfers, pageable"),
    "pinned": ("pinned_total_s", "with transfers, pinned"),
}
"""What counts as the device's time: the counter that has it, and what it is called."""

SIDES = {"c": "plain C", "numpy": "NumPy"}


def study_figures(studies: Iterable[Study]) -> list[Figure]:
    """Every figure of some studies; of a study that is not known, none."""
    drawn = {"ladder": _ladder, "cpu-vs-gpu": _crossovers, "block-size": _block_sizes}
    return [
        figure
        for index, study in enumerate(studies)
        if study["name"] in drawn
        for figure in drawn[study["name"]](study, f"study-{index}")
    ]


def study_notes(studies: Iterable[Study]) -> list[str]:
    """Why there are points that a reader may miss: the first of each kernel that was left out."""
    return [
        f"Study {study['name']} left out {kernel} from {left['problem']} on: {left['reason']}."
        for study in studies
        for kernel, left in {x["kernel"]: x for x in reversed(study.get("left_out", ()))}.items()
    ]


def _ladder(study: Study, id: str) -> Iterator[Figure]:
    steps = [step for step in study["findings"]["steps"] if step["speedup"] is not None]
    if not steps:
        return
    rows = [
        {
            "step": f"{step['derived_from']} to {step['kernel']}",
            "N": step["N"],
            "speedup": step["speedup"],
            "low": step["speedup"] - (step["error"] or 0.0),
            "high": step["speedup"] + (step["error"] or 0.0),
            "text": f"{step['speedup']:.2f}x",
        }
        for step in sorted(steps, key=lambda step: step["N"])
    ]
    rungs = [rung["kernel"] for rung in study["findings"]["rungs"]]
    names = [row["step"] for row in rows]
    order = sorted(dict.fromkeys(names), key=lambda name: rungs.index(name.split(" to ")[-1]))
    sizes = sorted({row["N"] for row in rows})
    encoding = {
        "x": Axis("N", "N", 2, options={"values": sizes, "labelOverlap": True}).to_dict(),
        "y": Axis("speedup", "speed-up of the step", zero=True).to_dict(),
        **series("step", order),
    }
    marks = points(tooltip(step="step", N="N", text="speed-up"), shapes("step", order))
    yield Figure(
        id=f"{id}-ladder",
        title="Study of a ladder: what each step brought",
        text=f"Times faster than the kernel before, over N; {_where(study)}.",
        spec=layered(encoding, line("N"), whisker(encoding["y"], "low", "high"), marks, _one()),
        rows=tuple(rows),
        choice="step",
        series=tuple(order),
        notes=tuple(
            f"{rung['kernel']}: {rung['change']}; loads {rung['loads'] or 'not counted'}"
            for rung in study["findings"]["rungs"]
            if rung["change"]
        ),
    )


def _one() -> Spec:
    """Where a step neither gains nor loses."""
    return {
        "data": {"values": [{"speedup": 1}]},
        "mark": {"type": "rule", "stroke": INK, "strokeDash": [4, 4], "aria": False},
        "encoding": {"x": None, "color": None},
    }


def _block_sizes(study: Study, id: str) -> Iterator[Figure]:
    by_kernel: dict[str, list[Measured]] = {}
    for m in study["measured"]:
        if m["estimate"] is not None:
            by_kernel.setdefault(m["name"], []).append(m)
    for index, (name, measured) in enumerate(by_kernel.items()):
        fits = study["findings"].get(name, {})
        rows = [_side(m) for m in sorted(measured, key=lambda m: m["block"][0])]
        sides = [row["side"] for row in rows]
        about = f"{name} on {measured[0]['problem']}, {_where(study)}"
        for field, unit, scale in (("rate", "GFLOP/s", GIGA), ("time", "time in ms", 1e-3)):
            found = fits.get(field)
            fitted = curve(found, sides, "side", field, scale)
            encoding = {
                "x": Axis("side", "side of the block").to_dict(),
                "y": Axis(field, unit, zero=True).to_dict(),
            }
            marks = points(tooltip(kernel="kernel", side="side", rate_text="rate",
                                   time_text="time"))  # fmt: skip
            marks["mark"]["color"] = "var(--series-1)"
            bars = whisker(encoding["y"], f"{field}_low", f"{field}_high")
            bars["mark"]["stroke"] = "var(--series-1)"
            yield Figure(
                id=f"{id}-block-{index}-{field}",
                title=f"Study of block sizes: {field} of {name}",
                text=f"{about}; the line is the {found['model']} fit." if fitted else f"{about}.",
                spec=layered(encoding, *fitted, bars, marks),
                rows=tuple(rows),
                notes=tuple(goodness(found)),
            )


def _side(m: Measured) -> dict[str, Any]:
    e = m["estimate"]
    return {
        "kernel": m["kernel"],
        "side": m["block"][0],
        "rate": m["flops"] / e["median"] / GIGA,
        "rate_low": m["flops"] / e["high"] / GIGA,
        "rate_high": m["flops"] / e["low"] / GIGA,
        "time": e["median"] * 1e3,
        "time_low": e["low"] * 1e3,
        "time_high": e["high"] * 1e3,
        "rate_text": rate(m["flops"] / e["median"], "FLOP/s"),
        "time_text": seconds(e["median"]),
    }


def _crossovers(study: Study, id: str) -> Iterator[Figure]:
    """Times over N of each operation: C, NumPy and the device, and where the device pays."""
    for op, title in (("gemm", "multiplication"), ("add", "addition")):
        own = [m for m in study["measured"] if m["op"] == op and m["estimate"] is not None]
        rows = sorted((row for m in own for row in _times(m)), key=lambda row: row["N"])
        if not rows:
            continue
        names = list(dict.fromkeys(row["curve"] for row in rows))
        found = [x for x in study["findings"]["crossovers"] if x["op"] == op]
        sizes = [row["N"] for row in rows]
        shown = [row["time"] for row in rows]
        encoding = {
            "x": Axis("N", "N", 10, options=decades(sizes)).to_dict(),
            "y": Axis("time", "time in ms", 10, options=decades(shown)).to_dict(),
            **series("curve", names),
        }
        marks = points(tooltip(curve="curve", N="N", text="time"), shapes("curve", names))
        crossed = [x for x in found if x["kind"] == "found"]
        yield Figure(
            id=f"{id}-crossover-{op}",
            title=f"Study of CPU and device: {title}",
            text=f"Time over N, {_where(study)}; rings are crossovers, with their intervals.",
            spec=layered(encoding, line("N"), marks, *_crossings(crossed, rows)),
            rows=tuple(rows),
            choice="curve",
            series=tuple(names),
            notes=tuple(map(_crossed, found)),
        )


def _crossings(found: Sequence[Mapping[str, Any]], rows: Sequence[Row]) -> Iterator[Spec]:
    """The crossovers where they lie on the device's curves, and their intervals."""
    curves: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        curves.setdefault(row["curve"], []).append((row["N"], row["time"]))
    crossings = [
        {
            "N": x["size"],
            "time": _at(x["size"], curve),
            "low": x["low"] or curve[0][0],
            "high": x["high"] or curve[-1][0],
            "text": _crossed(x),
        }
        for x in found
        if (curve := curves.get(_curve(x["kernel"], x["way"])))
    ]
    if not crossings:
        return
    own: Spec = {"color": None, "tooltip": tooltip(text="crossover")}
    for mark, encoding in (
        (
            {"type": "rule", "stroke": INK, "strokeWidth": 2, "aria": False},
            {"x": {"field": "low", "type": "quantitative", "title": "N"}, "x2": {"field": "high"}},
        ),
        ({"type": "point", "filled": False, "stroke": INK, "strokeWidth": 2, "size": 160}, {}),
    ):
        yield {"data": {"values": crossings}, "mark": mark, "encoding": {**own, **encoding}}


def _at(size: float, curve: Sequence[tuple[float, float]]) -> float:
    """The time at a size, with its logarithm linear in that of the size."""
    for (a, before), (b, after) in pairwise(curve):
        if a <= size <= b:
            part = math.log(size / a) / math.log(b / a)
            return float(before * (after / before) ** part)
    return curve[-1][1]


def _times(m: Measured) -> Iterator[dict[str, Any]]:
    for way, (counter, _) in WAYS.items():
        time = m["counters"].get(counter) if counter else m["estimate"]["median"]
        if time:
            name = SIDES.get(m["side"]) or _curve(m["kernel"], way)
            yield {"curve": name, "N": m["N"], "time": time * 1e3, "text": seconds(time)}


def _curve(kernel: str, way: str) -> str:
    """The name of a device's curve; empty where it is not drawn."""
    return f"{kernel}, {WAYS[way][1]}" if way in WAYS else ""


def _crossed(found: Mapping[str, Any]) -> str:
    told = " from N =" if found["kind"] == "found" else ":"
    return f"{_who(found)} faster than {SIDES[found['baseline']]}{told} {found['text']}"


def _who(found: Mapping[str, Any]) -> str:
    told = WAYS[found["way"]][1] if found["way"] in WAYS else "one launch between events"
    return f"{found['kernel']} ({told})"


def _where(study: Study) -> str:
    """The machine, and the day."""
    return f"{study['device']['description']}, {study['date'][:10]}"
