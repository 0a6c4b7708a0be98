from dataclasses import replace

import numpy as np
import pytest

from pytest_gemm import comparison
from pytest_gemm.bits import rounded
from pytest_gemm.comparison import (
    Mismatch,
    beside,
    check_bounds,
    check_exact,
    digest,
    element_bounds,
    gamma,
    sampled_rows,
)
from pytest_gemm.errors import ConfigError
from pytest_gemm.matrices import operands, reference
from pytest_gemm.problem import Problem

RECTANGLE = Problem.parse("37x35x33")
SCALED = replace(RECTANGLE, alpha=2.0, beta=-1.0)


def in_order_product(problem, data):
    """alpha A B + beta C with one float32 addition after another: the worst usual order."""
    C = np.zeros(problem.shapes["C"], np.float32)
    for k in range(problem.K):
        C += np.outer(data.A[:, k], data.B[k])
    scaled = np.float32(problem.alpha) * C
    return scaled + np.float32(problem.beta) * data.C if problem.beta else scaled


def test_equal_whole_numbers_agree_exactly():
    data = operands(RECTANGLE, 0, "integers")
    assert check_exact(in_order_product(RECTANGLE, data), reference(RECTANGLE, data)) is None


@pytest.mark.parametrize("wrong", [-1.0, np.nan, np.inf])
def test_a_wrong_element_is_named(wrong):
    data = operands(RECTANGLE, 0, "integers")
    C = in_order_product(RECTANGLE, data)
    C[32, 5] = C[36, 5] = wrong
    mismatch = check_exact(C, reference(RECTANGLE, data))
    assert (mismatch.wrong, mismatch.total, mismatch.first) == (2, 37 * 35, (32, 5))
    assert (mismatch.rows, mismatch.columns) == ((32, 36), (5,))
    assert str(mismatch).startswith(
        f"2 of 1295 elements of C wrong, first C[32, 5] = {wrong:g} (should be "
    )


@pytest.mark.parametrize("problem", [RECTANGLE, SCALED, Problem.parse("1x1x1")])
@pytest.mark.parametrize("seed", range(3))
def test_a_rounded_product_is_within_its_bounds(problem, seed):
    data = operands(problem, seed)
    worst = check_bounds(problem, data, in_order_product(problem, data))
    assert 0 <= worst < 1
    assert worst > 0 or problem.K == 1


def test_one_wrong_element_is_named_with_its_bound():
    data = operands(RECTANGLE)
    C = in_order_product(RECTANGLE, data)
    bound = element_bounds(RECTANGLE, data)[20, 30]
    C[20, 30] += 1.1 * bound
    mismatch = check_bounds(RECTANGLE, data, C)
    assert (mismatch.check, mismatch.wrong, mismatch.first) == ("elements", 1, (20, 30))
    assert mismatch.bound == pytest.approx(bound)
    assert " +- " in str(mismatch)


def test_an_element_within_its_bound_passes():
    data = operands(RECTANGLE)
    C = reference(RECTANGLE, data)
    C[20, 30] += 0.9 * element_bounds(RECTANGLE, data)[20, 30]
    assert check_bounds(RECTANGLE, data, C.astype(np.float32)) == pytest.approx(0.9, abs=0.05)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_fails_and_its_row_and_column_are_named(value):
    data = operands(RECTANGLE)
    C = in_order_product(RECTANGLE, data)
    C[20, 30] = value
    mismatch = check_bounds(RECTANGLE, data, C)
    assert (mismatch.rows, mismatch.columns) == ((20,), (30,))


def test_infinities_of_both_signs_fail():
    data = operands(RECTANGLE)
    C = in_order_product(RECTANGLE, data)
    C[20, 30], C[20, 31] = np.inf, -np.inf
    assert isinstance(check_bounds(RECTANGLE, data, C), Mismatch)


@pytest.fixture
def sampling(monkeypatch):
    """Elements are compared in sampled rows only, however small C is."""
    monkeypatch.setattr(comparison, "FULL_LIMIT", 0)
    monkeypatch.setattr(comparison, "SAMPLED_ROWS", 1)


@pytest.mark.usefixtures("sampling")
@pytest.mark.parametrize("problem", [RECTANGLE, SCALED])
def test_sums_name_the_row_and_column_of_an_element_that_is_not_sampled(problem):
    data = operands(problem)
    C = in_order_product(problem, data)
    assert check_bounds(problem, data, C) < 1
    row = next(i for i in range(problem.M) if i not in sampled_rows(problem.M))
    C[row, 30] += 1
    mismatch = check_bounds(problem, data, C)
    assert (mismatch.check, mismatch.wrong, mismatch.total) == ("column sums", 1, 35)
    assert (mismatch.rows, mismatch.columns) == ((row,), (30,))
    assert "1 of 35 column sums of C wrong, first column 30: " in str(mismatch)


@pytest.mark.usefixtures("sampling")
def test_two_errors_that_cancel_in_a_row_are_seen_by_its_columns():
    data = operands(RECTANGLE)
    C = in_order_product(RECTANGLE, data)
    row = next(i for i in range(37) if i not in sampled_rows(37))
    C[row, 3] += 1
    C[row, 4] -= 1
    mismatch = check_bounds(RECTANGLE, data, C)
    assert (mismatch.rows, mismatch.columns) == ((), (3, 4))


@pytest.mark.usefixtures("sampling")
def test_a_sampled_row_finds_what_no_sum_can_see():
    data = operands(RECTANGLE)
    C = in_order_product(RECTANGLE, data)
    row = int(sampled_rows(37)[0])
    C[row, 3] += 2 * element_bounds(RECTANGLE, data)[row, 3]
    mismatch = check_bounds(RECTANGLE, data, C)
    assert (mismatch.check, mismatch.first) == ("sampled elements", (row, 3))
    assert (mismatch.rows, mismatch.columns) == ((row,), (3,))


@pytest.mark.usefixtures("sampling")
def test_a_swapped_pair_of_rows_is_seen_by_the_row_sums():
    data = operands(RECTANGLE)
    C = in_order_product(RECTANGLE, data)
    first, second = [i for i in range(37) if i not in sampled_rows(37)][:2]
    C[[first, second]] = C[[second, first]]
    mismatch = check_bounds(RECTANGLE, data, C)
    assert (mismatch.check, mismatch.rows) == ("row sums", (first, second))
    assert f"first row {first}: " in str(mismatch)


def test_the_text_of_a_wrong_checksum():
    mismatch = Mismatch("checksum", 1, 1, (), 5.0, 4.0, 0.5)
    assert str(mismatch) == "sum of C wrong: 5 (should be 4 +- 0.5)"


def test_rows_are_sampled_evenly_and_always_alike():
    rows = sampled_rows(4096)
    assert np.array_equal(rows, sampled_rows(4096))
    assert rows[-1] == 4095
    bands = rows[:-1] // 32 if len(rows) == 129 else rows // 32
    assert np.array_equal(bands, np.arange(128))
    assert sampled_rows(1).tolist() == [0]
    assert len(sampled_rows(10**6)) <= 129


def test_panels_do_not_change_a_product():
    data = operands(Problem.parse("3x4x2500"))
    whole = data.A.astype(float) @ data.B.astype(float)
    assert np.allclose(comparison._product(data.A, data.B), whole, rtol=1e-13)


def test_gamma_is_highams():
    assert gamma(1000, "float32") == 1000 * 2.0**-24 / (1 - 1000 * 2.0**-24)
    with pytest.raises(ConfigError, match="16777216 terms in float32"):
        gamma(2**24, "float32")


def test_an_addition_must_be_exact():
    problem = Problem.parse("37x35", "add")
    data = operands(problem)
    C = data.A + data.B
    assert check_bounds(problem, data, C) == 0
    assert not element_bounds(problem, data).any()
    C[3, 4] = np.nextafter(C[3, 4], np.float32(9))
    mismatch = check_bounds(problem, data, C)
    assert (mismatch.wrong, mismatch.first) == (1, (3, 4))


def test_a_digest_names_bits_and_shape_but_not_strides():
    C = operands(RECTANGLE).C
    assert digest(C) == "sha256:2491d47e4276010f556f4fb70a082af9"
    padded = np.zeros((37, 50), np.float32)
    padded[:, :35] = C
    assert digest(padded[:, :35]) == digest(C)
    assert digest(C.astype(">f4")) == digest(C)
    assert digest(C.reshape(35, 37)) != digest(C)
    zero = np.zeros((1, 1), np.float32)
    assert digest(zero) != digest(-zero)


def rounded_product(problem, data, sums, C):
    """Term by term, in sums of one NumPy type; then stored as another."""
    total = np.zeros(problem.shapes["C"], sums)
    for k in range(problem.K):
        total += np.outer(data.A[:, k], data.B[k]).astype(sums)
    return total.astype(C).astype(np.float64 if np.float64 == C else np.float32)


@pytest.mark.parametrize(
    ("words", "sums", "C", "narrower"),
    [
        ({"dtype": "float64"}, np.float64, np.float64, np.float32),
        ({"dtype": "float16"}, np.float32, np.float16, np.float16),
        ({"dtype": "float16", "out_dtype": "float32"}, np.float32, np.float32, np.float16),
        ({"dtype": "bfloat16", "out_dtype": "float32"}, np.float32, np.float32, np.float16),
        ({"dtype": "float16", "acc_dtype": "float16"}, np.float16, np.float16, None),
    ],
)
@pytest.mark.parametrize("size", ["37x35x33", "40x24x300"])
def test_the_bound_tells_the_type_of_sums(words, sums, C, narrower, size):
    problem = replace(Problem.parse(size), **{"out_dtype": "", "acc_dtype": "", **words})
    data = operands(problem)
    worst = check_bounds(problem, data, rounded_product(problem, data, sums, C))
    assert 0 <= worst < 1  # 16-bit operands: sums of so few terms are exact in float32
    if narrower:
        assert isinstance(
            check_bounds(problem, data, rounded_product(problem, data, narrower, C)), Mismatch
        )


def test_bfloat16_is_rounded_and_not_truncated():
    problem = Problem("gemm", 37, 35, 33, dtype="bfloat16")
    data = operands(problem)
    exact = reference(problem, data).astype(np.float32)
    assert check_bounds(problem, data, rounded(exact, "bfloat16")) < 1
    truncated = (exact.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    assert isinstance(check_bounds(problem, data, truncated), Mismatch)


def test_whole_numbers_have_no_bound():
    problem = Problem("gemm", 37, 35, 33, dtype="int8")
    data = operands(problem)
    C = reference(problem, data).astype(np.int32)
    assert check_bounds(problem, data, C) == 0
    C[3, 4] += 1
    mismatch = check_bounds(problem, data, C)
    assert (mismatch.wrong, mismatch.first) == (1, (3, 4))


def test_a_mistake_in_a_batch_says_which_product():
    problem = replace(RECTANGLE, batch=3)
    data = operands(problem)
    C = reference(problem, data).astype(np.float32)
    assert 0 < check_bounds(problem, data, C) < 1
    C[1, 3, 4] = 99
    text = "matrix 1 of the batch: 1 of 1295 elements of C wrong, first C[3, 4] = 99 (should be "
    assert str(check_bounds(problem, data, C)).startswith(text)
    whole = operands(problem, 0, "integers")
    expected = reference(problem, whole)
    assert check_exact(expected.astype(np.float32), expected) is None
    assert check_exact(C, expected).matrix == 0


def test_the_bound_of_float16_sums_is_the_less_of_two():
    """By hand: gamma_n, and exp(10 sqrt(n) u + n u^2 / (1 - u)) - 1."""
    u = 2.0**-11
    for K, wanted in (
        (8, 8 * u / (1 - 8 * u)),
        (1024, np.expm1(10 * 32 * u + 1024 * u * u / (1 - u))),
    ):
        problem = Problem("gemm", 4, 4, K, dtype="float16", acc_dtype="float16")
        data = operands(problem)
        sizes = np.abs(data.A.astype(np.float64)) @ np.abs(data.B.astype(np.float64))
        assert np.allclose(element_bounds(problem, data), wanted * sizes, rtol=1e-9)
    assert np.isfinite(
        element_bounds(replace(problem, K=4096), operands(replace(problem, K=4096)))
    ).all()


def test_numbers_that_look_alike_are_shown_whole():
    assert beside(1.0, 1 + 2.0**-52) == "1.0 (should be 1.0000000000000002)"
    assert beside(2147483647.0, 2147483646.0) == "2147483647 (should be 2147483646)"
    assert beside(-207.0, 12.5) == "-207 (should be 12.5)"


def test_a_digest_names_the_type():
    C = np.ones((3, 4), np.float32)
    assert len({digest(C), digest(C, "float16"), digest(C, "bfloat16")}) == 3
    assert digest(np.stack([C, C]), "float16") != digest(C, "float16")
