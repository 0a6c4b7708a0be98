"""Kernels are launched on the CPU with every access watched before their results are believed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pytest_gemm.backends.host import HostBackend
from pytest_gemm.case import Case, Settings
from pytest_gemm.checking import Checker
from pytest_gemm.kernelspec import Kernel
from pytest_gemm.problem import Problem
from pytest_gemm.registry import load_registry
from pytest_gemm.runner import Runner
from pytest_gemm.traffic import loads_per_element

ROOT = Path(__file__).parent.parent

ATOMIC_SUM = """
// /// gemm
// block = [64]
// grid  = ["N", "M"]
// deterministic = {deterministic}
// ///
__global__ void atomic_sum(const float* A, const float* B, float* C, int M, int N, int K)
{{
    __shared__ float sum;
    if (threadIdx.x == 0)
        sum = 0.0f;
    __syncthreads();
    float part = 0.0f;
    for (int k = threadIdx.x; k < K; k += blockDim.x)
        part += A[blockIdx.y * K + k] * B[k * N + blockIdx.x];
    atomicAdd(&sum, part);
    __syncthreads();
    if (threadIdx.x == 0)
        C[blockIdx.y * N + blockIdx.x] = sum;
}}
"""


@pytest.fixture(scope="module")
def host() -> HostBackend:
    return HostBackend()


def kernels(folder: Path) -> dict[str, Kernel]:
    return {kernel.id: kernel for kernel in load_registry([folder], folder).kernels("host")}


def checker(host: HostBackend) -> Checker:
    return Checker(host, "auto", 0, 5)


@pytest.mark.parametrize(
    ("kernel", "loads"),
    [("naive", "2K"), ("tiled", "2K/16"), ("tiled32", "2K/32"), ("register_blocked", "2K/32"),
     ("add", "2")],
)  # fmt: skip
def test_loads_per_element_of_the_shipped_kernels(
    host: HostBackend, kernel: str, loads: str
) -> None:
    spec = kernels(ROOT / "kernels")[kernel]
    checked = checker(host).check(spec)
    assert (checked.failure, checked.unchecked) == ("", "")
    assert loads_per_element(spec.op, checked.traffic) == loads


@pytest.mark.parametrize(
    ("words", "loads"),
    [(4 * 192, "4K"), (192, "2K/2"), (3 * 192, "3K"), (288, "3K/2"), (9, "3K/64"), (32, "2K/12"),
     (385, "385 at K = 192"), (64 * 192, "12288 at K = 192"), (200, "200 at K = 192"),
     (0, "0")],
)  # fmt: skip
def test_loads_are_a_multiple_of_k_or_name_the_k_they_were_counted_at(
    words: int, loads: str
) -> None:
    assert loads_per_element("gemm", {"global_load_words": words * 64 * 128}) == loads


def test_of_an_addition_loads_are_a_number() -> None:
    assert loads_per_element("add", {"global_load_words": 4 * 64 * 128}) == "4"


def test_stores_and_barriers_are_counted(host: HostBackend) -> None:
    traffic = checker(host).check(kernels(ROOT / "kernels")["tiled"]).traffic
    assert traffic["global_store_words"] == traffic["global_stores"] == 64 * 128
    # 4 x 8 blocks, 12 tiles of K, two barriers each.
    assert traffic["barriers"] == 4 * 8 * 12 * 2
    # Each thread writes one element of each tile.
    assert traffic["shared_stores"] == 64 * 128 * 12 * 2
    assert traffic["global_atomics"] == 0


def test_a_finding_comes_first_and_what_the_result_shows_below_it(host: HostBackend) -> None:
    failure = checker(host).check(kernels(ROOT / "tests/broken")["missing_barrier"]).failure
    first, *rest = failure.splitlines()
    assert first.startswith("missing_barrier on 37x37x37: missing_barrier.cu:")
    assert "race" in first
    assert any("elements of C wrong" in line for line in rest)


@pytest.mark.parametrize("kernel", ["missing_barrier", "missing_second_barrier", "one_past_end"])
def test_a_mistake_is_told_once_whatever_the_order_of_the_threads(
    host: HostBackend, kernel: str
) -> None:
    failure = checker(host).check(kernels(ROOT / "tests/broken")[kernel]).failure
    findings = [line for line in failure.splitlines() if f"{kernel}.cu:" in line]
    names = [re.findall(r"(?:writes|reads) (\w+)", line)[-1:] for line in findings]
    pairs = [set(re.findall(r"(?:\.cu:|in line )(\d+)", line)) for line in findings]
    told = [(*name, frozenset(pair)) for name, pair in zip(names, pairs, strict=True)]
    assert findings
    assert len(told) == len(set(told))
    assert "more" not in failure


MANY_BARRIERS = """
// /// gemm
// block = [2]
// grid  = ["N", "M"]
// ///
__global__ void many_barriers(const float* A, const float* B, float* C, int M, int N, int K)
{
    __shared__ float parts[2];
    float sum = 0.0f;
    for (int k = 0; k < K; ++k) {
        parts[threadIdx.x] = threadIdx.x ? A[blockIdx.y * K + k] : B[k * N + blockIdx.x];
        __syncthreads();
        sum += parts[0] * parts[1];
        __syncthreads();
        __syncthreads();
    }
    if (threadIdx.x == 0)
        C[blockIdx.y * N + blockIdx.x] = sum;
}
"""


def test_more_barriers_than_are_numbered_are_barriers_still(
    host: HostBackend, tmp_path: Path
) -> None:
    (tmp_path / "many_barriers.cu").write_text(MANY_BARRIERS)
    checked = checker(host).check(kernels(tmp_path)["many_barriers"])
    assert checked.failure == ""
    assert checked.traffic["barriers"] == 64 * 128 * 192 * 3 > 2**22


def test_a_wrong_result_without_a_finding_is_diagnosed(host: HostBackend) -> None:
    failure = checker(host).check(kernels(ROOT / "tests/broken")["operands_swapped"]).failure
    assert "A and B swapped" in failure.splitlines()[0]


def test_a_result_that_depends_on_the_order_of_threads_is_named(
    host: HostBackend, tmp_path: Path
) -> None:
    (tmp_path / "atomic_sum.cu").write_text(ATOMIC_SUM.format(deterministic="true"))
    failure = checker(host).check(kernels(tmp_path)["atomic_sum"]).failure
    assert "on 37x37x37: C depends on the order of the threads: C[" in failure
    assert "in descending order" in failure
    (tmp_path / "atomic_sum.cu").write_text(ATOMIC_SUM.format(deterministic="false"))
    checked = checker(host).check(kernels(tmp_path)["atomic_sum"])
    assert not checked.failure
    assert checked.traffic["shared_atomics"] == 64 * 64 * 128


LATE_MISTAKE = """
// /// gemm
// block = [64]
// grid  = ["cdiv(N, 64)", "M"]
// ///
__device__ int turns;
__global__ void late(const float* A, const float* B, float* C, int M, int N, int K)
{{
    const int j = blockIdx.x * blockDim.x + threadIdx.x;
    if (j >= N)
        return;
    float sum = 0.0f;
    for (int k = 0; k < K; ++k)
        sum += A[blockIdx.y * K + k] * B[k * N + j];
    const int turn = atomicAdd(&turns, 1);
    if (turn == M * N - 1)
        atomicExch(&turns, 0);
    if ({condition} && A[M * K] > 2.0f)
        sum = 0.0f;
    C[blockIdx.y * N + j] = sum;
}}
"""


@pytest.mark.parametrize(
    ("condition", "problem"),
    [
        # Larger than what the exact suite begins with.
        ("K == 192", "64x128x192"),
        # The thread that is the first in descending order.
        ("turn == 0 && j == N - 1", "37x37x37"),
    ],
)
def test_every_launch_is_watched(
    host: HostBackend, tmp_path: Path, condition: str, problem: str
) -> None:
    source = LATE_MISTAKE.format(condition=condition)
    (tmp_path / "late.cu").write_text(source)
    line = source.splitlines().index(f"    if ({condition} && A[M * K] > 2.0f)") + 1
    failure = checker(host).check(kernels(tmp_path)["late"]).failure
    assert failure.startswith(f"late on {problem}: late.cu:{line}: out-of-bounds read of 4 bytes")


def test_a_kernel_is_checked_once(host: HostBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    once = checker(host)
    kernel = kernels(ROOT / "kernels")["naive"]
    known = once.check(kernel)
    monkeypatch.delattr(HostBackend, "check")
    assert once.check(kernel) is known


def test_what_the_cpu_cannot_compile_is_unchecked_with_the_line(
    host: HostBackend, tmp_path: Path
) -> None:
    source = (ROOT / "kernels" / "naive.cu").read_text()
    at = source.index("const int row")
    (tmp_path / "naive.cu").write_text(f'{source[:at]}asm("nop;"); {source[at:]}')
    checked = checker(host).check(kernels(tmp_path)["naive"])
    assert "inline PTX is not supported on the CPU back end" in checked.unchecked
    assert checked.unchecked.startswith("naive.cu:")
    assert not checked.failure


def test_a_failed_check_is_the_case_s_failure_and_nothing_is_timed(host: HostBackend) -> None:
    kernel = kernels(ROOT / "tests/broken")["next_row"]
    case = Case(kernel, Problem.parse("64"), Settings(timed=True, check="auto"))
    result = Runner(host, print).run(case)
    assert result.outcome == "failed"
    assert "out-of-bounds read" in result.message.splitlines()[0]
    assert result.device["kind"] == "host"
    assert not result.samples


def test_off_checks_nothing(host: HostBackend) -> None:
    kernel = kernels(ROOT / "kernels")["naive"]
    assert not Checker(host, "off", 0, 5).check(kernel).traffic
