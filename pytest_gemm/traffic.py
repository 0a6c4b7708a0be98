"""How much memory a launch moves: exact counts, and the formula that they follow."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from pytest_gemm.kernelspec import Kernel
from pytest_gemm.problem import Problem

COUNTED = {"gemm": Problem("gemm", 64, 128, 192), "add": Problem("add", 64, 128, 0)}
"""Where traffic is counted: whole tiles for every usual size, so that edges do not blur it."""

SIMPLE = 32
"""The largest numerator of a multiple of K: a block of 64 x 32 loads ``3K/64``."""

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
    """Elements loaded from global memory per element of C: of a product, as a multiple of K.

    ``2K/16`` where that is what they are, ``4K`` or ``3K/2``; else the number, and the K that it
    was counted at. ``itemsize`` is that of A and B, in bytes.
    """
    if "global_load_words" not in traffic:
        return ""
    problem = COUNTED[op]
    loaded = traffic["global_load_words"] * 4 // itemsize
    elements = problem.M * problem.N * batch
    if op != "gemm" or not loaded:
        return f"{loaded / elements:.3g}"
    multiple = Fraction(loaded, problem.K * elements)
    if (2 / multiple).denominator == 1:
        times, reuse = 2, int(2 / multiple)
    else:
        times, reuse = multiple.as_integer_ratio()
        # A block's sides are powers of two; another divisor may be one of this K, and of no other.
        if times > SIMPLE or reuse & (reuse - 1):
            return f"{loaded / elements:g} at K = {problem.K}"
    return f"{times}K" if reuse == 1 else f"{times}K/{reuse}"
