"""Seeded operands, the same bits on every machine, and the product they should give.

The bits come from the raw 64-bit output of Philox-4x64 under a key that is hashed from the seed,
the recipe, the matrix's name and its shape; NumPy promises that this output never changes (its
distributions may). The conversions below are exact.
"""

from __future__ import annotations

import hashlib
import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pytest_gemm.bits import Elements, carrier
from pytest_gemm.dtypes import ElementType
from pytest_gemm.epilogue import load
from pytest_gemm.errors import ConfigError
from pytest_gemm.problem import Problem

Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]
Words = npt.NDArray[np.uint32]

LARGEST = {"float64": 2**20, "int8": 127}
"""The largest r of the ``integers`` recipe, by dtype; 8 for the others.

The products of float64's need more than float32's digits, and sums of int8's more than 16 bits, so
that a kernel that computes in these is noticed.
"""


@dataclass(frozen=True, eq=False)
class Operands:
    """op(A), op(B) and the C from before the launch: contiguous, of the problem's shapes.

    float64 for float64, int8 and int32 for these, else float32. A batch has one more axis, the
    first one.
    """

    A: Elements
    B: Elements
    C: Elements

    def __getitem__(self, index: int) -> Operands:
        """One product of a batch."""
        return Operands(self.A[index], self.B[index], self.C[index])


def operands(problem: Problem, seed: int = 0, recipe: str = "uniform") -> Operands:
    """Make A, B and C for a problem.

    Recipes: ``uniform``, for timing, multiples of 2 u in [-1, 1) (2^-23 for float32; for integers
    as the other recipe); ``integers``, nonzero whole numbers in [-r, r] with
    ``r = integer_range(problem)``, for the exact check. No two of the
    three matrices share a stream. Raises ConfigError for an unknown recipe, and where the
    matrices do not fit into memory.
    """
    if recipe not in RECIPES:
        raise ConfigError(f"no recipe {recipe!r} for operands: use one of {', '.join(RECIPES)}")
    try:
        matrices = {
            name: _matrix(problem, name, shape, seed, recipe)
            for name, shape in problem.shapes.items()
        }
    except (MemoryError, ValueError):  # the second where there is more than NumPy can count
        raise ConfigError(
            f"{problem.id}: no memory for operands of {problem.bytes / 2**30:.3g} GiB: choose a "
            "smaller size"
        ) from None
    return Operands(**matrices)


def _matrix(
    problem: Problem, name: str, shape: tuple[int, int], seed: int, recipe: str
) -> Elements:
    kind = problem.types[name]
    whole = (problem.batch, *shape) if problem.batch > 1 else shape
    size = "x".join(map(str, whole))
    count = math.prod(whole) * -(-kind.itemsize // 4)
    words = raw_words(f"pytest-gemm 1 {seed} {recipe} {name} {size}", count)
    return RECIPES[recipe](words, problem, kind).reshape(whole)


def reference(problem: Problem, operands: Operands) -> Float64:
    """``alpha A B + beta C`` (gemm) or ``A + B`` (add) in float64; exact for ``integers``.

    Where the problem names a reference, what that returns. Raises ConfigError for its mistakes.
    """
    if problem.reference:
        return _by_user(problem, operands)
    A = operands.A.astype(np.float64)
    B = operands.B.astype(np.float64)
    if problem.op == "add":
        return A + B
    C: Float64 = problem.alpha * (A @ B)
    return C + problem.beta * operands.C if problem.beta else C


def _by_user(problem: Problem, operands: Operands) -> Float64:
    if problem.batch > 1:
        single = problem.single
        return np.stack([_by_user(single, operands[i]) for i in range(problem.batch)])
    matrices = {name: getattr(operands, name).astype(np.float64) for name in "ABC"}
    values = {**matrices, "alpha": problem.alpha, "beta": problem.beta}
    with np.errstate(all="ignore"):  # exp(-x) may overflow on purpose
        C = load(problem.reference)(values)
    if C.shape != matrices["C"].shape or C.dtype.kind not in "iuf":
        what = f"{C.dtype} of shape {C.shape}"
        raise ConfigError(
            f"the reference {problem.reference} returned {what}: C is an array of "
            f"{problem.M} x {problem.N} numbers"
        )
    return C.astype(np.float64)


def integer_range(problem: Problem) -> int:
    """The r of the ``integers`` recipe: ``LARGEST``, or less where sums could be inexact.

    The largest r with r^2 K |alpha| + r |beta| < 2^24, so that for whole alpha and beta every
    partial sum is exact in any order. For other types 2^24 is the least of the numbers below
    which sums and C hold all integers; where not even r = 1 has that for C (2^11 for float16, 2^8
    for bfloat16), that of sums alone, which are then rounded once. Raises ConfigError where not
    even r = 1 has that.
    """
    sums, C = problem.accumulator, problem.types["C"]
    for kind in (min(sums, C, key=lambda kind: kind.digits), sums):
        if r := _largest(problem, kind.exact_limit):
            return r
    raise ConfigError(
        f"{problem.id} has no exact check: sums of K = {problem.K} products pass "
        f"2^{sums.digits} even for operands of -1 and 1; choose a smaller K"
    )


def _largest(problem: Problem, limit: int) -> int:
    """The largest r that keeps sums below the limit, or 0."""
    alpha, beta = max(1.0, abs(problem.alpha)), abs(problem.beta)

    def passes(r: int) -> bool:
        return r * r * problem.K * alpha + r * beta >= limit

    return bisect_left(range(1, LARGEST.get(problem.dtype, 8) + 1), True, key=passes)


def raw_words(label: str, count: int) -> npt.NDArray[np.uint32]:
    """``count`` uniform 32-bit words of the stream that ``label`` names."""
    key = int.from_bytes(hashlib.sha256(label.encode()).digest()[:16], "little")
    words = np.random.Philox(key=key).random_raw((count + 1) // 2)
    return words.astype("<u8", copy=False).view("<u4")[:count]


def _uniform(words: Words, problem: Problem, kind: ElementType) -> Elements:
    if kind.is_integer:
        return _integers(words, problem, kind)
    half, scalar = 2 ** (kind.digits - 1), carrier(kind.name).type
    if kind.itemsize == 8:
        signed = (words.view("<u8") >> np.uint64(64 - kind.digits)).astype(np.int64) - half
    else:
        signed = (words >> np.uint32(32 - kind.digits)).astype(np.int32) - half
    elements: Elements = signed.astype(scalar) * scalar(1 / half)
    return elements


def _integers(words: Words, problem: Problem, kind: ElementType) -> Elements:
    # Zero is left out: a missing or doubled term then always changes its sum.
    r = integer_range(problem)
    first = words[:: -(-kind.itemsize // 4)].astype(np.uint64)
    picked = ((first * np.uint64(2 * r)) >> np.uint64(32)).astype(np.int32) - r
    return (picked + (picked >= 0)).astype(carrier(kind.name))


RECIPES: dict[str, Callable[[Words, Problem, ElementType], Elements]] = {
    "uniform": _uniform,
    "integers": _integers,
}
"""How each named recipe turns random words into elements."""
