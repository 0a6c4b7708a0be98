"""What is run: one kernel on one problem, as plain data that could cross to another process."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from pytest_gemm.kernelspec import Kernel
from pytest_gemm.problem import Problem

if TYPE_CHECKING:
    from pytest_gemm.checking import Scope


@dataclass(frozen=True)
class Settings:
    """How a case is run: the operands' seed, whether it is timed, and limits in seconds.

    ``cold``: timed with empty caches. ``check``: a ``checking.Scope``. ``trips``: also timed with
    the way to the device and back. With an ``architecture`` (``sm_90``) nothing is run: the
    machine code for it is inspected.
    """

    seed: int = 0
    timed: bool = False
    cold: bool = False
    time_cap: float = 0.5
    launch_timeout: float = 20.0
    check: Scope = "off"
    trips: bool = False
    architecture: str = ""


@dataclass(frozen=True)
class Case:
    """One kernel on one problem."""

    kernel: Kernel
    problem: Problem
    settings: Settings = Settings()

    @property
    def id(self) -> str:
        """Stable, by name: ``tiled-512x512x512-float32``, ``block_size[SIDE:16]-...``.

        A cold case is another benchmark: its id ends in ``-cold``. That of machine code is
        ``tiled-sm_90``.
        """
        if self.settings.architecture:
            return f"{self.kernel.id}-{self.settings.architecture}"
        cold = "-cold" if self.settings.cold else ""
        return f"{self.kernel.id}-{self.problem.label}{cold}"

    def is_chosen(self, words: Collection[str]) -> bool:
        """Whether its id contains one of the words; without any word every case is chosen."""
        return not words or any(word in self.id for word in words)

    @property
    def title(self) -> str:
        """What a sentence begins with: ``tiled on 512x512x512``, ``tiled for sm_90``."""
        if self.settings.architecture:
            return f"{self.kernel.id} for {self.settings.architecture}"
        return f"{self.kernel.id} on {self.problem.id}"

    def to_dict(self) -> dict[str, Any]:
        """Plain lists, dicts, strings and numbers."""
        return {
            "kernel": self.kernel.to_dict(),
            "problem": asdict(self.problem),
            "settings": asdict(self.settings),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Case:
        """The reverse of ``to_dict``."""
        return cls(
            Kernel.from_dict(data["kernel"]),
            Problem(**data["problem"]),
            Settings(**data["settings"]),
        )
