"""Kernels that are wrong on purpose: each must fail with a text that names its fault."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_gemm.backends.host import HostBackend
from pytest_gemm.case import Case, Settings
from pytest_gemm.pipeline import run_case
from pytest_gemm.problem import Problem
from pytest_gemm.registry import load_registry

FOLDER = Path(__file__).parent / "broken"

WRONG = r"on {} elements of C wrong, first C\[\d+, \d+\] = \S+ \(should be \S+\): "
SQUARE, WIDE = WRONG.format(r"37x37x37: \d+ of 1369"), WRONG.format(r"35x150x33: \d+ of 5250")
EDGES = r"rows 32\.\.36 \(the last partial tile\) and columns 32\.\.36 \(the last partial tile\)"

HEADLINES = {
    "accumulates": SQUARE + "accumulated into the old C",
    "all_zeros": SQUARE + "C is all zeros",
    "axes_swapped": WIDE + r"grid axes swapped, never written: columns 48\.\.149",
    "early_return": r"on 37x37x37: barrier divergence in block \(2, 0, 0\): "
    r"thread \(5, 0, 0\) exited while thread \(0, 0, 0\) waits at the barrier",
    "endless_loop": r"on 37x37x37: one launch took longer than 0\.5 s",
    "k_residue_skipped": SQUARE + "K residue: only the first 32 of 37 terms were added",
    "missing_barrier": SQUARE + "shared memory was read before it was written",
    "missing_second_barrier": SQUARE.removesuffix(": ") + "$",
    "multiples_only": SQUARE + r".*B was read out of bounds.* elements written past the end of C",
    "never_writes": SQUARE + "never written: all of C",
    "next_row": SQUARE + r"off by one: C\[i, j\] holds what C\[i\+1, j\] should; "
    "A was read out of bounds: NaN in row 36",
    "one_past_end": "on 37x37x37: 1 element written past the end of C, first right next to it",
    "one_tile_short": SQUARE + "never written: " + EDGES,
    "operands_swapped": SQUARE + "A and B swapped: C holds B A",
    "squares_only": WIDE + "A was read out of bounds",
    "term_doubled": SQUARE + "term k = 0 of 37 added twice",
    "transposes": SQUARE + "C is transposed",
    "writes_into_a": r"on 37x37x37: 37 elements of A overwritten, first A\[0, 0\]",
    "writes_nan": SQUARE + "NaN was written",
}

KERNELS = {k.name: k for k in load_registry([FOLDER], FOLDER).kernels("host")}


@pytest.fixture(scope="module")
def backend() -> HostBackend:
    return HostBackend()


def failure(name: str, backend: HostBackend) -> str:
    case = Case(KERNELS[name], Problem.parse("64"), Settings(launch_timeout=0.5))
    result = run_case(case, backend)
    assert result.outcome == "failed"
    return result.message


def test_each_has_an_expectation() -> None:
    assert set(KERNELS) == set(HEADLINES) == {path.stem for path in FOLDER.glob("*.cu")}


@pytest.mark.parametrize("name", HEADLINES)
def test_the_first_line_names_the_fault(name: str, backend: HostBackend) -> None:
    headline = failure(name, backend).splitlines()[0]
    assert re.match(f"{name} {HEADLINES[name]}", headline), headline


@pytest.mark.parametrize("name", ["missing_barrier", "missing_second_barrier"])
def test_a_missing_barrier_fails_alike_every_time(name: str, backend: HostBackend) -> None:
    assert len({failure(name, backend) for _ in range(3)}) == 1


def test_barriers_at_different_lines_pass_where_that_is_declared(backend: HostBackend) -> None:
    folder = FOLDER.parent / "correct"
    (kernel,) = (k for k in load_registry([folder], folder).kernels("host") if "groups" in k.id)
    case = Case(kernel, Problem.parse("64"), Settings())
    assert run_case(case, backend).outcome == "passed"
    undeclared = replace(case, kernel=replace(kernel, different_barriers=False))
    result = run_case(undeclared, backend)
    assert "barrier divergence" in result.message.splitlines()[0]
