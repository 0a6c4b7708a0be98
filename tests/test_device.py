from dataclasses import replace

import numpy as np
import pytest

from pytest_gemm.bits import decode, raw, word
from pytest_gemm.device import (
    ALIGNMENT,
    DeviceMemory,
    Violation,
    Workspace,
    guard_bits,
    poisons,
)
from pytest_gemm.dtypes import OUTPUTS
from pytest_gemm.errors import BackendError
from pytest_gemm.matrices import operands
from pytest_gemm.problem import Problem
from tests.memory_backend import MemoryBackend, surroundings, view

DENSE = Problem("gemm", 5, 7, 3)
PADDED = Problem("gemm", 5, 7, 3, lda=4, ldb=11, ldc=9)


@pytest.fixture
def backend():
    backend = MemoryBackend()
    yield backend
    assert backend.buffers == [], "memory was not freed"


@pytest.mark.parametrize("problem", [DENSE, PADDED, Problem.parse("4x6", "add")])
def test_matrices_come_back_as_they_were_loaded(backend, problem):
    data = operands(problem)
    with Workspace(backend, problem) as workspace:
        workspace.load(data)
        for name in "ABC":
            matrix = workspace.matrix(name)
            assert (matrix.rows, matrix.columns) == problem.shapes[name]
            assert matrix.ld == problem.ld(name)
            assert matrix.offset % ALIGNMENT == 0
            back = workspace.read(name)
            assert back.flags.c_contiguous
            assert np.array_equal(back, getattr(data, name))
        assert workspace.violations() == ()


def test_the_kernel_sees_the_payload(backend):
    data = operands(PADDED)
    with Workspace(backend, PADDED) as workspace:
        workspace.load(data)
        view(workspace.matrix("C"))[...] = data.A @ data.B
        assert np.array_equal(workspace.read(), data.A @ data.B)
        assert workspace.violations() == ()


@pytest.mark.parametrize("problem", [DENSE, PADDED])
def test_guards_surround_every_row(backend, problem):
    with Workspace(backend, problem, guard=100) as workspace:
        workspace.load(operands(problem))
        for name in "ABC":
            matrix = workspace.matrix(name)
            bits = surroundings(matrix, before=matrix.offset // 4).view(np.uint32).copy()
            assert bits.size * 4 == 2 * 256 + matrix.rows * matrix.ld * 4
            inside = bits[64 : 64 + matrix.rows * matrix.ld].reshape(matrix.rows, matrix.ld)
            inside[:, : matrix.columns] = guard_bits(name, "float32")
            assert (bits == guard_bits(name, "float32")).all()


def test_the_guards_of_inputs_are_nan_and_those_of_c_are_not():
    guards = {n: np.uint32(guard_bits(n, "float32")).view(np.float32) for n in "ABC"}
    assert np.isnan(guards["A"])
    assert np.isnan(guards["B"])
    assert 0.5 < guards["C"] < 1
    nan, number = poisons("float32")
    assert np.isnan(nan)
    assert number == 2**22
    assert len({*(guard_bits(n, "float32") for n in "ABC"), int(raw(nan)[0])}) == 4


def test_fill_sets_only_c(backend):
    data = operands(PADDED)
    with Workspace(backend, PADDED) as workspace:
        workspace.load(data)
        workspace.fill(np.nan)
        assert (raw(workspace.read()) == raw(poisons("float32")[0])).all()
        workspace.fill(5.0)
        assert (workspace.read() == 5).all()
        workspace.fill(data.C)
        assert np.array_equal(workspace.read(), data.C)
        assert np.array_equal(workspace.read("A"), data.A)
        assert workspace.violations() == ()


def test_a_write_past_the_end_is_seen_and_renewed(backend):
    with Workspace(backend, DENSE) as workspace:
        workspace.load(operands(DENSE))
        surroundings(workspace.matrix("C"))[35] = 0
        surroundings(workspace.matrix("C"))[38] = 0
        (violation,) = workspace.violations()
        assert violation == Violation("C", "after", 2, 0)
        assert str(violation) == "2 elements written past the end of C, first right next to it"
        workspace.fill(0.0)
        assert workspace.violations() == ()


def test_an_addition_past_the_end_is_seen(backend):
    """A canary of NaN, or of a large number, would keep its bits."""
    with Workspace(backend, DENSE) as workspace:
        workspace.load(operands(DENSE))
        surroundings(workspace.matrix("C"))[40] += np.float32(1e-6)
        (violation,) = workspace.violations()
        assert (violation.place, violation.first) == ("after", 5)
        assert str(violation).endswith("first 5 elements away")


def test_a_write_before_the_start_is_seen(backend):
    with Workspace(backend, DENSE) as workspace:
        workspace.load(operands(DENSE))
        surroundings(workspace.matrix("B"), before=3)[0] = 1
        assert workspace.violations() == (Violation("B", "before", 1, -3),)
        assert (
            str(workspace.violations()[0])
            == "1 element written before the start of B, first 2 elements away"
        )


def test_a_write_between_rows_is_seen(backend):
    with Workspace(backend, PADDED) as workspace:
        workspace.load(operands(PADDED))
        surroundings(workspace.matrix("C"))[9 * 2 + 7] = 1
        (violation,) = workspace.violations()
        assert violation == Violation("C", "padding", 1, 25, 2, 7)
        assert (
            str(violation)
            == "1 element written between the rows of C, first behind column 6 of row 2"
        )


def test_changed_operands_are_seen_to_the_last_bit(backend):
    with Workspace(backend, PADDED) as workspace:
        workspace.load(operands(PADDED))
        view(workspace.matrix("A"))[1, 2] *= -1
        view(workspace.matrix("B")).view(np.uint32)[2, 6] ^= 1
        first, second = workspace.violations()
        assert first == Violation("A", "contents", 1, 6, 1, 2)
        assert str(first) == "1 element of A overwritten, first A[1, 2]"
        assert second == Violation("B", "contents", 1, 28, 2, 6)


def test_c_itself_may_change(backend):
    with Workspace(backend, DENSE) as workspace:
        workspace.load(operands(DENSE))
        view(workspace.matrix("C"))[...] = np.nan
        assert workspace.violations() == ()


def test_memory_is_freed_after_an_error(backend):
    def stumble():
        with Workspace(backend, DENSE):
            assert len(backend.buffers) == 3
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        stumble()


def test_memory_is_freed_when_there_is_not_enough():
    backend = MemoryBackend(capacity=20_000)
    with pytest.raises(BackendError, match="no memory"), Workspace(backend, DENSE):
        pytest.fail("three matrices do not fit")
    assert backend.buffers == []


@pytest.mark.parametrize(("problem", "guard"), [("1", 4096), ("64", 32768), ("1x1x20000", 2**22)])
def test_the_guard_covers_a_tile_of_128_rows_within_bounds(problem, guard, backend):
    with Workspace(backend, Problem.parse(problem)) as workspace:
        assert workspace.matrix("A").offset == guard


def test_device_memory_round_trip(backend):
    array = np.arange(12, dtype=np.float64).reshape(3, 4).T
    with DeviceMemory(backend) as memory:
        matrix = memory.upload(array)
        assert (matrix.rows, matrix.columns, matrix.ld) == (4, 3, 3)
        assert np.array_equal(memory.download(matrix), array)
        empty = memory.allocate(2, 5)
        assert np.isnan(memory.download(empty)).all()
        view(empty)[...] = 2
        assert (memory.download(empty) == 2).all()
        assert len(backend.buffers) == 2


LAYOUTS = [
    replace(PADDED, **words)
    for words in (
        {"transa": "T", "lda": 6},
        {"transb": "T", "ldb": 4},
        {"layout": "column-major", "lda": 6, "ldb": 3, "ldc": 8},
        {"layout": "column-major", "transa": "T", "transb": "T", "ldb": 8, "ldc": 6},
        {"batch": 3, "strideA": 32, "strideC": 60},
        {"batch": 2, "layout": "column-major", "lda": 7, "ldb": 4, "ldc": 5},
        *({"dtype": dtype, "out_dtype": "", "acc_dtype": ""} for dtype in OUTPUTS),
    )
]


@pytest.mark.parametrize("problem", LAYOUTS, ids=lambda problem: problem.label)
def test_every_layout_comes_back_and_is_guarded(backend, problem):
    data = operands(problem)
    with Workspace(backend, problem) as workspace:
        workspace.load(data)
        assert workspace.violations() == ()
        for name in "ABC":
            own, matrix = getattr(data, name), workspace.matrix(name)
            assert np.array_equal(workspace.read(name), own)
            given = view(matrix)
            if matrix.dtype == "bfloat16":
                given = decode(given, "bfloat16")
            transposed = {"A": problem.transa, "B": problem.transb}.get(name) == "T"
            shown = own.swapaxes(-1, -2) if transposed else own
            assert np.array_equal(given, shown)
            bits = backend.download(matrix.buffer).view(word(matrix.dtype))
            assert (bits == guard_bits(name, matrix.dtype)).sum() >= bits.size - own.size


def test_columns_are_named_where_they_lie_together(backend):
    problem = Problem("gemm", 5, 7, 3, layout="column-major", ldc=8)
    with Workspace(backend, problem) as workspace:
        workspace.load(operands(problem))
        surroundings(workspace.matrix("C"))[8 * 2 + 5] = 1
        assert [str(v) for v in workspace.violations()] == [
            "1 element written between the columns of C, first behind row 4 of column 2"
        ]
        surroundings(workspace.matrix("A"))[5 * 2 + 1] = 9
        assert "1 element of A overwritten, first A[1, 2]" in map(str, workspace.violations())


def test_what_lies_between_the_matrices_of_a_batch_is_guarded(backend):
    problem = Problem("gemm", 5, 7, 3, batch=3, ldc=8, strideC=48)
    with Workspace(backend, problem) as workspace:
        workspace.load(operands(problem))
        surroundings(workspace.matrix("C"))[48 + 8 * 3 + 7] = 1
        surroundings(workspace.matrix("C"))[48 + 41] = 1
        surroundings(workspace.matrix("B"))[21 * 2 + 8] = 9
        assert [str(v) for v in workspace.violations()] == [
            "1 element of B overwritten, first B[2, 1, 1]",
            "1 element written between the rows of C, first behind column 6 of row 3 of matrix 1",
            "1 element written between the matrices of C, first behind matrix 1",
        ]
