"""Compile errors, unsupported constructs, arguments, the cache, compilers, buffers, the device."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest

from pytest_gemm.backends.base import CudaProgram, LaunchConfig, Matrix, PythonProgram
from pytest_gemm.backends.host import HostBackend, build
from pytest_gemm.backends.host import compiler as compilers
from pytest_gemm.backends.host.build import cache_folder
from pytest_gemm.backends.host.rewrite import rewrite
from pytest_gemm.errors import BackendError, CompileError
from tests.host_kernels.harness import GOOD, Host, installed_compilers, still_works, zeros

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module", params=installed_compilers())
def host(request, tmp_path_factory):
    command = request.param.replace("python ", f"{sys.executable} ")
    return Host(tmp_path_factory.mktemp("cache"), command)


@pytest.fixture(scope="module")
def default_host(tmp_path_factory):
    return Host(tmp_path_factory.mktemp("cache"))


def compile_error(host, source, entry="k", **options):
    with pytest.raises(CompileError) as caught:
        host.compile(source, entry, **options)
    return str(caught.value).partition("\n")


def test_a_kernel_does_not_move_within_a_cache_line(host):
    kernel = "__global__ void k(float* x) { for (int i = 0; i < 9; ++i) x[i] += 1; }"
    for length in range(4):
        before = f"__device__ volatile int v; __device__ void unused() {{ {'v = 1;' * length} }}\n"
        executable = host.compile(before + kernel)
        assert executable.kernel.handle.contents.run_threads % 64 == 0


# ---- compile errors -----------------------------------------------------------------------


def test_first_line_names_file_line_and_error(host):
    first, _, rest = compile_error(host, "\n\n__global__ void k(float* x) {\n  x[0] = y;\n}\n")
    assert re.fullmatch(r"kernels/x\.cu:4: error: .*\by\b.*", first)
    assert "kernels/x.cu:4:" in rest


def test_lines_are_kept_by_rewriting(host):
    source = """\
    /* a comment of
       two lines, "with a quote */
    const char* text = R"(extern __shared__ float a[]; ' asm)"; // asm \\
        still a comment
    extern
        __shared__ float
        dynamic[];
    static __shared__ float s[3]; constexpr int big = 1'000'000;
    __global__ void k(float* x) { x[0] = s[big]; wrong; }
    """
    first, *_ = compile_error(host, source)
    assert first.startswith("kernels/x.cu:9: error: ")
    assert "wrong" in first


def test_errors_in_the_entry(host):
    first, *_ = compile_error(host, "template <int N> __global__ void k(float* x) {}", "k<x>")
    assert first.startswith("kernels/x.cu: error: entry 'k<x>': ")


def test_error_inside_the_shim_is_shown_on_the_users_line(host):
    source = """\
    struct Big { double a, b; };
    __global__ void k(Big* x) {
        x[0] = __shfl_sync(~0u, x[0], 1);
    }"""
    first, *_ = compile_error(host, source)
    assert first.startswith("kernels/x.cu:3: error: ")
    assert "8 bytes" in first


def test_undefined_function(host):
    first, *_ = compile_error(
        host, "__device__ float f(int); __global__ void k(float* x) { x[0] = f(1); }"
    )
    assert first.startswith("kernels/x.cu: error: undefined ")
    assert "f(int)" in first


UNSUPPORTED = {
    'asm volatile("mov.u32 %0, %smid;" : "=r"(i));': "inline PTX",
    'PTX("bar.sync 0;");': "inline PTX",
    "k<<<1, 1>>>(x);": "<<<...>>>",
    "cudaMalloc(&x, 4);": "host API",
    "cuda::barrier<cuda::thread_scope_block> b;": "libcu++",
    "auto s = cub::BlockReduce<float, 8>();": "CUB",
    "float t = tex2D<float>(texture, 1, 2);": "a texture",
    "unsigned m = __activemask();": "__activemask",
}


@pytest.mark.parametrize("statement", UNSUPPORTED)
def test_unsupported_constructs_name_the_line_and_the_way_out(default_host, statement):
    source = f"""\
    #define PTX(text) asm volatile(text)
    __global__ void k(float* x) {{
        int i = 0;
        {statement}
    }}"""
    first, *_ = compile_error(default_host, source)
    assert re.match(r"kernels/x\.cu:[14]: error: ", first)
    assert UNSUPPORTED[statement] in first
    assert "is not supported on the CPU back end" in first
    assert "PYTEST_GEMM_HOST" in first


@pytest.mark.parametrize(
    "header",
    [
        "cuda/barrier",
        "cub/cub.cuh",
        "cuda/std/array",
    ],
)
def test_unsupported_headers(host, header):
    used = "namespace cub {}"  # that of a library is left out where nothing names it
    first, *_ = compile_error(host, f"#include <cmath>\n#include <{header}>\n{used}\n{GOOD}")
    assert first.startswith(f"kernels/x.cu:2: error: {header} is not supported on the CPU")


@pytest.mark.parametrize(
    ("code", "missed"),
    [
        ("int f() { return 1; }", "f in kernels/x.cu:1 is host code, which is left out: mark it"),
        ("int f = 1;", "f in kernels/x.cu:1 is host code, which is left out: make it constexpr"),
        ("std::string f;", "f in kernels/x.cu:1 is host code, which is left out: make it"),
    ],
)
def test_host_code_that_a_kernel_uses(host, code, missed):
    use = "f()" if "()" in code else "f"
    first, *_ = compile_error(host, f"{code}\n__global__ void k(float* x) {{\n x[0] = {use}; }}")
    assert first.startswith("kernels/x.cu:3: error: ")
    assert missed in first


def test_host_code_that_cannot_be_told_apart(default_host):
    source = f"{GOOD}\nint main() {{\n  if (true) {{\n}}\n"
    first, *_ = compile_error(default_host, source)
    assert first == (
        "kernels/x.cu:2: { is never closed: balance the brackets, or move the host code to a file "
        "of its own"
    )


def test_unsupported_constructs_may_be_guarded(host):
    source = """
    // asm("x"); cudaMalloc
    #if __CUDA_ARCH__ >= 800
    #include <cuda/barrier>
    #endif
    __global__ void k(float* x) {
    #if __CUDA_ARCH__ >= 800
        asm volatile("cp.async;");
    #elif defined(PYTEST_GEMM_HOST)
        int main = 3, half = 4; const char* s = "asm <<<"; x[0] = main + half + s[0] - 'a';
    #endif
    }
    #ifndef __CUDACC_RTC__
    int main() { float* d; cudaMalloc(&d, 4); k<<<1, 1>>>(d); }
    #endif
    """
    x = zeros(1, 1)
    host.run(source, [x])
    assert x[0, 0] == 7


# ---- local includes -----------------------------------------------------------------------


def test_local_includes_are_rewritten_and_part_of_the_key(tmp_path):
    host = Host(tmp_path / "cache")
    (tmp_path / "deep").mkdir()
    (tmp_path / "tile.cuh").write_text('#pragma once\n#include "deep/more.cuh"\n')
    more = tmp_path / "deep" / "more.cuh"
    more.write_text(
        '#pragma once\n#include "../tile.cuh"\n'
        "__device__ float get() { extern __shared__ float s[]; s[0] = 1; return s[0]; }\n"
    )
    source = (
        '#include "tile.cuh"\n#include <tile.cuh>\n__global__ void k(float* x) { x[0] = get(); }'
    )
    x = zeros(1, 1)
    filename = str(tmp_path / "x.cu")

    def run():
        executable = host.compile(source, filename=filename)
        host.launch(executable, [x], shared_mem=4)
        return executable.facts["cached"], x[0, 0]

    assert run() == (False, 1)
    assert run() == (True, 1)
    more.write_text(more.read_text().replace("= 1", "= 2"))
    assert run() == (False, 2)
    more.write_text(more.read_text().replace("= 2", "= wrong"))
    first, *_ = compile_error(host, source, filename=filename)
    assert first.startswith(f"{more}:3: error: ")


# ---- the rewriter alone -------------------------------------------------------------------


def test_rewriting_keeps_every_line_break():
    paths = [*(ROOT / "kernels").glob("*.cu")]
    assert paths
    for path in paths:
        for source in (path.read_text(), path.read_text().replace("\n", "\r\n")):
            (file,) = rewrite(source, str(path))
            assert file.text.count("\n") == source.count("\n")


def test_windows_line_ends(default_host):
    x = zeros(1, 2)
    source = """
    #include "cuda_runtime.h"
    __global__ void k(float* x) {
        extern __shared__ float d[];
        __shared__ float s[2];
        d[threadIdx.x] = s[threadIdx.x] = 1;
        __syncthreads();
        x[threadIdx.x] = d[0] + s[1];
    }
    """
    default_host.run(dedent(source).replace("\n", "\r\n"), [x], block=(2, 1, 1), shared_mem=8)
    assert x[0].tolist() == [2, 2]


# ---- arguments and launches ---------------------------------------------------------------


@pytest.mark.parametrize(("parameters", "arguments", "message"), [
    ("float* x, int n", ["x"], "k in kernels/x.cu takes 2 arguments and was given 1"),
    ("float* x", ["x", 1], "takes 1 arguments and was given 2"),
    ("float* x, int n", ["x", 2**31], "parameter 2 of k in kernels/x.cu is int32, which"),
    ("float* x, unsigned n", ["x", -1], "is uint32, which cannot hold -1"),
    ("float* x, short n", ["x", 40000], "is int16, which cannot hold 40000"),
    ("float* x, bool n", ["x", 2], "is bool, which cannot hold 2"),
    ("float* x, int n", ["x", 1.0], "is int32, not a floating-point number"),
    ("float* x, float* n", ["x", 3], "is a pointer to float32, not an integer"),
    ("float* x, float n", ["x", "x"], "is float32, not a pointer to a matrix"),
    ("double* x", ["x"], "is a pointer to float64, not a pointer to float32"),
    ("const int* x", ["x"], "is a pointer to int32, not a pointer to float32"),
])  # fmt: skip
def test_arguments_that_do_not_fit(default_host, parameters, arguments, message):
    executable = default_host.compile(f"__global__ void k({parameters}) {{}}")
    values = [zeros(1, 1) if a == "x" else a for a in arguments]
    with pytest.raises(CompileError, match=re.escape(message)):
        default_host.launch(executable, values)


def test_arguments_that_fit(default_host):
    source = """
    __global__ void k(const float4* a, void* b, long long c, unsigned char d, bool e, double f,
                      float g, size_t h) {
        float* x = static_cast<float*>(b);
        x[0] = a->w + (c + (long long)h) + d + e + f + g;
    }"""
    a, b = np.array([[0, 0, 0, 1]], np.float32), zeros(1, 1)
    default_host.run(source, [a, b, -(2**40), 255, 1, 0.5, 3, 2**40])
    assert b[0, 0] == 1 + 255 + 1 + 0.5 + 3


@pytest.mark.parametrize("config", [
    LaunchConfig((1, 1, 1), (32, 33, 1)),
    LaunchConfig((0, 1, 1), (1, 1, 1)),
    LaunchConfig((1, 1, 1), (1, 1, 1), 228 * 1024),
])  # fmt: skip
def test_launches_over_the_limits(default_host, config):
    executable = default_host.compile(GOOD)
    with pytest.raises(BackendError):
        default_host.launch(
            executable, [zeros(1, 1)], config.grid, config.block, shared_mem=config.shared_mem
        )


# ---- the cache ----------------------------------------------------------------------------

BUILD = """
import sys
from pathlib import Path
from tests.host_kernels.harness import GOOD, Host, still_works
host = Host(Path(sys.argv[1]))
print("ready", flush=True)
sys.stdin.readline()
assert still_works(host)
"""


def test_processes_may_build_the_same_thing_at_once(tmp_path):
    command = [sys.executable, "-c", BUILD, str(tmp_path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    runs = [subprocess.Popen(command, cwd=ROOT, text=True, **pipes) for _ in range(2)]
    for run in runs:
        assert run.stdout.readline() == "ready\n"
    for run in runs:
        run.stdin.write("\n")
        run.stdin.flush()
    for run in runs:
        _, errors = run.communicate(timeout=60)
        assert run.returncode == 0, errors
    names = sorted(path.name for path in tmp_path.iterdir())
    assert len([name for name in names if name.endswith(".so")]) == 2
    assert not [name for name in names if name.startswith("build-")]


def test_what_a_killed_process_left_in_the_cache_is_removed(default_host):
    assert still_works(default_host)
    cache = default_host.backend._builder.folder
    old, new = cache / "build-old", cache / "build-new"
    for folder in (old, new):
        folder.mkdir()
        (folder / "half.so").touch()
    os.utime(old, (0, 0))
    assert still_works(Host(cache))
    assert not old.exists()
    assert new.exists()


@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty"])
def test_damaged_files_are_built_again(tmp_path, damage):
    folder = tmp_path / "first"
    assert still_works(Host(folder))
    for path in folder.glob("*.so"):
        content = bytearray(path.read_bytes())
        if damage == "flipped":
            content[len(content) // 2] ^= 255
        path.unlink()  # the loaded library must stay as it is
        path.write_bytes(
            {"truncated": content[: len(content) // 2], "empty": b""}.get(damage, content)
        )
    host = Host(folder)
    executable = host.compile(GOOD)
    assert not executable.facts["cached"]
    assert still_works(host)


def test_second_build_is_cached_and_defines_are_part_of_the_key(default_host):
    source = "__global__ void k(float* x) { x[0] = SIDE; }"
    x = zeros(1, 1)
    for side, cached in ((8, False), (9, False), (8, True)):
        executable = default_host.compile(source, defines=(("SIDE", side),))
        assert executable.facts["cached"] is cached
        default_host.launch(executable, [x])
        assert x[0, 0] == side


def test_variables_of_templates_are_each_librarys_own(host):
    source = """
        template <int S> __device__ int launches[S];
        template <int S> __device__ int& count() { static int calls[S]; return calls[0]; }
        __global__ void k(float* x) {
            x[0] = ++launches<2>[0];
            x[1] = ++count<2>();
            x[2] = WHICH;
        }
    """
    x = zeros(1, 3)
    for which in (7, 8):
        executable = host.compile(source, defines=(("WHICH", which),))
        host.launch(executable, [x])
        assert x[0].tolist() == [1, 1, which]


def test_another_installation_builds_its_own(default_host, monkeypatch):
    builder = default_host.backend._builder
    here = builder._key(("source",))
    monkeypatch.setattr(build, "CPP", build.CPP / "elsewhere")
    assert builder._key(("source",)) != here


def test_cache_folder_by_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.delenv("PYTEST_GEMM_CACHE", raising=False)
    assert cache_folder(None) == tmp_path / "xdg" / "pytest-gemm"
    monkeypatch.setenv("PYTEST_GEMM_CACHE", str(tmp_path / "own"))
    assert cache_folder(None) == tmp_path / "own"
    assert cache_folder(tmp_path / "asked") == tmp_path / "asked"
    (tmp_path / "file").write_text("")
    with pytest.raises(BackendError, match="PYTEST_GEMM_CACHE"):
        cache_folder(tmp_path / "file" / "below")
    monkeypatch.delenv("PYTEST_GEMM_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setenv("HOME", str(tmp_path / "file"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert cache_folder(None) == tmp_path / f"pytest-gemm-{os.getuid()}"


# ---- compilers and the device -------------------------------------------------------------


@pytest.fixture
def _fresh_search():
    compilers.find_compiler.cache_clear()
    yield
    compilers.find_compiler.cache_clear()


@pytest.mark.usefixtures("_fresh_search")
def test_no_compiler_names_the_command_that_fixes_it(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.delenv("PYTEST_GEMM_CXX", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(BackendError, match=r"pip install 'pytest-gemm\[host\]'"):
        _ = HostBackend(tmp_path).device


@pytest.mark.usefixtures("_fresh_search")
def test_compiler_named_by_environment(monkeypatch, tmp_path):
    script = tmp_path / "c++17"
    script.write_text("#!/bin/sh\necho broken compiler: error >&2\nexit 1\n")
    script.chmod(0o755)
    monkeypatch.setenv("PYTEST_GEMM_CXX", str(script))
    with pytest.raises(BackendError, match="cannot build a library: broken compiler"):
        _ = HostBackend(tmp_path).device
    for missing in ("no-such-compiler", "g++ '"):
        monkeypatch.setenv("PYTEST_GEMM_CXX", missing)
        compilers.find_compiler.cache_clear()
        with pytest.raises(BackendError, match=re.escape(f"{missing!r} named in PYTEST_GEMM_CXX")):
            _ = HostBackend(tmp_path).device


@pytest.mark.parametrize("broken", ["false", "true", "g++ '"])
@pytest.mark.usefixtures("_fresh_search")
def test_a_broken_cxx_is_passed_over(monkeypatch, broken):
    monkeypatch.delenv("PYTEST_GEMM_CXX", raising=False)
    monkeypatch.setenv("CXX", broken)
    assert Path(compilers.find_compiler().command[0]).name not in ("false", "true")


def test_creating_a_back_end_does_nothing(tmp_path):
    HostBackend(tmp_path / "cache", "no-such-compiler")
    assert not list(tmp_path.iterdir())


def test_progress_is_told_of_the_one_time_build(tmp_path):
    told = []
    for _ in range(2):
        HostBackend(tmp_path, progress=told.append).compile(CudaProgram(GOOD, "x.cu", "k"))
    assert len(told) == 1
    assert "once" in told[0]


def test_device(host):
    device = host.backend.device
    assert device.kind == "host"
    assert re.fullmatch(r"host-[\w.-]+-[0-9a-f]{8}", device.name)
    assert re.search(r"\d+ cores?$|GPU's$", device.description)
    assert {"compiler", "compiler_version", "flags", "runtime", "cpu", "cores"} <= {
        *device.environment
    }


# ---- buffers and Python programs ----------------------------------------------------------


@pytest.mark.parametrize("nbytes", [1, 255, 256, 4096, 4097, 1 << 20])
def test_buffers_are_aligned_and_hold_their_bytes(default_host, nbytes):
    backend = default_host.backend
    buffer = backend.allocate(nbytes)
    assert buffer.nbytes == nbytes
    assert buffer.address % 256 == 0
    data = np.random.default_rng(nbytes).integers(0, 256, nbytes, dtype=np.uint8)
    backend.upload(buffer, data)
    copy = backend.download(buffer)
    assert np.array_equal(copy, data)
    with pytest.raises(BackendError):
        backend.upload(buffer, data[1:])
    backend.free(buffer)
    assert np.array_equal(copy, data)
    for use in (backend.free, backend.download):
        with pytest.raises(BackendError, match="after it was freed"):
            use(buffer)


def test_launch_on_a_freed_buffer(default_host):
    backend = default_host.backend
    executable = default_host.compile(GOOD)
    buffer = backend.allocate(256)
    backend.free(buffer)
    matrix = Matrix(buffer, 0, 1, 64, 64, "float32")
    with pytest.raises(BackendError, match="freed"):
        backend.time(executable, LaunchConfig((1, 1, 1), (1, 1, 1)), [matrix])


def test_python_program_sees_matrices_and_scalars(tmp_path):
    backend = HostBackend(tmp_path, "no-such-compiler")  # Python needs none
    buffer = backend.allocate(4 * 32)
    backend.upload(buffer, np.arange(32, dtype=np.float32).view(np.uint8))
    seen = []

    def fill(A, n, alpha):
        seen.append((A.copy(), A.strides, n, alpha))
        A[:] = n

    executable = backend.compile(PythonProgram(fill, ("A", "n", "alpha")))
    matrix = Matrix(buffer, 8, 3, 4, 10, "float32")
    config = LaunchConfig((1, 1, 1), (1, 1, 1))
    seconds = backend.time(executable, config, [matrix, 7, 0.5], launches=2)
    first, strides, n, alpha = seen[0]
    assert len(seen) == 2
    assert seconds >= 0
    assert (strides, n, alpha) == ((40, 4), 7, 0.5)
    assert first.tolist() == [[2, 3, 4, 5], [12, 13, 14, 15], [22, 23, 24, 25]]
    result = backend.download(buffer).view(np.float32)
    assert result[2:6].tolist() == [7] * 4
    assert result[6] == 6
    with pytest.raises(CompileError, match="fill takes 3 arguments"):
        backend.time(executable, config, [matrix])


def test_launches_of_several_threads_take_turns(default_host):
    source = """
    __global__ void k(float* x, int n) {
        __shared__ float s[64];
        for (int i = 0; i < n; ++i) {
            s[threadIdx.x] = threadIdx.x; __syncthreads();
            x[threadIdx.x] += s[63 - threadIdx.x]; __syncthreads();
        }
    }"""
    executable = default_host.compile(source)
    arrays = [zeros(1, 64) for _ in range(4)]
    threads = [
        threading.Thread(
            target=default_host.launch, args=(executable, [x, 500]), kwargs={"block": (64, 1, 1)}
        )
        for x in arrays
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for x in arrays:
        assert np.array_equal(x[0], 500 * np.arange(64)[::-1])
