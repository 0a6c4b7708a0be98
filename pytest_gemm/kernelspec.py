"""What a kernel's author declares, and a kernel ready to be compiled and launched.

``KernelSpec`` is the author's declaration; ``Kernel`` is that declaration with every parameter
bound to a value. Both are plain data. Expressions are kept as text and evaluated per problem.
"""

from __future__ import annotations

from dataclasses import dataclass

from pytest_gemm.problem import Problem


@dataclass(frozen=True)
class Kernel:
    """One kernel that can be compiled and launched: see ``KernelSpec.kernels``.

    (stub: this file is completed with its reader)
    """

    name: str
    params: tuple[tuple[str, int], ...] = ()

    @property
    def id(self) -> str:
        """``tiled``, or ``block_size[SIDE:16]`` with the swept parameters."""
        raise NotImplementedError

    def skip_reason(self, problem: Problem) -> str:
        """The first ``requires`` condition that the problem does not meet, or an empty text."""
        raise NotImplementedError
