"""Element types, layouts, batches and epilogues: each kernel is right, and its broken twin caught.

``pytest tests/test_more_gemm.py -k cuda`` runs them on a GPU.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_gemm.backends.base import Backend, CudaProgram, LaunchConfig
from pytest_gemm.backends.cuda import CudaBackend
from pytest_gemm.backends.host import HostBackend
from pytest_gemm.case import Case, Settings
from pytest_gemm.checking import Checker
from pytest_gemm.errors import BackendError
from pytest_gemm.kernelspec import Kernel
from pytest_gemm.launching import loaded
from pytest_gemm.matrices import operands
from pytest_gemm.pipeline import run_case
from pytest_gemm.problem import Problem
from pytest_gemm.registry import load_registry
from pytest_gemm.runner import Runner
from pytest_gemm.traffic import loads_on

FOLDER = Path(__file__).parent / "more_gemm"
SIZE = "64x48x80"


def kernels(folder: str) -> dict[str, Kernel]:
    registry = load_registry([FOLDER / folder], FOLDER)
    assert registry.errors == ()
    return {kernel.name: kernel for kernel in registry.kernels("host")}


CORRECT, BROKEN = kernels("correct"), kernels("broken")

WRONG = (
    r"(, matrix \d of the batch)?: \d+ of \d+ elements of C wrong, first C\[\d+, \d+\] = \S+ \(.*\)"
)

CAUGHT = {
    # What a launch shows, with every access watched or without.
    "a_is_transposed": f"37x37x37{WRONG}: A was read transposed",
    "b_is_transposed": f"37x37x37{WRONG}: B was read transposed",
    "by_columns": f"37x37x37{WRONG}: A and B swapped: C holds B A",
    "ignores_lda": f"19x37x33{WRONG}: A was read out of bounds: NaN in rows 1..18 ",
    "ignores_ldc": f"19x37x33{WRONG}: 195 elements written between the rows of C",
    "forgets_beta": f"19x37x33{WRONG}: beta C was left out",
    "clears_padding": "19x37x33: .*198 elements written between the rows of C",
    "reads_padding": f"19x37x33{WRONG}: A was read out of bounds: NaN in all of C",
    "same_b": f"37x37x37{WRONG}",
    "stride_of_c": f"35x150x33{WRONG}",
    "dense_strides": f"19x37x33{WRONG}: A was read out of bounds",
    "first_only": f"37x37x37{WRONG}: never written: all of C",
    "one_too_many": "37x37x37: 1369 elements written past the end of C, first right next to it",
    "without_relu": f"37x37x37{WRONG}: the epilogue was left out",
    "leaky_relu": f"37x37x37{WRONG}",
    "gelu_by_sigmoid": f"37x37x37{WRONG}",
    "half_sums_undeclared": f"{SIZE}{WRONG}",
    "half_sums_to_float": f"{SIZE}{WRONG}",
    "truncates": f"{SIZE}{WRONG}",
    "double_in_float": f"37x37x37{WRONG}",
    "int8_overflows": f"37x37x37{WRONG}",
    "int8_without_sign": f"37x37x37{WRONG}",
    "int8_saturates": f"37x37x37{WRONG}",
    "int8_one_term_more": f"37x37x37{WRONG}",
    "clears_between": "19x37x33: 192 elements written between the matrices of C, first behind",
    "adds_finite_c": f"37x37x37{WRONG}: accumulated into the old C",
    "reads_c": f"37x37x37{WRONG}: the old C is read although beta = 0",
    "bfloat_as_half": f"37x37x37{WRONG}",
}
"""The first line of what is said of each broken kernel, behind its name and ``on``."""

LINES = {
    "one_too_many": "out-of-bounds read of 4 bytes",
    "stride_of_c": "race between blocks",
    "int8_one_term_more": "out-of-bounds read of 1 bytes: thread",
    "ignores_lda": "reads A[0, 33], which has 19 x 33 elements",
    "reads_padding": "reads A[0, 33], which has 19 x 33 elements",
    "clears_padding": "writes C[0, 37], which has 19 x 37 elements",
    "dense_strides": "reads A[0, 19, 0], which has 3 x 19 x 33 elements",
    "clears_between": "writes C[0, 19, 0], which has 3 x 19 x 37 elements",
}
"""What watching the accesses says where that is more."""


def run(kernel: Kernel, backend: Backend, **settings: bool) -> str:
    """What is wrong with a kernel, or an empty text."""
    case = Case(kernel, kernel.problem(SIZE), replace(Settings(), **settings))
    result = run_case(case, backend)
    assert result.outcome in ("passed", "failed")
    return result.message


@pytest.fixture(scope="module")
def host() -> HostBackend:
    return HostBackend()


@pytest.fixture(scope="module")
def checker(host: HostBackend) -> Checker:
    return Checker(host, "auto", seed=0, timeout=20)


@pytest.fixture(scope="module")
def cuda() -> Backend:
    backend = CudaBackend()
    try:
        assert backend.device
    except BackendError as error:
        pytest.skip(f"it takes a GPU: {error}")
    return backend


@pytest.mark.parametrize("name", CORRECT)
def test_right_kernels_pass_on_the_host(name: str, host: HostBackend, checker: Checker) -> None:
    checked = checker.check(CORRECT[name])
    assert (checked.failure, checked.unchecked) == ("", "")
    assert run(CORRECT[name], host) == ""


def test_each_broken_kernel_has_an_expectation() -> None:
    assert set(CAUGHT) == set(BROKEN)


@pytest.mark.parametrize("name", CAUGHT)
def test_broken_kernels_are_caught_on_the_host(name: str, host: HostBackend) -> None:
    headline = run(BROKEN[name], host).splitlines()[0]
    assert re.match(f"({name} on {SIZE}: )?{name} on {CAUGHT[name]}", headline), headline


@pytest.mark.parametrize("name", LINES)
def test_their_accesses_are_watched_too(name: str, checker: Checker) -> None:
    assert LINES[name] in checker.check(BROKEN[name]).failure.splitlines()[0]


@pytest.mark.parametrize("name", CORRECT)
def test_right_kernels_pass_on_cuda(name: str, cuda: Backend) -> None:
    assert run(CORRECT[name], cuda) == ""


@pytest.mark.parametrize("name", CAUGHT)
def test_broken_kernels_are_caught_on_cuda(name: str, cuda: Backend) -> None:
    assert run(BROKEN[name], cuda)


@pytest.mark.parametrize("name", CORRECT)
def test_cublas_is_a_yardstick_on_cuda(name: str, cuda: Backend) -> None:
    kernel = CORRECT[name]
    case = Case(kernel, kernel.problem("512x256x128"), Settings(timed=True))
    result = Runner(cuda, lambda _: None).run(case)
    assert result.message == ""
    wanted = "percent_of_copy" if kernel.op == "add" else "percent_of_cublas"
    # cuBLAS multiplies bytes where it likes their layout.
    assert wanted in result.counters or kernel.dtype == "int8"


LOADS = {
    "half_nn": "2K/16",
    "hgemm": "3K/2",  # a half for two columns, and a half2
    "int8_tn": "2K/16",
    "dp4a": "2K",
    "double_nt": "2K/16",
    "batched": "2K",
    "blas_tn_double": "2K",
    "add_bfloat": "2",
}


@pytest.mark.parametrize(("name", "loads"), LOADS.items())
def test_loads_are_counted_in_elements(name: str, loads: str, checker: Checker) -> None:
    kernel = CORRECT[name]
    assert loads_on(kernel.problem(SIZE), checker.check(kernel).traffic) == loads


BY_VALUE = """
__device__ __noinline__ float sum(float4 v) { return v.x + v.y + v.z + v.w; }

__global__ void k(const float4* A, const float4* B, float* C, int n)
{
    const int i = threadIdx.x;
    C[i] = sum(A[i]) + sum(B[i]);
}
"""


def test_a_vector_given_to_a_function_is_one_access(host: HostBackend) -> None:
    """g++ does not instrument the copy that it makes for a call."""
    problem = Problem("add", 4, 8, 0)
    with loaded(host, problem, operands(problem)) as workspace:
        matrices = [workspace.matrix(name) for name in "ABC"]
        program = CudaProgram(BY_VALUE, "k.cu", "k")
        report = host.check(program, LaunchConfig((1, 1, 1), (8, 1, 1)), [*matrices, 8])
    assert {n: (a.loads, a.load_words) for n, a in report.traffic.arguments.items()} == {
        1: (8, 32),
        2: (8, 32),
        3: (0, 0),
    }
