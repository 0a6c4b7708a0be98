"""Operands are made once for the cases of a problem, within a bound on what is kept."""

from __future__ import annotations

import numpy as np
import pytest

from pytest_gemm.matrices import operands
from pytest_gemm.problem import Problem
from pytest_gemm.reuse import Reuse

SMALL, WIDE, TALL = (Problem.parse(size) for size in ("16", "8x64x8", "64x8x8"))


def test_the_same_operands_are_given_again_and_cannot_be_changed() -> None:
    reuse = Reuse()
    first = reuse.operands(SMALL, 3, "uniform")
    assert reuse.operands(SMALL, 3, "uniform") is first
    assert np.array_equal(first.A, operands(SMALL, 3, "uniform").A)
    with pytest.raises(ValueError, match="read-only"):
        first.A[0, 0] = 1


def test_another_seed_or_recipe_gives_others() -> None:
    reuse = Reuse()
    first = reuse.operands(SMALL, 3, "uniform")
    assert not np.array_equal(reuse.operands(SMALL, 4, "uniform").A, first.A)
    assert not np.array_equal(reuse.operands(SMALL, 3, "integers").A, first.A)


def test_what_was_not_asked_for_lately_is_forgotten() -> None:
    reuse = Reuse(most_kept=SMALL.bytes + WIDE.bytes)
    small, wide = (reuse.operands(p, 0, "uniform") for p in (SMALL, WIDE))
    assert reuse.operands(SMALL, 0, "uniform") is small
    reuse.operands(TALL, 0, "uniform")
    assert reuse.operands(SMALL, 0, "uniform") is small
    assert reuse.operands(WIDE, 0, "uniform") is not wide


def test_one_that_is_larger_than_the_bound_is_kept_while_it_is_used() -> None:
    reuse = Reuse(most_kept=1)
    assert reuse.operands(SMALL, 0, "uniform") is reuse.operands(SMALL, 0, "uniform")
