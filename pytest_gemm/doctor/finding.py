"""What the doctor says of one thing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "advice", "fault"]
"""``advice``: kernels run, but something is better done. ``fault``: something does not work."""


@dataclass(frozen=True)
class Finding:
    """One line: what was looked at, how it is, and what mends it (empty where it is ok)."""

    name: str
    status: Status
    text: str
    remedy: str = ""


def ok(name: str, text: str) -> Finding:
    return Finding(name, "ok", text)


def advice(name: str, text: str, remedy: str) -> Finding:
    return Finding(name, "advice", text, remedy)


def fault(name: str, text: str, remedy: str) -> Finding:
    return Finding(name, "fault", text, remedy)
