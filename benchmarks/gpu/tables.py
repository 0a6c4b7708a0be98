"""Raw results of ``method.py`` to tables: text in, text out, no GPU.

A session is what one process of ``child.py session`` wrote. All times in seconds.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

from pytest_gemm.problem import Problem

LAUNCHES = 20
"""Launches of each case that ncu watches."""

REPLAYS, REPLAYED = 6, 20
"""Samples of each case under CUPTI, and launches of a sample."""

MARKER = "case_marker"
"""The kernel that is launched ahead of each case where a tool lists all launches."""

IGNORED = ("hold", "shuffle")
"""Kernels of the back end's own, ahead of each sample."""

UNITS = {"ns": 1e-9, "nsecond": 1e-9, "us": 1e-6, "usecond": 1e-6, "ms": 1e-3, "msecond": 1e-3}
"""Seconds of ncu's units of time, in its newer and older spelling."""

Row = Mapping[str, str]
Kernel = tuple[str, dict[str, float]]
"""A launch that a tool saw: the kernel's name, and numbers by name."""


# Statistics


def session_median(session: Mapping[str, Any], way: str, case: str) -> float | None:
    """The median of a session's samples of a case; None where it has none."""
    for timed in session.get(way, ()):
        if timed["case"] == case and timed.get("samples"):
            return float(median(timed["samples"]))
    return None


def medians(sessions: Iterable[Mapping[str, Any]], way: str, case: str) -> list[float]:
    """Each session's median of a case, of those that have one."""
    found = (session_median(session, way, case) for session in sessions)
    return [value for value in found if value is not None]


def relative_sd(values: Sequence[float]) -> float:
    """Standard deviation over mean (NaN for fewer than two values)."""
    return stdev(values) / mean(values) if len(values) > 1 else math.nan


def sd_goal(seconds: float) -> float | None:
    """The relative sd between processes that a median of that size may have; None for no goal."""
    if seconds >= 5e-6:
        return 0.003
    return 0.005 if seconds >= 1e-6 else None


def agreement_goal(seconds: float) -> float | None:
    """How far a hot time may be from a profiler's."""
    if seconds >= 50e-6:
        return 0.02
    return 0.10 if seconds >= 5e-6 else None


def cold_goal(seconds: float) -> float | None:
    """How far a cold time may be from NVBench's."""
    return 0.03 if seconds >= 50e-6 else None


# What the tools wrote


def read_ncu(text: str) -> list[Kernel]:
    """Launches in order, from ``ncu --csv``; times in seconds, other metrics as they are."""
    lines = text.splitlines()
    heads = [i for i, line in enumerate(lines) if line.startswith('"ID"')]
    if not heads:
        raise ValueError("no table in what ncu wrote")
    found: dict[str, Kernel] = {}
    for row in csv.DictReader(io.StringIO("\n".join(lines[heads[0] :]))):
        _, metrics = found.setdefault(row["ID"], (row["Kernel Name"], {}))
        value = float(row["Metric Value"].replace(",", ""))
        metrics[row["Metric Name"]] = value * UNITS.get(row["Metric Unit"], 1.0)
    return list(found.values())


def read_trace(kernels: Iterable[Sequence[Any]]) -> list[Kernel]:
    """Launches in order, from ``child.py trace``: ``start`` and ``duration`` in seconds."""
    return [(name, {"start": ts * 1e-6, "duration": dur * 1e-6}) for ts, dur, name in kernels]


def by_case(kernels: Iterable[Kernel], names: Sequence[str]) -> dict[str, list[Kernel]]:
    """The launches that follow each marker, for the cases in the order of the markers."""
    groups: list[list[Kernel]] = []
    for kernel in kernels:
        if kernel[0].startswith(MARKER):
            groups.append([])
        elif groups and not kernel[0].startswith(IGNORED):
            groups[-1].append(kernel)
    if len(groups) != len(names):
        raise ValueError(f"{len(groups)} markers for {len(names)} cases")
    return dict(zip(names, groups, strict=True))


def by_launch(kernels: Sequence[Kernel], launches: int) -> list[Sequence[Kernel]]:
    """The kernels of each launch: a library may need several. Raises ValueError for a rest."""
    each, rest = divmod(len(kernels), launches)
    if rest or not each:
        raise ValueError(f"{len(kernels)} kernels in {launches} launches")
    return [kernels[i : i + each] for i in range(0, len(kernels), each)]


def launch_seconds(launches: Iterable[Sequence[Kernel]], metric: str) -> float:
    """Median seconds of a launch, its kernels added up."""
    return median(sum(metrics[metric] for _, metrics in kernels) for kernels in launches)


def period(launches: Iterable[Sequence[Kernel]]) -> float:
    """Median seconds from the start of a launch to the start of the next."""
    starts = [kernels[0][1]["start"] for kernels in launches]
    return median(b - a for a, b in pairwise(starts))


def read_nvbench(states: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """The numbers of NVBench's summaries, by case and by tag (``nv/cold/time/gpu/mean``)."""
    found: dict[str, dict[str, float]] = {}
    for state in states:
        [case] = [axis["value"] for axis in state["axis_values"] if axis["name"] == "case"]
        numbers = found[case] = {}
        for summary in state["summaries"] or ():
            for entry in summary["data"]:
                if entry["name"] == "value" and entry["type"] in ("float64", "int64"):
                    numbers[summary["tag"]] = float(entry["value"])
    return found


# Tables


def session_table(sessions: Sequence[Mapping[str, Any]], names: Sequence[str]) -> list[Row]:
    """How repeatable the median of a process is, hot and cold."""
    rows: list[Row] = []
    for name in names:
        hot, cold = medians(sessions, "hot", name), medians(sessions, "cold", name)
        goal = sd_goal(median(hot)) if hot else None
        rows.append(
            {
                "case": name,
                "hot, us": _us(hot),
                "sd": _percent(relative_sd(hot)),
                "range": _percent((max(hot) - min(hot)) / median(hot)) if hot else "",
                "goal": _held(relative_sd(hot), goal),
                "cold, us": _us(cold),
                "sd, cold": _percent(relative_sd(cold)),
                "wall hot, s": _seconds(_walls(sessions, "hot", name)),
                "wall cold, s": _seconds(_walls(sessions, "cold", name)),
            }
        )
    return rows


def wall_table(
    sessions: Sequence[Mapping[str, Any]], nvbench: Mapping[str, Any] | None
) -> list[Row]:
    """Where the wall time of a process goes, over the processes."""
    parts = {
        "start (imports, CUDA context)": [s["start_s"] for s in sessions],
        "compiling, together": [s["compile_s"] for s in sessions],
        "operands on the host, together": [s["operands_s"] for s in sessions],
        "first launches, together": [s["first_launches_s"] for s in sessions],
        "nine cases, hot": [s["wall_s"]["hot"] for s in sessions if "hot" in s["wall_s"]],
        "nine cases, cold": [s["wall_s"]["cold"] for s in sessions if "cold" in s["wall_s"]],
        "the whole process": [s["process_s"] for s in sessions],
    }
    if nvbench:
        parts["NVBench: nine cases"] = [sum(nvbench["case_wall_s"].values())]
        parts["NVBench: the whole process"] = [nvbench["process_s"]]
    return [
        {"part": part, "median, s": _seconds(walls), "most, s": _seconds([max(walls)])}
        for part, walls in parts.items()
        if walls
    ]


def cold_table(
    sessions: Sequence[Mapping[str, Any]], nvbench: Mapping[str, Any], names: Sequence[str]
) -> list[Row]:
    """Cold times beside NVBench's."""
    theirs = read_nvbench(nvbench["states"])
    rows: list[Row] = []
    for name in names:
        cold, numbers = medians(sessions, "cold", name), theirs.get(name, {})
        other = numbers.get("nv/cold/time/gpu/mean")
        change = median(cold) / other - 1 if cold and other else math.nan
        rows.append(
            {
                "case": name,
                "cold, us": _us(cold),
                "NVBench, us": _us([other] if other else []),
                "difference": _signed(change),
                "goal": _held(abs(change), cold_goal(median(cold)) if cold else None),
                "NVBench noise": _percent(numbers.get("nv/cold/time/gpu/stdev/relative", math.nan)),
                "NVBench wall, s": _seconds([nvbench["case_wall_s"].get(name, math.nan)]),
            }
        )
    return rows


def hot_table(
    sessions: Sequence[Mapping[str, Any]],
    ncu: Mapping[str, list[Kernel]],
    trace: Mapping[str, list[Kernel]],
    names: Sequence[str],
) -> list[Row]:
    """Hot times beside a profiler's: ncu's, and CUPTI's durations and periods.

    Ahead of the samples of a case under CUPTI stands one ordinary launch.
    """
    rows: list[Row] = []
    for name in names:
        hot = medians(sessions, "hot", name)
        own = median(hot) if hot else math.nan
        goal = agreement_goal(own)
        seen = by_launch(ncu[name], LAUNCHES) if name in ncu else []
        traced = by_launch(trace[name], 1 + REPLAYS * REPLAYED) if name in trace else []
        theirs = launch_seconds(seen, "gpu__time_duration.sum") if seen else math.nan
        cupti = launch_seconds(traced, "duration") if traced else math.nan
        apart = period(traced) if traced else math.nan
        clock = _clock(ncu.get(name, []))
        rows.append(
            {
                "case": name,
                "hot, us": _us(hot),
                "ncu, us": _us([theirs]),
                "ncu, more, us": f"{(theirs - own) * 1e6:+.2f}" if seen else "",
                "hot / ncu": _signed(own / theirs - 1),
                "goal, ncu": _held(abs(own / theirs - 1), goal),
                "ncu, MHz": f"{clock / 1e6:.0f}" if clock else "",
                "CUPTI, us": _us([cupti]),
                "hot / CUPTI": _signed(own / cupti - 1),
                "goal, CUPTI": _held(abs(own / cupti - 1), goal),
                "period, us": _us([apart]),
            }
        )
    return rows


def _clock(kernels: Sequence[Kernel]) -> float | None:
    rates = [
        metrics["gpc__cycles_elapsed.max"] / metrics["gpu__time_duration.sum"]
        for _, metrics in kernels
        if "gpc__cycles_elapsed.max" in metrics
    ]
    return median(rates) if rates else None


def alone_table(
    sessions: Sequence[Mapping[str, Any]],
    alone: Sequence[Mapping[str, Any]],
    names: Sequence[str],
) -> list[Row]:
    """A case alone in a process, against the processes where it came after others."""
    rows: list[Row] = []
    for name in names:
        among, single = medians(sessions, "hot", name), medians(alone, "hot", name)
        if len(among) < 2 or not single:
            continue
        change, sd = median(single) / mean(among) - 1, relative_sd(among)
        rows.append(
            {
                "case": name,
                "after others, us": _us([mean(among)]),
                "sd": _percent(sd),
                "alone, us": _us(single),
                "difference": _signed(change),
                "in sd": f"{change / sd:+.1f}",
            }
        )
    return rows


def level_table(processes: Sequence[Mapping[str, Any]]) -> list[Row]:
    """What a process' samples and its median do, as other kernels left the device, and shuffled.

    ``within`` is the median over the processes of the range of their samples; ``sd`` is that of
    their medians.
    """
    rows: list[Row] = []
    for name in processes[0]["levels"]:
        row = {"case": name}
        for state in ("left", "shuffled"):
            samples = [process["levels"][name][state] for process in processes]
            middles = [median(s) for s in samples]
            within = median((max(s) - min(s)) / median(s) for s in samples)
            row |= {
                f"{state}, us": f"{_us([min(middles)])} to {_us([max(middles)])}",
                f"sd, {state}": _percent(relative_sd(middles)),
                f"within, {state}": _percent(within),
            }
        rows.append(row)
    return rows


def copy_table(processes: Sequence[Mapping[str, Any]]) -> list[Row]:
    """The time of a launch after copies within the device's memory: medians over processes."""
    found = [process["copies"] for process in processes]
    row = {"case": found[0]["case"]}
    for state in list(found[0])[1:]:
        row[f"{state}, us"] = _us([median(copies[state]) for copies in found])
    return [row]


def kernel_table(records: Iterable[Mapping[str, Any]], host: Mapping[str, str]) -> list[Row]:
    """The shipped kernels; ``host`` has the digests that the CPU gave, by ``group``."""
    rows: list[Row] = []
    for record in sorted(records, key=_place):
        seconds, percent, known = record["median"], record["percent"], host.get(record["group"])
        rows.append(
            {
                "case": record["id"].removesuffix("-float32"),
                "outcome": record["outcome"],
                "median, us": _us([seconds] if seconds else []),
                "rate": _rate(record["work"] / seconds, record["group"]) if seconds else "",
                "of the vendor's": f"{percent:.0f} %" if percent else "",
                "bits": "" if not known else "equal" if known == record["digest"] else "OTHER",
            }
        )
    return rows


def shorten(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What the tables need of a ``--gemm-report``, without its samples."""
    return [_short(record) for record in report["records"]]


def _short(record: Mapping[str, Any]) -> dict[str, Any]:
    result, problem = record["result"], Problem(**record["case"]["problem"])
    estimate = result["estimate"] or {}
    percents = [v for k, v in result["counters"].items() if k.startswith("percent_of_")]
    return {
        "id": record["id"],
        "group": f"{problem.op} {problem.id}",
        "outcome": record["outcome"],
        "message": record["message"],
        "digest": result["digest"],
        "work": problem.bytes if problem.op == "add" else problem.flops,
        "median": estimate.get("median"),
        "low": estimate.get("low"),
        "high": estimate.get("high"),
        "samples": estimate.get("n"),
        "percent": percents[0] if percents else None,
        "counters": {k: float(f"{v:.4g}") for k, v in result["counters"].items()},
        "after": result["conditions"].get("after", {}),
    }


def markdown(rows: Sequence[Row]) -> str:
    """A table as it stands in the docs; columns that are empty throughout are left out."""
    if not rows:
        return "(nothing)"
    heads = [head for head in rows[0] if any(row[head] for row in rows)]
    widths = {head: max(len(head), *(len(row[head]) for row in rows)) for head in heads}
    first = heads[0]

    def line(cells: Mapping[str, str]) -> str:
        padded = (
            cells[h].ljust(widths[h]) if h == first else cells[h].rjust(widths[h]) for h in heads
        )
        return f"| {' | '.join(padded)} |"

    rule = " | ".join(
        "-" * widths[head] if head == first else "-" * (widths[head] - 1) + ":" for head in heads
    )
    return "\n".join([line({h: h for h in heads}), f"| {rule} |", *map(line, rows)])


def tables(folder: Path, names: Sequence[str]) -> dict[str, str]:
    """Every table that the raw results in a folder give, by title."""

    def read(name: str) -> Any:
        path = folder / name
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None

    found: dict[str, list[Row]] = {}
    runs = read("sessions.json") or {"sessions": [], "alone": []}
    sessions, nvbench = runs["sessions"], read("nvbench.json")
    if sessions:
        found["Hot and cold"] = session_table(sessions, names)
        found["Wall time"] = wall_table(sessions, nvbench)
    if sessions and nvbench:
        found["Cold beside NVBench"] = cold_table(sessions, nvbench, names)
    ncu, trace = folder / "ncu.csv", read("trace.json")
    if sessions and (ncu.is_file() or trace):
        seen = by_case(read_ncu(ncu.read_text()), names) if ncu.is_file() else {}
        traced = by_case(read_trace(trace["kernels"]), names) if trace else {}
        found["Hot beside a profiler"] = hot_table(sessions, seen, traced, names)
    if sessions and runs["alone"]:
        found["Alone and after others"] = alone_table(sessions, runs["alone"], names)
    if processes := read("levels.json"):
        found["As left and shuffled"] = level_table(processes)
        found["After copies"] = copy_table(processes)
    if kernels := read("kernels.json"):
        host = read("host.json") or read("../host.json") or {}
        for title, records in kernels.items():
            swept = [record for record in records if "[" in record["id"]]
            found[title] = kernel_table([r for r in records if r not in swept], host)
            if swept:
                found["The swept kernel"] = kernel_table(swept, host)
    return {title: markdown(rows) for title, rows in found.items()}


def _walls(sessions: Iterable[Mapping[str, Any]], way: str, case: str) -> list[float]:
    return [t["wall_s"] for s in sessions for t in s.get(way, ()) if t["case"] == case]


def _place(record: Mapping[str, Any]) -> tuple[Any, ...]:
    """By problem, small ones first, then by time."""
    return record["group"].split()[0], record["work"], record["group"], record["median"] or 0


def _rate(value: float, group: str) -> str:
    unit = "GB/s" if group.startswith("add") else "GFLOP/s"
    return f"{value / 1e9:.0f} {unit}"


def _us(seconds: Sequence[float]) -> str:
    if not seconds or math.isnan(middle := median(seconds)):
        return ""
    return f"{middle * 1e6:.{3 if middle < 100e-6 else 1}f}"


def _seconds(values: Sequence[float]) -> str:
    return f"{median(values):.2f}" if values else ""


def _percent(fraction: float) -> str:
    return "" if math.isnan(fraction) else f"{fraction:.2%}".replace("%", " %")


def _signed(fraction: float) -> str:
    return "" if math.isnan(fraction) else f"{fraction:+.1%}".replace("%", " %")


def _held(value: float, goal: float | None) -> str:
    """The goal, and whether it is met."""
    if goal is None or math.isnan(value):
        return ""
    return f"{'met' if value <= goal else 'MISSED'} ({goal:.1%})".replace("%", " %")
