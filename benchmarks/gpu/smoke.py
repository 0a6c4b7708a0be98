"""Every path of the CUDA back end on a real GPU: PASS or FAIL per line, then figures.

    python benchmarks/gpu/smoke.py            (about a minute; exit code 1 when a check fails)

Kernels that destroy the process' CUDA context run in child processes of this script.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from pytest_gemm.backends.base import CudaProgram, LaunchConfig, Matrix, PythonProgram  # noqa: E402
from pytest_gemm.backends.cuda import CudaBackend  # noqa: E402
from pytest_gemm.backends.cuda import canary as canary_module  # noqa: E402
from pytest_gemm.backends.cuda.reference import copy_program, cublas_program  # noqa: E402
from pytest_gemm.conditions import withhold_reason  # noqa: E402
from pytest_gemm.correctness import check_timed  # noqa: E402
from pytest_gemm.device import DeviceMemory, Workspace  # noqa: E402
from pytest_gemm.errors import (  # noqa: E402
    BackendError,
    CompileError,
    GemmError,
    KernelFault,
    WrongResultError,
)
from pytest_gemm.matrices import operands  # noqa: E402
from pytest_gemm.problem import Problem  # noqa: E402

ONE = LaunchConfig((1, 1, 1), (1, 1, 1))
results: list[tuple[bool, str]] = []


def check(name: str, body: Callable[[], object]) -> None:
    started = time.perf_counter()
    try:
        note = body()
        passed = note is not False
    except Exception as error:
        passed, note = False, f"{type(error).__name__}: {error}"
        if not isinstance(error, GemmError | AssertionError):
            traceback.print_exc()
    results.append((passed, name))
    seconds = time.perf_counter() - started
    print(f"{'PASS' if passed else 'FAIL'} {name} [{seconds:.2f} s] {note or ''}", flush=True)


def raises(kind: type[GemmError], words: str, body: Callable[[], object]) -> str:
    try:
        body()
    except kind as caught:
        error = caught
    else:
        raise AssertionError(f"no {kind.__name__}")
    text = str(error).partition("\n")[0]
    assert words in text or words == getattr(error, "kind", None), text
    return text


def cdiv(a: int, b: int) -> int:
    return -(-a // b)


def shape(kernel: str, M: int, N: int) -> LaunchConfig:
    if kernel == "add":
        return LaunchConfig((cdiv(M * N, 256), 1, 1), (256, 1, 1))
    tile, side = {"naive": (16, 16), "tiled": (16, 16), "tiled32": (32, 32)}.get(kernel, (32, 8))
    return LaunchConfig((cdiv(N, tile), cdiv(M, tile), 1), (side, side, 1))


class Case:
    """A shipped kernel, or cuBLAS, or a copy, on random matrices."""

    def __init__(self, backend: CudaBackend, kernel: str, M: int, N: int, K: int) -> None:
        self.backend, self.kernel, self.size = backend, kernel, (M, N, K)
        self.memory = DeviceMemory(backend)
        random = np.random.default_rng(7)
        flat = kernel in ("add", "copy")
        shapes = [(M, N), (M, N)] if flat else [(M, K), (K, N)]
        self.A, self.B = (random.integers(-8, 9, s).astype(np.float32) for s in shapes)
        self.matrices = [self.memory.upload(x) for x in (self.A, self.B)]
        self.matrices.append(self.memory.allocate(M, N))
        self.config = ONE
        if kernel == "cublas":
            self.executable = backend.compile(cublas_program())
            self.arguments = [*self.matrices, None]
        elif kernel == "empty":
            program = CudaProgram("__global__ void k(float*) {}", "kernels/x.cu", "k")
            self.executable, self.arguments = backend.compile(program), self.matrices[:1]
        elif kernel == "copy":
            self.executable = backend.compile(copy_program())
            self.arguments = [self.matrices[0], self.matrices[2], None]
        else:
            path = ROOT / "kernels" / f"{kernel}.cu"
            program = CudaProgram(path.read_text(), f"kernels/{path.name}", kernel)
            self.executable = backend.compile(program)
            self.config = shape(kernel, M, N)
            self.arguments = [*self.matrices, M, N, *([] if kernel == "add" else [K])]

    def time(self, launches: int = 1, cold: bool = False) -> float:
        return self.backend.time(
            self.executable, self.config, self.arguments, launches=launches, cold=cold, timeout=20
        )

    def result(self) -> np.ndarray:
        return self.memory.download(self.matrices[2])

    def verify(self) -> str:
        self.time()
        A, B = self.A.astype(np.float64), self.B.astype(np.float64)
        want = A + B if self.kernel == "add" else A if self.kernel == "copy" else A @ B
        assert np.array_equal(self.result(), want.astype(np.float32)), "wrong result"
        return ""


def figures(case: Case, way: str, launches: int, samples: int = 30) -> str:
    case.time()
    habits = case.backend._timer._habits
    habits[case.executable].capturable = way != "queued"
    blocker = case.backend._timer._blocker
    filling, blocker.size = blocker.size, ONE if way == "graph, 1 block" else blocker.size
    if way == "each":
        times = [case.time() for _ in range(samples + 3)][3:]
    else:
        rounds = [case.time(launches, way == "cold") for _ in range(samples + 3)]
        times = [t / launches for t in rounds[3:]]
    blocker.size = filling
    middle = median(times)
    spread = np.percentile(times, 75) - np.percentile(times, 25)
    return f"{middle * 1e6:9.3f} us (iqr {spread / middle:6.2%})"


def compile_checks(backend: CudaBackend, memory: DeviceMemory) -> None:
    def run(source: str, entry: str, *arguments: object, **program: object) -> np.ndarray:
        C = memory.allocate(1, 4)
        executable = backend.compile(CudaProgram(source, "kernels/x.cu", entry, **program))
        backend.time(executable, ONE, [C, *arguments])
        return memory.download(C)[0]

    def types() -> str:
        source = """
        template <int T, class F> __global__ void k(float* C, size_t a, long long b, unsigned c,
                                                    double d, F e, short f, bool g)
        { C[0] = a / 4 + b + c; C[1] = d; C[2] = e; C[3] = T + f + g; }"""
        got = run(source, "k<16, double>", 2**33, -(2**31), 3, 0.5, 0.25, -3, 1)
        assert list(got) == [3.0, 0.5, 0.25, 14.0], got
        return ""

    check("types and templates", types)
    c_names = 'extern "C" __global__ void k(float* C) { C[0] = T; }'
    check("extern C, macro T", lambda: bool(run(c_names, "k", defines=(("T", 5),))[0] == 5))
    inside = "namespace a { __global__ void k(float* C) { C[0] = 7; } }"
    check("namespace", lambda: bool(run(inside, "a::k")[0] == 7))

    def include() -> str:
        with tempfile.TemporaryDirectory() as name:
            (Path(name) / "inner.cuh").write_text(
                "template <class T> __global__ void k(float* C, T x, T y) { C[0] = x; C[1] = y; }"
            )
            program = CudaProgram('#include "inner.cuh"\n', f"{name}/x.cu", "k<long long>")
            C = memory.allocate(1, 4)
            executable = backend.compile(program)
            backend.time(executable, ONE, [C, 2**40, -1])
            assert list(memory.download(C)[0][:2]) == [2.0**40, -1.0]
            sizes = backend._api.libcuda.parameter_sizes(executable._function)
            assert sizes == (8, 8, 8), sizes
            (Path(name) / "inner.cuh").write_text("\n__global__ void k(float* C) { C[0] = oops; }")
            program = CudaProgram('#include "inner.cuh"\n', f"{name}/x.cu", "k")
            return raises(CompileError, "inner.cuh:2: error:", lambda: backend.compile(program))

    check("included kernel, sizes from the driver", include)
    heads = "cassert cstdio cmath cstdint cfloat climits cstdlib cuda_runtime.h cuda_fp16.h"
    text = "".join(f"#include <{head}>\n" for head in heads.split())
    text += "__global__ void k(float* C) { C[0] = std::size_t(3); assert(C); }"
    check("headers", lambda: bool(run(text, "k")[0] == 3))
    bad = "\n\n__global__ void k(float* C) { C[0] = foo; }"
    check(
        "compile error",
        lambda: raises(CompileError, "kernels/x.cu:3: error:", lambda: run(bad, "k")),
    )
    check("unknown entry", lambda: raises(CompileError, "entry 'no'", lambda: run(inside, "no")))
    ints = "__global__ void k(float* C, int n) { C[0] = n; }"
    check("int overflow", lambda: raises(CompileError, "hold", lambda: run(ints, "k", 2**31)))
    check("argument count", lambda: raises(CompileError, "2 arguments", lambda: run(ints, "k")))
    check("float for int", lambda: raises(CompileError, "floating", lambda: run(ints, "k", 0.5)))


def limit_checks(backend: CudaBackend, memory: DeviceMemory) -> None:
    C = memory.allocate(1, 4)
    dynamic = """__global__ void k(float* C, int n)
    { extern __shared__ float s[]; s[n - 1] = 5; __syncthreads(); C[0] = s[n - 1]; }"""
    executable = backend.compile(CudaProgram(dynamic, "kernels/x.cu", "k"))

    def shared(nbytes: int) -> float:
        config = LaunchConfig((1, 1, 1), (32, 1, 1), nbytes)
        backend.time(executable, config, [C, nbytes // 4])
        return float(memory.download(C)[0, 0])

    check("100 KiB of shared memory", lambda: bool(shared(100 * 1024) == 5))
    check("227 KiB of shared memory", lambda: bool(shared(227 * 1024) == 5))
    check("300 KiB refused", lambda: raises(KernelFault, "exceed", lambda: shared(300 * 1024)))
    heavy = "__global__ void __launch_bounds__(512) k(float* C) { C[0] = 1; }"
    wide = backend.compile(CudaProgram(heavy, "kernels/x.cu", "k"))
    print("     facts:", dict(wide.facts))
    big = LaunchConfig((1, 1, 1), (1024, 1, 1))
    check(
        "too many registers",
        lambda: raises(KernelFault, "too large", lambda: backend.time(wide, big, [C])),
    )
    tall = LaunchConfig((1, 70000, 1), (1, 1, 1))
    check(
        "grid limit", lambda: raises(BackendError, "exceeds", lambda: backend.time(wide, tall, [C]))
    )
    check(
        "out of memory", lambda: raises(BackendError, "no memory", lambda: backend.allocate(2**40))
    )
    nothing = memory.allocate(1, 1)
    backend.free(nothing.buffer)
    memory._memory.pop_all()
    check(
        "use after free",
        lambda: raises(BackendError, "freed", lambda: backend.download(nothing.buffer)),
    )


def stream_checks(backend: CudaBackend, memory: DeviceMemory) -> None:
    import cupy

    big = memory.upload(np.ones((4096, 4096), np.float32))
    other = cupy.cuda.Stream(non_blocking=True)

    def elsewhere(C: object) -> None:
        with other:
            for _ in range(20):
                C *= 1

    def partly(C: object) -> None:
        C[:1, :1] *= 1
        elsewhere(C)

    def slightly(C: object) -> None:
        C *= 1
        with other:
            C[:1024] *= 1

    def half(A: object, B: object, C: object) -> None:
        C[:1] = A[:1] + B[:1]
        with other:
            C[1:] = A[1:] + B[1:]

    def short_half_elsewhere() -> str:
        """What is too short to be seen by its time: as the pipeline checks what it timed."""
        problem = Problem("add", 64, 64, 0)
        executable = backend.compile(PythonProgram(half, ("A", "B", "C")))
        data = operands(problem, 0, "uniform")
        with Workspace(backend, problem) as workspace:
            workspace.load(data)
            matrices = [workspace.matrix(name) for name in "ABC"]

            def run(_: Workspace) -> None:
                backend.time(executable, ONE, matrices, launches=3)

            return raises(
                WrongResultError,
                "half on",
                lambda: check_timed(run, workspace, data, kernel="half"),
            )

    def left_after_captures() -> str:
        queue = backend._timer._queue
        C = memory.upload(np.ones((64, 64), np.float32))
        program = CudaProgram("__global__ void k(float*) {}", "kernels/x.cu", "k")
        executable = backend.compile(program)
        backend.time(executable, ONE, [C], launches=2)
        left: list[float] = []
        look = queue.remaining_work
        queue.remaining_work = lambda: left.append(look()) or left[-1]
        try:
            for launches in range(3, 43):
                backend.time(executable, ONE, [C], launches=launches)
        finally:
            queue.remaining_work = look
        assert len(left) == 40, left
        return f"median {median(left) * 1e6:.1f} us, most {max(left) * 1e6:.1f} us"

    calls = 0

    def tires(C: object) -> None:
        nonlocal calls
        calls += 1
        if calls <= 10:
            C *= 1

    def waits(C: object, stream: object) -> None:
        C *= 1
        stream.synchronize()

    def broken(C: object) -> None:
        raise ValueError("no such tile")

    def time_of(function: Callable[..., object], launches: int, times: int = 1) -> float:
        names = function.__code__.co_varnames[: function.__code__.co_argcount]
        executable = backend.compile(PythonProgram(function, names))
        arguments = [big, None][: len(names)]
        seconds = 0.0
        for _ in range(times):
            seconds = backend.time(executable, ONE, arguments, launches=launches)
        return seconds

    def escaped(
        function: Callable[..., object], launches: int, times: int = 1
    ) -> Callable[[], str]:
        return lambda: raises(
            KernelFault, "escaped-stream", lambda: time_of(function, launches, times)
        )

    check("all work on another stream (timed)", escaped(elsewhere, 5))
    check("all work on another stream (verified)", escaped(elsewhere, 1, 3))
    check("part of the work on another stream (verified)", escaped(partly, 1, 4))
    check("part of the work on another stream (timed)", escaped(partly, 5))
    check("a tenth of the work on another stream (timed)", escaped(slightly, 20))
    check("a short half on another stream (replayed)", short_half_elsewhere)
    check("a capture leaves nothing", left_after_captures)
    check("no work at all", escaped(lambda C: None, 5))
    check("no work after the tenth call", escaped(tires, 20))
    check("waits inside", lambda: raises(KernelFault, "timeout", lambda: time_of(waits, 20)))
    check("exception", lambda: raises(KernelFault, "no such tile", lambda: time_of(broken, 1)))
    check("works after all that", lambda: f"{time_of(lambda C: C.__imul__(1), 5) / 5 * 1e6:.1f} us")

    def padded() -> None:
        data = np.arange(12, dtype=np.float32).reshape(3, 4)
        wide = memory.upload(data)
        view = Matrix(wide.buffer, 4, 2, 3, 4, "float32")

        def double(C: object) -> None:
            C *= 2

        backend.time(backend.compile(PythonProgram(double, ("C",))), ONE, [view])
        data.reshape(-1)[1:9].reshape(2, 4)[:, :3] *= 2
        assert np.array_equal(memory.download(wide), data)

    check("rows with padding", padded)

    def torch() -> str:
        import torch

        def scale(C: object, stream: object) -> None:
            with torch.cuda.stream(torch.cuda.ExternalStream(stream.ptr)):
                torch.as_tensor(C, device="cuda").mul_(1.0)

        return f"{time_of(scale, 20) / 20 * 1e6:.1f} us"

    check("torch on our stream", torch)


CHILDREN = {
    "bounds": ("k", "__global__ void k(float* C) { C[1ull << 42] = 1; }"),
    "misaligned": ("k", "__global__ void k(float* C) { *(float4*)(C + 1) = float4(); }"),
    "assert": ("k", "__global__ void k(float* C) { assert(C[0] > 1e9f); }"),
    "trap": ("k", "__global__ void k(float* C) { __trap(); }"),
    "endless": ("k", "__global__ void k(volatile float* C) { while (C[0] == 0) C[1] += 1; }"),
}


def child(name: str) -> None:
    """Run one bad kernel; print what came of it and of the next call as JSON."""
    import os

    if name == "load":
        hog()
        return
    backend = CudaBackend()
    memory = DeviceMemory(backend)
    C = memory.upload(np.zeros((1, 64), np.float32))
    entry, source = CHILDREN[name]
    executable = backend.compile(CudaProgram(source, "kernels/x.cu", entry))
    said: list[str] = []
    for body in (
        lambda: backend.time(executable, ONE, [C], timeout=0.5),
        lambda: backend.time(executable, ONE, [C], timeout=0.5),
        lambda: memory.close(),
    ):
        try:
            body()
            said.append("nothing")
        except GemmError as error:
            said.append(f"{type(error).__name__}/{getattr(error, 'kind', '')}: {error}")
    print(json.dumps(said), flush=True)
    if "--hard" in sys.argv:
        os._exit(0)


def hog() -> None:
    """Load the GPU until it is killed, a minute at most."""
    import cupy

    x = cupy.ones((4096, 4096), cupy.float32)
    print("busy", flush=True)
    until = time.perf_counter() + 60
    while time.perf_counter() < until:
        for _ in range(20):
            x = x @ x * 0
        cupy.cuda.Device().synchronize()


def start(name: str) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, "--child", name]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT
    )


def fault_checks() -> None:
    kinds = {
        "bounds": "KernelFault/out-of-bounds",
        "misaligned": "KernelFault/misaligned",
        "assert": "KernelFault/assert",
        "trap": "KernelFault/",
        "endless": "KernelFault/timeout",
    }
    for name in kinds:

        def ended(name: str = name) -> str:
            # One at a time: a fault in one process can hold up the others' kernels.
            started = time.perf_counter()
            process = start(name)
            try:
                output, _ = process.communicate(timeout=15)
            except subprocess.TimeoutExpired:
                process.kill()
                raise AssertionError("the process never ended") from None
            lines = [line for line in output.splitlines() if line.startswith("[")]
            assert lines, output[-1500:]
            first, second, third = json.loads(lines[-1])
            took = f"rc {process.returncode} after {time.perf_counter() - started:.1f} s"
            print(f"     {name}: {first}\n     then: {second[:90]}; free: {third[:60]}; {took}")
            assert first.startswith(kinds[name]), first
            assert second.startswith("BackendError"), second
            assert third == "nothing", third
            return ""

        check(f"fault in a child: {name}", ended)


def load_checks(backend: CudaBackend) -> None:
    usual = canary_module.LAUNCHES
    before, quiet = backend.conditions(), backend.canary()
    again = [backend.canary() / quiet for _ in range(10)]
    print(f"     canary alone: {min(again):.4f} to {max(again):.4f} of the first")
    process = start("load")
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(1.5)
    during, loud = backend.conditions(), backend.canary()
    during = backend.conditions()
    for launches in (1, 4, 20, 80):
        canary_module.LAUNCHES = launches
        times = [backend.canary() / quiet for _ in range(10)]
        print(f"     canary of {launches} launches: {min(times):.2f} to {max(times):.2f} as long")
    canary_module.LAUNCHES = usual
    process.kill()
    process.wait(30)
    time.sleep(0.3)
    after, later = backend.conditions(), backend.canary()
    started = time.perf_counter()
    for _ in range(10):
        backend.conditions()
    print(f"     conditions take {(time.perf_counter() - started) * 1e2:.2f} ms")
    print("     before:", dict(before), "\n     loaded:", dict(during))
    print("     after: ", dict(after))
    print(f"     canary {quiet * 1e6:.2f} us, {loud * 1e6:.2f} loaded, {later * 1e6:.2f} after")
    print("     withheld:", withhold_reason(before, during) or "nothing seen by NVML")
    blind = {**during, "foreign_utilisation": None}
    print(
        "     withheld:", withhold_reason(before, blind, [before]) or "nothing seen by the canary"
    )
    check("canary sees a second process", lambda: bool(loud > 1.05 * quiet))
    check("canary recovers", lambda: bool(later < 1.05 * quiet))


def figure_table(backend: CudaBackend) -> None:
    print(f"{'case':16}{'each':>31}{'graph':>31}{'graph, 1 block':>31}{'queued':>31}{'cold':>31}")
    for kernel, size in (
        *(("empty", 32), ("add", 256), ("tiled", 256), ("cublas", 256), ("add", 1024)),
        *(("register_blocked", 512), ("cublas", 1024), ("tiled", 1024), ("add", 4096)),
        *(("copy", 8192), ("cublas", 4096)),
    ):
        case = Case(backend, kernel, size, size, size)
        launches = 20 if size < 4096 else 4
        try:
            row = [
                figures(case, way, launches)
                for way in ("each", "graph", "graph, 1 block", "queued", "cold")
            ]
        except GemmError as error:
            row = [str(error)]
            results.append((False, f"figures of {kernel} {size}"))
        print(f"{kernel + ' ' + str(size):16}" + "".join(f"{text:>31}" for text in row), flush=True)
        case.memory.close()
    case = Case(backend, "add", 256, 256, 256)
    case.time(20)
    started = time.perf_counter()
    for _ in range(200):
        case.time(20)
    wall = (time.perf_counter() - started) / 200
    print(f"a sample of 20 launches of add 256 takes {wall * 1e6:.0f} us of wall time")
    case.memory.close()


def main() -> int:
    if "--child" in sys.argv:
        child(sys.argv[sys.argv.index("--child") + 1])
        return 0
    started = time.perf_counter()
    backend = CudaBackend(progress=print)
    device = backend.device
    print(device)
    check(
        "device",
        lambda: device.kind == "cuda" and bool(device.peak_flops) and " " not in device.name,
    )
    memory = DeviceMemory(backend)
    for kernel in ("add", "naive", "tiled", "tiled32", "register_blocked", "cublas", "copy"):
        for size in ((1, 1, 1), (77, 133, 100), (512, 256, 128)):
            case = Case(backend, kernel, *size)
            check(f"{kernel} {size}", case.verify)
            case.memory.close()
        print("     facts:", dict(case.executable.facts))
    compile_checks(backend, memory)
    limit_checks(backend, memory)
    stream_checks(backend, memory)
    tiled = Case(backend, "tiled", 256, 256, 256)
    for case in (tiled, *(Case(backend, kernel, 256, 256, 256) for kernel in ("cublas", "copy"))):
        check(
            f"{case.kernel} is captured",
            lambda case=case: case.time(20) > 0 and backend.is_captured(case.executable),
        )
    check("cold is slower than hot", lambda: tiled.time(20, cold=True) > tiled.time(20))
    check("right after many launches", tiled.verify)
    print(f"-- checks: {time.perf_counter() - started:.1f} s")
    check("figures", lambda: figure_table(backend))
    print(f"-- figures: {time.perf_counter() - started:.1f} s")
    check("foreign load", lambda: load_checks(backend))
    check("faults", fault_checks)
    failed = [name for passed, name in results if not passed]
    print(f"-- {len(results) - len(failed)} passed, {len(failed)} failed {failed}, "
          f"{time.perf_counter() - started:.1f} s")  # fmt: skip
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
