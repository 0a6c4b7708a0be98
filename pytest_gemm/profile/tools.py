"""Runs ``child`` under one of NVIDIA's tools: its answers, and what the tool said."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_gemm.case import Case
from pytest_gemm.doctor.machine import Answer, Machine

CHILD = "pytest_gemm.profile.child"
SECONDS = 360
"""Of a case, after which a tool is ended that did not end with ``child``, which waits for 300."""


@dataclass(frozen=True)
class Watched:
    """``answers``: see ``child``; ``log`` is what the tool wrote, ``answer`` what was printed.

    ``started``: the device could be used, whatever came then.
    """

    started: bool
    answers: Sequence[Mapping[str, Any]]
    log: str
    answer: Answer

    @property
    def said(self) -> str:
        """All of it."""
        return f"{self.log}\n{self.answer.output}"

    @property
    def last_line(self) -> str:
        """Of what was printed, or how the process ended."""
        lines = [line.strip() for line in self.answer.output.splitlines() if line.strip()]
        return lines[-1] if lines else f"exit code {self.answer.code}"


def watched(
    machine: Machine, tool: Sequence[str], way: str, cases: Sequence[Case], gpu: int
) -> Watched:
    """What came of the cases under a tool, which gets ``--log-file`` added to its command."""
    with tempfile.TemporaryDirectory(prefix="pytest-gemm-") as place:
        folder = Path(place)
        wanted, answers, log = (folder / name for name in ("wanted.json", "answers", "log"))
        plan = {"gpu": gpu, "cases": [case.to_dict() for case in cases]}
        wanted.write_text(json.dumps(plan), encoding="utf-8")
        command = [*tool, "--log-file", str(log), machine.python, "-P", "-m", CHILD, way]
        answer = machine.run([*command, str(wanted), str(answers)], SECONDS * (1 + len(cases)))
        text = machine.text(str(answers))
        lines = (text or "").splitlines()
        return Watched(
            text is not None,
            [json.loads(line) for line in lines],
            machine.text(str(log)) or "",
            answer,
        )
