"""Seeded operands, the same bits on every machine, and the product they should give.

The bits come from the raw 64-bit output of Philox-4x64 under a key that is hashed from the seed,
the recipe, the matrix's name and its shape; NumPy promises that this output never changes (its
distributions may). The conversions below are exact.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pytest_gemm.errors import ConfigError
from pytest_gemm.problem import Problem

Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]

EXACT_LIMIT = 2**24
"""Integers up to this magnitude are exact in float32."""


@dataclass(frozen=True, eq=False)
class Operands:
    """A, B and the C from before the launch: contiguous float32 of the problem's shapes."""

    A: Float32
    B: Float32
    C: Float32


def operands(problem: Problem, seed: int = 0, recipe: str = "uniform") -> Operands:
    """Make A, B and C for a problem.

    Recipes: ``uniform``, multiples of 2^-23 in [-1, 1), for timing; ``integers``, nonzero whole
    numbers in [-r, r] with ``r = integer_range(problem)``, for the exact check. No two of the
    three matrices share a stream. Raises ConfigError for an unknown recipe, and where the
    matrices do not fit into memory.
    """
    if recipe not in RECIPES:
        raise ConfigError(f"no recipe {recipe!r} for operands: use one of {', '.join(RECIPES)}")
    convert = RECIPES[recipe]
    try:
        matrices = {
            name: convert(_words(seed, recipe, name, shape), problem).reshape(shape)
            for name, shape in problem.shapes.items()
        }
    except MemoryError:
        raise ConfigError(
            f"{problem.id}: no memory for operands of {problem.bytes / 2**30:.3g} GiB: choose a "
            "smaller size"
        ) from None
    return Operands(**matrices)


def reference(problem: Problem, operands: Operands) -> Float64:
    """``alpha A B + beta C`` (gemm) or ``A + B`` (add) in float64; exact for ``integers``."""
    A = operands.A.astype(np.float64)
    B = operands.B.astype(np.float64)
    if problem.op == "add":
        return A + B
    C: Float64 = problem.alpha * (A @ B)
    return C + problem.beta * operands.C if problem.beta else C


def integer_range(problem: Problem) -> int:
    """The r of the ``integers`` recipe: 8, or less where sums could leave float32's integers.

    The largest r <= 8 with r^2 K |alpha| + r |beta| < 2^24, so that for whole alpha and beta
    every partial sum is exact in any order. Raises ConfigError where not even r = 1 has that.
    """
    for r in range(8, 0, -1):
        if r * r * problem.K * abs(problem.alpha) + r * abs(problem.beta) < EXACT_LIMIT:
            return r
    raise ConfigError(
        f"{problem.id} has no exact check: sums of K = {problem.K} products pass 2^24 even for "
        "operands of -1 and 1; choose a smaller K"
    )


def raw_words(label: str, count: int) -> npt.NDArray[np.uint32]:
    """``count`` uniform 32-bit words of the stream that ``label`` names."""
    key = int.from_bytes(hashlib.sha256(label.encode()).digest()[:16], "little")
    words = np.random.Philox(key=key).random_raw((count + 1) // 2)
    return words.astype("<u8", copy=False).view("<u4")[:count]


def _words(seed: int, recipe: str, name: str, shape: tuple[int, int]) -> npt.NDArray[np.uint32]:
    rows, columns = shape
    return raw_words(f"pytest-gemm 1 {seed} {recipe} {name} {rows}x{columns}", rows * columns)


def _uniform(words: npt.NDArray[np.uint32], _: Problem) -> Float32:
    signed = (words >> np.uint32(8)).astype(np.int32) - 2**23
    return signed.astype(np.float32) * np.float32(2.0**-23)


def _integers(words: npt.NDArray[np.uint32], problem: Problem) -> Float32:
    # Zero is left out: a missing or doubled term then always changes its sum.
    r = integer_range(problem)
    picked = ((words.astype(np.uint64) * np.uint64(2 * r)) >> np.uint64(32)).astype(np.int32) - r
    return (picked + (picked >= 0)).astype(np.float32)


RECIPES: dict[str, Callable[[npt.NDArray[np.uint32], Problem], Float32]] = {
    "uniform": _uniform,
    "integers": _integers,
}
"""How each named recipe turns random words into elements."""
