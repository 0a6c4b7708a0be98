"""A user's own reference is found without being run, and says where it is wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pytest_gemm.comparison import Mismatch, check_bounds, check_exact, exact_bounds
from pytest_gemm.epilogue import find
from pytest_gemm.errors import ConfigError
from pytest_gemm.matrices import Operands, operands, reference
from pytest_gemm.problem import Problem
from pytest_gemm.registry import load_registry

REFS = """
import numpy as np

def relu(A, B):
    return np.maximum(A @ B, 0)

def scaled(B, A, alpha, C):
    return alpha * (A @ B) / 1000 + C

def columns(A, B):
    x = A @ B
    return x - x.max(axis=0)

def takes_x(A, X):
    return A

def sigmoid(A, B):
    return 1 / (1 + np.exp(-1e6 * (A @ B)))

def flat(A, B):
    return (A @ B).ravel()

def fails(A, B):
    return 1 / len([])

def ragged(A, B):
    return [[1], [1, 2]]

def ends(A, B):
    raise SystemExit("no licence")
"""

KERNEL = """\
// /// gemm
// block = [16, 16]
// grid = ["cdiv(N, 16)", "cdiv(M, 16)"]
// reference = "refs.py:{name}"
// ///
__global__ void k(const float* A, const float* B, float* C, int M, int N, int K) {{}}
"""


@pytest.fixture
def refs(write: Callable[[str, str], Path]) -> Path:
    return write("refs.py", REFS)


def problem_of(refs: Path, name: str, size: str = "37x35x33") -> Problem:
    found, taken = find(f"refs.py:{name}", refs.parent)
    reads_c = "C" in taken
    return replace(Problem.parse(size), reference=found, reference_reads_c=reads_c)


def test_it_is_found_and_its_parameters_are_read(refs: Path) -> None:
    assert find("refs.py:relu", refs.parent) == (f"{refs.resolve()}:relu", ("A", "B"))
    assert find("refs.py:scaled", refs.parent)[1] == ("B", "A", "alpha", "C")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("no.py:relu", "there is no file no.py beside the kernel's"),
        ("refs.py:relux", "refs.py has no function relux: its functions are relu, scaled"),
        ("refs.py:takes_x", r"refs.py:14: takes_x takes \(A, X\): a reference takes A and B"),
    ],
)
def test_what_cannot_be_one_is_a_sentence(refs: Path, name: str, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        find(name, refs.parent)


def test_a_mistake_is_told_on_the_line_of_the_declaration(
    refs: Path, write: Callable[[str, str], Path]
) -> None:
    write("k.cu", KERNEL.format(name="takes_x"))
    [error] = load_registry([refs.parent], refs.parent).errors
    assert str(error).startswith("k.cu:4: k: reference: refs.py:14: takes_x takes (A, X): ")
    write("k.cu", KERNEL.format(name="scaled"))
    [kernel] = load_registry([refs.parent], refs.parent).kernels("host")
    assert kernel.problem("64").reads_c
    assert kernel.reference == f"{refs.resolve()}:scaled"


def test_it_is_given_float64_and_numbers(refs: Path) -> None:
    problem = replace(problem_of(refs, "scaled"), alpha=3.0)
    data = operands(problem, 0, "integers")
    A, B, C = (getattr(data, name).astype(np.float64) for name in "ABC")
    assert np.array_equal(reference(problem, data), 3 * (A @ B) / 1000 + C)
    batch = replace(problem, batch=2)
    data = operands(batch, 0, "integers")
    assert np.array_equal(reference(batch, data)[1], reference(problem, data[1]))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("flat", r"refs.py:flat returned float64 of shape \(1295,\): C is an array of 37 x 35"),
        ("fails", r"refs.py:24: fails raised ZeroDivisionError: division by zero"),
        ("ragged", r"refs.py: ragged raised ValueError: setting an array element with a sequence"),
        ("ends", r"refs.py:30: ends raised SystemExit: no licence"),
    ],
)
def test_its_own_mistakes_have_their_line(refs: Path, name: str, text: str) -> None:
    problem = problem_of(refs, name)
    with pytest.raises(ConfigError, match=text):
        reference(problem, operands(problem))


def test_it_may_overflow_on_the_way(refs: Path) -> None:
    problem = problem_of(refs, "sigmoid")
    assert set(np.unique(reference(problem, operands(problem, 0, "integers")))) <= {0, 0.5, 1}


def in_float32(problem: Problem, data: Operands) -> np.ndarray:
    """The product, term by term, as a kernel adds it."""
    C = np.zeros(problem.shapes["C"], np.float32)
    for k in range(problem.K):
        C += np.outer(data.A[:, k], data.B[k])
    return C


@pytest.mark.parametrize("recipe", ["integers", "uniform"])
def test_rounding_passes_and_a_missing_term_does_not(refs: Path, recipe: str) -> None:
    for name, epilogue in (
        ("relu", lambda x, C: np.maximum(x, 0)),
        ("scaled", lambda x, C: x * np.float32(1 / 1000) + C),
    ):
        problem = problem_of(refs, name)
        data = operands(problem, 1, recipe)
        right = epilogue(in_float32(problem, data), data.C)
        short = epilogue(in_float32(replace(problem, K=problem.K - 1), data), data.C)
        if recipe == "uniform":
            assert 0 < check_bounds(problem, data, right) < 1
            assert isinstance(check_bounds(problem, data, short), Mismatch)
        else:
            expected = reference(problem, data)
            bounds = exact_bounds(problem, data, expected)
            assert check_exact(right, expected, bounds) is None
            assert check_exact(short, expected, bounds) is not None


def test_large_problems_are_sampled_only_where_rows_are_independent(
    refs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_gemm.comparison.FULL_LIMIT", 1)
    for name, check in (("relu", "sampled elements"), ("columns", "elements")):
        problem = problem_of(refs, name, "70x9x8")
        data = operands(problem)
        mismatch = check_bounds(problem, data, np.zeros((70, 9), np.float32) - 9)
        assert isinstance(mismatch, Mismatch)
        assert mismatch.check == check
