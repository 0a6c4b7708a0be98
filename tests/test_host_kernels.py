"""Constructs of CUDA C++ on the CPU, and the bits of a product."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.host_kernels.harness import Host, installed_compilers, zeros

ROOT = Path(__file__).parents[1]
CHAIN = """
#include <math.h>
void chain(int m, int n, int k, const float *a, const float *b, float *c)
{
    for (int i = 0; i < m; ++i)
        for (int j = 0; j < n; ++j) {
            float s = 0.0f;
            for (int l = 0; l < k; ++l)
                s = fmaf(a[i * k + l], b[l * n + j], s);
            c[i * n + j] = s;
        }
}
"""


@pytest.fixture(scope="module", params=installed_compilers())
def host(request, tmp_path_factory):
    command = request.param.replace("python ", f"{sys.executable} ")
    return Host(tmp_path_factory.mktemp("cache"), command)


def test_built_in_variables_name_block_and_thread(host):
    source = """
    __global__ void k(float* x) {
        unsigned t = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
        unsigned b = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
        x[b * (blockDim.x * blockDim.y * blockDim.z) + t] += b * 1000 + t;
    }"""
    x = zeros(8, 24)
    host.run(source, [x], grid=(2, 2, 2), block=(4, 3, 2))
    assert np.array_equal(x, np.arange(8)[:, None] * 1000 + np.arange(24))


@pytest.mark.parametrize("declaration", [
    "__shared__ float s[64];",
    "static __shared__ float s[64];",
    "__shared__ alignas(16) float s[64];",
    "alignas(16) __shared__ float s[64];",
    "__shared__ __align__(16) float s[64];",
    "volatile __shared__ float s[64];",
    "__shared__ float other[3], s[32 * 2];",
    "extern __shared__ float s[];",
    "extern __shared__ __align__(16) float s[];",
    "extern __shared__ alignas(16) unsigned char raw[]; float* s = reinterpret_cast<float*>(raw);",
    "extern __shared__ float raw[][8]; float* s = raw[0];",
])  # fmt: skip
def test_shared_memory_is_seen_by_the_block(host, declaration):
    source = f"""
    __global__ void k(float* x) {{
        {declaration}
        s[threadIdx.x] = x[threadIdx.x];
        __syncthreads();
        x[threadIdx.x] = s[63 - threadIdx.x];
    }}"""
    x = np.arange(64, dtype=np.float32)[None]
    host.run(source, [x], block=(64, 1, 1), shared_mem=256)
    assert np.array_equal(x[0], np.arange(64)[::-1])


def test_shared_memory_outside_of_functions(host):
    source = """
    namespace tiles { __shared__ float fixed[8]; }
    extern __shared__ float dynamic[];
    extern "C" { __device__ float swap(int t) {
        tiles::fixed[t] = t; dynamic[t] = 10 * t;
        __syncthreads();
        return tiles::fixed[7 - t] + dynamic[7 - t];
    } }
    __global__ void k(float* x) { x[threadIdx.x] = swap(threadIdx.x); }"""
    x = zeros(1, 8)
    host.run(source, [x], block=(8, 1, 1), shared_mem=32)
    assert np.array_equal(x[0], 11 * np.arange(8)[::-1])


@pytest.mark.parametrize("qualifiers", ["__shared__ float s[2];", "extern __shared__ float s[];"])
def test_shared_memory_starts_as_nan_in_every_block(host, qualifiers):
    source = f"""
    template <int N> __global__ void k(float* x) {{
        {qualifiers}
        if (N > 0) x[blockIdx.x] = s[1];
        s[threadIdx.x] = 1.0f;
        __syncthreads();
        if (threadIdx.x == 0) x[2 + blockIdx.x] = s[1];
    }}"""
    x = zeros(1, 4)
    host.run(source, [x], (2, 1, 1), (2, 1, 1), "k<1>", shared_mem=8)
    assert np.isnan(x[0, :2]).all()
    assert np.array_equal(x[0, 2:], [1, 1])


def test_vectors_and_cached_loads(host):
    source = """
    __global__ void k(const float* __restrict__ a, float* b) {
        float4 v = __ldg(reinterpret_cast<const float4*>(a) + threadIdx.x);
        float2 w = make_float2(__ldcg(a), v.w);
        static_assert(sizeof(float3) == 12 && alignof(float4) == 16 && alignof(int2) == 8, "");
        reinterpret_cast<float4*>(b)[threadIdx.x] = make_float4(v.w, v.z, w.y, w.x);
        uint3 u = make_uint3(1, 2, 3); dim3 d(u); int4 i = make_int4(1, 2, 3, int(d.z));
        if (i.w != 3 || dim3(5).y != 1) __stcg(b, -1.0f);
    }"""
    a, b = np.arange(1, 9, dtype=np.float32)[None], zeros(1, 8)
    host.run(source, [a, b], block=(2, 1, 1))
    assert b[0].tolist() == [4, 3, 4, 1, 8, 7, 8, 1]


def test_qualifiers_templates_and_pragmas(host):
    source = """
    #include <cuda_runtime.h>
    #include "device_launch_parameters.h"
    #include <cstdint>
    __constant__ float weights[3] = {1, 2, 3};
    __device__ int calls;
    struct Scale { float by; int times; };
    __device__ __forceinline__ float scaled(float x, Scale s) { return x * s.by; }
    static __device__ __noinline__ float plain(float x) { return x + 1; }
    template <typename T, int N> __host__ __device__ inline T sum(const T* v) {
        T s = 0;
        #pragma unroll
        for (int i = 0; i < N; ++i) s += v[i];
        return s;
    }
    template <int A, typename T = float>
    __global__ void __launch_bounds__(32, 2) k(T* x, int n, float alpha, std::int64_t big) {
        auto twice = [=] __device__ (float v) { return 2 * v; };
        if constexpr (A > 1) x[0] = twice(sum<float, 3>(weights));
        #pragma unroll 4
        for (int i = 0; i < 2; ++i) calls += A;
        x[1] = calls; x[2] = scaled(plain(n), Scale{alpha, 1}); x[3] = big >> 32;
        x[4] = fmaf(2.f, 3.f, 1.f) + __fmul_rn(2.f, 2.f) + rsqrtf(4.f) + fminf(1, 2);
        x[5] = min(3, 4u) + max(1.5f, 2) + min(2ll, 7);
        x[6] = __expf(0.f) + __popc(7) + __clz(1) + (__float_as_int(1.f) >> 23) + abs(-2);
        x[7] = BM;
    }"""
    x = zeros(1, 8)
    defines = (("BM", 96),)
    host.run(source, [x, 4, 0.5, 7 << 32], entry="k<2>", defines=defines)
    assert x[0].tolist() == [12, 4, 2.5, 7, 11 + 0.5 + 1, 7, 1 + 3 + 31 + 127 + 2, 96]


@pytest.mark.parametrize("head", [
    "__global__ void __launch_bounds__(64) k(float* x)",
    "__global__ __launch_bounds__(64, 4) void k(float* x)",
    "__launch_bounds__(64) __global__ void k(float* x)",
    'extern "C" __global__ void k(float* x)',
    "static __global__ void k(float* const x)",
    "void __global__ k(float* __restrict__ x)",
])  # fmt: skip
def test_kernel_heads(host, head):
    x = zeros(1, 1)
    host.run(f"{head} {{ x[0] = 5; }}", [x])
    assert x[0, 0] == 5


def test_kernel_in_a_namespace(host):
    x = zeros(1, 1)
    host.run("namespace a { __global__ void f(float* x) { *x = 5; } }", [x], entry="a::f")
    assert x[0, 0] == 5


def test_warp_operations(host):
    source = """
    __global__ void k(float* x, int n) {
        const unsigned all = 0xffffffff, t = threadIdx.x;
        float v = t;
        for (int d = 16; d > 0; d /= 2) v += __shfl_down_sync(all, v, d);
        v = __shfl_sync(all, v, 0);
        x[t] = v;
        x[n + t] = __shfl_xor_sync(all, t, 1) + 100 * __shfl_up_sync(all, t, 2);
        x[2 * n + t] = __shfl_sync(all, double(t), 5, 8);
        x[3 * n + t] = __popc(__ballot_sync(all, t % 3 == 0));
        x[4 * n + t] = __any_sync(all, t == 3) + 2 * __all_sync(all, t < 32);
        __syncwarp();
        if (t % 32 < 16) x[5 * n + t] = __shfl_sync(0xffff, t, 3);
        else x[5 * n + t] = __shfl_sync(0xffff0000, t, 20);
    }"""
    x = zeros(6, 64)
    host.run(source, [x, 64], block=(64, 1, 1))
    t = np.arange(64)
    lane = t % 32
    assert np.array_equal(x[0], np.where(t < 32, 496, 496 + 1024))
    assert np.array_equal(x[1], (t ^ 1) + 100 * np.where(lane >= 2, t - 2, t))
    assert np.array_equal(x[2], t // 8 * 8 + 5)
    assert np.array_equal(x[3], np.where(t < 32, 11, 11))
    assert np.array_equal(x[4], np.where(t < 32, 3, 0))
    assert np.array_equal(x[5], t // 32 * 32 + np.where(lane < 16, 3, 20))


def test_barriers_that_count(host):
    source = """
    __global__ void k(float* x) {
        int t = threadIdx.x + 8 * threadIdx.y;
        int odd = __syncthreads_count(t % 2);
        int any = __syncthreads_or(t == 7), none = __syncthreads_or(0);
        int all = __syncthreads_and(t < 40), most = __syncthreads_and(t < 39);
        x[t] = odd * 10000 + (any != 0) * 1000 + (none != 0) * 100 + (all != 0) * 10 + (most != 0);
    }"""
    x = zeros(1, 40)
    host.run(source, [x], block=(8, 5, 1))
    assert (x == 201010).all()


def test_barriers_and_warp_operations_together(host):
    """A block-wide sum: shuffles within warps, shared memory between them."""
    source = """
    __global__ void k(float* x, float* out) {
        __shared__ float sums[32];
        float v = x[blockIdx.x * blockDim.x + threadIdx.x];
        for (int d = 16; d > 0; d >>= 1) v += __shfl_down_sync(0xffffffffu, v, d);
        if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = v;
        __syncthreads();
        if (threadIdx.x < 32) {
            v = threadIdx.x < blockDim.x / 32 ? sums[threadIdx.x] : 0;
            for (int d = 16; d > 0; d >>= 1) v += __shfl_down_sync(0xffffffffu, v, d);
            if (threadIdx.x == 0) atomicAdd(out, v);
        }
    }"""
    x, out = np.arange(4 * 1024, dtype=np.float32)[None] % 64, zeros(1, 1)
    host.run(source, [x, out], (4, 1, 1), (1024, 1, 1))
    assert out[0, 0] == x.sum()


def test_atomics(host):
    source = """
    __device__ int seen;
    __global__ void k(float* x) {
        unsigned* u = reinterpret_cast<unsigned*>(x);
        atomicAdd(x, 1.0f);
        atomicMax(u + 1, threadIdx.x);
        atomicInc(u + 2, 4);
        if (atomicCAS(&seen, 0, 1) == 0) atomicExch(u + 3, 9u);
        atomicOr(u + 4, 1u << threadIdx.x);
        atomicSub(u + 5, 1);
    }"""
    x = zeros(1, 6)
    host.run(source, [x], block=(7, 1, 1))
    assert x[0, 0] == 7
    assert x[0].view(np.uint32)[1:].tolist() == [6, 2, 9, 127, 2**32 - 7]


def test_printf_reaches_standard_output(host, capsys):
    source = """
    #include <cstdio>
    __global__ void k(float* x) { if (threadIdx.x == 2) printf("%s %d %.1f\\n", "x", 3, x[0]); }
    """
    host.run(source, [np.array([[1.5]], np.float32)], block=(4, 1, 1))
    assert capsys.readouterr().out == "x 3 1.5\n"


def test_subnormals_are_flushed_during_the_launch_only(host):
    tiny = np.float32(1e-38)
    x = np.array([[tiny, tiny]], np.float32)
    host.run("__global__ void k(float* x) { x[0] *= 0.25f; }", [x])
    assert x[0, 0] == 0
    assert np.array([tiny], np.float32)[0] * np.float32(0.25) > 0


def test_products_are_the_in_order_chain(host, tmp_path):
    if not shutil.which("gcc"):
        pytest.skip("needs gcc for the plain C chain")
    (tmp_path / "chain.c").write_text(CHAIN)
    flags = ["-O2", "-ffp-contract=off", "-shared", "-fPIC"]
    subprocess.run(["gcc", *flags, "chain.c", "-lm", "-o", "chain.so"], cwd=tmp_path, check=True)
    chain = ctypes.CDLL(str(tmp_path / "chain.so")).chain

    m, n, k = 50, 45, 71
    rng = np.random.default_rng(1)
    a = rng.standard_normal((m, k), dtype=np.float32)
    b = rng.standard_normal((k, n), dtype=np.float32)
    expected = zeros(m, n)
    chain(m, n, k, *(ctypes.c_void_p(x.ctypes.data) for x in (a, b, expected)))
    for name, block, tile in (
        ("naive", (16, 16, 1), 16),
        ("tiled", (16, 16, 1), 16),
        ("register_blocked", (8, 8, 1), 32),
    ):
        c = np.full((m, n), np.nan, np.float32)
        grid = (-(-n // tile), -(-m // tile), 1)
        source = (ROOT / "kernels" / f"{name}.cu").read_text()
        host.run(source, [a, b, c, m, n, k], grid, block, name)
        assert np.array_equal(c.view(np.uint32), expected.view(np.uint32)), name


def test_rounding_intrinsics_are_not_fused(host):
    source = """
    __global__ void k(float* x) {
        x[2] = __fadd_rn(__fmul_rn(x[0], x[0]), x[1]);
        x[3] = x[0] * x[0] + x[1];
    }"""
    a = np.float32(1 + 2**-12)
    x = np.array([[a, -1, 0, 0]], np.float32)
    host.run(source, [x])
    assert x[0, 2] == a * a - np.float32(1)
    assert x[0, 3] == np.float32(np.float64(a) * np.float64(a) - 1)
    assert x[0, 2] != x[0, 3]


def test_time_is_cpu_time_of_all_launches(host):
    source = "__global__ void k(float* x, int n) { for (int i = 0; i < n; ++i) x[0] += 1; }"
    executable = host.compile(source)
    x = zeros(1, 1)
    seconds = host.launch(executable, [x, 1000], launches=7)
    assert x[0, 0] == 7000
    assert seconds > 0
