"""Products that are corrupted as kernels plausibly corrupt them, and what is said of each."""

import re

import numpy as np
import pytest

from pytest_gemm.backends.base import Matrix
from pytest_gemm.causes import Observation
from pytest_gemm.comparison import element_bounds
from pytest_gemm.correctness import check_exactly
from pytest_gemm.diagnosis import describe_difference, diagnose
from pytest_gemm.errors import WrongResultError
from pytest_gemm.matrices import operands, reference
from pytest_gemm.problem import Problem
from tests.memory_backend import MemoryBackend, launching, surroundings, view

SQUARE = Problem.parse("37")
WIDE = Problem.parse("35x150x33")
TALL = Problem.parse("150x35x48")
SCALED = Problem("gemm", 19, 37, 33, 2.0, -1.0)
SUM = Problem.parse("37x40", "add")


def failure(function, problem, seed=0):
    """The text with which a kernel fails the exact check on a problem."""
    with pytest.raises(WrongResultError) as caught:
        check_exactly(launching(function), MemoryBackend(), problem, seed, kernel="broken")
    return str(caught.value)


def headline(function, problem, seed=0):
    return failure(function, problem, seed).splitlines()[0]


def tiles(size, tile):
    return -(-size // tile) * tile


def writes_nan(A, B, C):
    C[...] = A @ B * np.float32(np.nan)


def writes_one_nan(A, B, C):
    C[...] = A @ B
    C[4, 5] = np.nan


def one_tile_short(A, B, C):
    rows, columns = (size // 16 * 16 for size in C.shape)
    C[:rows, :columns] = (A @ B)[:rows, :columns]


def grid_axes_swapped(A, B, C):
    rows, columns = (tiles(size, 16) for size in reversed(C.shape))
    C[:rows, :columns] = (A @ B)[:rows, :columns]


def k_residue_skipped(A, B, C):
    K = A.shape[1] // 16 * 16
    C[...] = A[:, :K] @ B[:K]


def first_tile_skipped(A, B, C):
    C[...] = A[:, 16:] @ B[16:]


def last_term_skipped(A, B, C):
    C[...] = A[:, :-1] @ B[:-1]


def term_doubled(A, B, C):
    C[...] = A @ B + np.outer(A[:, 3], B[3])


def tile_doubled(A, B, C):
    C[...] = A @ B + A[:, 16:32] @ B[16:32]


def accumulates(A, B, C):
    C += A @ B


def zeros(A, B, C):
    C[...] = 0


def zeros_in_the_residue(A, B, C):
    C[...] = A @ B
    C[32:] = 0


def never_writes(A, B, C):
    pass


def transposes(A, B, C):
    C[...] = (A @ B).T.reshape(C.shape)


def swaps_operands(A, B, C):
    C[...] = B.reshape(C.shape[0], -1) @ A.reshape(-1, C.shape[1])


def reads_a_transposed(A, B, C):
    C[...] = A.reshape(A.shape[::-1]).T @ B


def reads_b_transposed(A, B, C):
    C[...] = A @ B.reshape(B.shape[::-1]).T


def reads_the_next_row(A: Matrix, B: Matrix, C: Matrix):
    shifted = surroundings(A)[A.ld :][: A.rows * A.ld].reshape(A.rows, A.ld)
    view(C)[...] = shifted @ view(B)


def writes_to_the_left(A, B, C):
    C[...] = np.roll(A @ B, -1, axis=1)


def wrong_in_the_residue(A, B, C):
    C[...] = A @ B
    C[:, 32:] += A[:, 0:1] + 17


def one_past_the_end(A: Matrix, B: Matrix, C: Matrix):
    view(C)[...] = view(A) @ view(B)
    surroundings(C)[C.rows * C.ld] = 0


def writes_into_a(A, B, C):
    C[...] = A @ B
    A[2, 3:] = 0


def some_wrong(A, B, C):
    C[...] = A @ B
    C.reshape(-1)[::7] += 5 * A[0, 0] + 1


def leaks_old_c(A, B, C):
    C[...] = A @ B + 0 * C


def doubles_everything(A, B, C):
    C[...] = 2 * A @ B


def holds_a(A, B, C):
    C[...] = A


def adds_onto_c(A, B, C):
    C += A + B


CASES = [
    (writes_nan, SQUARE, 1369, "NaN was written"),
    (
        one_tile_short,
        SQUARE,
        345,
        "never written: rows 32..36 (the last partial tile) and "
        "columns 32..36 (the last partial tile)",
    ),
    (
        grid_axes_swapped,
        WIDE,
        3570,
        "grid axes swapped, never written: columns 48..149 (the last 102)",
    ),
    (
        grid_axes_swapped,
        TALL,
        3570,
        "grid axes swapped, never written: rows 48..149 (the last 102)",
    ),
    (k_residue_skipped, SQUARE, 1359, "K residue: only the first 32 of 37 terms were added"),
    (k_residue_skipped, WIDE, 5250, "K residue: only the first 32 of 33 terms were added"),
    (first_tile_skipped, SQUARE, 1361, "terms k = 0..15 of 37 are missing"),
    (last_term_skipped, SQUARE, 1369, "K residue: only the first 36 of 37 terms were added"),
    (term_doubled, SQUARE, 1369, "term k = 3 of 37 added twice"),
    (tile_doubled, WIDE, None, "terms k = 16..31 of 33 added twice"),
    (
        accumulates,
        SQUARE,
        1369,
        "accumulated into the old C: C holds the result plus what it held before",
    ),
    (
        adds_onto_c,
        SUM,
        None,
        "accumulated into the old C: C holds the result plus what it held before",
    ),
    (zeros, SQUARE, 1364, "C is all zeros"),
    (zeros_in_the_residue, SQUARE, None, "zeros in rows 32..36 (the last partial tile)"),
    (never_writes, SQUARE, 1369, "never written: all of C"),
    (never_writes, SCALED, 703, "never written: all of C"),
    (transposes, SQUARE, 1332, "C is transposed"),
    (transposes, WIDE, None, "C is transposed"),
    (swaps_operands, SQUARE, 1368, "A and B swapped: C holds B A"),
    (swaps_operands, Problem.parse("16x16x8"), None, "A and B swapped: C holds B A"),
    (reads_a_transposed, WIDE, None, "A was read transposed"),
    (reads_b_transposed, WIDE, None, "B was read transposed"),
    (
        reads_the_next_row,
        SQUARE,
        None,
        "off by one: C[i, j] holds what C[i+1, j] should; A was read out of bounds: NaN in row 36",
    ),
    (writes_to_the_left, SQUARE, None, "off by one: C[i, j] holds what C[i, j+1] should"),
    (wrong_in_the_residue, SQUARE, None, "only columns 32..36 (the last partial tile)"),
    (leaks_old_c, SQUARE, 1369, "the old C is read although beta = 0 (0 x NaN is NaN)"),
    (holds_a, SUM, None, "C holds A alone"),
]


@pytest.mark.parametrize(
    ("function", "problem", "count", "cause"),
    CASES,
    ids=[f"{function.__name__}-{problem.id}" for function, problem, *_ in CASES],
)
def test_the_headline_names_the_cause(function, problem, count, cause):
    text = headline(function, problem)
    total = problem.M * problem.N
    pattern = (
        rf"broken on {problem.id}: (\d+) of {total} elements of C wrong, "
        rf"first C\[\d+, \d+\] = \S+ \(should be -?\d+\): (.*)"
    )
    found, said = re.fullmatch(pattern, text).groups()
    assert said == cause
    assert count in (int(found), None)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda A, B, C: np.copyto(C, A @ B - C), "alpha was left out"),
        (lambda A, B, C: np.copyto(C, 2 * A @ B), "beta C was left out"),
        (lambda A, B, C: np.copyto(C, A @ B), "alpha and beta C were left out"),
        (lambda A, B, C: np.copyto(C, 2 * A @ B + C), "beta was left out"),
        (lambda A, B, C: np.copyto(C, A @ B + C), "alpha and beta were left out"),
    ],
)
def test_a_scalar_that_is_left_out_is_named(function, said):
    assert headline(function, SCALED).endswith(f": {said}")


def test_a_single_nan_is_named():
    assert headline(writes_one_nan, SQUARE) == (
        "broken on 37x37x37: 1 of 1369 elements of C wrong, first C[4, 5] = nan (should be 20): "
        "NaN was written"
    )


def test_nothing_is_guessed():
    text = headline(some_wrong, SQUARE)
    assert re.search(r"elements of C wrong, first C\[\d, \d\] = \S+ \(should be -?\d+\)$", text)


@pytest.mark.parametrize("seed", range(20))
def test_noise_has_no_cause(seed):
    """Other whole numbers of the same size, in all of C or in five elements."""
    rng = np.random.default_rng(seed)
    noise = rng.integers(-500, 500, (37, 37)).astype(np.float32)

    def all_noise(A, B, C):
        C[...] = noise

    def five_wrong(A, B, C):
        C[...] = A @ B
        rows, columns = rng.permutation(37)[:5], rng.permutation(37)[:5]
        C[rows, columns] += 1 + np.abs(noise[0, 0])

    for function in (all_noise, five_wrong):
        assert headline(function, SQUARE).endswith(")")


@pytest.mark.parametrize("problem", [Problem.parse("1x1x1"), Problem.parse("1x2x1")])
@pytest.mark.parametrize("function", [zeros, doubles_everything])
def test_few_elements_make_no_cause_plain(function, problem):
    assert headline(function, problem).endswith(")")


def test_where_a_short_grid_would_do_the_same_the_axes_are_not_blamed():
    def one_block(A, B, C):
        C[:, :32] = (A @ B)[:, :32]

    text = headline(one_block, Problem.parse("32x64x8"))
    assert text.endswith(": never written: columns 32..63 (the last 32)")


def test_writes_elsewhere_are_told_although_c_is_right():
    assert (
        headline(one_past_the_end, SQUARE)
        == "broken on 37x37x37: 1 element written past the end of C, first right next to it "
        "(C itself is right)"
    )
    assert (
        headline(writes_into_a, SQUARE)
        == "broken on 37x37x37: 34 elements of A overwritten, first A[2, 3] (C itself is right)"
    )


def test_writes_elsewhere_are_told_beside_a_wrong_c():
    def both(A: Matrix, B: Matrix, C: Matrix):
        surroundings(C)[: C.rows * C.ld + 40] = 0

    assert headline(both, SQUARE).endswith(
        ": C is all zeros; 40 elements written past the end of C, first right next to it"
    )


def test_the_details_say_where_and_how_to_do_it_again():
    lines = failure(one_tile_short, SQUARE, seed=5).splitlines()
    assert lines[1] == (
        "  wrong: rows 32..36 (the last partial tile) and columns 32..36 (the last partial tile); "
        "before the launch C held NaN"
    )
    assert re.fullmatch(r"  C\[0, 33\] = nan \(should be -?\d+\)", lines[2])
    assert lines[-1] == "  operands: integers, seed 5"


def test_what_only_the_finite_old_c_shows_is_said_so():
    def keeps_what_is_not_nan(A, B, C):
        C[...] = np.where(np.isnan(C), A @ B, C)

    text = failure(keeps_what_is_not_nan, SQUARE)
    assert "first C[0, 0] = 4194304 (should be " in text
    assert "before the launch C held 4194304" in text


ROUNDED = [
    (function, cause)
    for function, problem, _, cause in CASES
    if problem == SQUARE and function not in (reads_the_next_row, leaks_old_c)
]


@pytest.mark.parametrize(("function", "cause"), ROUNDED, ids=[f.__name__ for f, _ in ROUNDED])
def test_causes_are_found_in_rounded_results_too(function, cause):
    """On the data that is timed, within the bounds of rounding."""
    data = operands(SQUARE)
    observations = []
    for held, value in (("NaN", np.nan), ("2", 2.0)):
        before = np.full((37, 37), value, np.float32)
        after = before.copy()
        function(data.A, data.B, after)
        observations.append(Observation(held, before, after))
    found = diagnose(
        "broken",
        SQUARE,
        data,
        reference(SQUARE, data),
        observations,
        element_bounds(SQUARE, data),
    )
    assert found.headline.endswith(f": {cause}")


def test_right_results_need_no_diagnosis():
    data = operands(SQUARE, 0, "integers")
    expected = reference(SQUARE, data)
    right = Observation("NaN", np.zeros((37, 37), np.float32), expected.astype(np.float32))
    assert diagnose("fine", SQUARE, data, expected, [right]) is None
    assert describe_difference("fine", SQUARE, [right, right]) is None


def test_a_difference_between_launches_is_located():
    first = np.zeros((37, 40), np.float32)
    second = first.copy()
    second[36, 3] = 0.5
    observations = [Observation("NaN", first, first), Observation("2", first, second)]
    found = describe_difference("racy", SUM, observations)
    assert found.headline == (
        "racy on 37x40: two launches differ in the bits of 1 of 1480 elements of C, "
        "first C[36, 3] = 0 then 0.5"
    )
    assert "row 36, column 3; before the launches C held NaN and 2" in found.lines[0]
