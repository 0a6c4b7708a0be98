"""How much memory a launch moves: exact counts, and the formula that they follow."""

from __future__ import annotations

from collections.abc import Mapping

from pytest_gemm.problem import Problem

COUNTED = {"gemm": Problem("gemm", 64, 128, 192), "add": Problem("add", 64, 128, 0)}
"""Where traffic is counted: whole tiles for every usual size, so that edges do not blur it."""

Traffic = Mapping[str, int]
"""Counts by name: ``global_loads`` (accesses), ``global_load_words`` (of four bytes), ``barriers``
(each once a block), ``shared_atomics`` and so on; empty where nothing was counted."""


def loads_per_element(op: str, traffic: Traffic) -> str:
    """Words loaded from global memory per element of C: ``2K/16`` where that is what they are."""
    if "global_load_words" not in traffic:
        return ""
    problem, words = COUNTED[op], traffic["global_load_words"]
    elements = problem.M * problem.N
    if op == "gemm" and words and 2 * problem.K * elements % words == 0:
        reuse = 2 * problem.K * elements // words
        return "2K" if reuse == 1 else f"2K/{reuse}"
    return f"{words / elements:.3g}"
