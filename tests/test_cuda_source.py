from __future__ import annotations

from textwrap import dedent

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_gemm import cuda_source
from pytest_gemm.cuda_source import Function, Parameter, TemplateParameter, find_kernels


def only(source: str) -> Function:
    (function,) = find_kernels(source)
    return function


def test_parameters() -> None:
    function = only("""
__global__ void gemm(const float* __restrict__ A, float const *B,
    float C[], float (*D)[16], float * const E, float F[4][8],
    const unsigned long long int n, std::size_t m, float alpha = 1.0f,
    int, void*, [[maybe_unused]] int last) {}
""")
    assert function.name == "gemm"
    assert function.line == 2
    assert [(p.name, p.type, p.line, p.kind) for p in function.parameters] == [
        ("A", "const float*", 2, "pointer"),
        ("B", "float const*", 2, "pointer"),
        ("C", "float*", 3, "pointer"),
        ("D", "float*", 3, "pointer"),
        ("E", "float*", 3, "pointer"),
        ("F", "float*", 3, "pointer"),
        ("n", "const unsigned long long int", 4, "integer"),
        ("m", "std::size_t", 4, "integer"),
        ("alpha", "float", 4, "float"),
        ("", "int", 5, "integer"),
        ("", "void*", 5, "pointer"),
        ("last", "int", 5, "integer"),
    ]


@pytest.mark.parametrize(
    ("type_", "kind"),
    [
        ("unsigned", "integer"),
        ("const int64_t", "integer"),
        ("double", "float"),
        ("long double", "float"),
        ("T", "other"),
        ("float4", "other"),
        ("Shape<16, 8>", "other"),
        ("Matrix<float>*", "pointer"),
    ],
)
def test_kind(type_: str, kind: str) -> None:
    assert Parameter("x", type_, 1).kind == kind


@pytest.mark.parametrize(
    ("head", "bounds"),
    [
        ("__global__ void gemm(int N)", ""),
        ("void __global__ gemm(int N)", ""),
        ("static inline __global__ void gemm(int N)", ""),
        ("__global__ __launch_bounds__(256) void gemm(int N)", "256"),
        ("__global__ void __launch_bounds__(256, 2) gemm(int N)", "256, 2"),
        ("__launch_bounds__(128) __global__ void gemm(int N)", "128"),
        ("__global__ void gemm(int N) __launch_bounds__(64)", "64"),
        ("__global__\nvoid\n__launch_bounds__((BM * BN)\n/ 4)\ngemm(\nint N\n)", "(BM * BN) / 4"),
        ("__global__ void KERNEL gemm(int N)", ""),
        ("__global__ KERNEL(7) void gemm(int N)", ""),
        ("__global__ void __attribute__((noinline)) gemm(int N)", ""),
        ("__global__ __cluster_dims__(2, 1, 1) void gemm(int N)", ""),
        ('extern "C" __global__ void gemm(int N)', ""),
        ("template <>\n__global__ void gemm<16>(int N)", ""),
    ],
)
def test_head(head: str, bounds: str) -> None:
    function = only(f"__device__ void f(float x) {{}}\n{head} {{ int x = (1); }}\n")
    assert function.name == "gemm"
    assert [p.name for p in function.parameters] == ["N"]
    assert function.launch_bounds == bounds


def test_template() -> None:
    function = only(
        "template <int BM, int BN = (3 > 2), typename T = float, template <typename> class U,"
        " unsigned int, class... R>\n__global__ void gemm(const T* A, U<int> u) {}"
    )
    assert function.template == (
        TemplateParameter("BM"),
        TemplateParameter("BN", has_default=True),
        TemplateParameter("T", has_default=True),
        TemplateParameter("U"),
        TemplateParameter(""),
        TemplateParameter("R", is_pack=True),
    )
    assert [p.name for p in function.parameters] == ["A", "u"]


def test_an_ordinary_function_after_a_template_has_none() -> None:
    source = "template <int X> __device__ int f() { return X; }\n__global__ void gemm(int N) {}"
    assert only(source).template is None
    assert cuda_source.template_names(source) == {"X"}


def test_comments_strings_and_macros_hold_no_kernels() -> None:
    function = only(r"""
#define KERNEL __global__ void fake(int x) \
    { } __global__ void fake2(int x)
// __global__ void c1(int a) {} \
   __global__ void c2(int a) {}
/* __global__ void c3(int a) {} */
const char* s = "__global__ void \" c4(int a) {}"; char q = '"', p = u8'\''; int big = 1'000'000;
const char* r = R"x(__global__ void c5() {} )" )x";
__global__ void real(/* int a, */ int N // the number
                     , int K) {}
""")
    assert function.name == "real"
    assert function.line == 9
    assert [(p.name, p.line) for p in function.parameters] == [("N", 9), ("K", 10)]


def test_scopes() -> None:
    source = """
namespace a::b {
namespace { inline __global__ void deep(int M) {} }
struct S { int x; };
__global__ void second(void);
}
extern "C" {
__global__ void third(float4* a) {}
}
namespace c { __device__ void no() {} }
__global__ void fourth() {}
"""
    found = {f.name: (f.line, len(f.parameters)) for f in find_kernels(source)}
    assert found == {
        "a::b::deep": (3, 1),
        "a::b::second": (5, 0),
        "third": (8, 1),
        "fourth": (11, 0),
    }


@pytest.mark.parametrize(
    ("marks", "head"),
    [
        ("#define KERNEL __global__", "KERNEL void k"),
        ('#define KERNEL extern "C" __global__ void', "KERNEL k"),
        ("#ifdef A\n#define GPU __global__\n#else\n#define GPU\n#endif", "static GPU void k"),
        ("#define GPU __global__ __launch_bounds__(64)", "GPU void k"),
    ],
)
def test_a_macro_may_mark_a_kernel(marks: str, head: str) -> None:
    source = f"{marks}\n// KERNEL GPU\n{head}(float* A, int n)\n{{}}\n"
    (function,) = find_kernels(source)
    assert (function.name, function.line, function.is_definition) == (
        "k",
        source[: source.index(head)].count("\n") + 1,
        True,
    )
    assert [parameter.name for parameter in function.parameters] == ["A", "n"]


def test_what_is_disabled_is_no_kernel() -> None:
    source = dedent("""\
        #if 0
        __global__ void a() {}
        #if 1
        __global__ void b() {}
        #else
        __global__ void c() {}
        #endif
        # else
        __global__ void d() {}
        #endif
        #ifdef X
        __global__ void e() {}
        #  if 0  // not now
        __global__ void f() {
        #  elif Y
        __global__ void g() {}
        #endif
        #endif
        #if 0x1
        __global__ void h() {}
        #endif
        #if 0
        __global__ void i() {}
        """)
    found = [(function.name, function.line) for function in find_kernels(source)]
    assert found == [("d", 9), ("e", 12), ("g", 16), ("h", 20)]


def test_a_definition_is_preferred_to_its_declaration() -> None:
    function = only("__global__ void gemm(int);\n__global__ void gemm(int N) {}\n")
    assert (function.line, function.parameters[0].name) == (2, "N")


def test_crlf_keeps_lines() -> None:
    function = only("// one\r\n// two\r\n__global__ void gemm(int M,\r\n int N) {}\r\n")
    assert [p.line for p in function.parameters] == [3, 4]


def test_line_directives() -> None:
    source = (
        'int a;\n#line 1 "kernels/\\"t\\".cuh"\n\n__global__ void f(int M,\n int N);\n'
        '# line 7 /* x */ "k.cu" // y\n__global__ void g(int M);\n#line 50\nvoid __global__ h();\n'
        '// #line 90\nconst char* s = "\\\n#line 99";\n__global__ void last();\n'
    )
    found = {
        f.name: (f.file, f.line, [(p.file, p.line) for p in f.parameters])
        for f in find_kernels(source)
    }
    header = 'kernels/"t".cuh'
    assert found == {
        "f": (header, 2, [(header, 2), (header, 3)]),
        "g": ("k.cu", 7, [("k.cu", 7)]),
        "h": ("k.cu", 50, []),
        "last": ("k.cu", 54, []),
    }
    assert cuda_source.locate(source, 1) == ("", 1)
    assert cuda_source.line_files(source) == {header, "k.cu"}
    assert list(found) == ["f", "g", "h", "last"]


def test_what_is_no_line_directive() -> None:
    source = "#line\n#line x\n#line 12345678901\n#lines 3\nint line = 3;\n__global__ void f();"
    assert only(source).line == 6


@pytest.mark.parametrize(
    ("entry", "arguments"),
    [
        ("gemm", None),
        ("gemm<>", ()),
        ("gemm<BM, 8>", ("BM", "8")),
        ("gemm<(BM > 8), T<1, 2>>", ("(BM > 8)", "T<1, 2>")),
    ],
)
def test_template_arguments(entry: str, arguments: tuple[str, ...] | None) -> None:
    assert cuda_source.template_arguments(entry) == arguments


@pytest.mark.parametrize(
    ("type_", "bits", "signed"),
    [
        ("int", 31, True),
        ("const unsigned int", 32, False),
        ("uint32_t", 32, False),
        ("size_t", 64, False),
        ("long long", 63, True),
        ("short", 15, True),
        ("unsigned char", 8, False),
        ("bool", 1, False),
    ],
)
def test_integer_range(type_: str, bits: int, signed: bool) -> None:
    low = -(2**bits) if signed else 0
    assert cuda_source.integer_range(type_) == (low, 2**bits - 1)


def test_integer_constants() -> None:
    source = """
#define BM 64
#  define BN (BM / 2)   // half
#define SUM BM + BN
#define SQUARE(x) ((x) * (x))
constexpr int TM = 4, TN = min(TM, 8);
static const unsigned int THREADS = BM * BN / (TM * TN);
#ifdef WIDE
constexpr int BK = 16;
#else
constexpr int BK = 8;
#endif
// constexpr int GONE = 1;
__global__ void mm(const float* A, int M) { const int row = threadIdx.y; }
"""
    assert cuda_source.integer_constants(source) == {
        "BM": "64",
        "BN": "(BM / 2)",
        "TM": "4",
        "TN": "min(TM, 8)",
        "THREADS": "BM * BN / (TM * TN)",
        "row": "threadIdx.y",
    }


PIECES = ["__global__", "void", "f", "(", ")", "<", ">", "{", "}", "template", "int", ",", "=", ";"]
PIECES += ['"', "'", "//", "/*", "*/", "\n", "\\", "namespace", 'extern "C"', "[", "]", "A", "*"]


@settings(max_examples=500)
@given(st.lists(st.sampled_from(PIECES), max_size=40).map(" ".join))
def test_any_text_can_be_read(source: str) -> None:
    lines = source.count("\n") + 1
    assert cuda_source.strip(source).count("\n") + 1 == lines
    assert len(cuda_source.strip(source)) == len(source)
    for function in find_kernels(source):
        assert 1 <= function.line <= lines
    cuda_source.template_names(source)
    cuda_source.integer_constants(source)
