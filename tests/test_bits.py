"""Elements and their bits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_gemm.bits import decode, encode, rounded, visible
from pytest_gemm.device import guard_bits, poisons
from pytest_gemm.dtypes import TYPES

FLOATS = [name for name, kind in TYPES.items() if not kind.is_integer]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_every_number_of_16_bits_comes_back(dtype: str) -> None:
    bits = np.arange(2**16, dtype=np.uint16)
    values = decode(bits, dtype)
    is_nan = np.isnan(values)
    assert np.array_equal(encode(values, dtype)[~is_nan], bits[~is_nan])
    assert np.isnan(decode(encode(values, dtype), dtype)[is_nan]).all()


@pytest.mark.parametrize(
    ("value", "bits"),
    [
        (1.0, 0x3F80),
        (-2.5, 0xC020),
        (1 + 2.0**-8, 0x3F80),  # a tie, to even
        (1 + 3 * 2.0**-8, 0x3F82),
        (1 + 2.0**-8 + 2.0**-40, 0x3F81),  # float32 would make a tie of it first
        (float("inf"), 0x7F80),
    ],
)
def test_bfloat16_is_rounded_once(value: float, bits: int) -> None:
    assert int(encode(np.array([value]), "bfloat16")[0]) == bits


@given(st.floats(-60000, 60000))
def test_rounding_to_float16_is_numpys(value: float) -> None:
    assert rounded(np.array([value]), "float16")[0] == np.float16(value)


@given(st.floats(-1e30, 1e30, allow_subnormal=False))
def test_rounding_errs_by_half_a_unit_at_most(value: float) -> None:
    for dtype in ("bfloat16", "float32"):
        [nearest] = rounded(np.array([value]), dtype)
        assert abs(nearest - value) <= TYPES[dtype].unit_roundoff * abs(value) + 1e-38
        assert rounded(np.array([nearest]), dtype)[0] == nearest


@pytest.mark.parametrize("dtype", TYPES)
def test_the_largest_integers_are_exact_and_the_next_ones_are_not(dtype: str) -> None:
    limit = TYPES[dtype].exact_limit
    below = np.array([limit - 1, 1 - limit], np.float64)
    assert np.array_equal(decode(encode(below, dtype), dtype), below)
    if dtype in FLOATS and dtype != "float64":
        beyond = np.array([limit + 1], np.float64)
        assert decode(encode(beyond, dtype), dtype).astype(np.float64)[0] != limit + 1


@pytest.mark.parametrize("dtype", FLOATS)
def test_guards_and_poisons_tell_a_matrix_from_another(dtype: str) -> None:
    bits = [guard_bits(name, dtype) for name in "ABC"]
    word = encode(np.zeros(1), dtype).dtype
    A, B, C = decode(np.array(bits, word), dtype)
    nan, number = poisons(dtype)
    assert np.isnan([A, B, nan]).all()
    assert 0.5 < C < 1
    assert number == (2**15 if dtype == "float16" else 2**22)
    assert len({*bits, *TYPES[dtype].poisons}) == 5
    # Arithmetic keeps the payload of quiet NaNs alone.
    assert np.array_equal(encode(np.array([A, B, C]), dtype), np.array(bits, word))


def test_an_integer_c_holds_two_numbers_far_apart() -> None:
    first, second = poisons("int32")
    assert min(first, second) > 2**28
    assert abs(int(first) - int(second)) > 2**28


def test_python_is_given_the_bits_of_what_numpy_has_not() -> None:
    assert visible("bfloat16") == np.uint16
    assert visible("float16") == np.float16
    assert visible("int8") == np.int8
