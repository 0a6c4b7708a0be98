"""A profile as it is kept: what was predicted, counted and measured, in JSON with a version."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import prod
from pathlib import Path
from typing import Any

from pytest_gemm.case import Case
from pytest_gemm.doctor.finding import Finding
from pytest_gemm.problem import Problem
from pytest_gemm.profile.counters import Counters
from pytest_gemm.profile.facts import derived, stalls
from pytest_gemm.profile.limiter import Limit, Roof, limit, roof, sentence
from pytest_gemm.result import Result
from pytest_gemm.traffic import Traffic
from pytest_gemm.versioned import read_versioned

FORMAT = "pytest-gemm profile"

VERSION = 1
"""1: a device, cases with their counters, and what a sanitizer said."""


@dataclass(frozen=True)
class Profiled:
    """What is known of one case.

    ``seconds`` is the median of a launch without any tool, None where it was not timed; ``traffic``
    was counted on the CPU; ``build`` are the facts of the build on the GPU, ``static`` those of
    the static gate; ``counters``: see ``metrics``. ``message`` says why counters are missing,
    ``unchecked`` why nothing was counted on the CPU.
    """

    kernel: str
    derived_from: str
    change: str
    source_hash: str
    problem: Problem
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    outcome: str
    message: str = ""
    seconds: float | None = None
    traffic: Traffic = field(default_factory=dict)
    build: Mapping[str, Any] = field(default_factory=dict)
    static: Mapping[str, float] = field(default_factory=dict)
    counters: Counters = field(default_factory=dict)
    unchecked: str = ""

    @classmethod
    def of(cls, case: Case, result: Result) -> Profiled:
        """Without counters, which come later."""
        kernel, launch = case.kernel, case.kernel.launch(case.problem)
        return cls(
            *(kernel.id, kernel.derived_from, kernel.change, kernel.source_hash, case.problem),
            *(launch.grid, launch.block, result.outcome, result.message),
            result.estimate.median if result.estimate else None,
            dict(result.traffic),
            unchecked=result.unchecked,
        )

    @property
    def title(self) -> str:
        return f"{self.kernel} on {self.problem.id}"

    @property
    def time(self) -> float | None:
        """Seconds of a launch; under the profiler where it was not timed without."""
        return self.seconds if self.seconds is not None else self.counters.get("time")

    @property
    def derived(self) -> dict[str, Any]:
        return derived(self.problem, self.counters, self.traffic)


@dataclass(frozen=True)
class Sanitized:
    """What the check on the CPU said of a kernel, and each tool of ``compute-sanitizer``.

    Empty texts where nothing was found, None where a tool did not come to it; ``unchecked`` says
    why the CPU could not check it.
    """

    kernel: str
    cpu: str
    tools: Mapping[str, str | None]
    unchecked: str = ""

    @property
    def agrees(self) -> bool | None:
        """Whether both found something or both nothing; None where one did not look."""
        has_found = any(self.tools.values())
        if self.unchecked or (not has_found and None in self.tools.values()):
            return None
        return bool(self.cpu) == has_found


@dataclass(frozen=True)
class Profile:
    """All that one run found. ``device`` has its kind, name and description; peaks per second.

    ``unknown`` are ``ncu``'s names of metrics that it does not have there; ``missing`` says what
    was not there, and what mends it.
    """

    date: str
    device: Mapping[str, str]
    environment: Mapping[str, Any]
    peak_flops: float | None = None
    peak_bandwidth: float | None = None
    cases: tuple[Profiled, ...] = ()
    unknown: tuple[str, ...] = ()
    missing: Finding | None = None
    sanitized: tuple[Sanitized, ...] = ()

    def roof(self, case: Profiled) -> Roof | None:
        """Where a case is under the roofline of this device, which is that of float32."""
        if case.problem.dtype != "float32" or case.time is None:
            return None
        traffic = case.derived["dram_bytes"]
        peaks = self.peak_flops, self.peak_bandwidth
        return roof(case.problem.flops, case.time, traffic, *peaks)

    def limit(self, case: Profiled) -> Limit:
        return limit(case.counters, prod(case.grid))

    def sentence(self, case: Profiled) -> str:
        """Where it is under the roofline, and what limits it first."""
        return sentence(case.title, self.roof(case), self.limit(case))


def write(profile: Profile) -> str:
    """The document's text, a line for each case, with what follows from the counters."""
    rows = ",\n".join(json.dumps(_row(profile, case), allow_nan=False) for case in profile.cases)
    head = {"format": FORMAT, "version": VERSION} | asdict(profile)
    head = {key: value for key, value in head.items() if key != "cases"}
    lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()]
    return "{\n" + ",\n".join([*lines, f'"cases": [\n{rows}\n]']) + "\n}\n"


def _row(profile: Profile, case: Profiled) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if case.counters:
        waits = {stall.reason: stall.share for stall in stalls(case.counters)}
        found = {
            "derived": case.derived,
            "stalls": waits,
            "limiter": profile.limit(case).kind,
            "sentence": profile.sentence(case),
        }
    return {**asdict(case), "found": found}


def read(path: Path) -> Profile:
    """The reverse of ``write``. Raises ConfigError, with the file's name."""
    return read_versioned(
        path, _profile, format=FORMAT, version=VERSION, part="it", again="profile again"
    )


def _profile(data: Mapping[str, Any]) -> Profile:
    missing = data["missing"]
    fields = {key: value for key, value in data.items() if key not in ("format", "version")}
    return Profile(
        **fields
        | {
            "cases": tuple(map(_case, data["cases"])),
            "unknown": tuple(data["unknown"]),
            "missing": Finding(**missing) if missing else None,
            "sanitized": tuple(Sanitized(**row) for row in data["sanitized"]),
        }
    )


def _case(row: Mapping[str, Any]) -> Profiled:
    fields = {key: value for key, value in row.items() if key != "found"}
    sizes: dict[str, Sequence[int]] = {key: tuple(row[key]) for key in ("grid", "block")}
    return Profiled(**fields | sizes | {"problem": Problem(**row["problem"])})
