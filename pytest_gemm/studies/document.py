"""A study as it is kept: what was measured, in a JSON document with a version."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from pytest_gemm.case import Case
from pytest_gemm.result import Result
from pytest_gemm.stats import Estimate
from pytest_gemm.studies import NAMES
from pytest_gemm.traffic import Traffic
from pytest_gemm.versioned import read_versioned

FORMAT = "pytest-gemm study"

VERSION = 1
"""1: studies, each with its device, what was measured and what was found in that."""

DIGITS = 6
"""Significant digits of a stored sample: a part in a million is below any clock's noise."""

Side = Literal["device", "c", "numpy"]


@dataclass(frozen=True)
class Measured:
    """What a study keeps of a case and what came of it.

    ``side``: the device, serial C or NumPy. ``kernel`` is the kernel's id, ``name`` that without
    swept parameters; ``problem`` is the problem's id and ``flops`` its operations. ``block`` is
    (x, y, z), ``shared_mem`` dynamic bytes. ``outcome``, ``message``, ``estimate``, ``samples``
    ``launches``, ``counters``, ``conditions`` and ``traffic``: see ``result.Result``.
    """

    side: Side
    kernel: str
    name: str
    derived_from: str
    change: str
    source_hash: str
    op: str
    dtype: str
    problem: str
    N: int
    flops: int
    block: tuple[int, int, int]
    shared_mem: int
    outcome: str
    message: str
    estimate: Estimate | None
    samples: tuple[float, ...]
    launches: int
    counters: Mapping[str, float]
    conditions: Mapping[str, Mapping[str, Any]]
    traffic: Traffic

    @classmethod
    def of(cls, side: Side, case: Case, result: Result) -> Measured:
        """What to keep of a case."""
        kernel, problem, launch = case.kernel, case.problem, case.kernel.launch(case.problem)
        return cls(
            side=side,
            kernel=kernel.id,
            name=kernel.name,
            derived_from=kernel.derived_from,
            change=kernel.change,
            source_hash=kernel.source_hash,
            op=problem.op,
            dtype=problem.dtype,
            problem=problem.id,
            N=problem.N,
            flops=problem.flops,
            block=launch.block,
            shared_mem=launch.shared_mem,
            outcome=result.outcome,
            message=result.message,
            estimate=result.estimate,
            samples=result.samples,
            launches=result.launches,
            counters=dict(result.counters),
            conditions=dict(result.conditions),
            traffic=dict(result.traffic),
        )

    @property
    def timed(self) -> Estimate:
        """The estimate of a case that was timed."""
        assert self.estimate is not None
        return self.estimate

    @property
    def seconds(self) -> float:
        """The median of a launch. Only for a case that was timed."""
        return self.timed.median

    @property
    def rate(self) -> float:
        """Operations per second. Only for a case that was timed."""
        return self.flops / self.seconds


@dataclass(frozen=True)
class LeftOut:
    """A case that was not run, and why; ``seconds`` where it would have taken too long."""

    kernel: str
    problem: str
    reason: str
    seconds: float | None = None


@dataclass(frozen=True)
class Study:
    """One study on one device.

    ``device`` has its kind, name and description, ``environment`` the rest; ``cpu`` is the same
    for the machine that C and NumPy ran on, where they did. ``start`` holds seconds of the start
    of a process by name. ``findings`` are the study's own: see the study's module.
    """

    name: str
    date: str
    device: Mapping[str, str]
    environment: Mapping[str, Any]
    cpu: Mapping[str, Any] = field(default_factory=dict)
    start: Mapping[str, float] = field(default_factory=dict)
    measured: tuple[Measured, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    findings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_host(self) -> bool:
        """Whether a CPU stood on the device's side."""
        return self.device["kind"] == "host"

    @property
    def timed(self) -> tuple[Measured, ...]:
        """What passed its checks and has times."""
        return tuple(m for m in self.measured if m.estimate is not None)

    @property
    def load(self) -> float:
        """The highest load of the CPU that was seen: processes that wanted to run."""
        return max(
            (float(when.get("load", 0)) for m in self.measured for when in m.conditions.values()),
            default=0.0,
        )

    @property
    def failures(self) -> tuple[str, ...]:
        """The first line of each failure."""
        return tuple(m.message.partition("\n")[0] for m in self.measured if m.outcome == "failed")


def write(studies: Sequence[Study]) -> str:
    """The document's text: one line for each measured case."""
    whole = ",\n".join(_study_text(study) for study in studies)
    head = json.dumps({"format": FORMAT, "version": VERSION})[:-1]
    return f'{head}, "studies": [\n{whole}\n]}}\n'


def read(path: Path) -> list[Study]:
    """The studies of a document. Raises ConfigError, with the file's name."""
    return read_versioned(
        path, _studies, format=FORMAT, version=VERSION, part="a study in it", again="measure again"
    )


def _studies(data: Mapping[str, Any]) -> list[Study]:
    return [_study(plain) for plain in data["studies"]]


def _study_text(study: Study) -> str:
    plain = {
        "name": study.name,
        "date": study.date,
        "device": dict(study.device),
        "environment": dict(study.environment),
        "cpu": dict(study.cpu),
        "start": dict(study.start),
        "findings": study.findings,
        "left_out": [vars(left) for left in study.left_out],
    }
    lines = [f' "{key}": {json.dumps(value, allow_nan=False)}' for key, value in plain.items()]
    rows = ",\n".join(json.dumps(_row(m), allow_nan=False) for m in study.measured)
    return "{\n" + ",\n".join([*lines, f' "measured": [\n{rows}\n ]']) + "\n}"


def _row(measured: Measured) -> dict[str, Any]:
    samples = [float(f"{second:.{DIGITS}g}") for second in measured.samples]
    return asdict(measured) | {"samples": samples}


def _study(plain: Mapping[str, Any]) -> Study:
    if plain["name"] not in NAMES:
        raise ValueError(f"no study is called {plain['name']!r}")
    return Study(
        *(plain["name"], plain["date"], plain["device"], plain["environment"]),
        *(plain["cpu"], plain["start"]),
        tuple(_measured(plain["measured"])),
        tuple(LeftOut(**left) for left in plain["left_out"]),
        plain["findings"],
    )


def _measured(rows: Iterable[Mapping[str, Any]]) -> Iterator[Measured]:
    for row in rows:
        estimate = row["estimate"]
        if estimate is not None:
            estimate = Estimate(**{**estimate, "deciles": tuple(estimate["deciles"])})
        block, samples = tuple(row["block"]), tuple(row["samples"])
        yield Measured(**{**row, "block": block, "samples": samples, "estimate": estimate})
