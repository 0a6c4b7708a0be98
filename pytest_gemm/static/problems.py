"""Problems that stand for all others where a kernel is compiled and not launched."""

from __future__ import annotations

from pytest_gemm.kernelspec import Kernel
from pytest_gemm.problem import Problem


def unlike_problems(kernel: Kernel) -> list[Problem]:
    """Two problems: what a launch has in common on both is taken for the kernel's own."""
    sizes = ("64x128x192", "2048x1536x1024")
    return [kernel.of_kind(Problem.parse(size, kernel.op, kernel.dtype)) for size in sizes]
