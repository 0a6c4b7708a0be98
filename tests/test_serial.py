"""The plain C functions and NumPy's: checked like any kernel, and each launch is done."""

from __future__ import annotations

import time

import numpy as np
import pytest

from pytest_gemm.backends import open_backend
from pytest_gemm.backends.base import CudaProgram, LaunchConfig, PythonProgram
from pytest_gemm.backends.serial import SerialBackend
from pytest_gemm.case import Case, Settings
from pytest_gemm.device import DeviceMemory
from pytest_gemm.errors import BackendError, CompileError
from pytest_gemm.pipeline import run_case
from pytest_gemm.problem import Problem
from pytest_gemm.studies.sides import c_kernels, numpy_kernels

ONE = LaunchConfig((1, 1, 1), (1, 1, 1))
SIGNATURE = "(const float *A, const float *B, float *C, int M, int N, int K)"


@pytest.fixture(scope="module")
def backend() -> SerialBackend:
    opened = open_backend("serial", lambda _: None)
    assert isinstance(opened, SerialBackend)
    return opened


@pytest.mark.parametrize("op", ["add", "gemm"])
@pytest.mark.parametrize("side", ["c", "numpy"])
def test_both_sides_pass_the_exact_suite(backend: SerialBackend, side: str, op: str) -> None:
    kernels, functions = (c_kernels(), {}) if side == "c" else numpy_kernels()
    kernel = kernels[op]
    case = Case(kernel, Problem.parse("33x17x20", op), Settings(timed=True, time_cap=0.005))
    result = run_case(case, backend, functions.get(kernel.callable))
    assert (result.outcome, result.message) == ("passed", "")
    assert result.estimate is not None
    assert result.environment["flags"].startswith("-O2 ")
    assert result.device["kind"] == "host"


def test_each_launch_of_a_c_function_is_done(backend: SerialBackend) -> None:
    source = f"void count{SIGNATURE} {{ C[0] += M * N * K; }}"
    executable = backend.compile(CudaProgram(source, "count.c", "count"))
    with DeviceMemory(backend) as memory:
        C = memory.upload(np.zeros((1, 1), np.float32))
        seconds = backend.time(executable, ONE, [C, C, C, 2, 3, 5], launches=7)
        assert memory.download(C).tolist() == [[210]]
    assert 0 < seconds < 1


def test_python_is_timed_by_the_clock_on_the_wall(
    backend: SerialBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])

    def waits() -> None:
        now[0] += 2.5

    executable = backend.compile(PythonProgram(waits, ()))
    assert backend.time(executable, ONE, [], launches=4) == 10


def test_a_source_that_is_wrong_is_told(backend: SerialBackend) -> None:
    with pytest.raises(CompileError, match=r"^broken\.c: .* cannot build it\n"):
        backend.compile(CudaProgram(f"void f{SIGNATURE} {{ nonsense }}", "broken.c", "f"))


def test_nothing_is_timed_cold(backend: SerialBackend) -> None:
    executable = backend.compile(CudaProgram(f"void f{SIGNATURE} {{}}", "f.c", "f"))
    with pytest.raises(BackendError, match="caches"):
        backend.time(executable, ONE, [], cold=True)
