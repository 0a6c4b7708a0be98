"""Is C right? Comparisons of arrays, with their error bounds; nothing is launched here.

Bounds are those of N. J. Higham, *Accuracy and Stability of Numerical Algorithms*, 2nd ed., SIAM
2002: with unit roundoff u and gamma_n = n u / (1 - n u), a product computed in any order, with or
without fused multiply-adds, obeys ``|fl(A B) - A B| <= gamma_K |A| |B|`` (eq. 3.13). The sums of
rows and columns are those of K.-H. Huang and J. A. Abraham, "Algorithm-Based Fault Tolerance for
Matrix Operations", IEEE Transactions on Computers C-33 (1984).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_gemm.errors import ConfigError
from pytest_gemm.matrices import Float32, Float64, Operands, raw_words
from pytest_gemm.problem import Problem

UNIT_ROUNDOFF = {"float32": 2.0**-24, "float64": 2.0**-53}

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

    def __str__(self) -> str:
        bound = f" +- {self.bound:.2g}" if self.bound else ""
        value = f"{number(self.got)} (should be {number(self.expected)}{bound})"
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


def check_exact(C: Float32, expected: Float64) -> Mismatch | None:
    """Compare whole numbers: every element must equal ``expected``; a NaN equals nothing."""
    return _compare("elements", C, expected, np.zeros(()))[0]


def check_bounds(problem: Problem, operands: Operands, C: Float32) -> Mismatch | float:
    """Compare C with a float64 product within rounding errors; an addition must be exact.

    Returns a Mismatch, or the largest error as a part of its bound. Checked are the sum of C
    against ``(e^T A)(B e)``, the row sums against ``A (B e)``, the column sums against
    ``(e^T A) B`` and single elements: all where M N K <= ``FULL_LIMIT``, else those of
    ``sampled_rows(M)``. The bound of each is ``gamma |alpha||A||B| + |beta||C|``, summed alike,
    with gamma = gamma_n of float32 + gamma_{4(M+N+K)} of float64 for our own sums, where n = K,
    or K + 2 with alpha or beta. Raises ConfigError where n u reaches 1.
    """
    if problem.op == "add":
        expected = (operands.A + operands.B).astype(np.float64)
        return _compare("elements", C, expected, np.zeros(()))[0] or 0.0
    relative = _relative_error(problem)
    sizes = _magnitudes(problem, operands)
    with np.errstate(invalid="ignore", over="ignore"):
        row_sums, column_sums = _sum(C, 1), _sum(C, 0)
        sums = (np.asarray(row_sums.sum()), row_sums, column_sums)
    compared = [
        _compare(name, got, expected, relative * size)
        for name, got, expected, size in zip(
            ("checksum", "row sums", "column sums"),
            sums,
            _sums(problem, operands),
            _sums(*sizes),
            strict=True,
        )
    ]
    full = problem.M * problem.N * problem.K <= FULL_LIMIT
    rows = np.arange(problem.M) if full else sampled_rows(problem.M)
    compared.append(
        _compare(
            "elements" if full else "sampled elements",
            C[rows],
            _elements(problem, operands, rows),
            relative * _elements(*sizes, rows),
            rows,
        )
    )
    mismatches = [mismatch for mismatch, _ in compared if mismatch]
    return _merge(mismatches) if mismatches else max(worst for _, worst in compared)


def element_bounds(problem: Problem, operands: Operands) -> Float64:
    """The bound of every single element in ``check_bounds``; zero for an addition."""
    if problem.op == "add":
        return np.zeros(problem.shapes["C"])
    sizes = _magnitudes(problem, operands)
    return _relative_error(problem) * _elements(*sizes, np.arange(problem.M))


def _relative_error(problem: Problem) -> float:
    plain = problem.alpha == 1 and problem.beta == 0
    ours = gamma(4 * (problem.M + problem.N + problem.K), "float64")
    return gamma(problem.K + (0 if plain else 2), "float32") + ours


def gamma(n: int, dtype: str) -> float:
    """n u / (1 - n u), for the unit roundoff u of a dtype. Raises ConfigError for n u >= 1."""
    nu = n * UNIT_ROUNDOFF[dtype]
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


def digest(C: Float32) -> str:
    """``sha256:`` and 32 hex digits that name C's dtype, shape and bits, whatever its strides."""
    rows, columns = C.shape
    sha = hashlib.sha256(f"float32 {rows}x{columns}\n".encode())
    sha.update(np.ascontiguousarray(C, dtype="<f4").data)
    return f"sha256:{sha.hexdigest()[:32]}"


def number(value: float) -> str:
    """A float32 for people: enough digits to tell it from its neighbours."""
    return f"{value:.9g}"


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


def _sum(X: Float32, axis: int) -> Float64:
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
