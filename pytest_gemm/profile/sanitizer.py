"""``compute-sanitizer`` over kernels on small problems, beside the check on the CPU.

Its ``memcheck`` looks for accesses outside of memory and at odd addresses, ``racecheck`` for races
in shared memory, ``synccheck`` for barriers that not all threads reach. ``initcheck`` is left out:
it watches global memory, all of which is written before a launch. The tools run side by side, as
what they take is mostly their start.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from threading import Event

from pytest_gemm.case import Case
from pytest_gemm.doctor.finding import Finding, advice
from pytest_gemm.doctor.machine import Machine
from pytest_gemm.doctor.profiler import find
from pytest_gemm.profile.tools import Said, Watched, watched

TOOLS = ("memcheck", "racecheck", "synccheck")

OPTIONS = ("--report-api-errors", "no")
"""A call that fails is no kernel's mistake: the driver is asked for what older ones do not have."""

INSTALL = "install the CUDA toolkit, which brings compute-sanitizer, and add its folder bin to PATH"

SECONDS = 60.0
"""Of a tool, after which it begins with no other kernel."""

MEMBERS = 3
"""Of a sweep, where nobody chose: its smallest, its largest and what is between them."""

Found = Mapping[str, Mapping[str, str | None]]
"""By the kernel's id and the tool: the first line of what it found, an empty text for nothing, and
None where it was interrupted before, or its time was over."""

_LINE = re.compile(r"^=+ (?P<text>\S.*)$", re.MULTILINE)
_SUMMARY = re.compile(r"^=+ (?:RACECHECK|ERROR) SUMMARY: (?P<count>\d+)", re.MULTILINE)
_UNUSABLE = re.compile("Device not supported|Unable to find injection library")
_TITLE = ("COMPUTE-SANITIZER", "RACECHECK SUMMARY", "ERROR SUMMARY", "Target application")


def of_each(cases: Iterable[Case], members: int | None = None) -> list[Case]:
    """One case of each kernel, and of a sweep at most so many, evenly spread."""
    sweeps: dict[str, dict[str, Case]] = {}
    for case in cases:
        sweeps.setdefault(case.kernel.name, {}).setdefault(case.kernel.id, case)
    return [case for sweep in sweeps.values() for case in _spread([*sweep.values()], members)]


def _spread(cases: Sequence[Case], members: int | None) -> Iterator[Case]:
    if members is None or len(cases) <= members:
        yield from cases
    else:
        yield from (cases[i * (len(cases) - 1) // (members - 1)] for i in range(members))


def sanitize(
    machine: Machine, cases: Sequence[Case], gpu: int, progress: Callable[[str], None]
) -> Found | Finding:
    """Run every tool over the kernels of the cases, each kernel once, or say what is missing.

    What an interrupt leaves over is None, as what the tools had no time for.
    """
    program = find(machine, "compute-sanitizer")
    if not program:
        return advice("compute-sanitizer", "compute-sanitizer is not here", INSTALL)
    kernels = of_each(cases)
    tools = [_Tool(machine, program, name, gpu, progress) for name in TOOLS]
    with ThreadPoolExecutor(len(tools)) as pool:
        runs = [pool.submit(tool.blamed, kernels) for tool in tools]
        while not all(run.done() for run in runs):
            try:
                wait(runs)
            except KeyboardInterrupt:  # which ends the tools, too
                progress("interrupted: what is finished is kept")
                for tool in tools:
                    tool.stopped.set()
    found: dict[str, dict[str, str | None]] = {case.kernel.id: {} for case in kernels}
    for name, run in zip(TOOLS, runs, strict=True):
        said = run.result()
        if isinstance(said, Finding):
            return said
        for kernel, texts in found.items():
            texts[name] = said.get(kernel)
    return found


@dataclass(frozen=True)
class _Tool:
    machine: Machine
    program: str
    name: str
    gpu: int
    progress: Callable[[str], None]
    stopped: Event = field(default_factory=Event)

    def blamed(self, cases: Sequence[Case]) -> dict[str, str] | Finding:
        """What the tool found of each kernel: of all at once, and each apart if there is anything.

        A kernel that went wrong ends the CUDA context, so nothing after it in a process can be
        judged.
        """
        kernels = {case.id: case.kernel.id for case in cases}

        def hear(answer: Said) -> None:
            if "left" not in answer:
                result = answer.get("error", "launched")
                self.progress(f"{self.name}: {kernels[answer['id']]}: {result}")

        tool = [self.program, "--tool", self.name, *OPTIONS]
        run = watched(self.machine, tool, "sanitizer", cases, self.gpu, hear, SECONDS)
        if self.stopped.is_set() and not run.started:
            return {}
        if not run.started or _UNUSABLE.search(run.said):
            text = f"{self.program} does not work here: {first_line(run)}"
            return advice("compute-sanitizer", text, "pytest-gemm doctor")
        errors = [answer["error"] for answer in run.answers if "error" in answer]
        left = {answer["id"] for answer in run.answers if "left" in answer}
        summary = _SUMMARY.search(run.said)
        is_clean = summary is not None and not int(summary["count"])
        if is_clean and not errors and len(run.answers) == len(cases):
            return {case.kernel.id: "" for case in cases if case.id not in left}
        if self.stopped.is_set():
            return {}
        if len(cases) == 1:
            text = "; ".join(errors) if is_clean else first_line(run)
            return {cases[0].kernel.id: text or f"its process ended: {run.last_line}"}
        self.progress(f"{self.name}: something was found, so each kernel gets a process of its own")
        apart: dict[str, str] = {}
        for case in cases:
            if self.stopped.is_set():
                break
            said = self.blamed([case])
            if isinstance(said, Finding):
                return said
            apart |= said
        return apart


def first_line(run: Watched) -> str:
    """The first thing that the tool says of the program, or else that was printed."""
    lines = (match["text"].strip() for match in _LINE.finditer(run.said))
    said = (line for line in lines if not line.startswith(_TITLE))
    return next(said, "") or run.last_line
