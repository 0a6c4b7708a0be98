"""A case, what came of it, and what the gate says: everything that is reported of one item."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from pytest_gemm.case import Case
from pytest_gemm.limits import LimitCheck
from pytest_gemm.result import Result
from pytest_gemm.verdict import Verdict


@dataclass(frozen=True)
class Record:
    """What stands in the summary, in JSON and in JUnit for one item.

    ``outcome`` is ``passed``, ``failed`` or ``skipped``; ``gate`` is a verdict's outcome, or
    ``stored``, ``ungated``, or empty where nothing was timed; ``message`` is empty, or a text
    whose first line is complete in itself. ``limits``: what was said of the kernel's own.
    """

    case: Case
    result: Result
    outcome: str
    gate: str = ""
    message: str = ""
    verdict: Verdict | None = None
    limits: LimitCheck = field(default_factory=LimitCheck)

    @property
    def group(self) -> str:
        """Cases that may be compared with each other: one operation on one problem."""
        return f"{self.case.problem.op} {self.case.problem.id}"

    def properties(self) -> dict[str, Any]:
        """Numbers and words for JUnit; seconds, FLOP/s and B/s (of the least traffic)."""
        found: dict[str, Any] = {"gemm_kernel": self.case.kernel.id}
        if self.result.digest:
            found["gemm_digest"] = self.result.digest
        if self.result.estimate is not None:
            found["gemm_median_s"] = self.result.estimate.median
            found["gemm_flops_per_s"] = self.case.problem.flops / self.result.estimate.median
            found["gemm_bytes_per_s"] = self.case.problem.bytes / self.result.estimate.median
        if self.gate:
            found["gemm_verdict"] = self.gate
        if self.verdict is not None and self.verdict.change is not None:
            found["gemm_change"] = self.verdict.change
        if self.verdict is not None and self.verdict.against:
            found["gemm_against"] = self.verdict.against
        if limits := self.limits.summary:
            found["gemm_limits"] = limits
        return found

    def extra_info(self) -> dict[str, Any]:
        """The properties, and the record without its samples and source, for pytest-benchmark.

        Other languages' JSON has no infinity: what is not finite is None.
        """
        plain = self.to_dict()
        del plain["result"]["samples"], plain["case"]["kernel"]["source"]
        finite: dict[str, Any] = _finite({**self.properties(), "gemm": plain})
        return finite

    def to_dict(self) -> dict[str, Any]:
        """Plain lists, dicts, strings and numbers."""
        return {
            "id": self.case.id,
            "case": self.case.to_dict(),
            "result": self.result.to_dict(),
            "outcome": self.outcome,
            "gate": self.gate,
            "message": self.message,
            "verdict": self.verdict.to_dict() if self.verdict else None,
            "limits": {key: list(phrases) for key, phrases in asdict(self.limits).items()},
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Record:
        """The reverse of ``to_dict``."""
        return cls(
            Case.from_dict(data["case"]),
            Result.from_dict(data["result"]),
            data["outcome"],
            data["gate"],
            data["message"],
            Verdict.from_dict(data["verdict"]) if data["verdict"] else None,
            LimitCheck(**{key: tuple(phrases) for key, phrases in data["limits"].items()}),
        )


def _finite(value: Any) -> Any:
    """Plain values with None for each number that is not finite."""
    if isinstance(value, Mapping):
        return {key: _finite(own) for key, own in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(own) for own in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
