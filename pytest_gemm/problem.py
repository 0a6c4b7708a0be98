"""What is computed: an operation and its sizes."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pytest_gemm.errors import ConfigError

ITEMSIZE = {"float32": 4}
"""Bytes of one element, by dtype name."""

DIMENSIONS = {"gemm": ("M", "N", "K"), "add": ("M", "N")}
"""The sizes that each operation has, in the order of a problem's id."""

_SIZE = re.compile(r"[1-9][0-9]*(?:x[1-9][0-9]*)*")


@dataclass(frozen=True, order=True)
class Problem:
    """One matrix problem: row-major, ``C = alpha A B + beta C`` (gemm) or ``C = A + B`` (add).

    ``A`` is M x K, ``B`` is K x N, ``C`` is M x N for gemm; all three are M x N for add, whose
    ``K`` is 0. ``lda``, ``ldb`` and ``ldc`` are the distances between rows in elements; 0 stands
    for the number of columns.
    """

    op: str
    M: int
    N: int
    K: int
    alpha: float = 1.0
    beta: float = 0.0
    dtype: str = "float32"
    lda: int = 0
    ldb: int = 0
    ldc: int = 0

    @classmethod
    def parse(cls, text: str, op: str = "gemm", dtype: str = "float32") -> Problem:
        """Read ``"512"`` (square), ``"512x256x128"`` (gemm) or ``"512x256"`` (add).

        An add kernel takes M and N from a text with three sizes. Raises ConfigError.
        """
        sizes = [int(s) for s in text.split("x")] if _SIZE.fullmatch(text) else []
        if len(sizes) == 1:
            sizes *= 3
        if op == "add" and len(sizes) == 2:
            sizes.append(0)
        if len(sizes) != 3:
            form = "M or MxN or MxNxK" if op == "add" else "N or MxNxK"
            raise ConfigError(f"{text!r} is not a size: write {form}, each at least 1")
        M, N, K = sizes
        return cls(op, M, N, 0 if op == "add" else K, dtype=dtype)

    @property
    def id(self) -> str:
        """``MxNxK`` for gemm, ``MxN`` for add."""
        return "x".join(str(getattr(self, d)) for d in DIMENSIONS[self.op])

    @property
    def shapes(self) -> dict[str, tuple[int, int]]:
        """Rows and columns of each buffer, in the order A, B, C."""
        if self.op == "add":
            return dict.fromkeys("ABC", (self.M, self.N))
        return {"A": (self.M, self.K), "B": (self.K, self.N), "C": (self.M, self.N)}

    @property
    def sizes(self) -> dict[str, int]:
        """The integers that a kernel's expressions may use: M, N, K, lda, ldb, ldc."""
        dims = {d: int(getattr(self, d)) for d in DIMENSIONS[self.op]}
        return dims | {f"ld{name.lower()}": self.ld(name) for name in self.shapes}

    def ld(self, buffer: str) -> int:
        """The leading dimension of A, B or C in elements."""
        return int(getattr(self, f"ld{buffer.lower()}")) or self.shapes[buffer][1]

    @property
    def flops(self) -> int:
        """Floating-point operations counted for GFLOP/s: 2 M N K (gemm), M N (add)."""
        return self.M * self.N if self.op == "add" else 2 * self.M * self.N * self.K

    @property
    def bytes(self) -> int:
        """Least traffic with memory: each input read once, the output written once."""
        elements = sum(rows * columns for rows, columns in self.shapes.values())
        return elements * ITEMSIZE[self.dtype]
