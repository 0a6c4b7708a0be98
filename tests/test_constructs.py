"""Half precision, WMMA, pipelines and cooperative groups on the CPU: the right values."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path
from textwrap import dedent, indent

import numpy as np
import numpy.typing as npt
import pytest

from pytest_gemm.backends.host.check import ASCENDING, DESCENDING, ThreadOrder
from pytest_gemm.errors import CompileError, KernelFault
from pytest_gemm.problem import Problem
from pytest_gemm.registry import load_registry
from tests.checking import check
from tests.host_kernels.harness import Array, Host, installed_compilers, zeros

ALL = np.arange(2**16, dtype=np.uint16)


@pytest.fixture(scope="module", params=installed_compilers())
def host(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Host:
    command = request.param.replace("python ", f"{sys.executable} ")
    return Host(tmp_path_factory.mktemp("cache"), command)


@pytest.fixture(scope="module")
def default_host(tmp_path_factory: pytest.TempPathFactory) -> Host:
    return Host(tmp_path_factory.mktemp("cache"))


def each(host: Host, header: str, parameters: str, body: str, *arrays: Array) -> None:
    """Run ``body`` for each i of the arrays' last axis."""
    source = f"""
    #include <{header}>
    __global__ void k({parameters}, int n) {{
        for (int i = threadIdx.x; i < n; i += blockDim.x) {{
{indent(body, "            ")}
        }}
    }}"""
    host.run(source, [*arrays, arrays[0].shape[-1]], block=(32, 1, 1))


def bfloat16(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    """The bits of the nearest bfloat16, ties to even; NaN is CUDA's."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32).astype(np.uint64)
    rounded = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(values), np.uint16(0x7FFF), rounded).astype(np.uint16)


def to_odd(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
    """As floats, of which the last bit says whether they are exact: never a tie of their own."""
    floats = values.astype(np.float32)
    is_exact = (floats == values) | ~np.isfinite(values)
    nearer_zero = np.where(
        np.abs(floats) > np.abs(values), np.nextafter(floats, np.float32(0)), floats
    )
    odd = (nearer_zero.view(np.uint32) | 1).view(np.float32)
    return np.where(is_exact, floats, odd).astype(np.float32)


def widened(bits: npt.NDArray[np.uint16]) -> npt.NDArray[np.float32]:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def same(a: Array, b: Array) -> bool:
    """The same bits, but for NaN, of which there are many."""
    kind = {2: np.float16, 4: np.float32}[a.itemsize]
    both_nan = np.isnan(a.view(kind)) & np.isnan(b.view(kind))
    return bool(((a.view(f"u{a.itemsize}") == b.view(f"u{b.itemsize}")) | both_nan).all())


def hard_floats() -> npt.NDArray[np.float32]:
    """Floats around every half and every tie between two, and some of any size."""
    halves = ALL.view(np.float16)
    halves = halves[np.isfinite(halves)].astype(np.float64)
    ties = (np.sort(halves)[1:] + np.sort(halves)[:-1]) / 2
    exact = np.concatenate([halves, ties, [65520, 65519.996, -65520, 1e9, np.inf]])
    exact = exact.astype(np.float32)
    around = [np.nextafter(exact, np.float32(way)) for way in (-np.inf, np.inf)]
    random = np.random.default_rng(1).integers(0, 2**32, 50_000, dtype=np.uint32)
    values = np.concatenate([exact, *around, random.view(np.float32)])
    return values[(np.abs(values) >= 2**-126) | (values == 0) | np.isnan(values)]


# ---- half ---------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
@pytest.mark.parametrize("instructions", ["", "#undef __F16C__"])
def test_conversions_of_half(host: Host, instructions: str) -> None:
    source = f"""
    {instructions}
    #include <cuda_fp16.h>
    __global__ void to_float(const half* a, float* b, int n) {{
        for (int i = 0; i < n; ++i) b[i] = __half2float(a[i]);
    }}
    __global__ void to_half(const float* a, half* b, int n) {{
        for (int i = 0; i < n; ++i) b[i] = __float2half(a[i]), b[n + i] = __double2half(a[i]);
    }}"""
    floats = zeros(2**16)
    host.run(source, [ALL.copy(), floats, floats.size], entry="to_float")
    assert same(floats, ALL.view(np.float16).astype(np.float32))
    values = hard_floats()
    result = np.zeros((2, values.size), np.uint16)
    host.run(source, [values, result, values.size], entry="to_half")
    assert same(result[0], values.astype(np.float16).view(np.uint16))
    assert same(result[1], values.astype(np.float16).view(np.uint16))


def test_a_double_is_rounded_once(host: Host) -> None:
    # By way of float this would be a tie, and then the even neighbour.
    values = np.array([1 + 2**-11 + 2**-40, 1 + 3 * 2**-11 - 2**-40, 2**-25 + 2**-60])
    result = np.zeros(3, np.uint16)
    body = "b[i] = reinterpret_cast<const double*>(a)[i];"
    each(host, "cuda_fp16.h", "const double2* a, half* b", body, values, result)
    assert result.view(np.float16).tolist() == [1 + 2**-10, 1 + 2**-10, 2**-24]


def test_constants_of_mathematics(default_host: Host) -> None:
    names = ["INF", "SQRT_TWO", "SQRT_HALF", "L2E", "LN2", "PI", "PIO2", "MIN_DENORM", "ONE"]
    values = [np.inf, 2**0.5, 0.5**0.5, 1 / np.log(2), np.log(2), np.pi, np.pi / 2, 2**-1074, 1]
    lines = "".join(f"d[{i}] = CUDART_{n}; f[{i}] = CUDART_{n}_F; " for i, n in enumerate(names))
    source = "#include <math_constants.h>\n__global__ void k(double2* e, float* f) {"
    source += f"double* d = reinterpret_cast<double*>(e); {lines} }}"
    doubles, floats = np.zeros(len(names)), zeros(len(names))
    default_host.run(source, [doubles, floats])
    assert doubles.tolist() == values
    values[names.index("MIN_DENORM")] = 2**-149
    assert same(floats, np.array(values, np.float32))


def test_directed_rounding_of_half(host: Host) -> None:
    values = hard_floats()
    values = values[np.abs(values) < 65504]
    result = np.zeros((3, values.size), np.uint16)
    body = """\
b[i] = __float2half_rz(a[i]); b[n + i] = __float2half_rd(a[i]);
b[2 * n + i] = __float2half_ru(a[i]);"""
    each(host, "cuda_fp16.h", "const float* a, half* b", body, values, result)
    zero, down, up = result.view(np.float16).astype(np.float64)
    assert (down <= values).all()
    assert (up >= values).all()
    step = np.nextafter(down.astype(np.float16), np.float16(np.inf)).astype(np.float64)
    assert ((up == down) | (up == step)).all()
    assert (zero == np.where(values < 0, up, down)).all()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_arithmetic_of_half(host: Host) -> None:
    rng = np.random.default_rng(2)
    a, b, c = rng.integers(0, 2**16, (3, 100_000), dtype=np.uint16)
    b[:50_000] = (a[:50_000] & 0x7C00) ^ (b[:50_000] & 0x83FF)  # of about the same size
    result = np.zeros((12, a.size), np.uint16)
    body = """\
r[0*n+i] = a[i] + b[i]; r[1*n+i] = a[i] - b[i]; r[2*n+i] = a[i] * b[i]; r[3*n+i] = a[i] / b[i];
r[4*n+i] = __hfma(a[i], b[i], c[i]); r[5*n+i] = hsqrt(a[i]);
r[6*n+i] = __hmax(a[i], b[i]); r[7*n+i] = __hmin(a[i], b[i]);
r[8*n+i] = __hneg(a[i]); r[9*n+i] = __habs(a[i]);
half s = a[i]; s += b[i]; s *= c[i]; r[10*n+i] = s; r[11*n+i] = __hadd_sat(a[i], b[i]);"""
    each(
        host,
        "cuda_fp16.h",
        "const half* a, const half* b, const half* c, half* r",
        body,
        a,
        b,
        c,
        result,
    )
    x, y, z = (v.view(np.float16) for v in (a, b, c))
    fma = (x.astype(float) * y.astype(float) + z.astype(float)).astype(np.float16)
    expected = [
        x + y,
        x - y,
        x * y,
        x / y,
        fma,
        np.sqrt(x),
        np.fmax(x, y),
        np.fmin(x, y),
        -x,
        abs(x),
    ]
    clipped = np.clip(np.nan_to_num(x + y, nan=0), 0, 1).astype(np.float16)
    expected += [(x + y) * z, clipped]
    for number, (row, values) in enumerate(zip(result, expected, strict=True)):
        row, bits = row.copy(), values.view(np.uint16).copy()
        if number in (6, 7, 11):  # signs of zero
            row[row == 0x8000] = 0
            bits[bits == 0x8000] = 0
        assert same(row, bits), number


def test_comparisons_of_half(host: Host) -> None:
    values = np.array([0, -0.0, 1, -1, 2**-24, np.inf, -np.inf, np.nan], np.float16)
    a, b = (v.ravel().copy() for v in np.meshgrid(values, values))
    result = zeros(8, a.size)
    body = """\
r[0*n+i] = a[i] == b[i]; r[1*n+i] = a[i] != b[i];
r[2*n+i] = a[i] < b[i]; r[3*n+i] = __hle(a[i], b[i]);
r[4*n+i] = __hgtu(a[i], b[i]); r[5*n+i] = __hne(a[i], b[i]); r[6*n+i] = __hisnan(a[i]);
r[7*n+i] = __hisinf(a[i]);"""
    each(host, "cuda_fp16.h", "const half* a, const half* b, float* r", body, a, b, result)
    nan = np.isnan(a) | np.isnan(b)
    infinite = np.where(np.isinf(a), np.sign(a), 0)
    expected = [
        a == b,
        a != b,
        a < b,
        a <= b,
        (a > b) | nan,
        (a != b) & ~nan,
        np.isnan(a),
        infinite,
    ]
    assert np.array_equal(result, np.array(expected, np.float32))


def test_half2(host: Host) -> None:
    rng = np.random.default_rng(3)
    a, b, c = rng.integers(-64, 65, (3, 200)).astype(np.float16) / np.float16(8)
    result, floats = np.zeros((6, 200), np.float16), zeros(4, 100)
    body = """\
half2 x = a[i], y = b[i], z = c[i];
r[0*n+i] = __hadd2(x, y); r[1*n+i] = x * y - z; r[2*n+i] = __hfma2(x, y, z);
r[3*n+i] = __hmax2(x, y); r[4*n+i] = __lowhigh2highlow(x); r[5*n+i] = __hgt2(x, y);
float2 f = __half22float2(x);
g[0*n+i] = f.x; g[1*n+i] = __high2float(x);
g[2*n+i] = __half2float(__low2half(__floats2half2_rn(f.y, 1)));
g[3*n+i] = __hbeq2(x, y) || x == __halves2half2(__low2half(x), __high2half(x));"""
    source = f"""
    #include <cuda_fp16.h>
    static_assert(sizeof(half2) == 4 && alignof(half2) == 4 && sizeof(half) == 2, "");
    __global__ void k(const half2* a, const half2* b, const half2* c, half2* r, float* g, int n) {{
        for (int i = 0; i < n; ++i) {{ {body} }}
    }}"""
    host.run(source, [a, b, c, result, floats, 100])
    swapped = a.reshape(-1, 2)[:, ::-1].ravel()
    fma = (a.astype(np.float32) * b + c).astype(np.float16)
    expected = [a + b, a * b - c, fma, np.maximum(a, b), swapped, a > b]
    assert np.array_equal(result, np.array(expected, np.float16))
    assert np.array_equal(floats, [a[::2], a[1::2], a[1::2], np.ones(100)])


def test_half_in_shared_memory_atomics_and_shuffles(host: Host) -> None:
    source = """
    #include <cuda_fp16.h>
    template <typename T> __global__ void k(const half* a, half* b, T* sum) {
        __shared__ half s[64];
        s[threadIdx.x] = a[threadIdx.x];
        __syncthreads();
        half v = s[63 - threadIdx.x], w = __shfl_xor_sync(~0u, v, 1);
        b[threadIdx.x] = __hsub(v, w);
        atomicAdd(sum, (T)v);
        float4 f = reinterpret_cast<const float4*>(s)[threadIdx.x / 8];
        const half third = s[threadIdx.x / 8 * 8 + 2];
        if (__low2float(*reinterpret_cast<half2*>(&f.y)) != __half2float(third))
            *sum = T(-1.0f);
    }"""
    a, b, total = np.arange(64, dtype=np.float16), np.zeros(64, np.float16), np.zeros(2, np.float16)
    host.run(source, [a, b, total], block=(64, 1, 1), entry="k<half>")
    assert np.array_equal(b, np.tile(np.array([1, -1], np.float16), 32))
    assert total[0] == 2016


# ---- bfloat16 -----------------------------------------------------------------------------


def test_bfloat16(host: Host) -> None:
    rng = np.random.default_rng(4)
    exponents = rng.integers(64, 192, (3, 50_000)).astype(np.uint16) << 7
    a, b, c = rng.integers(0, 2**16, (3, 50_000), dtype=np.uint16) & 0x807F | exponents
    a[:4], b[:4] = [0x7FC0, 0x7F80, 0xFF80, 0], [0x3F80, 0x3F80, 0x3F80, 0x8000]
    values = rng.integers(0, 2**32, a.size, dtype=np.uint32).view(np.float32)
    values[np.abs(values) < 2**-126] = 3.5
    result, floats = np.zeros((6, a.size), np.uint16), zeros(a.size)
    body = """\
r[0*n+i] = a[i] + b[i]; r[1*n+i] = __hsub(a[i], b[i]); r[2*n+i] = a[i] * b[i];
r[3*n+i] = __hfma(a[i], b[i], c[i]); r[4*n+i] = __float2bfloat16(f[i]);
r[5*n+i] = __hmax(a[i], b[i]);
f[i] = __bfloat162float(a[i]);"""
    parameters = "const __nv_bfloat16* a, const nv_bfloat16* b, const nv_bfloat16* c"
    floats[:] = values
    parameters += ", nv_bfloat16* r, float* f"
    each(host, "cuda_bf16.h", parameters, body, a, b, c, result, floats)
    x, y, z = widened(a), widened(b), widened(c)
    with np.errstate(all="ignore"):
        fma = to_odd(x.astype(np.float64) * y + z)
        expected = [x + y, x - y, x * y, fma, values, np.fmax(x, y)]
    for number, (row, exact) in enumerate(zip(result, expected, strict=True)):
        wanted = bfloat16(exact)
        if number == 5:  # NumPy has no order of the zeros
            row, wanted = (np.where(v == 0x8000, 0, v) for v in (row, wanted))
        assert same(row.astype(np.uint32) << 16, wanted.astype(np.uint32) << 16), number
    assert same(floats, x)


def test_a_bfloat16_fma_is_rounded_once(host: Host) -> None:
    a, b, c = (bfloat16(np.array([v], np.float32)) for v in (1 + 2**-7, 1 + 2**-7, 2**-30))
    result = np.zeros((2, 1), np.uint16)
    parameters = "const nv_bfloat16* a, const nv_bfloat16* b, const nv_bfloat16* c, nv_bfloat162* r"
    body = "r[i] = __floats2bfloat162_rn(__bfloat162float(__hfma(a[i], b[i], c[i])), -2.5f);"
    each(host, "cuda_bf16.h", parameters, body, a, b, c, result)
    assert widened(result[:, 0]).tolist() == [1 + 2**-6, -2.5]


# ---- WMMA ---------------------------------------------------------------------------------

WMMA = """
#include <mma.h>
#include <type_traits>
using namespace nvcuda;
template <typename In, typename Acc, typename LayoutA, typename LayoutB>
__global__ void k(const In* A, const In* B, const Acc* C, Acc* D, int M, int N, int K) {
    const int warp = (threadIdx.y * blockDim.x + threadIdx.x) / 32;
    const int row = blockIdx.y * 16;
    const int col = (blockIdx.x * (blockDim.x * blockDim.y / 32) + warp) * 16;
    if (col >= N) return;
    wmma::fragment<wmma::matrix_a, 16, 16, 16, In, LayoutA> a;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, In, LayoutB> b;
    wmma::fragment<wmma::accumulator, 16, 16, 16, Acc> acc, c;
    const bool a_rows = std::is_same<LayoutA, wmma::row_major>::value;
    const bool b_rows = std::is_same<LayoutB, wmma::row_major>::value;
    wmma::fill_fragment(acc, Acc(0.0f));
    for (int k = 0; k < K; k += 16) {
        wmma::load_matrix_sync(a, a_rows ? A + row * K + k : A + k * M + row, a_rows ? K : M);
        wmma::load_matrix_sync(b, b_rows ? B + k * N + col : B + col * K + k, b_rows ? N : K);
        wmma::mma_sync(acc, a, b, acc);
    }
    wmma::load_matrix_sync(c, C + row * N + col, N, wmma::mem_row_major);
    for (int i = 0; i < acc.num_elements; i++) acc.x[i] = acc.x[i] * Acc(2.0f) + c.x[i];
    wmma::store_matrix_sync(D + row * N + col, acc, N, wmma::mem_row_major);
}
"""


@pytest.mark.parametrize("b_layout", ["row", "col"])
@pytest.mark.parametrize("a_layout", ["row", "col"])
@pytest.mark.parametrize("accumulator", ["float", "half"])
def test_wmma(host: Host, accumulator: str, a_layout: str, b_layout: str) -> None:
    M, N, K = 32, 48, 64
    rng = np.random.default_rng(5)
    kind = {"float": np.float32, "half": np.float16}[accumulator]
    A, B = rng.integers(-3, 4, (M, K)), rng.integers(-3, 4, (K, N))
    C, D = rng.integers(-3, 4, (M, N)).astype(kind), np.zeros((M, N), kind)
    a, b = A.astype(np.float16), B.astype(np.float16)
    a, b = (a if a_layout == "row" else a.T.copy()), (b if b_layout == "row" else b.T.copy())
    entry = f"k<half, {accumulator}, wmma::{a_layout}_major, wmma::{b_layout}_major>"
    host.run(WMMA, [a, b, C, D, M, N, K], (2, 2, 1), (32, 2, 1), entry)
    assert np.array_equal(D, (2 * (A @ B) + C).astype(kind))


def test_wmma_of_real_numbers(host: Host) -> None:
    """Products are exact in float, sums rounded in the order of k."""
    rng = np.random.default_rng(6)
    A, B = (rng.standard_normal((16, 16)).astype(np.float16) for _ in "AB")
    C, D = zeros(16, 16), zeros(16, 16)
    entry = "k<half, float, wmma::row_major, wmma::row_major>"
    host.run(WMMA, [A, B, C, D, 16, 16, 16], (1, 1, 1), (32, 1, 1), entry)
    expected = np.zeros((16, 16))
    for k in range(16):
        product = np.outer(A[:, k].astype(np.float64), B[k].astype(np.float64))
        expected = (expected + product).astype(np.float32).astype(np.float64)
    assert np.array_equal(D, (2 * expected).astype(np.float32))


def test_wmma_of_bfloat16_and_other_shapes(host: Host) -> None:
    source = """
    #include <mma.h>
    using namespace nvcuda::wmma;
    template <int m, int n>
    __global__ void k(const nv_bfloat16* A, const nv_bfloat16* B, float* D) {
        fragment<matrix_a, m, n, 16, nv_bfloat16, row_major> a;
        fragment<matrix_b, m, n, 16, nv_bfloat16, col_major> b;
        fragment<accumulator, m, n, 16, float> d;
        __shared__ nv_bfloat16 s[16 * 32];
        for (int i = threadIdx.x; i < m * 16; i += 32) s[i] = A[i];
        __syncwarp();
        fill_fragment(d, 0.5f);
        load_matrix_sync(a, s, 16);
        load_matrix_sync(b, B, 16);
        mma_sync(d, a, b, d);
        store_matrix_sync(D, d, m, mem_col_major);
    }"""
    for m, n in ((16, 16), (32, 8), (8, 32)):
        rng = np.random.default_rng(m)
        A, B = rng.integers(-9, 10, (m, 16)), rng.integers(-9, 10, (16, n))
        D = zeros(n, m)
        a, b = (bfloat16(x.astype(np.float32)) for x in (A, B.T))
        host.run(source, [a, b, D], block=(32, 1, 1), entry=f"k<{m}, {n}>")
        assert np.array_equal(D.T, A @ B + 0.5)


@pytest.mark.parametrize("parameters", [
    "matrix_a, 16, 16, 8, precision::tf32, row_major",
    "matrix_a, 16, 16, 16, signed char, row_major",
    "accumulator, 16, 16, 16, int",
    "matrix_b, 8, 8, 4, double, row_major",
])  # fmt: skip
def test_wmma_that_is_not_supported(host: Host, parameters: str) -> None:
    source = f"""\
#include <mma.h>
using namespace nvcuda::wmma;
__global__ void k(float* x) {{
    fragment<{parameters}> a;
}}"""
    with pytest.raises(CompileError) as caught:
        host.compile(source)
    message = (
        r"kernels/x\.cu:4: error: .*WMMA of this shape or type is not supported on the CPU back"
    )
    assert re.match(message, str(caught.value))


def test_a_leading_dimension_that_no_gpu_takes(host: Host) -> None:
    args = [
        np.zeros((16, 20), np.float16),
        np.zeros((20, 20), np.float16),
        zeros(16, 20),
        zeros(16, 20),
    ]
    entry = "k<half, float, wmma::row_major, wmma::row_major>"
    with pytest.raises(KernelFault, match=r"x\.cu:18") as caught:
        host.run(dedent(WMMA), [*args, 16, 16, 20], block=(32, 1, 1), entry=entry)
    assert "the leading dimension is a multiple of 16 bytes" in str(caught.value)


# ---- pipelines ----------------------------------------------------------------------------


@pytest.mark.parametrize("header", ["cuda_pipeline.h", "cuda_pipeline_primitives.h"])
def test_pipeline(host: Host, header: str) -> None:
    source = f"""
    #include <{header}>
    __global__ void k(const float* a, float* b) {{
        __shared__ alignas(16) float s[2][64];
        int t = threadIdx.x;
        __pipeline_memcpy_async(&s[0][4 * t], a + 4 * t, 16);
        __pipeline_commit();
        __pipeline_memcpy_async(&s[1][4 * t], a + 64 + 4 * t, 8);
        __pipeline_memcpy_async(&s[1][4 * t + 2], a + 66 + 4 * t, sizeof(float));
        __pipeline_memcpy_async(&s[1][4 * t + 3], a + 67 + 4 * t, 4, 4);
        __pipeline_commit();
        __pipeline_wait_prior(1);
        __syncthreads();
        b[t] = s[0][63 - t];
        __pipeline_wait_prior(0);
        __syncthreads();
        for (int i = 0; i < 4; ++i) b[64 + 4 * t + i] = s[1][4 * t + i];
        float4 filled;
        __pipeline_memcpy_async(&filled, a, 16, 6);
        if (filled.x != a[0] || filled.y != a[1] || filled.w != 0) b[0] = -1;
    }}"""
    a, b = np.arange(1, 129, dtype=np.float32), zeros(128)
    host.run(source, [a, b], block=(16, 1, 1))
    second = a[64:].copy()
    second[3::4] = 0
    assert np.array_equal(b[:16], a[63:47:-1])
    assert np.array_equal(b[64:], second)


@pytest.mark.parametrize(
    ("size", "zfill", "condition"), [(12, 0, "size == 4"), (4, 5, "zfill <= size")]
)
def test_pipeline_mistakes(host: Host, size: int, zfill: int, condition: str) -> None:
    source = """\
#include <cuda_pipeline.h>
__global__ void k(float* a, int size, int zfill) {
    __shared__ float4 s[2];
    __pipeline_memcpy_async(&s[0], a, size, zfill);
}"""
    with pytest.raises(KernelFault, match=r"kernels/x\.cu:4") as caught:
        host.run(source, [zeros(8), size, zfill])
    assert condition in str(caught.value)


# ---- cooperative groups -------------------------------------------------------------------


def test_a_block(host: Host) -> None:
    source = """
    #include <cooperative_groups.h>
    namespace cg = cooperative_groups;
    __global__ void k(float* x) {
        __shared__ float s[48];
        auto block = cg::this_thread_block();
        cg::thread_block same = block;
        const unsigned rank = block.thread_rank();
        const bool is_row = block.thread_index().y == rank / 8;
        s[rank] = rank + 1000 * block.group_index().x + 10000 * is_row;
        block.sync();
        float v = s[block.size() - 1 - rank];
        cg::sync(same);
        s[rank] = v + 100000 * (block.group_dim().y + cg::group_size(block) + block.num_threads());
        same.sync();
        x[blockIdx.x * 48 + rank] = s[cg::thread_rank(block)];
    }"""
    x = zeros(2, 48)
    host.run(source, [x], grid=(2, 1, 1), block=(8, 6, 1))
    expected = np.arange(47, -1, -1) + np.array([[0], [1000]]) + 10000 + 100000 * (6 + 96)
    assert np.array_equal(x, expected)


@pytest.mark.parametrize("size", [1, 2, 4, 8, 16, 32])
def test_tiles(host: Host, size: int) -> None:
    source = """
    #include <cooperative_groups.h>
    #include <cooperative_groups/reduce.h>
    using namespace cooperative_groups;
    template <int N> __global__ void k(const float* a, float* r, int n) {
        thread_block_tile<N> tile = tiled_partition<N>(this_thread_block());
        const int i = threadIdx.x;
        const float v = a[i];
        r[0 * n + i] = tile.thread_rank();
        r[1 * n + i] = tile.shfl(v, N - 1);
        r[2 * n + i] = tile.shfl_up(v, 1);
        r[3 * n + i] = tile.shfl_down(v, 1);
        r[4 * n + i] = tile.shfl_xor(v, N / 2);
        r[5 * n + i] = tile.any(i == 5) + 2 * tile.all(i >= 8);
        r[6 * n + i] = tile.ballot(i % 3 == 0);
        r[7 * n + i] = reduce(tile, v, plus<float>());
        r[8 * n + i] = reduce(tile, int(v), greater<int>());
        r[9 * n + i] = tile.meta_group_rank() + 100 * tile.meta_group_size() + 10000 * tile.size();
        tile.sync();
        if constexpr (N > 1) {
            auto half = tiled_partition<N / 2>(tile);
            r[10 * n + i] =
                half.thread_rank() + 100 * half.meta_group_rank() + 1000 * half.num_threads();
        }
    }"""
    n = 64
    a = np.random.default_rng(7).permutation(n).astype(np.float32)
    r = zeros(11, n)
    host.run(source, [a, r, n], block=(n, 1, 1), entry=f"k<{size}>")
    i = np.arange(n)
    rank, first = i % size, i - i % size
    tiles, half = a.reshape(-1, size), max(size // 2, 1)
    expected = [
        rank,
        a[first + size - 1],
        a[np.where(rank >= 1, i - 1, i)],
        a[np.where(rank + 1 < size, i + 1, i)],
        a[i ^ (size // 2)],
        (5 // size == i // size) + 2 * (first >= 8),
        [sum(1 << t for t in range(size) if (f + t) % 3 == 0) for f in first],
        np.repeat(tiles.sum(1), size),
        np.repeat(tiles.max(1), size),
        i // size + 100 * (n // size) + 10000 * size,
        (rank % half + 100 * (rank // half) + 1000 * half) * (size > 1),
    ]
    assert np.array_equal(r, np.array(expected, np.float32))


def test_a_fault_in_a_group_names_the_users_line(host: Host) -> None:
    source = """\
#include <cooperative_groups.h>
__global__ void k(float* x) {
    auto block = cooperative_groups::this_thread_block();
    if (threadIdx.x == 3) return;
    block.sync();
}"""
    with pytest.raises(KernelFault, match=r"waits at .*kernels/x\.cu:5"):
        host.run(source, [zeros(1)], block=(8, 1, 1))


# ---- whole kernels ------------------------------------------------------------------------

FOLDER = Path(__file__).parent / "constructs"
KERNELS = {kernel.name: kernel for kernel in load_registry([FOLDER], FOLDER).kernels("host")}
ORDERS = (ASCENDING, DESCENDING, ThreadOrder("random", 3))


def test_every_kernel_is_declared() -> None:
    assert set(KERNELS) == {path.stem for path in FOLDER.glob("*.cu")}


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_is_right_and_nothing_is_found_in_it(default_host: Host, name: str) -> None:
    for order in ORDERS:
        problem = Problem.parse("37x41x36")
        report, C, wanted = check(default_host.backend, KERNELS[name], problem, order=order)
        assert np.array_equal(C, wanted)
        assert [str(finding) for finding in report.findings] == []
        assert report.fault is None


# A kernel, what is left out or changed there, and what must be found.
BROKEN = [
    ("wmma", "        __syncthreads();\n        wmma", "        wmma", "race", 31, 25),
    ("wmma", "        __syncthreads();  // before the next tile\n", "", "race", 25, 32),
    ("wmma", "(a, &As[0][0]", "(a, &As[1][0]", "out-of-bounds", 32, 0),
    ("wmma", "    __syncwarp();\n", "", "race", 40, 37),
    ("wmma", "row < M && col < N) C", "row <= M && col < N) C", "out-of-bounds", 41, 0),
    ("bfloat16_tile", "        __syncthreads();\n        for", "        for", "race", 14, 17),
    ("half2_dot", "As[threadIdx.y][i],", "As[threadIdx.y][i + 1],", "out-of-bounds", 25, 0),
    ("pipelined", "        __syncthreads();\n    }", "    }", "race", 29, 17),
    ("pipelined", "+ k : A", "+ k + 1 : A", "misaligned", 17, 0),
    ("tile_reduction", "    block.sync();\n", "", "race", 21, 23),
]


@pytest.mark.parametrize(("name", "old", "new", "kind", "line", "other_line"), BROKEN)
def test_what_is_wrong_is_found_on_its_line(
    default_host: Host, name: str, old: str, new: str, kind: str, line: int, other_line: int
) -> None:
    kernel = KERNELS[name]
    assert kernel.source.count(old) == 1
    broken = replace(kernel, source=kernel.source.replace(old, new))
    report, *_ = check(default_host.backend, broken, Problem.parse("37x41x36"))
    places = [(f.kind, f.place.file, {f.line, f.other_place.line}) for f in report.findings]
    assert (kind, kernel.filename, {line, other_line}) in places


# ---- what there is not --------------------------------------------------------------------

NOT_SUPPORTED = {
    'asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(1), "l"(x));': "inline PTX",
    'asm("wgmma.fence.sync.aligned;");': "inline PTX",
    "child<<<1, 1>>>(x);": "launching a kernel with <<<...>>>",
    "cudaDeviceSynchronize();": "CUDA's host API",
    "__shared__ cuda::barrier<cuda::thread_scope_block> b;": "libcu++ (cuda::barrier",
    "cuda::memcpy_async(x, x, 4, b);": "libcu++",
    "cg::memcpy_async(cg::this_thread_block(), x, x, 4);": "an asynchronous copy",
    "cg::this_grid().sync();": "a barrier of the whole grid",
    "cg::this_cluster().sync();": "a thread block cluster",
    "auto active = cg::coalesced_threads();": "a group that is neither a block nor a tile",
    "cub::WarpReduce<float>();": "a device library (CUB, CUTLASS, Thrust)",
    "cutlass::half_t h;": "a device library (CUB, CUTLASS, Thrust)",
    "CUtensorMap map;": "a TMA copy (CUtensorMap)",
    "__mbarrier_init(x, 1);": "an asynchronous copy",
    "x[0] = tex1Dfetch<float>(t, 1);": "a texture or surface",
    "cudaTextureObject_t t;": "a texture or surface",
    "unsigned m = __activemask();": "__activemask",
    "unsigned m = __match_any_sync(~0u, 1);": "a warp reduction or match",
    "unsigned a = __cvta_generic_to_shared(x);": "an address for inline PTX",
    "__nv_fp8_e4m3 f;": "a floating-point type of 8 bits or less",
}


@pytest.mark.parametrize("statement", NOT_SUPPORTED)
def test_what_is_not_supported_is_said_with_the_line(default_host: Host, statement: str) -> None:
    source = f"""\
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
__global__ void k(float* x) {{
    {statement}
}}"""
    with pytest.raises(CompileError) as caught:
        default_host.compile(source)
    first = str(caught.value).partition("\n")[0]
    assert first.startswith("kernels/x.cu:4: error: ")
    assert f"{NOT_SUPPORTED[statement]}" in first
    assert "is not supported on the CPU back end; guard it with" in first


@pytest.mark.parametrize("attribute", ["__cluster_dims__(2, 1, 1)"])
def test_clusters(default_host: Host, attribute: str) -> None:
    with pytest.raises(CompileError, match=r"x\.cu:2: error: a thread block cluster is not"):
        default_host.compile(f"\n__global__ void {attribute} k(float* x) {{}}")


@pytest.mark.parametrize(
    "header", ["cuda_fp8.h", "cooperative_groups/memcpy_async.h", "cuda/pipeline"]
)
def test_headers_that_are_not_supported(default_host: Host, header: str) -> None:
    with pytest.raises(
        CompileError, match=rf"x\.cu:1: error: {re.escape(header)} is not supported"
    ):
        default_host.compile(f"#include <{header}>\n__global__ void k(float* x) {{}}")


def test_more_shared_memory_than_a_gpu_has(host: Host) -> None:
    source = """\
template <int N> __global__ void k(float* x) {
    __shared__ float s[N];
    x[0] = s[0];
}"""
    host.compile(source, f"k<{227 * 256}>")
    with pytest.raises(CompileError, match=r"x\.cu:2: error: .*more than 227 KB of shared memory"):
        host.compile(source, f"k<{227 * 256 + 1}>")
