from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_gemm.errors import SpecError
from pytest_gemm.expressions import MAX_DEPTH, MAX_LENGTH, compile_expression

VALUES = {"M": 100, "N": 70, "K": 33, "BM": 16}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("16", 16),
        ("cdiv(N, 16)", 5),
        ("cdiv(N, BM) * cdiv(M, BM)", 35),
        ("M - N - K", -3),
        ("-M + 2 * K", -34),
        ("-7 // 2", -4),
        ("-7 % 4", 1),
        ("min(M, N, K) + max(BM, 2)", 49),
        ("(M + N) * 2", 340),
        ("M % BM == 4", True),
        ("1 <= K % BM < 3", True),
        ("1 <= K % BM < 1", False),
        ("M == 100 and not N == 70 or K", True),
        ("not K", False),
        (" M ", 100),
    ],
)
def test_value(text: str, value: int | bool) -> None:
    result = compile_expression(text).evaluate(VALUES)
    assert result == value
    assert type(result) is type(value)


def test_names_and_kind() -> None:
    expression = compile_expression("cdiv(N, BM) + min(M, 4)")
    assert expression.names == {"N", "BM", "M"}
    assert not expression.is_condition
    assert all(compile_expression(t).is_condition for t in ("M == 1", "not M", "M and N"))


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "is empty"),
        ("  ", "is empty"),
        ("?", "gap to fill in"),
        ("M / 2", "write // to round down or cdiv"),
        ("M ** 9", "not an expression of this language"),
        ("M.real", "contains '.'"),
        ("M[0]", "contains '['"),
        ("'M'", "contains"),
        ("M\nN", "contains '\\n'"),
        ("0x10", "contains '0x10': write integers in decimal"),
        ("1_000", "write integers in decimal"),
        ("016", "write integers in decimal"),
        ("1or 2", "write integers in decimal"),
        ("M +", "is not an expression"),
        ("((M)", "is not an expression"),
        ("+M", "not an expression of this language"),
        ("True", "not an expression of this language"),
        ("None", "not an expression of this language"),
        ("M in N", "not an expression of this language"),
        ("M is N", "not an expression of this language"),
        ("M if N else K", "not an expression of this language"),
        ("M << 2", "not an expression of this language"),
        ("M, N", "not an expression of this language"),
        ("lambda", "is not an expression"),
        ("ceil(M)", "calls ceil: the functions are cdiv, max and min"),
        ("cdiv(M)", "calls cdiv with 1: it takes two values"),
        ("cdiv(M, 2, 3)", "calls cdiv with 3: it takes two values"),
        ("min(M)", "calls min with 1: it takes two values or more"),
        ("min(*M)", "calls min with 1"),
        ("min(*M, N)", "not an expression of this language"),
        ("max(M, key=N)", "calls max"),
        ("min + 1", "uses min without calling it"),
        ("cdiv(1, 2)(3)", "not an expression of this language"),
        ("M" * (MAX_LENGTH + 1), f"more than {MAX_LENGTH}"),
        ("-" * (MAX_DEPTH + 1) + "M", f"more than {MAX_DEPTH} deep"),
    ],
)
def test_rejected(text: str, part: str) -> None:
    with pytest.raises(SpecError) as caught:
        compile_expression(text)
    assert part in str(caught.value)
    assert "\n" not in str(caught.value)


def test_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(SpecError, match="unknown name 'L': known are M, N, K, BM"):
        compile_expression("M + L").evaluate(VALUES)


def test_division_by_zero_shows_the_values() -> None:
    with pytest.raises(SpecError, match=r"'M // \(K - 33\)' divides by zero for K = 33, M = 100"):
        compile_expression("M // (K - 33)").evaluate(VALUES)
    with pytest.raises(SpecError, match=r"'cdiv\(1, 0\)' divides by zero$"):
        compile_expression("cdiv(1, 0)").evaluate({})


def test_cached() -> None:
    assert compile_expression("M * N") is compile_expression("M * N")


@settings(max_examples=300)
@given(st.text(alphabet="MNK0129 +-*/%()<>=!,minaxcdvort_", max_size=40))
def test_any_text_is_a_value_or_one_sentence(text: str) -> None:
    assert isinstance(outcome(text), int | SpecError)


def outcome(text: str) -> int | SpecError:
    try:
        return compile_expression(text).evaluate(VALUES)
    except SpecError as error:
        return error


@given(st.integers(0, 10**6), st.integers(1, 10**4))
def test_cdiv_is_the_least_cover(a: int, b: int) -> None:
    blocks = compile_expression("cdiv(M, N)").evaluate({"M": a, "N": b})
    assert (blocks - 1) * b < a <= blocks * b
