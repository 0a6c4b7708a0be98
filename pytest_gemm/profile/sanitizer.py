"""``compute-sanitizer`` over kernels on small problems, beside the check on the CPU.

Its ``memcheck`` looks for accesses outside of memory and at odd addresses, ``racecheck`` for races
in shared memory, ``synccheck`` for barriers that not all threads reach. ``initcheck`` is left out:
it watches global memory, all of which is written before a launch.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from pytest_gemm.case import Case
from pytest_gemm.doctor.finding import Finding, advice
from pytest_gemm.doctor.machine import Machine
from pytest_gemm.doctor.profiler import find
from pytest_gemm.profile.tools import Watched, watched

TOOLS = ("memcheck", "racecheck", "synccheck")

OPTIONS = ("--report-api-errors", "no")
"""A call that fails is no kernel's mistake: the driver is asked for what older ones do not have."""

INSTALL = "install the CUDA toolkit, which brings compute-sanitizer, and add its folder bin to PATH"

Found = Mapping[str, Mapping[str, str]]
"""By the kernel's id and the tool: the first line of what it found, or an empty text."""

_LINE = re.compile(r"^=+ (?P<text>\S.*)$", re.MULTILINE)
_SUMMARY = re.compile(r"^=+ (?:RACECHECK|ERROR) SUMMARY: (?P<count>\d+)", re.MULTILINE)
_UNUSABLE = re.compile("Device not supported|Unable to find injection library")
_TITLE = ("COMPUTE-SANITIZER", "RACECHECK SUMMARY", "ERROR SUMMARY", "Target application")


def sanitize(
    machine: Machine, cases: Sequence[Case], gpu: int, progress: Callable[[str], None]
) -> Found | Finding:
    """Run every tool over the kernels of the cases, each kernel once, or say what is missing."""
    program = find(machine, "compute-sanitizer")
    if not program:
        return advice("compute-sanitizer", "compute-sanitizer is not here", INSTALL)
    kernels = {case.kernel.id: case for case in reversed(cases)}
    found: dict[str, dict[str, str]] = {case.kernel.id: {} for case in cases}
    for tool in TOOLS:
        progress(f"{tool}: {len(kernels)} kernels")
        command = [program, "--tool", tool, *OPTIONS]
        said = _blamed(machine, command, list(kernels.values()), gpu)
        if isinstance(said, Finding):
            return said
        for kernel, text in said.items():
            found[kernel][tool] = text
    return found


def _blamed(
    machine: Machine, tool: Sequence[str], cases: Sequence[Case], gpu: int
) -> dict[str, str] | Finding:
    """What a tool found of each kernel: of all at once, and each apart where there is something.

    A kernel that went wrong ends the CUDA context, so nothing after it in a process can be judged.
    """
    run = watched(machine, tool, "sanitizer", cases, gpu)
    if not run.started or _UNUSABLE.search(run.said):
        text = f"{tool[0]} does not work here: {first_line(run)}"
        return advice("compute-sanitizer", text, "pytest-gemm doctor")
    errors = [answer["error"] for answer in run.answers if "error" in answer]
    summary = _SUMMARY.search(run.said)
    is_clean = summary is not None and not int(summary["count"])
    if is_clean and not errors and len(run.answers) == len(cases):
        return {case.kernel.id: "" for case in cases}
    if len(cases) == 1:
        text = "; ".join(errors) if is_clean else first_line(run)
        return {cases[0].kernel.id: text or f"its process ended: {run.last_line}"}
    apart: dict[str, str] = {}
    for case in cases:
        said = _blamed(machine, tool, [case], gpu)
        if isinstance(said, Finding):
            return said
        apart |= said
    return apart


def first_line(run: Watched) -> str:
    """The first thing that the tool says of the program, or else that was printed."""
    lines = (match["text"].strip() for match in _LINE.finditer(run.said))
    said = (line for line in lines if not line.startswith(_TITLE))
    return next(said, "") or run.last_line
