"""How much memory a launch moves: exact counts, and the formula that they follow."""

from __future__ import annotations

from collections.abc import Mapping

from pytest_gemm.kernelspec import Kernel
from pytest_gemm.problem import Problem

COUNTED = {"gemm": Problem("gemm", 64, 128, 192), "add": Problem("add", 64, 128, 0)}
"""Where traffic is counted: whole tiles for every usual size, so that edges do not blur it."""

Traffic = Mapping[str, int]
"""Counts by name: ``global_loads`` (accesses), ``global_load_words`` (of four bytes), ``barriers``
(each once a block), ``shared_atomics`` and so on; empty where nothing was counted."""


def counted(kernel: Kernel) -> Problem:
    """The kernel's problem of the sizes in ``COUNTED``."""
    return kernel.of_kind(COUNTED[kernel.op])


def loads_on(problem: Problem, traffic: Traffic) -> str:
    """``loads_per_element`` of a kernel for such a problem, of whatever size."""
    size = problem.types["A"].itemsize
    return loads_per_element(problem.op, traffic, itemsize=size, batch=problem.batch)


def loads_per_element(op: str, traffic: Traffic, *, itemsize: int = 4, batch: int = 1) -> str:
    """Elements loaded from global memory per element of C: ``2K/16`` where that is what they are.

    ``itemsize`` is that of A and B, in bytes.
    """
    if "global_load_words" not in traffic:
        return ""
    problem = COUNTED[op]
    loaded = traffic["global_load_words"] * 4 // itemsize
    elements = problem.M * problem.N * batch
    if op == "gemm" and loaded and 2 * problem.K * elements % loaded == 0:
        reuse = 2 * problem.K * elements // loaded
        return "2K" if reuse == 1 else f"2K/{reuse}"
    return f"{loaded / elements:.3g}"
