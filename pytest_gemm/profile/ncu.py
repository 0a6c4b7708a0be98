"""Counters of a GPU, by Nsight Compute's ``ncu``, or what is missing for them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pytest_gemm.case import Case
from pytest_gemm.doctor.finding import Finding, advice
from pytest_gemm.doctor.host import container_kind
from pytest_gemm.doctor.machine import Machine
from pytest_gemm.doctor.profiler import DENIED, denied, find
from pytest_gemm.profile.counters import Launch, read
from pytest_gemm.profile.metrics import ALTERNATIVES, HOPPERS, NAMES
from pytest_gemm.profile.tools import Said, Watched, watched

OPTIONS = (
    *("--csv", "--print-units", "base", "--profile-from-start", "off"),
    # As when it is timed: nothing is set on the GPU, and caches stay as the last launch left them.
    *("--clock-control", "none", "--cache-control", "none"),
)
INSTALL = (
    "install Nsight Compute, which comes with the CUDA toolkit, or by itself from "
    "https://developer.nvidia.com/nsight-compute; then add its folder to PATH"
)
ROUNDS = 8
"""It names one unknown metric at a time, and each time the program is run again."""

_NOT_FOUND = re.compile(r"Failed to find metric (?:regex:\^?)?(?P<base>\w+)")
_COMPLAINT = re.compile("==(?:ERROR|WARNING)== *(?P<text>.*)")


@dataclass(frozen=True)
class Counted:
    """``launches`` by the case's id, with the build's ``facts``; an ``error`` for a case without.

    ``unknown`` are ``ncu``'s names of metrics that it does not have on this GPU. ``missing`` says
    why there are no counters at all, and what mends it.
    """

    launches: Mapping[str, Sequence[Launch]] = field(default_factory=dict)
    facts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    errors: Mapping[str, str] = field(default_factory=dict)
    unknown: Sequence[str] = ()
    missing: Finding | None = None


def count(
    machine: Machine,
    cases: Sequence[Case],
    gpu: int,
    capability: str,
    progress: Callable[[str], None],
) -> Counted:
    """Profile the cases, one after another. What ``ncu`` does not know is left out.

    ``capability`` is the GPU's, such as ``9.0``.
    """

    def hear(answer: Said) -> None:
        progress(f"ncu: {answer['id']}: {answer.get('error', 'launched')}")

    program = find(machine, "ncu")
    if not program:
        return Counted(missing=advice("ncu", "ncu is not here", INSTALL))
    metrics = [metric for metric in NAMES if metric not in HOPPERS or capability == "9.0"]
    unknown: list[str] = []
    for _ in range(ROUNDS):
        tool = [program, *OPTIONS, "--metrics", ",".join(metrics)]
        run = watched(machine, tool, "counters", cases, gpu, hear)
        gone = _not_found(run.said, metrics)
        if not gone:
            return _counted(machine, program, run, unknown)
        unknown += gone
        metrics = [metric for metric in metrics if metric not in gone]
        # Another version of ncu has another name for it.
        metrics += [ALTERNATIVES[name] for name in gone if name in ALTERNATIVES]
    text = f"{program} does not know {', '.join(unknown)} on this GPU"
    return Counted(missing=advice("ncu", text, INSTALL))


def _not_found(said: str, metrics: Sequence[str]) -> list[str]:
    bases = {match["base"] for match in _NOT_FOUND.finditer(said)}
    return [metric for metric in metrics if metric.partition(".")[0] in bases]


def _counted(machine: Machine, program: str, run: Watched, unknown: Sequence[str]) -> Counted:
    if DENIED in run.said:
        return Counted(missing=denied(program, container_kind(machine)))
    launches = read(run.log)
    expected = sum(answer["launches"] for answer in run.answers)
    if not run.answers or len(launches) != expected:
        text = f"{program} saw {len(launches)} launches of {expected}: {_reason(run)}"
        return Counted(missing=advice("ncu", text, "pytest-gemm doctor"))
    left = iter(launches)
    return Counted(
        {answer["id"]: list(_take(left, answer["launches"])) for answer in run.answers},
        {answer["id"]: answer.get("facts", {}) for answer in run.answers},
        {answer["id"]: answer["error"] for answer in run.answers if "error" in answer},
        unknown,
    )


def _take(launches: Iterator[Launch], number: int) -> Iterator[Launch]:
    for _ in range(number):
        yield next(launches)


def _reason(run: Watched) -> str:
    """Its first complaint, or what was printed last."""
    complaints = [match["text"] for match in _COMPLAINT.finditer(run.said)]
    errors = [text for text in complaints if "Profiling results may be" not in text]
    return next(iter(errors), "") or run.last_line
