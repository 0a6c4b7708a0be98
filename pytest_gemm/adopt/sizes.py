"""The problems that a reading is tried on, around one of whole tiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import gcd
from typing import Any

from pytest_gemm.problem import DIMENSIONS, Problem


@dataclass(frozen=True)
class Sizes:
    """The sizes around a problem of whole tiles; those that ``requires`` ties change together."""

    problem: Problem
    requires: tuple[str, ...]

    @property
    def side(self) -> int:
        """The side of a tile, as far as the problem says."""
        return min(int(getattr(self.problem, name)) for name in DIMENSIONS[self.problem.op])

    def tile(self, group: Sequence[str]) -> int:
        """The length of a tile along a size, as far as the problem says: K may be less deep."""
        shared = gcd(self.problem.M, self.problem.N)
        return gcd(shared, self.problem.K) if "K" in group else shared

    @property
    def groups(self) -> list[tuple[str, ...]]:
        """The sizes, those that are tied to each other together."""
        groups = [(name,) for name in DIMENSIONS[self.problem.op]]
        for condition in self.requires:
            names = {*condition.split(" == ")}
            if len(names) == 2 and names <= {*DIMENSIONS[self.problem.op]}:
                tied = [group for group in groups if names & {*group}]
                groups = [group for group in groups if group not in tied]
                groups.append(tuple(sorted({*sum(tied, ())}, key="MNK".find)))
        return sorted(groups, key=lambda group: "MNK".find(group[0]))

    def group_of(self, name: str) -> tuple[str, ...]:
        """All sizes that are tied to one."""
        return next(group for group in self.groups if name in group)

    def moved(self, steps: Mapping[str, int]) -> Problem:
        """The problem with some sizes that many elements larger."""
        changed: dict[str, Any] = {
            name: getattr(self.problem, name) + step
            for first, step in steps.items()
            for name in self.group_of(first)
        }
        return replace(self.problem, **changed)

    def with_residues(self) -> Problem:
        """The problem with odd sizes, none a multiple of anything."""
        changed: dict[str, Any] = {}
        for step, group in zip((-3, 5, -9), self.groups, strict=False):
            changed |= {name: getattr(self.problem, name) + step for name in group}
        return replace(self.problem, **changed)
