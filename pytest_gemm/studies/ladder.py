"""A chain of kernels, each derived from the one before by ONE change: what did each change bring?

Kernels join by their front matter: ``derived_from`` and ``change``. Swept ones do not: they are
points of a curve, not rungs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pytest_gemm.case import Case
from pytest_gemm.markdown import NOTHING, code, plain, table
from pytest_gemm.report.text import seconds
from pytest_gemm.studies.document import Measured, Study
from pytest_gemm.studies.lab import Lab, NoCase
from pytest_gemm.traffic import COUNTED, loads_per_element

SIZES = {
    "host": ("64", "128", "256", "512"),
    "cuda": ("128", "256", "512", "1024", "2048", "4096"),
}

Z = 1.96
"""Standard errors on either side of a 95 % interval."""


def measure(lab: Lab) -> None:
    """Time every rung at every N, all rungs of one N after each other.

    Raises NoCase where no kernel is derived from another.
    """
    sizes = lab.sizes or SIZES[lab.kind]
    cases = rungs(lab.project.cases(sizes))
    if not cases:
        raise NoCase(
            "no kernel is derived from another: say in front matter what it is derived_from, "
            'such as derived_from = "naive", and what changed'
        )
    lab.start_process(cases[0])
    for case in sorted(cases, key=lambda case: case.problem.N):
        lab.device.run(case)


def rungs(cases: Sequence[Case]) -> list[Case]:
    """The cases of kernels that are derived from others or that others are derived from.

    Parents come before their children.
    """
    fixed = [case for case in cases if not case.kernel.swept]
    parents = {case.kernel.name: case.kernel.derived_from for case in fixed}
    derived = {name for name, parent in parents.items() if parent in parents}
    taken = derived | {parents[name] for name in derived}
    # Without those that run in a circle, which has no first.
    order = [name for name in _depth_first(parents) if name in taken]
    return sorted(
        (case for case in fixed if case.kernel.name in order),
        key=lambda case: order.index(case.kernel.name),
    )


def findings(measured: Sequence[Measured]) -> dict[str, Any]:
    """``rungs`` with what each changed and loads, and ``steps`` with each speed-up at each size.

    ``speedup`` is over the kernel that it is derived from, ``overall`` over the first of the
    chain; ``error`` and ``overall_error`` are half of their 95 % intervals. None stands for what
    was not measured.
    """
    kernels = {m.name: m for m in measured}
    parents = {name: m.derived_from for name, m in kernels.items()}
    order = _depth_first(parents)
    timed = {(m.name, m.problem): m for m in measured if m.estimate is not None}
    steps = []
    for (name, problem), own in timed.items():
        parent, first = parents[name], _root(name, parents)
        if first == name:
            continue
        speedup, error = _ratio(timed.get((parent, problem)), own)
        overall, overall_error = _ratio(timed.get((first, problem)), own)
        steps.append(
            {
                **{"kernel": name, "derived_from": parent, "first": first, "N": own.N},
                **{"speedup": speedup, "error": error},
                **{"overall": overall, "overall_error": overall_error},
            }
        )
    return {
        "rungs": [_rung(name, kernels[name]) for name in order if name in kernels],
        "steps": steps,
    }


def report(study: Study) -> Iterator[str]:
    """The ladder's tables."""
    if not study.timed:
        yield "Nothing was timed."
        yield ""
        return
    found = study.findings
    names = [rung["kernel"] for rung in found["rungs"]]
    yield from _changes(found["rungs"], max(m.N for m in study.timed))
    yield (
        "Loads are words read from global memory, counted on the CPU while every access is watched "
        f"(at {COUNTED['gemm'].id}), whatever a cache may serve of them."
    )
    yield ""
    times = {(m.name, m.N): m for m in study.timed}
    sizes = sorted({size for _, size in times})
    yield from table(
        ["N", *map(code, names)],
        ([str(n), *(_time(times.get((name, n))) for name in names)] for n in sizes),
    )
    yield from _speedups(found, sizes)
    yield from _start(study)


def _changes(rungs: Sequence[dict[str, Any]], largest: int) -> Iterator[str]:
    heads = ["kernel", "derived from", "the one change", "loads per element of C"]
    yield from table(
        [*heads, f"at N = {largest}"],
        (
            [
                code(rung["kernel"]),
                code(rung["derived_from"]) if rung["derived_from"] else NOTHING,
                plain(rung["change"]) or NOTHING,
                rung["loads"] or NOTHING,
                _loads_at(rung, largest),
            ]
            for rung in rungs
        ),
    )


def _speedups(found: Mapping[str, Any], sizes: Sequence[int]) -> Iterator[str]:
    """Of each step, and of the last kernel of each chain over the first."""
    steps = {(step["kernel"], step["N"]): step for step in found["steps"]}
    derived = [rung for rung in found["rungs"] if any(k == rung["kernel"] for k, _ in steps)]
    parents = {rung["derived_from"] for rung in derived}
    lasts = [rung["kernel"] for rung in derived if rung["kernel"] not in parents]
    if not derived:
        return
    yield from table(
        [
            "N",
            *(f"{code(rung['derived_from'])} to {code(rung['kernel'])}" for rung in derived),
            *(f"overall: {code(last)}" for last in lasts),
        ],
        (
            [
                str(n),
                *(_step(steps.get((rung["kernel"], n)), "speedup", "error") for rung in derived),
                *(_step(steps.get((last, n)), "overall", "overall_error") for last in lasts),
            ]
            for n in sizes
        ),
    )


def _start(study: Study) -> Iterator[str]:
    start = study.start
    if not {"first_launch_s", "next_launch_s"} <= start.keys():
        return
    ratio = start["first_launch_s"] / start["next_launch_s"]
    less = f" ({ratio:.3g} times less)" if ratio > 1 else ""
    shown = {name.removesuffix("_s"): seconds(value) for name, value in start.items()}
    yield (
        f"The start, apart: {shown['ready']} until a process was ready; its first launch, with the "
        f"loading of the module, took {shown['first_launch']}, the same again later "
        f"{shown['next_launch']}{less}. The first case as a whole, compilation and checks "
        f"included, took {shown['first_case']}, the same again {shown['next_case']}. None of this "
        "is in the times above, which were taken after a warm-up."
    )
    yield ""


def _rung(name: str, measured: Measured) -> dict[str, Any]:
    words = measured.traffic.get("global_load_words")
    counted = COUNTED[measured.op]
    per_element = None if words is None else words / (counted.M * counted.N)
    return {
        "kernel": name,
        "derived_from": measured.derived_from,
        "change": measured.change,
        "loads": loads_per_element(measured.op, measured.traffic),
        # Of 2 K loads, the part that is left: what grows with K on whole tiles.
        "loads_of_2k": per_element / (2 * counted.K) if per_element and counted.K else None,
    }


def _loads_at(rung: dict[str, Any], n: int) -> str:
    part = rung["loads_of_2k"]
    return NOTHING if part is None else f"{2 * n * part:,.0f}"


def _time(measured: Measured | None) -> str:
    if measured is None:
        return NOTHING
    estimate = measured.timed
    half = 50 * (estimate.high - estimate.low) / estimate.median
    return f"{seconds(estimate.median)} +- {half:.2g} %"


def _step(step: dict[str, Any] | None, value: str, error: str) -> str:
    if step is None or step[value] is None:
        return NOTHING
    return f"{step[value]:.2f}" + ("" if step[error] is None else f" +- {step[error]:.2g}")


def _ratio(slow: Measured | None, fast: Measured) -> tuple[float | None, float | None]:
    """How many times faster, and half of the 95 % interval where both have one."""
    if slow is None:
        return None, None
    before, own = slow.timed, fast.timed
    value = before.median / own.median
    error = value * Z * math.hypot(before.log_error, own.log_error)
    return value, error if math.isfinite(error) else None


def _root(name: str, parents: dict[str, str]) -> str:
    while parents.get(parents[name]) is not None:
        name = parents[name]
    return name


def _depth_first(parents: dict[str, str]) -> list[str]:
    order: list[str] = []

    def visit(name: str) -> None:
        order.append(name)
        for child, parent in parents.items():
            if parent == name:
                visit(child)

    for name, parent in parents.items():
        if parent not in parents:
            visit(name)
    return order
