"""What is run and what came of it: plain records that could cross to another process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from pytest_gemm.kernelspec import Kernel
from pytest_gemm.problem import Problem


@dataclass(frozen=True)
class Settings:
    """How a case is run: the seed of its operands and the limits of its timing, in seconds."""

    seed: int = 0
    timed: bool = False
    time_cap: float = 0.5
    precision: float = 0.01
    launch_timeout: float = 20.0


@dataclass(frozen=True)
class Case:
    """One kernel on one problem."""

    kernel: Kernel
    problem: Problem
    settings: Settings = Settings()

    @property
    def id(self) -> str:
        """Stable, by name: ``tiled-512x512x512-float32``, ``block_size[SIDE:16]-...``."""
        return f"{self.kernel.id}-{self.problem.id}-{self.problem.dtype}"


@dataclass(frozen=True)
class Estimate:
    """A distribution of seconds per launch, described: n, median with its interval, spread."""

    n: int
    median: float
    low: float
    high: float
    mad: float
    deciles: tuple[float, ...]


@dataclass(frozen=True)
class Result:
    """What came of one case. Times in seconds; ``samples`` are per launch.

    ``failure`` is empty, or a text whose first line is complete in itself. ``digest`` names the
    bits of C on the timed data (empty for kernels that are not deterministic).
    """

    case_id: str
    kernel: str
    problem: str
    outcome: str = "passed"
    failure: str = ""
    digest: str = ""
    samples: tuple[float, ...] = ()
    launches: int = 0
    estimate: Estimate | None = None
    counters: Mapping[str, float] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Plain lists, dicts, strings and numbers, ready for JSON."""
        return asdict(self)
