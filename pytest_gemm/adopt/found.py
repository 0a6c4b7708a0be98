"""A reading that was launched, and how close it comes."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_gemm.adopt.attempt import Attempt
from pytest_gemm.adopt.reading import Reading
from pytest_gemm.adopt.variant import Variant
from pytest_gemm.problem import Problem

NEARLY = 0.9
"""How much of a tile is seen to be written where it is: an element may be what it was."""


@dataclass(frozen=True)
class Found:
    """A reading that was launched on ``problem``; ``others`` are arguments right as well."""

    reading: Reading
    problem: Problem
    attempt: Attempt
    variant: Variant
    others: tuple[tuple[str, ...], ...] = ()

    @property
    def is_exact(self) -> bool:
        return self.attempt.is_exact

    @property
    def is_at_fault(self) -> bool:
        """Whether the kernel itself is wrong, whatever it is given: threads race, or it adds to C
        although it takes alpha or beta.

        A race may be that of a block with the side of a tile of another."""
        takes_tile = any(arg.isdecimal() and int(arg) > 1 for arg in self.reading.args)
        races = self.attempt.races and not takes_tile
        return races or (bool(self.attempt.scalars) and self.attempt.is_right)

    @property
    def closeness(self) -> tuple[float, ...]:
        """Larger for a reading that comes closer: what misses its matrix is far off.

        A few elements that are right by chance do not count.
        """
        attempt, extent = self.attempt, self.attempt.extent
        total = max(1, self.problem.M * self.problem.N)
        return (
            -len(self.reading.requires),
            not attempt.fault,
            -attempt.strays,
            extent.filled > NEARLY or bool(extent.run),
            attempt.races,
            attempt.is_right,
            -len(attempt.seen),
            -round(attempt.wrong / total, 1) if self.reading.grid != ("1",) else -1.0,
        )
