"""What the check of a launch reports besides the kernels of ``test_check_kernels``."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest

from pytest_gemm.backends.base import Argument, CudaProgram, Dim3, LaunchConfig, Matrix
from pytest_gemm.backends.host.build import Builder
from pytest_gemm.backends.host.check import (
    ASCENDING,
    DESCENDING,
    Accesses,
    CheckReport,
    ThreadOrder,
)
from pytest_gemm.backends.host.debug_lines import DebugLines
from pytest_gemm.backends.host.red_zones import with_red_zones
from pytest_gemm.errors import BackendError, CompileError
from tests.checking import COMPILERS
from tests.host_kernels.harness import GOOD, Host, still_works, zeros


@pytest.fixture(scope="module", params=COMPILERS)
def host(request: pytest.FixtureRequest) -> Host:
    return Host(Path(os.environ["PYTEST_GEMM_CACHE"]), request.param)


def checked(
    host: Host,
    source: str,
    arguments: list[np.ndarray | int],
    grid: Dim3 = (1, 1, 1),
    block: Dim3 = (1, 1, 1),
    *,
    shared_mem: int = 0,
    order: ThreadOrder = ASCENDING,
    timeout: float = 20.0,
    **options: object,
) -> CheckReport:
    """The report of one launch; arrays are copied to the device and back."""
    backend = host.backend
    values: list[Argument] = []
    copies = []
    for argument in arguments:
        if isinstance(argument, np.ndarray):
            buffer = backend.allocate(argument.nbytes)
            backend.upload(buffer, argument.reshape(-1).view(np.uint8))
            values.append(Matrix(buffer, 0, *argument.shape, argument.shape[1], "float32"))
            copies.append((argument, buffer))
        else:
            values.append(argument)
    program = CudaProgram(dedent(source), "kernels/x.cu", "k")
    try:
        return backend.check(
            program,
            LaunchConfig(grid, block, shared_mem),
            values,
            order=order,
            timeout=timeout,
            **options,
        )
    finally:
        for argument, buffer in copies:
            argument.reshape(-1).view(np.uint8)[:] = backend.download(buffer)
            backend.free(buffer)


def kinds(report: CheckReport) -> list[str]:
    return [finding.kind for finding in report.findings]


def test_what_a_finding_says_of_an_argument(host):
    source = """
    __global__ void k(const float* A, float* C) {
        C[threadIdx.x] = A[3 * 8 + threadIdx.x];
    }"""
    report = checked(
        host, source, [zeros(3, 8), zeros(1, 8)], block=(8, 1, 1), names={1: "A", 2: "C"}
    )
    (finding,) = report.findings
    assert (finding.kind, finding.line, finding.place.file) == ("out-of-bounds", 3, "kernels/x.cu")
    assert (finding.block, finding.thread) == ((0, 0, 0), (0, 0, 0))
    assert (finding.argument, finding.row, finding.column) == (1, 3, 0)
    assert finding.count == 8
    assert str(finding) == (
        "kernels/x.cu:3: out-of-bounds read of 4 bytes: thread (0, 0, 0) of block (0, 0, 0) reads "
        "0 bytes past the end of A, which has 3 x 8 elements"
    )
    assert report.traffic.arguments == {1: Accesses(8, 32), 2: Accesses(0, 0, 8, 32)}


def test_what_a_finding_says_of_a_shared_array(host):
    source = """
    __global__ void k(float* C) {
        __shared__ float s[4][3][2];
        float* flat = &s[0][0][0];
        flat[threadIdx.x] = 1;
        __syncthreads();
        C[threadIdx.x] = flat[23 - threadIdx.x];
    }"""
    report = checked(host, source, [zeros(1, 16)], block=(16, 1, 1))
    (finding,) = report.findings
    assert (finding.kind, finding.line, finding.shared) == ("uninitialized", 7, "s")
    assert finding.index == (3, 2, 1)
    assert "reads s[3][2][1], which no thread of the block has written" in finding.message


def test_a_shared_array_is_unwritten_again_in_every_block(host):
    source = """
    __global__ void k(float* C) {
        __shared__ float s;
        if (blockIdx.x == 0)
            s = 1;
        C[blockIdx.x] = s;
    }"""
    report = checked(host, source, [zeros(1, 2)], (2, 1, 1))
    assert [(f.kind, f.block) for f in report.findings] == [("uninitialized", (1, 0, 0))]


def test_between_two_shared_arrays_lies_a_zone_that_nobody_may_touch(host):
    source = """
    __device__ void fill(float* a, int n) { for (int i = 0; i < n; ++i) a[i] = 1; }
    __global__ void k(float* C, int n) {
        __shared__ float a[64], b[64];
        fill(a, n);
        fill(b, 64);
        C[0] = a[1] + b[1];
    }"""
    report = checked(host, source, [zeros(1, 1), 100])
    (finding,) = report.findings
    assert (finding.kind, finding.line, finding.shared, finding.count) == (
        *("out-of-bounds", 2, "a"),
        36,
    )


def test_a_race_between_blocks_names_both(host):
    source = """
    __global__ void k(float* C) {
        C[0] += blockIdx.x + 1;
    }"""
    report = checked(host, source, [zeros(1, 1)], (3, 1, 1))
    (finding,) = report.findings
    assert (finding.kind, finding.line, finding.other_place.line) == ("race", 3, 3)
    assert (finding.block, finding.other_block) == ((1, 0, 0), (0, 0, 0))
    assert "blocks run in any order" in finding.message


def test_reading_what_a_later_block_writes_is_a_race(host):
    source = """
    __global__ void k(float* C, float* D) {
        if (blockIdx.x == 0) D[0] = C[0];
        else if (blockIdx.x == 1) D[1] = C[0];
        else
            C[0] = 1;
    }"""
    report = checked(host, source, [zeros(1, 1), zeros(1, 2)], (3, 1, 1))
    (finding,) = report.findings
    assert (finding.kind, finding.line, finding.block) == ("race", 6, (2, 0, 0))
    assert finding.other_place.line in (3, 4)


@pytest.mark.parametrize("atomic", [
    "atomicAdd(C, 1.0f)", "atomicExch(C, 2.0f)", "atomicMax((int*)C, 3)",
    "atomicCAS((int*)C, 0, 1)", "atomicAdd_block(C, 1.0f)",
])  # fmt: skip
def test_atomics_do_not_race(host, atomic):
    source = f"__global__ void k(float* C) {{ {atomic}; }}"
    report = checked(host, source, [zeros(1, 1)], (3, 1, 1), (4, 1, 1))
    assert not report.findings
    assert report.traffic.arguments[1] == Accesses(atomics=12, atomic_bytes=48)


def test_a_plain_store_against_an_atomic_races(host):
    source = """
    __global__ void k(float* C) {
        if (threadIdx.x == 0)
            C[0] = 5;
        atomicAdd(C, 1.0f);
    }"""
    report = checked(host, source, [zeros(1, 1)], block=(4, 1, 1))
    (finding,) = report.findings
    assert (finding.kind, {finding.line, finding.other_place.line}) == ("race", {4, 5})


def test_one_block_clears_what_others_add_to(host):
    source = """
    __global__ void k(float* C) {
        if (blockIdx.x == 0 && threadIdx.x == 0)
            C[0] = 0;
        __syncthreads();
        atomicAdd(C, 1.0f);
    }"""
    assert not checked(host, source, [zeros(1, 1)], block=(4, 1, 1)).findings
    for order in (ASCENDING, DESCENDING):
        report = checked(host, source, [zeros(1, 1)], (3, 1, 1), (4, 1, 1), order=order)
        assert set(kinds(report)) == {"race"}
        assert report.findings[0].block != report.findings[0].other_block


LAST_BLOCK = """
__global__ void k(float* partial, float* counter, float* C) {
    partial[blockIdx.x] = blockIdx.x + 1;
    FENCE
    if (atomicAdd((unsigned*)counter, 1u) == gridDim.x - 1)
        for (int i = 0; i < gridDim.x; ++i)
            C[0] += partial[i];
}"""


def test_a_fence_and_an_atomic_order_blocks(host):
    C = zeros(1, 1)
    source = LAST_BLOCK.replace("FENCE", "__threadfence();")
    report = checked(host, source, [zeros(1, 5), zeros(1, 1), C], (5, 1, 1))
    assert not report.findings
    assert C[0, 0] == 15


def test_a_fence_orders_what_its_own_thread_or_a_barrier_put_before_it(host):
    source = """
    __device__ float partial[2][4];
    __device__ unsigned finished;
    __global__ void k(float* C) {
        __shared__ bool is_last;
        partial[blockIdx.x][threadIdx.x] = 1;
        __threadfence();
        BARRIER
        if (threadIdx.x == 0) is_last = atomicAdd(&finished, 1) == 1;
        __syncthreads();
        if (is_last)
            C[threadIdx.x] = partial[0][threadIdx.x] + partial[1][threadIdx.x];
    }"""
    launch = (2, 1, 1), (4, 1, 1)
    source = dedent(source)
    fine = checked(host, source.replace("BARRIER", "__syncthreads();"), [zeros(1, 4)], *launch)
    assert not fine.findings
    assert fine.traffic.variables.stores == 8
    (race,) = checked(host, source.replace("BARRIER", ""), [zeros(1, 4)], *launch).findings
    assert (race.kind, race.line, race.other_place.line, race.variable) == (
        "race",
        12,
        6,
        "partial",
    )
    assert race.thread != (0, 0, 0)
    assert race.index == (0, race.thread[0])


LOCK = """
__global__ void k(float* C, float* lock) {
    __shared__ float sum;
    if (threadIdx.x == 0) sum = 0;
    __syncthreads();
    while (atomicCAS((int*)lock, 0, 1) != 0) {}
    FENCE
    sum += threadIdx.x;
    FENCE
    atomicExch((int*)lock, 0);
    __syncthreads();
    C[threadIdx.x] = sum;
}"""


def test_a_lock_orders_threads_where_it_has_fences(host):
    C = zeros(1, 8)
    source = LOCK.replace("FENCE", "__threadfence_block();")
    assert not checked(host, source, [C, zeros(1, 1)], block=(8, 1, 1)).findings
    assert (C == 28).all()
    report = checked(host, LOCK.replace("FENCE", ""), [C, zeros(1, 1)], block=(8, 1, 1))
    assert [(f.kind, f.line, f.other_place.line) for f in report.findings] == [("race", 8, 8)]


def test_without_the_fence_they_race(host):
    source = LAST_BLOCK.replace("FENCE", "")
    report = checked(host, source, [zeros(1, 5), zeros(1, 1), zeros(1, 1)], (5, 1, 1))
    assert kinds(report) == ["race"]
    assert {report.findings[0].line, report.findings[0].other_place.line} == {3, 7}


@pytest.mark.parametrize("order", [ASCENDING, DESCENDING, ThreadOrder("random", 3)])
def test_lanes_that_do_not_meet_race(host, order):
    """Two halves of a warp synchronise, each alone."""
    source = """
    __global__ void k(float* C) {
        __shared__ float s[32];
        s[threadIdx.x] = 1;
        __syncwarp(0xffffu << threadIdx.x / 16 * 16);
        C[threadIdx.x] = s[threadIdx.x ^ X];
    }"""
    arguments = [zeros(1, 32)]
    inside = checked(host, source.replace("X", "8"), arguments, block=(32, 1, 1), order=order)
    assert not inside.findings
    across = checked(host, source.replace("X", "16"), arguments, block=(32, 1, 1), order=order)
    assert set(kinds(across)) == {"race"}
    assert {(f.line, f.other_place.line) for f in across.findings} <= {(4, 6), (6, 4)}


def test_a_store_of_what_is_there_already_is_no_race(host):
    source = """
    __global__ void k(float* C, int n) {
        __shared__ int flag;
        flag = n;
        __syncthreads();
        C[threadIdx.x] = flag;
    }"""
    assert not checked(host, source, [zeros(1, 64), 7], block=(64, 1, 1)).findings
    different = checked(
        host, source.replace("flag = n", "flag = n + threadIdx.x"), [zeros(1, 64), 7],
        block=(64, 1, 1),
    )  # fmt: skip
    assert [(f.kind, f.line, f.other_place.line) for f in different.findings] == [("race", 4, 4)]


def test_threads_run_in_the_order_that_is_asked_for(host):
    source = """
    __global__ void k(float* C, float* next) {
        const int i = atomicAdd((int*)next, 1);
        C[i] = blockIdx.x * blockDim.x + threadIdx.x;
    }"""

    def order(kind, seed=0):
        C = zeros(1, 12)
        report = checked(
            host, source, [C, zeros(1, 1)], (3, 1, 1), (4, 1, 1), order=ThreadOrder(kind, seed)
        )
        assert not report.findings
        return C[0].tolist()

    up = [float(i) for i in range(12)]
    assert order("ascending") == up
    assert order("descending") == up[::-1]
    assert sorted(order("random", 1)) == up
    assert order("random", 1) == order("random", 1)
    assert len({tuple(order("random", seed)) for seed in range(5)}) == 5


def test_findings_before_a_fault_are_kept(host):
    source = """
    __global__ void k(float* C) {
        C[1] = 0;
        assert(threadIdx.x < 2);
    }"""
    report = checked(host, source, [zeros(1, 1)], block=(4, 1, 1))
    assert kinds(report) == ["out-of-bounds", "assert"]
    assert report.findings[1].thread == (2, 0, 0)
    assert report.findings[1].line == 4
    assert "assertion `threadIdx.x < 2` failed" in report.findings[1].message
    assert report.fault.kind == "assert"
    assert still_works(host)


def test_a_fault_that_ends_a_launch_early_leaves_no_false_finding(host):
    """Thread 0 reads before the others have written, and they never come to it."""
    source = """
    __global__ void k(float* C) {
        __shared__ float s[4];
        s[threadIdx.x] = 1;
        C[0] = s[3];
        __trap();
    }"""
    assert kinds(checked(host, source, [zeros(1, 1)], block=(4, 1, 1))) == ["trap"]


def test_far_out_of_bounds_is_one_finding_and_ends_the_launch(host):
    source = """
    __global__ void k(float* C) {
        C[1 << 17] = 0;
    }"""
    report = checked(host, source, [zeros(1, 1)])
    assert [(f.kind, f.line, f.argument) for f in report.findings] == [("out-of-bounds", 3, 1)]
    assert report.fault.kind == "out-of-bounds"
    assert still_works(host)


def test_only_so_many_findings_are_kept(host):
    lines = "\n".join(f"C[{-i}] = 0;" for i in range(1, 71))
    source = f"__global__ void k(float* C) {{\n{lines}\n}}"
    report = checked(host, source, [zeros(1, 1)])
    assert len(report.findings) == 64
    assert report.more == 6
    assert [f.line for f in report.findings] == list(range(2, 66))


def test_a_launch_of_no_threads_too_many_and_wrong_arguments(host):
    with pytest.raises(BackendError, match="at most 1024"):
        checked(host, GOOD, [zeros(1, 1)], block=(2048, 1, 1))
    with pytest.raises(CompileError, match="takes 1 arguments and was given 2"):
        checked(host, GOOD, [zeros(1, 1), 3])


def test_what_does_not_compile_is_said_with_its_line(host):
    with pytest.raises(CompileError, match=r"^kernels/x\.cu:2: error: "):
        checked(host, "__global__ void k(float* x) {\nx[0] = y; }", [zeros(1, 1)])


def test_a_vector_used_as_a_plain_struct_can_be_checked_too(host):
    """With clang, vectors are classes in this build: no aggregates."""
    source = """
    union Both { float4 v; float f[4]; };
    __global__ void k(float* C) {
        Both a = {}, b = a;
        b.f[2] = 3;
        reinterpret_cast<float4*>(C)[0] = b.v;
    }"""
    C = zeros(1, 4)
    assert not checked(host, source, [C]).findings
    assert C[0, 2] == 3


def test_an_access_in_an_inlined_header_function_is_on_the_callers_line(host):
    source = """
    __global__ void k(const float* A, float* C) {
        C[0] = __ldg(A + 1);
        C[0] += __ldg(
            A + 2);
        memcpy(C, A + 3, 4);
        atomicAdd(C + 1, 1.0f);
        __stcs(C + 2, 1.0f);
    }"""
    report = checked(host, source, [zeros(1, 1), zeros(1, 1)])
    lines = [finding.line for finding in report.findings]
    assert lines[0] == 3
    assert lines[1] in (4, 5)
    assert lines[2:] == [6, 7, 8]


def test_a_local_header_is_named(host, tmp_path):
    (tmp_path / "tile.cuh").write_text("__device__ float get(const float* p) {\n return p[4]; }\n")
    source = '#include "tile.cuh"\n__global__ void k(float* x) { x[0] = get(x); }'
    filename = str(tmp_path / "x.cu")
    buffer = host.backend.allocate(16)
    try:
        report = host.backend.check(
            CudaProgram(source, filename, "k"),
            LaunchConfig((1, 1, 1), (1, 1, 1)),
            [Matrix(buffer, 0, 1, 4, 4, "float32")],
        )
    finally:
        host.backend.free(buffer)
    (finding,) = report.findings
    assert (finding.place.file, finding.line) == (str(tmp_path / "tile.cuh"), 2)


def test_two_matrices_in_one_buffer(host):
    source = "__global__ void k(float* a, float* b, int i, int j) { a[i] = 1; b[j] = 1; }"
    program = CudaProgram(source, "kernels/x.cu", "k")
    buffer = host.backend.allocate(64)
    a, b = (Matrix(buffer, offset, 1, 4, 4, "float32") for offset in (0, 32))
    try:
        places = []
        for i, j in ((0, 0), (4, 3), (3, -1), (0, 4)):
            config = LaunchConfig((1, 1, 1), (1, 1, 1))
            report = host.backend.check(program, config, [a, b, i, j])
            places += [(f.argument, f.column) for f in report.findings]
    finally:
        host.backend.free(buffer)
    # What lies between them belongs to the first.
    assert places[0][0] == 1
    assert places[1][0] == 1
    assert places[2][0] == 2
    assert len(places) == 3


def test_a_kernel_prints_while_it_is_checked(host, capsys):
    source = '__global__ void k(float* C) { printf("%d\\n", threadIdx.x); }'
    assert not checked(host, source, [zeros(1, 1)], block=(3, 1, 1), order=DESCENDING).findings
    assert capsys.readouterr().out == "2\n1\n0\n"


def test_device_variables_are_listed():
    text = "// __device__ x\n__device__ int f(int);\n__device__ auto g = [] { return 1; };\n"
    assert with_red_zones(text) == text
    text = "static __device__ float z[2] = {1, 2};\n"
    assert with_red_zones(text) == text.replace("\n", " PYTEST_GEMM_DEVICE(z)\n")
    text = "__device__ unsigned n = 0;\n__device__ float a[N], b[2][3]; // __device__ c;\n"
    assert with_red_zones(text) == (
        "__device__ unsigned n = 0; PYTEST_GEMM_DEVICE(n)\n"
        "__device__ float a[N], b[2][3]; PYTEST_GEMM_DEVICE(a) PYTEST_GEMM_DEVICE(b)"
        " // __device__ c;\n"
    )


def test_shared_variables_get_places_of_their_own():
    text = "__shared__ As As[2], *p; PYTEST_GEMM_SHARED(As) PYTEST_GEMM_SHARED(p)\nAs[0] = 1;"
    assert with_red_zones(text) == (
        "__shared__ As PYTEST_GEMM_DECLARED(As)[2], *PYTEST_GEMM_DECLARED(p); "
        "PYTEST_GEMM_PLACED(As) PYTEST_GEMM_PLACED(p)\nAs[0] = 1;"
    )


@pytest.mark.parametrize("content", [b"", b"no library", b"\x7fELF\x02\x01" + bytes(100)])
def test_a_file_without_line_tables_knows_no_line(content, tmp_path):
    path = tmp_path / "x.so"
    path.write_bytes(content)
    assert DebugLines(path).frames(0x1000) == []


@pytest.mark.skipif(not shutil.which("addr2line"), reason="compares with binutils' addr2line")
def test_lines_are_those_of_addr2line(host):
    source = """
    template <int n> __device__ float twice(const float* p) { return p[n] + p[n + 1]; }
    __global__ void k(float* x, int n) {
        for (int i = 0; i < n; ++i) x[i] = twice<2>(x) + twice<3>(x + i);
    }"""
    builder: Builder = host.backend._builder
    program = CudaProgram(dedent(source), "kernels/x.cu", "k")
    path = builder.kernel(program, host.backend._runtime_library, check=True).path
    offsets = range(0x1000, 0x1000 + path.stat().st_size // 2, 7)
    command = ["addr2line", "-i", "-a", "-e", str(path), *map(hex, offsets)]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    lines = DebugLines(path)
    compared = 0
    for offset, answer in zip(offsets, output.split("0x")[1:], strict=True):
        wanted = [line.split(" (")[0].rsplit("/", 1)[-1] for line in answer.splitlines()[1:]]
        if "x.cu" in answer and "?" not in answer:
            found = [f"{Path(f.file).name}:{f.line}" for f in lines.frames(offset)]
            assert found == wanted
            compared += 1
    assert compared > 20


def test_a_check_leaves_the_fast_mode_as_it_is():
    """In a process of its own, where nothing else was launched."""
    code = """
        import numpy as np
        from tests.host_kernels.harness import GOOD, Host, zeros
        from tests.test_check_launch import checked
        host = Host(None)
        report = checked(host, GOOD, [zeros(1, 1)])
        x = zeros(1)
        host.run(GOOD, [x])
        print(len(report.findings), x[0])
    """
    run = subprocess.run(
        [sys.executable, "-c", dedent(code)],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parent.parent,
    )
    assert run.stdout == "0 1.0\n", run.stderr
