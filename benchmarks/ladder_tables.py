"""Fill docs/ladder.md and docs/ladder-runs.md with the tables of stored runs of the ladder.

    python benchmarks/ladder_tables.py

Between a line ``<!-- ladder FOLDER -->`` and the next ``<!-- end -->`` stands what that run found:
``facts.json``, ``times.json`` and ``counters.json``, as benchmarks/gpu/ladder.py wrote them into
the folder (a path in the repository). Nothing between the two is written by hand.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

from pytest_gemm.markdown import NOTHING, code, table
from pytest_gemm.problem import Problem
from pytest_gemm.profile.limiter import limit
from pytest_gemm.profile.metrics import BY_NCU

ROOT = Path(__file__).parent.parent
PAGES = (ROOT / "docs" / "ladder.md", ROOT / "docs" / "ladder-runs.md")
"""The newest run, and the ones before, the newest first."""

PEAK = 132 * 128 * 2 * 1.98e9
"""FLOP/s in float32 of an H200: multiprocessors, lanes, two operations, cycles per second."""

LIBRARY, COPY = "cuBLAS", "copy"
RESAMPLED = 2000
"""Times that the rounds of a duel are drawn anew for an interval."""

_PLACE = re.compile(
    r"(?P<begin><!-- ladder (?P<folder>\S+) -->\n).*?(?P<end><!-- end -->)", re.DOTALL
)


def filled(text: str) -> str:
    """The page with every place filled anew."""
    return _PLACE.sub(_fill, text)


def _fill(place: re.Match[str]) -> str:
    folder = ROOT / place["folder"]
    lines = list(tables(folder)) or [f"Not measured yet: `{place['folder']}` is not there.", ""]
    return place["begin"] + "\n".join(["", *lines]) + "\n" + place["end"]


def tables(folder: Path) -> Iterator[str]:
    """What a run found: the best; rungs in their order, then variants, the fastest first; other
    problems; duels; additions; failures.
    """
    facts, found = read(folder / "facts.json"), read(folder / "times.json")
    counters = read(folder / "counters.json")
    times = {
        problem: {name: median(values) for name, values in timed["samples"].items() if values}
        for problem, timed in found.get("times", {}).items()
    }
    products = {p.removeprefix("gemm "): t for p, t in times.items() if p.startswith("gemm ")}
    if products:
        yield from _best(products)
        yield from _first(facts, counters, *next(iter(products.items())))
        yield from _others(facts, products)
    yield from _duels(found.get("duels", {}))
    yield from _additions(times)
    for name, failure in found.get("failures", {}).items():
        yield f"FAILED {code(name)}: {failure.partition(chr(10))[0]}"
        yield ""


def _best(products: dict[str, dict[str, float]]) -> Iterator[str]:
    """The fastest kernel on every problem, and cuBLAS."""
    rows = []
    for size, times in products.items():
        library = times[LIBRARY]
        name = min((name for name in times if name != LIBRARY), key=times.__getitem__)
        flops = Problem.parse(size).flops
        rates = [f"{flops / seconds / 1e12:.1f}" for seconds in (times[name], library)]
        rows.append([size, code(name), *rates, f"{100 * library / times[name]:.1f}"])
    yield from table(["M x N x K", "fastest", "TFLOP/s", "cuBLAS", "% of cuBLAS"], rows)


def _first(
    facts: dict[str, Any],
    counters: dict[str, dict[str, float]],
    size: str,
    times: dict[str, float],
) -> Iterator[str]:
    """Everything about the problem that counts most."""
    head = ["kernel", "registers", "blocks/SM", "FFMA", "cycles/FFMA", "bound", "loads"]
    head += [f"{size}: us", "TFLOP/s", "% of cuBLAS", "% of peak"]
    head += ["limiter"] if counters else []
    rows = []
    for name in _order(facts, times):
        known = facts.get(name, {})
        static = static_cells(known) if "facts" in known else [NOTHING] * 6
        rate = Problem.parse(size).flops / times[name]
        library = times[LIBRARY] / times[name]
        cells = [f"{times[name] * 1e6:.1f}", f"{rate / 1e12:.2f}"]
        cells += [f"{100 * library:.1f}", f"{100 * rate / PEAK:.1f}"]
        cells += [limiter(counters.get(name, {}))] if counters else []
        rows.append([code(name), *static, *cells])
    yield from table(head, rows)


def limiter(counted: Mapping[str, float]) -> str:
    """What ``profile`` would say limits a launch first, from what ``ncu`` counted of it."""
    if not counted:
        return NOTHING
    counters = {BY_NCU[name]: value for name, value in counted.items() if name in BY_NCU}
    return limit(counters, int(counted["launch__grid_size"])).text


def _others(facts: dict[str, Any], products: dict[str, dict[str, float]]) -> Iterator[str]:
    """Percent of cuBLAS' rate on every problem; cuBLAS' own rate."""
    first = next(iter(products.values()))
    rows = []
    for name in _order(facts, first):
        cells = []
        for size, times in products.items():
            if name == LIBRARY:
                rate = Problem.parse(size).flops / times[name]
                cells.append(f"{rate / 1e12:.1f} TFLOP/s")
            else:
                cells.append(f"{100 * times[LIBRARY] / times[name]:.1f}" if name in times else "-")
        rows.append([code(name), *cells])
    yield from table(["% of cuBLAS", *products], rows)


def _order(facts: Mapping[str, Any], times: Mapping[str, float]) -> list[str]:
    """Rungs as the ladder has them, variants by their time, cuBLAS."""
    places = {name: place for place, name in enumerate(facts)}
    rungs = [name for name in times if "[" not in name and name != LIBRARY]
    return [
        *sorted(rungs, key=lambda name: places.get(name, len(places))),
        *sorted((name for name in times if "[" in name), key=times.__getitem__),
        LIBRARY,
    ]


def _duels(duels: Mapping[str, Any]) -> Iterator[str]:
    rows = []
    for size, duel in duels.items():
        samples = {name: values for name, values in duel["samples"].items() if values}
        for name, values in samples.items():
            low, high = interval(samples[LIBRARY], values)
            ratio = median(samples[LIBRARY]) / median(values)
            clocks = {str(after.get("sm_clock", NOTHING)) for after in duel["after"]}
            cells = [str(len(values)), f"{median(values) * 1e6:.1f}", f"{ratio:.4f}"]
            cells += [f"{low:.4f} to {high:.4f}" if name != LIBRARY else NOTHING]
            spent = duel.get("joules", {}).get(name, [])
            cells += [f"{fmean(spent):.3g}" if any(spent) else NOTHING]
            rows.append([code(name), size, *cells, " ".join(sorted(clocks))])
    if rows:
        head = ["duel", "problem", "rounds", "us", "of cuBLAS' rate", "95 %", "J", "clock, MHz"]
        yield from table(head, rows)


def interval(library: Sequence[float], own: Sequence[float]) -> tuple[float, float]:
    """Of the ratio of two medians, 95 % by percentiles: whole rounds are drawn with replacement."""
    rounds = list(zip(library, own, strict=False))
    draw = random.Random(0)
    ratios = []
    for _ in range(RESAMPLED):
        drawn = draw.choices(rounds, k=len(rounds))
        ratios.append(median(x for x, _ in drawn) / median(y for _, y in drawn))
    ratios.sort()
    return ratios[RESAMPLED // 40], ratios[-1 - RESAMPLED // 40]


def _additions(times: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    rows = []
    for problem, timed in times.items():
        if problem.startswith("add "):
            size = problem.removeprefix("add ")
            for name, seconds in timed.items():
                moved = 4 * int(size) ** 2 * (2 if name == COPY else 3)
                cells = [size, f"{seconds * 1e6:.1f}", f"{moved / seconds / 1e12:.2f}"]
                rows.append([code(name), *cells])
    if rows:
        yield from table(["addition", "M = N", "us", "TB/s"], rows)


def static_cells(found: Mapping[str, Any]) -> list[str]:
    """Registers, blocks on a multiprocessor, FFMA share, cycles by the model, bound, loads."""
    facts, reads, per_element = found["facts"], found["reads"], found["loads"]
    cells = [str(facts["registers"]), str(facts.get("blocks_per_sm", ""))]
    if not reads:
        return [*cells, "", "", "", f"{per_element:g}"]
    count, instructions = facts["loop.FFMA"], facts["loop.instructions"]
    return [
        *cells,
        f"{count / instructions:.1%}",
        f"{reads['cycles']:.2f}",
        f"{PEAK / (reads['cycles'] + instructions / count - 1) / 1e12:.1f}",
        "2K" if per_element == 2 else f"2K/{2 / per_element:.3g}",
    ]


def read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def main() -> None:
    for page in PAGES:
        page.write_text(filled(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
