"""Is C right? Comparisons of arrays, with their error bounds; nothing is launched here.

Bounds are those of N. J. Higham, *Accuracy and Stability of Numerical Algorithms*, 2nd ed., SIAM
2002: with unit roundoff u and gamma_n = n u / (1 - n u), a product computed in any order, with or
without fused multiply-adds, obeys ``|fl(A B) - A B| <= gamma_K |A| |B|`` (eq. 3.13). Here u is that
of the type in which sums are kept. Where C has another one, its own u is added once, for the sum
that is rounded to it (eq. 2.4): ``gamma_K |A| |B| + u_C (|A B| + gamma_K |A| |B|)``. The sums of
rows and columns are those of K.-H. Huang and J. A. Abraham, "Algorithm-Based Fault Tolerance for
Matrix Operations", IEEE Transactions on Computers C-33 (1984).
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_gemm.bits import Elements, encode, rounded
from pytest_gemm.dtypes import TYPES
from pytest_gemm.errors import ConfigError
from pytest_gemm.matrices import Float64, Operands, raw_words, reference
from pytest_gemm.matrices import operands as operands_of
from pytest_gemm.problem import Problem

FULL_LIMIT = 2**30
"""M N K up to which every element is compared, 1024^3; beyond it only those of sampled rows."""

SAMPLED_ROWS = 128
"""How many rows of a larger C are compared element by element."""

_PANEL = 1024

Floats = npt.NDArray[np.floating[Any]]
Indices = npt.NDArray[np.intp]


@dataclass(frozen=True)
class Agreement:
    """C is right. ``worst`` is the largest error as a part of its bound (0 for ``exact``)."""

    check: str
    problem: str
    digest: str
    worst: float = 0.0


@dataclass(frozen=True)
class Mismatch:
    """C is wrong, by one check.

    ``check`` says what was compared: ``elements``, ``sampled elements``, ``row sums``,
    ``column sums`` or ``checksum``; ``wrong`` of ``total`` such numbers differ by more than their
    bound. ``first`` is where the first of them is: [row, column], [row], [column] or []. ``rows``
    and ``columns`` are all those that hold something wrong, as far as the checks can tell.
    ``matrix`` says which of a batch this is: the first that is wrong.
    """

    check: str
    wrong: int
    total: int
    first: tuple[int, ...]
    got: float
    expected: float
    bound: float = 0.0
    rows: tuple[int, ...] = ()
    columns: tuple[int, ...] = ()
    matrix: int | None = None

    def __str__(self) -> str:
        if self.matrix is not None:
            return f"matrix {self.matrix} of the batch: {replace(self, matrix=None)}"
        bound = f" +- {self.bound:.2g}" if self.bound else ""
        value = f"{beside(self.got, self.expected, bound)}"
        if self.check.endswith("elements"):
            count = f"{self.wrong} of {self.total} {self.check} of C wrong"
            return f"{count}, first C[{', '.join(map(str, self.first))}] = {value}"
        if self.check == "checksum":
            return f"sum of C wrong: {value}"
        kind = self.check.removesuffix(" sums")
        return (
            f"{self.wrong} of {self.total} {self.check} of C wrong, "
            f"first {kind} {self.first[0]}: {value}"
        )


def check_exact(C: Elements, expected: Float64, bounds: Float64 | None = None) -> Mismatch | None:
    """Compare whole numbers: every element must equal ``expected``; a NaN equals nothing.

    ``bounds`` are errors that are allowed all the same, see ``exact_bounds``.
    """
    if bounds is None:
        bounds = np.zeros_like(expected)
    if expected.ndim == 2:
        return _compare("elements", C, expected, bounds)[0]
    for index, (own, wanted, bound) in enumerate(zip(C, expected, bounds, strict=True)):
        if mismatch := check_exact(own, wanted, bound):
            return replace(mismatch, matrix=index)
    return None


def exact_bounds(problem: Problem, operands: Operands, expected: Float64) -> Float64:
    """The errors that C may have although every sum of whole numbers is exact.

    None with whole alpha and beta. Else the sums are multiplied and added to, which rounds: at most
    ``gamma_4 (|alpha A B| + |beta C|)``. With a reference they are ``_epilogue_errors``. Both are
    rounded to C's type.
    """
    whole = problem.alpha == int(problem.alpha) and problem.beta == int(problem.beta)
    if problem.op == "add" or (whole and not problem.reference):
        return np.zeros_like(expected)
    product = np.abs(operands.A.astype(np.float64) @ operands.B.astype(np.float64))
    C = np.abs(operands.C.astype(np.float64))
    if problem.reference:
        return _epilogue_errors(problem, np.abs(expected), product + C)
    size = abs(problem.alpha) * product + abs(problem.beta) * C
    errors = gamma(4, problem.acc_dtype) * size
    return errors + _storing_errors(problem, size + errors)


def check_bounds(problem: Problem, operands: Operands, C: Elements) -> Mismatch | float:
    """Compare C with a float64 product within rounding errors; an addition must be exact.

    Returns a Mismatch, or the largest error as a part of its bound. Checked are the sum of C
    against ``(e^T A)(B e)``, the row sums against ``A (B e)``, the column sums against
    ``(e^T A) B`` and single elements: all where M N K <= ``FULL_LIMIT``, else those of
    ``sampled_rows(M)``. The bound of each is ``gamma |alpha||A||B| + |beta||C|``, summed alike,
    with gamma = gamma_n of ``acc_dtype`` + gamma_{4(M+N+K)} of float64 for our own sums, where
    n = K, or K + 2 with alpha or beta (K + 3 where these are rounded themselves); where C has
    another type, with what rounding to that adds. Whole numbers have no errors. A product with a
    reference is compared by elements alone. Of a batch the first Mismatch is returned. Raises
    ConfigError where n u reaches 1, and for mistakes of a reference.
    """
    if problem.batch > 1:
        worst = 0.0
        for index in range(problem.batch):
            found = check_bounds(problem.single, operands[index], C[index])
            if isinstance(found, Mismatch):
                return replace(found, matrix=index)
            worst = max(worst, found)
        return worst
    if problem.op == "add":
        expected = rounded(reference(problem, operands), problem.out_dtype)
        return _compare("elements", C, expected, np.zeros(()))[0] or 0.0
    compared = [] if problem.reference else _compared_sums(problem, operands, C)
    full = problem.M * problem.N * problem.K <= FULL_LIMIT or not _is_by_rows(problem)
    rows = np.arange(problem.M) if full else sampled_rows(problem.M)
    compared.append(
        _compare(
            "elements" if full else "sampled elements",
            C[rows],
            *_elements_and_bounds(problem, operands, rows),
            rows,
        )
    )
    mismatches = [mismatch for mismatch, _ in compared if mismatch]
    return _merge(mismatches) if mismatches else max(worst for _, worst in compared)


def _compared_sums(
    problem: Problem, operands: Operands, C: Elements
) -> list[tuple[Mismatch | None, float]]:
    relative = _relative_error(problem)
    with np.errstate(invalid="ignore", over="ignore"):
        row_sums, column_sums = _sum(C, 1), _sum(C, 0)
        sums = (np.asarray(row_sums.sum()), row_sums, column_sums)
    counts = (problem.M * problem.N, problem.N, problem.M)
    return [
        _compare(
            name, got, expected, relative * size + _storing_errors(problem, size, summed=count)
        )
        for name, got, expected, size, count in zip(
            ("checksum", "row sums", "column sums"),
            sums,
            _sums(problem, operands),
            _sums(*_magnitudes(problem, operands)),
            counts,
            strict=True,
        )
    ]


def element_bounds(problem: Problem, operands: Operands) -> Float64:
    """The bound of every single element in ``check_bounds``; zero for an addition."""
    if problem.op == "add":
        return np.zeros(problem.shapes["C"])
    return _elements_and_bounds(problem, operands, np.arange(problem.M))[1]


def _elements_and_bounds(
    problem: Problem, operands: Operands, rows: Indices
) -> tuple[Float64, Float64]:
    """Some rows of what C should be, and the errors that they may have."""
    if problem.reference:
        some = Operands(operands.A[rows], operands.B, operands.C[rows])
        return _epilogue(replace(problem, M=len(rows)), some)
    expected = _elements(problem, operands, rows)
    errors = _relative_error(problem) * _elements(*_magnitudes(problem, operands), rows)
    # Where beta C is added in C's type, alpha A B is rounded to that too.
    size = np.abs(expected) + 2 * abs(problem.beta) * np.abs(operands.C[rows])
    return expected, errors + _storing_errors(problem, size + errors)


def _storing_errors(problem: Problem, size: Float64, summed: int = 1) -> Float64 | float:
    """What rounding sums to C's type adds to their errors, where it is not the sums' own.

    ``size`` is the magnitude of what is rounded, ``summed`` of how many elements together. With
    alpha or beta these may be computed with in C's type too: three roundings.
    """
    if problem.out_dtype == problem.acc_dtype:
        return 0.0
    plain = problem.alpha == 1 and problem.beta == 0
    n = 1 if plain else 3
    return gamma(n, problem.out_dtype) * size + n * summed * TYPES[problem.out_dtype].smallest


def _epilogue(problem: Problem, operands: Operands) -> tuple[Float64, Float64]:
    """What a reference returns, and the errors that C may have.

    A product with errors E is that of [A I] and [B; E], so the reference itself says what becomes
    of them: it is called once more with each of +-E, the bounds of the product.
    """
    expected = reference(problem, operands)
    A, B = operands.A.astype(np.float64), operands.B.astype(np.float64)
    product = np.abs(A @ B)
    E = _relative_error(replace(problem, alpha=1.0, beta=0.0)) * (np.abs(A) @ np.abs(B))
    moved = np.zeros_like(expected)
    wider = replace(problem, K=problem.K + problem.M)
    for errors in (E, -E):
        augmented = Operands(np.hstack([A, np.eye(problem.M)]), np.vstack([B, errors]), operands.C)
        moved = np.maximum(moved, np.abs(reference(wider, augmented) - expected))
    C = np.abs(operands.C.astype(np.float64))
    return expected, moved + _epilogue_errors(problem, np.abs(expected) + moved, product + C)


def _epilogue_errors(problem: Problem, result: Float64, inputs: Float64) -> Float64:
    """The errors of an epilogue's own arithmetic: an assumption, as nothing is known of it.

    It may round 16 times what it returns, and 4 times numbers as large as what it is given:
    ``gamma_16 |result| + gamma_4 (|A B| + |C|)``.
    """
    own = gamma(16, problem.acc_dtype) * result + gamma(4, problem.acc_dtype) * inputs
    return own + _storing_errors(problem, result + own)


def _is_by_rows(problem: Problem) -> bool:
    """Whether a row of C depends on no other row of A and C, as is tried on a small problem."""
    if not problem.reference:
        return True
    small = replace(problem, M=6, N=5, K=4, lda=0, ldb=0, ldc=0)
    data, rows = operands_of(small), np.array([1, 3, 4])
    some = Operands(data.A[rows], data.B, data.C[rows])
    return np.allclose(reference(replace(small, M=3), some), reference(small, data)[rows])


def _relative_error(problem: Problem) -> float:
    """gamma_n of ``check_bounds``.

    For sums in float16, where n u is soon 1, the probabilistic one of N. J. Higham and T. Mary, "A
    New Approach to Probabilistic Rounding Error Analysis", SIAM J. Sci. Comput. 41 (2019), theorem
    2.4, if that is less: ``exp(lambda sqrt(n) u + n u^2 / (1 - u)) - 1``, lambda = 10. With
    independent rounding errors of mean zero, any element of C breaks it with a probability of at
    most 2 M N K e^-50.
    """
    if problem.accumulator.is_integer:
        return 0.0
    n, u = problem.K + _scaling(problem), problem.accumulator.unit_roundoff
    ours = gamma(4 * (problem.M + problem.N + problem.K), "float64")
    if problem.acc_dtype != "float16":
        return gamma(n, problem.acc_dtype) + ours
    likely = math.expm1(10 * math.sqrt(n) * u + n * u * u / (1 - u))
    return min(likely, gamma(n, "float16") if n * u < 1 else math.inf) + ours


def _scaling(problem: Problem) -> int:
    """Roundings of alpha A B + beta C besides those of sums: of its two operations, of alpha."""
    if problem.alpha == 1 and problem.beta == 0:
        return 0
    numbers = np.array([problem.alpha, problem.beta])
    return 2 + int((rounded(numbers, problem.acc_dtype) != numbers).any())


def gamma(n: int, dtype: str) -> float:
    """n u / (1 - n u), for the unit roundoff u of a dtype. Raises ConfigError for n u >= 1."""
    nu = n * TYPES[dtype].unit_roundoff
    if nu >= 1:
        raise ConfigError(f"no error bound for sums of {n} terms in {dtype}: choose a smaller K")
    return nu / (1 - nu)


def sampled_rows(M: int) -> Indices:
    """One row out of each of at most ``SAMPLED_ROWS`` equal bands of at least 32, and the last.

    The same for every C of M rows.
    """
    bands = max(1, min(SAMPLED_ROWS, M // 32))
    edges = np.arange(bands + 1) * M // bands
    within = raw_words(f"pytest-gemm 1 sampled rows {M}", bands) % np.diff(edges)
    return np.unique(np.append(edges[:-1] + within, M - 1)).astype(np.intp)


def digest(C: Elements, dtype: str = "float32") -> str:
    """``sha256:`` and 32 hex digits that name C's dtype, shape and bits, whatever its strides."""
    sha = hashlib.sha256(f"{dtype} {'x'.join(map(str, C.shape))}\n".encode())
    bits = np.ascontiguousarray(encode(C, dtype))
    sha.update(bits.astype(bits.dtype.newbyteorder("<"), copy=False).data)
    return f"sha256:{sha.hexdigest()[:32]}"


def beside(got: float, expected: float, bound: str = "") -> str:
    """``12 (should be 13)``, with as many digits as tell the one from the other."""
    shown, wanted = number(got), number(expected)
    if shown == wanted:
        shown, wanted = repr(float(got)), repr(float(expected))
    return f"{shown} (should be {wanted}{bound})"


def number(value: float) -> str:
    """An element for people: enough digits to tell a float32 or an int32 from its neighbours."""
    return f"{value:.{10 if float(value).is_integer() else 9}g}"


def _magnitudes(problem: Problem, operands: Operands) -> tuple[Problem, Operands]:
    """|alpha|, |A|, |B|, |beta| and |C|: the problem whose result scales every bound."""
    return (
        replace(problem, alpha=abs(problem.alpha), beta=abs(problem.beta)),
        Operands(np.abs(operands.A), np.abs(operands.B), np.abs(operands.C)),
    )


def _sums(problem: Problem, operands: Operands) -> tuple[Float64, Float64, Float64]:
    """The sum, the row sums and the column sums of alpha A B + beta C, in O(MK + KN + MN)."""
    A, B, C = operands.A, operands.B, operands.C
    Be, eA = _sum(B, 1), _sum(A, 0)
    total = problem.alpha * np.asarray(eA @ Be)
    rows = problem.alpha * _product(A, Be[:, None])[:, 0]
    columns = problem.alpha * _product(eA[None, :], B)[0]
    if problem.beta:
        rows += problem.beta * _sum(C, 1)
        columns += problem.beta * _sum(C, 0)
        total += problem.beta * _sum(C, 0).sum()
    return total, rows, columns


def _elements(problem: Problem, operands: Operands, rows: Indices) -> Float64:
    """Some rows of alpha A B + beta C."""
    C = problem.alpha * _product(operands.A[rows], operands.B)
    return C + problem.beta * operands.C[rows].astype(np.float64) if problem.beta else C


def _sum(X: Elements, axis: int) -> Float64:
    total: Float64 = X.sum(axis=axis, dtype=np.float64)
    return total


def _product(X: Floats, Y: Floats) -> Float64:
    """X Y in float64 without a float64 copy of all of either."""
    result: Float64 = np.zeros((X.shape[0], Y.shape[1]))
    for start in range(0, X.shape[1], _PANEL):
        panel = slice(start, start + _PANEL)
        result += X[:, panel].astype(np.float64) @ Y[panel].astype(np.float64)
    return result


def _compare(
    check: str, got: Floats, expected: Float64, bound: Float64, at_rows: Indices | None = None
) -> tuple[Mismatch | None, float]:
    """A Mismatch unless every error is at most its bound, and the largest error / bound.

    ``at_rows`` says which rows of C the compared ones are, if not all.
    """
    with np.errstate(invalid="ignore"):
        error = np.abs(got - expected)
    bound = np.broadcast_to(bound, error.shape)
    # Not ``error > bound``: a NaN must fail.
    wrong = ~(error <= bound)
    if not wrong.any():
        return None, float(np.max(error / np.where(bound > 0, bound, 1)))
    places = np.argwhere(wrong)
    at = tuple(places[0])
    if at_rows is not None:
        places[:, 0] = at_rows[places[:, 0]]
    along = [tuple(np.unique(places[:, axis]).tolist()) for axis in range(wrong.ndim)]
    if wrong.ndim == 2:
        rows, columns = along
    else:
        rows, columns = (along[0] if check == kind else () for kind in ("row sums", "column sums"))
    mismatch = Mismatch(
        check,
        len(places),
        wrong.size,
        tuple(places[0].tolist()),
        float(got[at]),
        float(expected[at]),
        float(bound[at]),
        rows,
        columns,
    )
    return mismatch, float("inf")


def _merge(mismatches: list[Mismatch]) -> Mismatch:
    """The finest of the failed checks, with the wrong rows and columns of all of them."""
    return replace(
        mismatches[-1],
        rows=tuple(sorted({row for m in mismatches for row in m.rows})),
        columns=tuple(sorted({column for m in mismatches for column in m.columns})),
    )
