"""What of a CUDA file is its device part."""

from __future__ import annotations

import contextlib
from textwrap import dedent

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_gemm.errors import SpecError
from pytest_gemm.slicing import device_part, explain, slice_source

KERNEL = "__global__ void k(float* x) { x[0] = 1; }"


def kept(source: str) -> str:
    """The words that stay."""
    text = device_part(source, "x.cu")
    assert text.count("\n") == source.count("\n")
    assert device_part(text, "x.cu") == text
    return " ".join(text.split())


STAYS = [
    KERNEL,
    "template <typename T, int N = (3 > 2)> __global__ void __launch_bounds__(256) k(T* x) {}",
    "__device__ float f(float x);",
    "__host__ __device__ int cdiv(int a, int b) { return (a + b - 1) / b; }",
    "#define HD __host__ __device__\nHD int f() { return 1; }",
    "#define A __device__\n#define B A inline\nB int f() { return 1; }",
    "constexpr int f(int a) { return a; }",
    "template <class T> constexpr T f(T a) { return a; }",
    "constexpr int N = 3; static constexpr float x[] = {1, 2};",
    "const int N = 3, M = 2 * N; int const K = int(2.5f); const float x[] = {1, 2};",
    'const char* const name = "x";',
    "#define CEIL(a, b) ((a) / (b))\nconst int N = CEIL(9, 2);",
    "constexpr int f() { return 3; }\nconst int N = f();",
    "__constant__ float c[3]; __device__ int n = 0; static __device__ float* p;",
    "extern __shared__ float s[]; __shared__ float t[3];",
    "struct P { int m, n; float v[2] = {1, 2}; };",
    "struct P { __device__ P() : x{1}, y(2) {} int x, y; ~P() = default; };",
    "struct P { __host__ __device__ float operator()(float a) const { return a; } };",
    "struct P { __device__ bool operator==(const P& o) const { return x == o.x; } int x; };",
    "struct P { P& operator=(const P&) = delete; template <int N> __device__ void f(); };",
    "struct P { void (*f)(int); union { int a; float b; }; struct { int c; } d; };",
    "template <int N> __device__ void P::f() {}",
    "struct __align__(16) V { float x; }; struct alignas(8) W { int x; }; union U { int a; };",
    "struct P { char c; int x; } __attribute__((packed));",
    "#define ALIGNED(n) __align__(n)\nstruct ALIGNED(16) V { float x; };",
    "typedef struct { int w; float* e; } Matrix; typedef float real; typedef void (*f)(int);",
    "struct P; template <typename T> struct Q; template <> struct Q<float> { int x; };",
    "enum E { A, B = 2 }; enum class F : int { A }; typedef enum { X, Y } G;",
    "using real = float; using T = std::conditional_t<true, int, float>; using std::size_t;",
    "namespace a::b { namespace { __device__ int f() { return 1; } } } using namespace a::b;",
    "namespace benchmark { __device__ int f(); }\n__device__ int g() { return benchmark::f(); }",
    "inline namespace v1 { struct P {}; }\nnamespace cg = cooperative_groups;",
    'static_assert(sizeof(int) == 4, "int");',
    "template __global__ void k<float>(float*);",
    "template <class T> __global__ void k(T*) {}\ntemplate void k<float>(float*);",
    'extern "C" { __global__ void k(float*); }\nextern "C" __global__ void m() {}',
    "#define K(n) __global__ void k##n() {}\nK(1)\nK(2);",
    "#define BEGIN namespace a {\n#define END }\nBEGIN\n__device__ int f();\nEND",
    "#ifdef A\n__device__ void f(int) {\n#else\n__device__ void f() {\n#endif\n}",
    "#if 0\nfoo({\n#endif",
    '#include <cuda_fp16.h>\n#include <mma.h>\n#include <stdio.h>\n#include "tile.cuh"',
    "#include <limits>\n__device__ float f() { return std::numeric_limits<float>::max(); }",
    "#include <unistd.h>\n__device__ void f() { _exit(0); }",
    "#include <cub/cub.cuh>\n__device__ void f() { cub::WarpReduce<float>(); }",
    '// int main() {\n/* std::vector<int> v; */ __device__ const char s[] = "int main() {";',
]


@pytest.mark.parametrize("source", STAYS)
def test_device_code_stays_byte_for_byte(source: str) -> None:
    assert device_part(source, "x.cu") is source
    windows = source.replace("\n", "\r\n")
    assert device_part(windows, "x.cu") is windows


GOES = [
    "int main(int argc, char** argv) { return 0; }",
    "auto main() -> int { k<<<1, 1>>>(nullptr); }",
    "__host__ void f() {}",
    "static inline float f(float a = 3, int b[] = {}) { return a; }",
    "template <typename T> void launch(T* x) { k<<<dim3(1), 2>>>(x); }",
    "template void launch<float>(float*);",
    "template <> void launch<int>(int* x) {}",
    'void f(float*); extern int verbose; extern "C" void g();',
    "int N = 1024; float *d_A, *d_B; float h[2][3] = {{1}}; volatile int v{3};",
    'const char* names[] = {"a"}; const float* p = nullptr;',
    'const int n = atoi("3"); static const double t = std::sqrt(2.0) + clock();',
    "double (*clock_function)(void) = &now;",
    'std::vector<float> v; std::string s = "x"; static std::mt19937 g{42};',
    "cublasHandle_t handle; cudaStream_t s, t; FILE* file; struct timeval begin;",
    "auto f = [](int a) { return a; };",
    "class Timer { cudaEvent_t a; public: Timer() {} };",
    "struct B : std::exception { int x; };",
    "template <typename T> struct Host { std::vector<T> data; T* get() { return data.data(); } };",
    "struct A { std::string s; };\nstruct B { A a; }; using C = A; A a; typedef B D;",
    "struct { int a; } rows[] = {{1}, {2}};",
    "using Clock = std::chrono::steady_clock; using std::cout; typedef std::vector<int> V;",
    'constexpr std::string_view name() { return "x"; }',
    "using namespace std;\nvector<int> f() { return {}; }\nstruct R { vector<int> v; string s; };",
    "std::ostream& operator<<(std::ostream& o, int x) { return o; }",
    "void P::f() const {}\nP::P() : x{1}, y(2) {}\nint P::count = 0;",
    "using namespace torch; namespace py = pybind11; namespace F = torch::nn::functional;",
    "template <typename T> __global__ void m(torch::PackedTensorAccessor32<T, 2> a) {}",
    "__device__ float f(float x) { return c10::cuda::compat::tanh(x); }",
    "using torch::Half; using A = at::Half;\n"
    "__global__ void m(Half* x) {}\n__global__ void n(A* x) {}",
    "namespace F = at::native;\n__device__ void f() { F::g(); }",
    "template <class T> __global__ void m(at::acc_type<T, true>* x) {}\n"
    "template __global__ void m<float>(float* x);",
    'PYBIND11_MODULE(name, m) { m.def("f", &f); }',
    "TEST(Suite, Name) { EXPECT_EQ(1, 1); }",
    "BENCHMARK(f)->Range(8, 64);",
    "#define LAUNCHER(n) void run##n() { k<<<1, n>>>(); }\nLAUNCHER(1) LAUNCHER(2);",
    '#include <iostream>\n#include <vector>\n# include "cublas_v2.h"\n#include <sys/time.h>',
    "#include <thrust/device_vector.h>\n#include <cub/cub.cuh>\n#include <algorithm>",
]


@pytest.mark.parametrize("source", GOES)
def test_host_code_goes(source: str) -> None:
    directives = "#define", "using namespace"
    rest = [
        line
        for line in device_part(source, "x.cu").splitlines()
        if line and not line.startswith(directives)
    ]
    assert rest == []
    text = device_part(f"{source}\n{KERNEL}\n{source}\n", "x.cu")
    assert KERNEL in text.splitlines()[source.count("\n") + 1]


def test_a_type_loses_its_host_functions() -> None:
    source = dedent("""\
        struct P {
            P() : x{1} { cudaMalloc(&p, 4); }  // allocates
            __device__ P(int x) : x(x) {}
            float* p; static int count;
            friend std::ostream& operator<<(std::ostream& o, const P& p) { return o << p.x; }
            bool operator==(const P& o) const;
            int x;
            struct Inner { int host() { return 1; } __device__ int device() { return 2; } int y; };
        } instance;
        """)
    assert [" ".join(line.split()) for line in device_part(source, "x.cu").splitlines()] == [
        "struct P {",
        "// allocates",
        "__device__ P(int x) : x(x) {}",
        "float* p;",
        "",
        "",
        "int x;",
        "struct Inner { __device__ int device() { return 2; } int y; };",
        "} ;",
    ]


def test_directives_stay_and_pragmas_of_host_code_go() -> None:
    source = "int main() {\n#ifdef A\n#pragma omp parallel\n#define N 3\n#endif\n}\n#pragma once\n"
    assert device_part(source, "x.cu") == "\n#ifdef A\n\n#define N 3\n#endif\n\n#pragma once\n"


def test_what_host_headers_brought_along() -> None:
    source = "#include <vector>\n#include <string>\n#include <map>\n__device__ int64_t f();\n"
    source += "__device__ std::size_t g() { return INT_MAX; }\n"
    text = device_part(source, "x.cu")
    assert text.splitlines()[:3] == [
        "#include <cstdint>",
        "#include <cstddef>",
        "#include <climits>",
    ]
    assert "cstdint" not in kept("#include <stdint.h>\n#include <vector>\n__device__ int64_t f();")
    assert device_part("#include <vector>\n__device__ int f();", "x.cu").startswith("\n")


def test_plain_constexpr_functions() -> None:
    assert slice_source("constexpr int f() { return 1; }", "x.cu").has_plain_constexpr
    assert not slice_source(
        "__device__ constexpr int f() { return 1; }", "x.cu"
    ).has_plain_constexpr
    assert not slice_source("constexpr int x = 1;" + KERNEL, "x.cu").has_plain_constexpr


MISTAKES = {
    "int main() {\n  if (1) {\n}\n": (1, "{ is never closed: balance the brackets, or move the "),
    "#include <iostream>\n__device__ int f() { return 1; }\n}\n": (3, "} closes nothing here: "),
    "#include <iostream>\n__device__ int f(int a[3) { return 1; }\n": (2, ") closes nothing here"),
    "#define BOTH(n) __global__ void k##n() {} void run##n() { k##n<<<1, 1>>>(); }\n\nBOTH(1)\n": (
        3,
        "the macro BOTH defines a kernel and launches it: move the launch out",
    ),
    "struct P {\n  __device__ int f() { return 1; }\n  std::vector<int> v;\n};\n": (
        3,
        "P has device functions and a member of a host type: move one to another type",
    ),
}


@pytest.mark.parametrize("source", MISTAKES)
def test_mistakes_name_the_line(source: str) -> None:
    line, message = MISTAKES[source]
    with pytest.raises(SpecError) as caught:
        device_part(source, "x.cu")
    assert str(caught.value).startswith(f"x.cu:{line}: {message}")
    with pytest.raises(SpecError, match=rf"^h\.cuh:{line + 6}: "):
        device_part(f'#line 7 "h.cuh"\n{source}', "x.cu")


def test_brackets_of_a_file_without_host_code_are_the_compilers_matter() -> None:
    source = "__global__ void k(float* x) {\n"
    assert device_part(source, "x.cu") is source


@pytest.mark.parametrize("message", [
    "'cdiv' was not declared in this scope",
    'identifier "cdiv" is undefined',
    "use of undeclared identifier 'cdiv'",
    "no matching function for call to 'cdiv(int, int)'",
    "no matching function for call to 'math::cdiv::cdiv(int, int)'",
])  # fmt: skip
def test_a_missed_name_is_explained(message: str) -> None:
    source = '#line 7 "h.cuh"\nint cdiv(int a, int b) { return a / b; }\n' + KERNEL
    assert explain(source, "x.cu", message) == (
        " (cdiv in h.cuh:7 is host code, which is left out: mark it __host__ __device__)"
    )
    assert explain(source, "x.cu", message.replace("cdiv", "other")) == ""


def test_a_device_function_of_a_host_library_is_explained() -> None:
    source = "__device__ float f(float x) {\n  return at::log(x);\n}\n" + KERNEL
    assert explain(source, "x.cu", "'f' was not declared in this scope") == (
        " (f in x.cu:1 uses at::log of a host library: it is left out)"
    )


PIECES = ["__global__", "__device__", "void", "f", "(", ")", "<", ">", "{", "}", "template", "int"]
PIECES += [",", "=", ";", '"', "'", "//", "/*", "*/", "\n", "\\", "namespace", "struct", "class"]
PIECES += ['extern "C"', "[", "]", "*", ":", "operator", "const", "\n#if A\n", "\n#else\n", "main"]
PIECES += ["\n#endif\n", "\n#define A {\n", "A", "\n#include <vector>\n", "std::vector", "typedef"]
PIECES += ["<<<", "enum", "using", "public:", "static", "~", "->"]


@settings(max_examples=600)
@given(st.lists(st.sampled_from(PIECES), max_size=40).map(" ".join))
def test_any_text_keeps_its_lines_or_is_refused(source: str) -> None:
    text = source
    with contextlib.suppress(SpecError):
        text = device_part(source, "x.cu")
    assert text.count("\n") == source.count("\n")
