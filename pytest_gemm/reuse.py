"""What the cases of a run need not do twice."""

from __future__ import annotations

from collections import OrderedDict

from pytest_gemm.matrices import Operands, operands
from pytest_gemm.problem import Problem

MOST_KEPT = 2**29
"""Bytes of operands that are kept."""

Key = tuple[Problem, int, str]


class Reuse:
    """The exact suite of a kernel and the operands of a problem, from one case for the next.

    ``exact`` says by kernel, source and first problem what the exact suite said of it: empty where
    it passed.
    """

    def __init__(self, most_kept: int = MOST_KEPT) -> None:
        self.exact: dict[str, str] = {}
        self._most = most_kept
        self._operands: OrderedDict[Key, Operands] = OrderedDict()

    def operands(self, problem: Problem, seed: int, recipe: str) -> Operands:
        """``matrices.operands``, made anew where they were not asked for lately; read-only.

        Raises ConfigError.
        """
        key = (problem, seed, recipe)
        if key not in self._operands:
            made = operands(problem, seed, recipe)
            for matrix in (made.A, made.B, made.C):
                matrix.setflags(write=False)
            self._operands[key] = made
        self._operands.move_to_end(key)
        while len(self._operands) > 1 and self._nbytes > self._most:
            self._operands.popitem(last=False)
        return self._operands[key]

    @property
    def _nbytes(self) -> int:
        return sum(problem.bytes for problem, _, _ in self._operands)
