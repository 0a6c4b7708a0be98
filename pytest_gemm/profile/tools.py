"""Runs ``child`` under one of NVIDIA's tools: its answers, and what the tool said."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

from pytest_gemm.case import Case
from pytest_gemm.doctor.machine import Answer, Machine
from pytest_gemm.scratch import scratch

CHILD = "pytest_gemm.profile.child"
SECONDS = 360
"""Of a case, after which a tool is ended that did not end with ``child``, which waits for 300."""

POLL = 0.2
"""Seconds between two looks at what was answered."""

Said = Mapping[str, Any]
"""An answer, see ``child``."""


def nobody(answer: Said) -> None:
    """Who hears no answer before the end."""


@dataclass(frozen=True)
class Watched:
    """``answers``: see ``child``; ``log`` is what the tool wrote, ``answer`` what was printed.

    ``started``: the device could be used, whatever came then.
    """

    started: bool
    answers: Sequence[Said]
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
    machine: Machine,
    tool: Sequence[str],
    way: str,
    cases: Sequence[Case],
    gpu: int,
    hear: Callable[[Said], None] = nobody,
    seconds: float | None = None,
) -> Watched:
    """What came of the cases under a tool, which gets ``--log-file`` added to its command.

    ``hear`` is told each answer as soon as it is there. After ``seconds``, if any, no other case
    is begun.
    """
    with scratch() as folder:
        wanted, answers, log = (folder / name for name in ("wanted.json", "answers", "log"))
        plan = {"gpu": gpu, "cases": [case.to_dict() for case in cases], "seconds": seconds}
        wanted.write_text(json.dumps(plan), encoding="utf-8")
        command = [*tool, "--log-file", str(log), machine.python, "-P", "-m", CHILD, way]
        command += [str(wanted), str(answers)]
        heard: list[Said] = []
        with ThreadPoolExecutor(1) as pool:
            run = pool.submit(machine.run, command, SECONDS * (1 + len(cases)))
            has_ended = False
            while not has_ended:
                has_ended = bool(wait([run], POLL).done)
                for answer in _after(len(heard), machine.text(str(answers)) or ""):
                    heard.append(answer)
                    hear(answer)
        started = machine.text(str(answers)) is not None
        return Watched(started, heard, machine.text(str(log)) or "", run.result())


def _after(known: int, text: str) -> Iterator[Said]:
    """The answers behind the first ones; one that is not yet whole is none."""
    *lines, _ = text.split("\n")
    yield from map(json.loads, lines[known:])
