"""What a kernel can do wrong: each fault names block and thread, and the next launch is fine."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from pytest_gemm.backends.base import PythonProgram
from pytest_gemm.errors import CompileError, KernelFault
from tests.host_kernels.harness import Host, installed_compilers, still_works, zeros


@pytest.fixture(scope="module", params=installed_compilers())
def host(request, tmp_path_factory):
    command = request.param.replace("python ", f"{sys.executable} ")
    return Host(tmp_path_factory.mktemp("cache"), command)


@pytest.fixture(autouse=True)
def _python_faulthandler():
    """On, as pytest has it, and still in force when the test ends."""
    was_on = faulthandler.is_enabled()
    faulthandler.enable(file=sys.__stderr__)
    handlers = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGALRM)}
    yield
    assert {s: signal.getsignal(s) for s in handlers} == handlers
    if not was_on:
        faulthandler.disable()


def fault(host, source, arguments, *launch, **options):
    with pytest.raises(KernelFault) as caught:
        host.run(source, arguments, *launch, **options)
    assert still_works(host)
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize(("statement", "access"), [
    ("x[64 + threadIdx.x] = 1;", "write"),
    ("x[0] = x[64 + threadIdx.x];", "read"),
])  # fmt: skip
def test_one_past_the_end(host, statement, access):
    source = f"__global__ void k(float* x) {{ if (threadIdx.x == 3) {statement} }}"
    error = fault(host, source, [zeros(1, 64)], (2, 1, 1), (8, 1, 1))
    assert (error.kind, error.block, error.thread) == ("out-of-bounds", (0, 0, 0), (3, 0, 0))
    words = (access,) if os.uname().machine == "x86_64" else ()
    for word in (*words, "12 bytes past its end", "argument 1", "256 bytes"):
        assert word in str(error)


def test_before_the_start(host):
    source = "__global__ void k(float* y, float* x) { x[blockIdx.x == 1 ? -16 : 0] = 1; }"
    error = fault(host, source, [zeros(1, 1024), zeros(1, 1024)], (2, 1, 1))
    assert (error.kind, error.block) == ("out-of-bounds", (1, 0, 0))
    assert "64 bytes before its start (argument 2" in str(error)


def test_out_of_bounds_in_a_fiber(host):
    source = """
    __global__ void k(float* x) {
        __syncthreads();
        if (threadIdx.x == 5) x[1 << 16] = 0;
        __syncthreads();
    }"""
    error = fault(host, source, [zeros(1, 64)], (1, 1, 1), (8, 1, 1))
    assert (error.kind, error.thread) == ("out-of-bounds", (5, 0, 0))


def test_past_dynamic_shared_memory(host):
    source = """
    __global__ void k(float* x) {
        extern __shared__ float s[];
        x[0] = s[threadIdx.x];
    }"""
    error = fault(host, source, [zeros(1, 1)], (1, 1, 1), (32, 1, 1), shared_mem=64)
    assert (error.kind, error.thread) == ("out-of-bounds", (16, 0, 0))
    assert "dynamic shared memory (64 bytes)" in str(error)


def test_null_pointer(host):
    source = "__global__ void k(float* x) { float* volatile p = nullptr; *p = 1; }"
    error = fault(host, source, [zeros(1, 1)])
    assert error.kind == "out-of-bounds"
    assert "null pointer" in str(error)


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="aarch64 loads from any address")
def test_misaligned_vector(host):
    source = """
    __global__ void k(float* x, float* y) {
        *reinterpret_cast<float4*>(y) = *reinterpret_cast<float4*>(x + threadIdx.x + 1);
    }"""
    error = fault(host, source, [zeros(1, 8), zeros(1, 8)])
    assert (error.kind, error.thread) == ("misaligned", (0, 0, 0))


def test_thread_exits_before_others_wait(host):
    source = """
    __global__ void k(float* x) {
        if (threadIdx.x == 2) return;
        __syncthreads();
        x[0] = 1;
    }"""
    error = fault(host, source, [zeros(1, 1)], (1, 1, 1), (4, 1, 1))
    assert error.kind == "barrier-divergence"
    assert error.thread == (2, 0, 0)
    assert "thread (2, 0, 0) exited while thread (0, 0, 0) waits" in str(error)
    assert "kernels/x.cu:4" in str(error)


def test_first_threads_exit_before_a_later_one_waits(host):
    source = """
    __global__ void k(float* x) {
        if (threadIdx.x < 3) return;
        __syncthreads();
    }"""
    error = fault(host, source, [zeros(1, 1)], (1, 1, 1), (8, 1, 1))
    assert "thread (2, 0, 0) exited while thread (3, 0, 0) waits" in str(error)


def test_thread_leaves_a_loop_of_barriers_early(host):
    source = """
    __global__ void k(float* x) {
        for (int i = 0; i < 10 - int(threadIdx.y == 1 && threadIdx.x == 1); ++i) __syncthreads();
    }"""
    error = fault(host, source, [zeros(1, 1)], (1, 1, 1), (4, 2, 1))
    assert (error.kind, error.thread) == ("barrier-divergence", (1, 1, 0))


def test_threads_wait_at_different_barriers(host):
    source = """
    __global__ void k(float* x) {
        if (threadIdx.x % 2)
            __syncthreads();
        else
            __syncthreads();
    }"""
    error = fault(host, source, [zeros(1, 1)], (1, 1, 1), (4, 1, 1))
    assert error.kind == "barrier-divergence"
    assert "thread (1, 0, 0) waits at the barrier in kernels/x.cu:4" in str(error)
    assert "thread (0, 0, 0) at the one in line 6" in str(error)


def test_warp_operation_against_a_barrier(host):
    source = """
    __global__ void k(float* x) {
        if (threadIdx.x == 9) __syncthreads();
        else x[0] = __shfl_sync(0xffffffff, 1.0f, 0);
    }"""
    error = fault(host, source, [zeros(1, 1)], (1, 1, 1), (32, 1, 1))
    assert error.kind == "barrier-divergence"
    assert "kernels/x.cu:4" in str(error)
    assert "thread (9, 0, 0) waits at the barrier in line 3" in str(error)


@pytest.mark.parametrize(("leaver", "thread"), [("< 4", (4, 0, 0)), ("== 20", (0, 0, 0))])
def test_shuffle_with_an_exited_lane(host, leaver, thread):
    source = f"""
    __global__ void k(float* x) {{
        if (threadIdx.x {leaver}) return;
        x[0] = __shfl_down_sync(0xffffffff, 1.0f, 1);
    }}"""
    error = fault(host, source, [zeros(1, 1)], (1, 1, 1), (32, 1, 1))
    assert (error.kind, error.thread) == ("shuffle", thread)
    assert "exited" in str(error)


def test_shuffle_outside_of_its_mask(host):
    source = "__global__ void k(float* x) { x[0] = __shfl_sync(2, 1.0f, 1); }"
    error = fault(host, source, [zeros(1, 1)], (1, 1, 1), (2, 1, 1))
    assert (error.kind, error.thread) == ("shuffle", (0, 0, 0))


def test_masks_that_never_match(host):
    source = "__global__ void k(float* x) { __syncwarp(threadIdx.x ? 7 : 3); }"
    error = fault(host, source, [zeros(1, 1)], (1, 1, 1), (3, 1, 1))
    assert error.kind == "shuffle"


@pytest.mark.parametrize("body", [
    "while (x[0] == 0) {}",
    "while (true) {}",
    "__syncthreads(); while (*(volatile float*)x == 0) {}",
    "while (true) __syncthreads();",
    'while (true) printf("%f", x[0]);',
])  # fmt: skip
def test_endless_loop(host, body, capsys):
    started = time.monotonic()
    source = f"__global__ void k(float* x) {{ {body} }}"
    executable = host.compile(source)
    with pytest.raises(KernelFault) as caught:
        host.launch(executable, [zeros(1, 1)], block=(2, 1, 1), timeout=0.1)
    assert time.monotonic() - started < 30
    assert caught.value.kind == "timeout"
    assert "longer than 0.1 s" in str(caught.value)
    assert still_works(host)


def test_the_limit_holds_for_each_launch_alone(host):
    source = """
    __global__ void k(float* x) { for (int i = 0; i < 1000000; ++i) *(volatile float*)x += 1; }"""
    executable = host.compile(source)
    x = zeros(1, 1)
    one = host.launch(executable, [x])
    host.launch(executable, [x], launches=40, timeout=max(20 * one, 0.2))


def test_division_by_zero(host):
    if os.uname().machine != "x86_64":
        pytest.skip("aarch64 divides by zero without a trap")
    source = "__global__ void k(int* x, int n) { x[0] = 7 / (n - int(threadIdx.x)); }"
    executable = host.compile(source.replace("int* x", "float* y").replace("x[0]", "y[0]"))
    with pytest.raises(KernelFault) as caught:
        host.launch(executable, [zeros(1, 1), 3], block=(8, 1, 1))
    assert (caught.value.kind, caught.value.thread) == ("division-by-zero", (3, 0, 0))
    assert still_works(host)


@pytest.mark.parametrize("header", ["", "#include <cassert>", "#include <assert.h>"])
def test_assertion(host, header):
    source = f"""{header}
    __global__ void k(float* x) {{
        assert(threadIdx.x < 3 && x);
    }}"""
    error = fault(host, source, [zeros(1, 1)], (1, 1, 1), (8, 1, 1))
    assert (error.kind, error.thread) == ("assert", (3, 0, 0))
    assert "kernels/x.cu:3: assertion `threadIdx.x < 3 && x` failed" in str(error)


@pytest.mark.parametrize("call", ["exit(0)", "std::exit(0)", "_Exit(0)", "_exit(0)", "abort()"])
def test_a_call_that_would_end_the_process(host, call):
    source = f"""
    #include <unistd.h>
    __global__ void k(float* x) {{
        __syncthreads();
        if (blockIdx.x == 1 && threadIdx.x == 3) {call};
    }}"""
    error = fault(host, source, [zeros(1, 1)], (2, 1, 1), (8, 1, 1))
    assert (error.kind, error.block, error.thread) == ("exit", (1, 0, 0), (3, 0, 0))
    name = call.removeprefix("std::").partition("(")[0]
    assert str(error).startswith(f"{name}() would end the process in block (1, 0, 0)")


def test_an_exception_does_not_compile(host):
    with pytest.raises(CompileError, match=r"kernels/x\.cu:2: error: .*exception"):
        host.run("__global__ void k(float* x) {\nthrow 1; }", [zeros(1, 1)])


def test_trap(host):
    error = fault(host, "__global__ void k(float* x) { __trap(); }", [zeros(1, 1)])
    assert error.kind == "trap"
    assert "kernels/x.cu:1" in str(error)


def test_stack_overflow(host):
    source = """
    __device__ __noinline__ float deeper(float* x, int n) {
        volatile float local[256];
        local[n % 256] = x[0];
        return n > 0 ? deeper(x, n - 1) + local[n % 256] : 0;
    }
    __global__ void k(float* x, int n) {
        __syncthreads();
        if (threadIdx.x == 1) x[0] = deeper(x, n);
        __syncthreads();
    }"""
    error = fault(host, source, [zeros(1, 1), 1000], (1, 1, 1), (2, 1, 1))
    assert (error.kind, error.thread) == ("stack-overflow", (1, 0, 0))


def test_many_faults_leak_nothing(host):
    source = "__global__ void k(float* x) { __syncthreads(); x[1 << 16] = threadIdx.x; }"
    executable = host.compile(source)

    def mappings_and_threads():
        return (
            len(Path("/proc/self/maps").read_text().splitlines()),
            len(list(Path("/proc/self/task").iterdir())),
        )

    before = None
    for _ in range(20):
        with pytest.raises(KernelFault):
            host.launch(executable, [zeros(1, 64)], block=(32, 1, 1))
        before = before or mappings_and_threads()
    after = mappings_and_threads()
    assert after[0] <= before[0] + 3
    assert after[1] == before[1]


def test_faults_in_a_thread_of_python(host):
    kinds = []
    executable = host.compile("__global__ void k(float* x) { x[1 << 16] = 0; }")

    def work():
        try:
            host.launch(executable, [zeros(1, 64)])
        except KernelFault as error:
            kinds.append(error.kind)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert kinds == ["out-of-bounds"] * 4
    assert still_works(host)


def test_interrupt_stops_a_launch(host):
    executable = host.compile("__global__ void k(float* x) { while (true) {} }")
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            host.launch(executable, [zeros(1, 1)])
    finally:
        timer.join()
        signal.signal(signal.SIGINT, before)
    assert still_works(host)


def test_python_kernel_that_raises(tmp_path):
    def broken(x):
        raise ValueError("no such tile")

    host = Host(tmp_path)
    executable = host.backend.compile(PythonProgram(broken, ("x",)))
    with pytest.raises(KernelFault) as caught:
        host.launch(executable, [np.zeros((2, 2), np.float32)])
    line = broken.__code__.co_firstlineno + 1
    assert caught.value.kind == "exception"
    assert isinstance(caught.value.__cause__, ValueError)
    assert str(caught.value) == f"{__file__}:{line}: broken raised ValueError: no such tile"
