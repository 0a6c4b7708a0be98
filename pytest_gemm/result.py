"""What came of a case: plain records that could cross from another process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from pytest_gemm.backends.base import Device
from pytest_gemm.stats import Estimate
from pytest_gemm.traffic import Traffic


@dataclass(frozen=True)
class Result:
    """What came of one case. Times in seconds; ``samples`` are per launch.

    ``device`` has the kind, name and description of the ``Device``, ``environment`` the rest.
    ``outcome`` is ``passed``, ``failed`` or ``skipped``; ``message`` is then empty, or a text
    whose first line is complete in itself. ``digest`` names the bits of C on the timed data
    (empty for a kernel that is not deterministic). ``counters`` holds measured numbers by name
    (seconds where it ends in ``_s``); ``conditions`` are those ``before`` and ``after`` sampling.
    ``traffic`` and ``unchecked``: see ``checking.Checked``.
    """

    outcome: str
    message: str = ""
    digest: str = ""
    samples: tuple[float, ...] = ()
    launches: int = 0
    estimate: Estimate | None = None
    counters: Mapping[str, float] = field(default_factory=dict)
    device: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    conditions: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    traffic: Traffic = field(default_factory=dict)
    unchecked: str = ""

    def on(self, device: Device) -> Result:
        """The same, with what it ran on."""
        return replace(self, device=device.about, environment=dict(device.environment))

    def to_dict(self) -> dict[str, Any]:
        """Plain lists, dicts, strings and numbers."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Result:
        """The reverse of ``to_dict``, also after JSON."""
        fields = dict(data)
        fields["samples"] = tuple(fields["samples"])
        if fields["estimate"]:
            estimate = dict(fields["estimate"])
            fields["estimate"] = Estimate(**estimate | {"deciles": tuple(estimate["deciles"])})
        return cls(**fields)
