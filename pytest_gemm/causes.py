"""Causes of a wrong C, each a test of what was observed.

A cause is tested, never guessed: most predict what C would hold, and are named only if every
wrong element, and at least ``PLAIN`` of them, holds just that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_gemm.bits import Elements, decode, raw, word
from pytest_gemm.comparison import beside
from pytest_gemm.device import Violation, guard_bits
from pytest_gemm.dtypes import TYPES
from pytest_gemm.matrices import Float64, Operands
from pytest_gemm.problem import Problem
from pytest_gemm.regions import Mask, Region

PLAIN = 4
"""The fewest wrong elements that can make a cause plain: fewer would fit too much by chance."""

TILES = range(2, 129)
"""Sides of tiles that are considered."""

Floats = npt.NDArray[np.floating[Any]]

_SEARCHED = 16
_VERIFIED = 512
_MOST_TERMS = 2048


@dataclass(frozen=True, eq=False)
class Observation:
    """What one launch left: C ``before`` and ``after`` it, and what else it changed.

    ``held`` says in words what C held before.
    """

    held: str
    before: Elements
    after: Elements
    violations: tuple[Violation, ...] = ()


class Evidence:
    """One observation beside the truth; ``at`` lists the wrong elements, row by row."""

    def __init__(
        self,
        problem: Problem,
        operands: Operands,
        expected: Float64,
        bounds: Float64,
        observation: Observation,
    ) -> None:
        self.problem = problem
        self.A, self.B = operands.A.astype(np.float64), operands.B.astype(np.float64)
        self.expected, self.bounds, self.held = expected, bounds, observation.held
        self.before, self.after = observation.before, observation.after
        with np.errstate(invalid="ignore"):
            self.wrong: Mask = ~(np.abs(self.after - expected) <= bounds)
        self.at = np.argwhere(self.wrong)

    @property
    def held_nan(self) -> bool:
        return bool(np.isnan(self.before).any())

    def element(self, row: int, column: int) -> str:
        """``C[32, 5] = 0 (should be 12)``."""
        value, expected = self.after[row, column], self.expected[row, column]
        return f"C[{row}, {column}] = {beside(value, expected)}"

    def holds(self, predicted: Floats, slack: float = 0.0, among: Mask | None = None) -> bool:
        """Whether every wrong element (``among`` some), and enough of them, is as predicted."""
        here = self.wrong if among is None else self.wrong & among
        got, predicted = self.after[here], predicted[here]
        with np.errstate(invalid="ignore"):
            close = np.abs(got - predicted) <= self.bounds[here] + slack
        return len(got) >= PLAIN and bool((close | (np.isnan(got) & np.isnan(predicted))).all())


Cause = Callable[[list[Evidence], list[Evidence]], str]
"""Looks at the observations with wrong elements, and at all; says what happened, or nothing."""


def find_cause(wrong: list[Evidence], seen: list[Evidence]) -> str:
    """The first of ``CAUSES`` that fits all of the ``wrong`` among the ``seen``; or nothing."""
    return next(filter(None, (cause(wrong, seen) for cause in CAUSES)), "")


def origins_of_nan(wrong: list[Evidence]) -> list[str]:
    """Where NaNs in C come from, the most frequent first, as far as their bits tell.

    They do where arithmetic keeps a NaN's payload: on CPUs, not on GPUs.
    """
    problem, after = wrong[-1].problem, wrong[-1].after
    if after.dtype.kind != "f":
        return []
    bits = raw(np.abs(after))
    guards = {name: _guard(problem, name) for name in "AB"}
    marks = [
        (bits == raw(guards["A"].astype(after.dtype)), "A was read out of bounds"),
        (bits == raw(guards["B"].astype(after.dtype)), "B was read out of bounds"),
        (_is_uninitialised(after), "shared memory was read before it was written"),
    ]
    marks.sort(key=lambda mark: -int(mark[0].sum()))
    return [f"{what}: NaN in {Region.of(mask)}" for mask, what in marks if mask.any()]


def _never_written(wrong: list[Evidence], _: list[Evidence]) -> str:
    if not all((raw(e.before) == raw(e.after))[e.wrong].all() for e in wrong):
        return ""
    region = Region.of(wrong[0].wrong)
    reason = "grid axes swapped, " if _axes_swapped(region) else ""
    return f"{reason}never written: {region}"


def _axes_swapped(region: Region) -> bool:
    """Whether the rows' blocks would cover the columns just up to here, or the reverse.

    Not where a grid that is one tile short would do the same.
    """
    M, N = region.M, region.N
    covered, size, other = (
        (N - region.last_columns, N, M) if region.last_columns else (M - region.last_rows, M, N)
    )
    swapped = any(-(-other // tile) * tile == covered for tile in (1, *TILES))
    short = any((-(-size // tile) - 1) * tile == covered for tile in TILES)
    return 0 < covered < size and swapped and not short


def _old_c_read(wrong: list[Evidence], seen: list[Evidence]) -> str:
    harmless = len(wrong) < len(seen)
    if seen[0].problem.beta == 0 and harmless and all(e.held_nan for e in wrong):
        return "the old C is read although beta = 0 (0 x NaN is NaN)"
    return ""


def _accumulated(wrong: list[Evidence], _: list[Evidence]) -> str:
    if wrong[0].problem.reads_c or all(e.held_nan for e in wrong):
        return ""
    if all(e.holds(e.expected + e.before, _rounding_onto(e)) for e in wrong):
        return "accumulated into the old C: C holds the result plus what it held before"
    return ""


def _rounding_onto(e: Evidence) -> float:
    """The error of adding up to K terms onto the old C, each rounded to its spacing."""
    kind, old = TYPES[e.problem.out_dtype], float(np.abs(e.before).max())
    spacing = 2 * kind.unit_roundoff * old
    exact = not e.bounds.any() and spacing <= 1
    return 0.0 if exact else (e.problem.K + 1) * spacing


def _nan(wrong: list[Evidence], _: list[Evidence]) -> str:
    if origins_of_nan(wrong) or all(e.held_nan for e in wrong):
        return ""
    return "NaN was written" if all(np.isnan(e.after[e.wrong]).all() for e in wrong) else ""


def _zeros(wrong: list[Evidence], _: list[Evidence]) -> str:
    if not all(e.holds(np.zeros_like(e.expected)) for e in wrong):
        return ""
    if all(not e.after.any() for e in wrong):
        return "C is all zeros"
    return f"zeros in {Region.of(wrong[0].wrong)}"


def _another_formula(wrong: list[Evidence], _: list[Evidence]) -> str:
    for text, predicted in _formulas(wrong[0]):
        if all(e.holds(predicted) for e in wrong):
            return text
    return ""


def _formulas(e: Evidence) -> Iterator[tuple[str, Float64]]:
    """Results of likely mistakes, each with its name."""
    problem, A, B = e.problem, e.A, e.B
    M, N, K, alpha = problem.M, problem.N, problem.K, problem.alpha
    if min(M, N) > 1:
        yield "C is transposed", _misread(e, "C", e.expected)
    if problem.op == "add":
        yield "C holds A alone", A
        yield "C holds B alone", B
        return
    C: Float64 = e.expected - alpha * (A @ B)
    if M == N:
        yield "A and B swapped: C holds B A", alpha * (B.reshape(M, K) @ A.reshape(K, N)) + C
    other_A, other_B = _misread(e, "A", A), _misread(e, "B", B)
    yield "A was read transposed", alpha * (other_A @ B) + C
    yield "B was read transposed", alpha * (A @ other_B) + C
    yield "A and B were read transposed", alpha * (other_A @ other_B) + C
    if problem.reference:
        plain = alpha * (A @ B)
        yield (
            "the epilogue was left out",
            plain + problem.beta * e.before if problem.beta else plain,
        )
    if alpha != 1:
        yield "alpha was left out", A @ B + C
    if problem.beta:
        yield "beta C was left out", alpha * (A @ B)
        yield "alpha and beta C were left out", A @ B
        yield "beta was left out", alpha * (A @ B) + e.before
        yield "alpha and beta were left out", A @ B + e.before


def _misread(e: Evidence, name: str, X: Float64) -> Float64:
    """What memory holds of op(A), op(B) or C, taken by columns, not by rows, or the reverse."""
    rows, columns = X.shape
    if e.problem.is_flipped(name):
        return X.T.reshape(rows, columns) if name != "C" else X.reshape(columns, rows).T
    return X.reshape(columns, rows).T if name != "C" else X.T.reshape(rows, columns)


Run = tuple[int, int, int]
"""(sign, start, stop): terms start <= k < stop missing (-1) or added once more (+1)."""


def _terms(wrong: list[Evidence], _: list[Evidence]) -> str:
    """Whether all sums lack the same run of terms, or hold it twice."""
    if wrong[0].problem.reference:
        return ""
    K = wrong[0].problem.K
    finite = all(np.isfinite(e.after[e.wrong]).all() for e in wrong)
    if not 1 <= K <= _MOST_TERMS or not finite or min(len(e.at) for e in wrong) < PLAIN:
        return ""
    runs = (run for run in _candidates(wrong[0]) if all(_explains(e, run) for e in wrong))
    sign, start, stop = next(runs, (0, 0, 0))
    if not sign:
        return ""
    if sign < 0 and stop == K and any(K - K % tile == start for tile in TILES):
        return f"K residue: only the first {start} of {K} terms were added"
    one = stop - start == 1
    which = f"term k = {start}" if one else f"terms k = {start}..{stop - 1}"
    if sign > 0:
        return f"{which} of {K} added twice"
    return f"{which} of {K} {'is' if one else 'are'} missing"


def _candidates(e: Evidence) -> Iterator[Run]:
    """Runs that explain the errors of a few elements: missing tails first, the shortest first."""
    sums, error, tolerance = _partial_sums(e, _SEARCHED)
    K = e.problem.K

    def fits(sign: int, run: Float64) -> list[int]:
        close = np.abs(sign * run - error[:, None]) <= tolerance[:, None]
        return [int(k) for k in np.flatnonzero(close.all(axis=0))]

    yield from ((-1, start, K) for start in reversed(fits(-1, sums[:, -1:] - sums[:, :-1])))
    for sign in (-1, 1):
        for start in range(K):
            stops = fits(sign, sums[:, start + 1 :] - sums[:, start : start + 1])
            yield from ((sign, start, start + 1 + stop) for stop in stops)


def _explains(e: Evidence, run: Run) -> bool:
    sign, start, stop = run
    sums, error, tolerance = _partial_sums(e, _VERIFIED)
    return bool((np.abs(sign * (sums[:, stop] - sums[:, start]) - error) <= tolerance).all())


def _partial_sums(e: Evidence, most: int) -> tuple[Float64, Float64, Float64]:
    """For ``most`` wrong elements, evenly chosen: sums of the first k terms, error, tolerance."""
    chosen = np.linspace(0, len(e.at) - 1, min(len(e.at), most)).astype(int)
    rows, columns = e.at[chosen].T
    terms = e.problem.alpha * e.A[rows] * e.B[:, columns].T
    sums: Float64 = np.cumsum(np.pad(terms, ((0, 0), (1, 0))), axis=1)
    error = e.after[rows, columns] - e.expected[rows, columns]
    return sums, error, e.bounds[rows, columns]


def _shifted(wrong: list[Evidence], _: list[Evidence]) -> str:
    """Whether C holds its own rows or columns one place away, the outermost aside."""
    for axis, name in enumerate("ij"):
        for step in (1, -1):
            inside = np.ones_like(wrong[0].wrong)
            np.moveaxis(inside, axis, 0)[-1 if step > 0 else 0] = False
            if all(e.holds(np.roll(e.expected, -step, axis), among=inside) for e in wrong):
                source = "i, j".replace(name, f"{name}{step:+d}")
                return f"off by one: C[i, j] holds what C[{source}] should"
    return ""


def _residue(wrong: list[Evidence], _: list[Evidence]) -> str:
    region = Region.of(wrong[0].wrong)
    return f"only {region}" if region.is_residue else ""


def _guard(problem: Problem, name: str) -> Elements:
    """The NaN around A or B, as it comes out of arithmetic in C's type."""
    dtype = problem.types[name].name
    return decode(np.array([guard_bits(name, dtype)], word(dtype)), dtype)


def _is_uninitialised(after: Elements) -> Mask:
    bits = raw(after)
    ones: Mask = bits == np.array(-1).astype(bits.dtype)
    return ones


CAUSES: tuple[Cause, ...] = (
    _old_c_read,
    _never_written,
    _accumulated,
    _nan,
    _zeros,
    _another_formula,
    _terms,
    _shifted,
    _residue,
)
"""Simplest first."""
