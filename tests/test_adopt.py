"""``pytest-gemm adopt`` on kernels in the styles of the wild, and what it is made of."""

from __future__ import annotations

import re
import shutil
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from pytest_gemm.adopt.adopting import adopt
from pytest_gemm.adopt.arguments import arguments
from pytest_gemm.adopt.attempt import Attempt
from pytest_gemm.adopt.blocks import blocks
from pytest_gemm.adopt.found import Found
from pytest_gemm.adopt.grids import usual
from pytest_gemm.adopt.host_code import HostCode
from pytest_gemm.adopt.kinds import Kind, kinds
from pytest_gemm.adopt.launches import LaunchCode, find_launches
from pytest_gemm.adopt.names import matrix_scores, scalar_scores, size_scores
from pytest_gemm.adopt.notes import on_keys
from pytest_gemm.adopt.prober import Prober
from pytest_gemm.adopt.reading import Reading
from pytest_gemm.adopt.sizes import Sizes
from pytest_gemm.adopt.source import read_source
from pytest_gemm.adopt.variant import Variant, by_meaning
from pytest_gemm.adopt.variants import Uncompilable, variants
from pytest_gemm.adopt.writing import place_for
from pytest_gemm.backends.base import CudaProgram, LaunchConfig
from pytest_gemm.backends.host import HostBackend
from pytest_gemm.cli import main
from pytest_gemm.correctness import check_exactly
from pytest_gemm.cuda_items import Code
from pytest_gemm.device import Workspace
from pytest_gemm.errors import BackendError, SpecError
from pytest_gemm.expressions import compile_expression
from pytest_gemm.kernelspec import Kernel, KernelSpec
from pytest_gemm.launching import arguments_of
from pytest_gemm.problem import Problem
from pytest_gemm.registry import load_registry

FILES = Path(__file__).parent / "adopting"


@dataclass(frozen=True)
class Wild:
    """A file, the declaration that it gets, and what is said of it.

    Without ``args`` it is refused. ``problem`` has odd sizes as far as the kernel takes them.
    """

    name: str
    args: str = ""
    grid: tuple[str, ...] = ("cdiv(N, 16)", "cdiv(M, 16)")
    block: tuple[str, ...] = ("16", "16")
    requires: tuple[str, ...] = ()
    says: tuple[str, ...] = ()
    problem: str = "37x29x19"
    shared_mem: str = "0"
    params: tuple[tuple[str, int], ...] = ()
    kind: tuple[tuple[str, object], ...] = ()


WILD = (
    Wild("widths", "A B C M K N"),
    Wild("nameless", "A B C N M K"),
    Wild("wide_integers", "C A B K M N", ("cdiv(M, 16)", "cdiv(N, 16)")),
    Wild(
        "c_first",
        "C A B K N",
        ("cdiv(N, SIDE)", "cdiv(M, SIDE)"),
        ("32", "32"),
        ("M % 32 == 0", "N % 32 == 0", "K % 32 == 0"),
        ("exact for multiples of 32 only, in M, N and K", r"K % 32 != 0: .*reads .* of [AB]"),
        "96x32x64",
        params=(("SIDE", 32),),
    ),
    Wild(
        "template_tile",
        "A B C M K N",
        ("cdiv(N, TILE)", "cdiv(M, TILE)"),
        params=(("TILE", 16),),
    ),
    Wild(
        "register_tile",
        "M N K alpha A B beta C",
        ("cdiv(N, BN)", "cdiv(M, BM)"),
        ("BM * BN // (TM * TN)",),
        params=(("BK", 8), ("BM", 64), ("BN", 32), ("TM", 8), ("TN", 4)),
    ),
    Wild("flat_block", "M N K A B C", ("cdiv(M, 32)", "cdiv(N, 32)"), ("1024",)),
    Wild("flat_index", "A B C M K N", ("cdiv(M * N, 256)",), ("256",)),
    Wild("thread_per_row", "A B C M K N", ("cdiv(M, 256)",), ("256",)),
    Wild("alpha_beta", "M N K alpha A B beta C"),
    Wild(
        "reads_old_c",
        "M N K alpha A B beta C",
        ("cdiv(M, 16)", "cdiv(N, 16)"),
        says=(r"reads_old_c.cu:11 reads C also where beta = 0, .* declared as finite_c = true",),
        kind=(("finite_c", True),),
    ),
    Wild(
        "column_major",
        "M N K A B C",
        ("cdiv(M, 16)", "cdiv(N, 16)"),
        kind=(("layout", "column-major"),),
    ),
    Wild("transposed_b", "A B C M N K", kind=(("transb", "T"),)),
    Wild(
        "blas_double",
        "M N K alpha A lda B ldb beta C ldc",
        ("cdiv(M, 16)", "cdiv(N, 16)"),
        kind=(("layout", "column-major"), ("transb", "T"), ("dtype", "float64")),
    ),
    Wild(
        "half_precision",
        "A B C M K N",
        ("cdiv(N, 32)", "cdiv(M, 4)"),
        ("32", "4"),
        kind=(("dtype", "float16"),),
    ),
    Wild(
        "half_products",
        "A B C M N K",
        says=("it rounds to float16 before it adds: declared as acc_dtype = float16",),
        kind=(("dtype", "float16"),),
    ),
    Wild(
        "split_k",
        "A B C M N K",
        ("cdiv(N, 16)", "cdiv(M, 16)", "4"),
        says=("adds the product to what C holds", "deterministic = false"),
        kind=(("beta", 1.0), ("deterministic", False)),
    ),
    Wild(
        "accumulates",
        "A B C M N K",
        says=("adds the product to what C holds, which is beta = 1",),
        kind=(("beta", 1.0),),
    ),
    Wild("whole_numbers", says=("whole_numbers.cu:2: mul takes matrices of a: int32, b: int32",)),
    Wild("struct_by_value", says=(r"struct_by_value.cu:10: 'Matrix A' is a struct",)),
    Wild("dynamic_shared", "A B C M N K", shared_mem="2048"),
    Wild("runtime_tile", "A B C M K N 16", shared_mem="2 * 16 * 16 * 4"),
    Wild("grid_stride", "C A B M K N", ("cdiv(N, 256)", "M"), ("256",)),
    Wild("pitched", "A 4 * lda B 4 * ldb C 4 * ldc M N K"),
    Wild(
        "row_in_shared",
        "A B C M N K",
        ("cdiv(N, 256)", "M"),
        ("256",),
        shared_mem="4 * K",
    ),
    Wild(
        "batched",
        "A B C M N K strideA strideB strideC",
        ("cdiv(N, 16)", "cdiv(M, 16)", "batch"),
    ),
    Wild(
        "strided_batch",
        "A strideA B strideB C strideC M N K",
        ("cdiv(N, 16)", "cdiv(M, 16)", "batch"),
        kind=(("dtype", "float64"),),
    ),
    Wild("own_scalars", "A B C M N K", kind=(("alpha", 1.5), ("beta", 0.5))),
    Wild(
        "ignores_ldc",
        "M N K A lda B ldb C N",
        says=(r"ldc gets N, .*with ldc = N \+ 4, on 93x69x23, ignores_ldc.cu:12: out-of-bounds",),
    ),
    Wild(
        "coarsened",
        "A B C M N K",
        ("cdiv(N, 64)", "cdiv(M, 16)"),
        requires=("M % 16 == 0", "N % 64 == 0", "K % 16 == 0"),
        says=("exact for multiples of 16 only, in M and K", "multiples of 64 only, in N"),
        problem="48x64x16",
    ),
    Wild(
        "two_groups",
        "A B C M N K",
        ("cdiv(N, 32)", "M"),
        ("32", "4"),
        says=("pass one barrier in different lines", "atomics add in any order"),
        kind=(("different_barriers", True), ("deterministic", False)),
    ),
    Wild(
        "floor_grid",
        "A B C M N K",
        says=(r"launch in line 18 has another grid, \[N // 16, M // 16\].* not written",),
    ),
    Wild(
        "host_around",
        "A B C N",
        requires=("M == N", "N == K"),
        says=(r"correct for squares only: on 192x128x64, host_around.cu:25: out-of-bounds",),
        problem="37",
    ),
    Wild(
        "rectangle_bug",
        "A B C M N K",
        requires=("N == K",),
        says=(r"correct for N == K only: on 96x64x32, rectangle_bug.cu:9: .* past the end of A",),
        problem="37x29x29",
    ),
    Wild(
        "swapped_grid",
        "A B C M N K",
        ("cdiv(N, 32)", "cdiv(M, 8)"),
        ("32", "8"),
        says=(r"launch in line 22 has another grid, \[cdiv\(M, 32\), cdiv\(N, 8\)\]",),
    ),
    Wild(
        "unguarded_tile",
        "A B C M K N",
        requires=("M % 16 == 0", "N % 16 == 0", "K % 16 == 0"),
        says=(
            "exact for multiples of 16 only, in M, N and K",
            r"M % 16 != 0: .*unguarded_tile.cu:11: .*past the end of A",
        ),
        problem="48x16x80",
    ),
    Wild(
        "large_tile",
        "A B C M N K",
        ("cdiv(N, 128)", "cdiv(M, 128)"),
        ("256",),
        ("M % 128 == 0", "N % 128 == 0", "K % 8 == 0"),
        (
            "exact for multiples of 128 only, in M and N",
            "exact for multiples of 8 only, in K",
            r"M % 128 != 0: on 385x256x64, large_tile.cu:11: .* past the end of A",
        ),
        "128x256x24",
    ),
    Wild("race", says=(r"race.cu:1[347]: race in block .* no barrier is between them",)),
    Wild(
        "macro_tile",
        "A B C M N K",
        ("cdiv(N, BLOCK)", "cdiv(M, BLOCK)"),
        params=(("BLOCK", 16),),
    ),
    Wild("leading_dimensions", "M N K alpha A lda B ldb beta C ldc"),
    Wild(
        "vectors_of_four",
        "A B C M N K",
        ("cdiv(N, 32)", "cdiv(M, 16)"),
        ("8", "16"),
        ("N % 4 == 0",),
        ("exact for multiples of 4 only, in N",),
        "37x44x19",
    ),
    Wild(
        "addition",
        "A B C M * N",
        ("cdiv(M * N, 256)",),
        ("256",),
        problem="37x29",
        kind=(("op", "add"),),
    ),
)


KIND = (
    *("op", "dtype", "layout", "transa", "transb", "alpha", "beta"),
    *("deterministic", "different_barriers", "finite_c"),
)


def adopted(path: Path, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, str]:
    """The exit code, and all that was said."""
    code = main(["adopt", str(path), *options])
    said = capsys.readouterr()
    return code, said.out + said.err


def only_kernel(path: Path) -> Kernel:
    registry = load_registry([path.parent], path.parent)
    assert not registry.errors
    (kernel,) = registry.kernels("host")
    return kernel


@pytest.fixture(scope="module")
def backend() -> HostBackend:
    return HostBackend()


def run_on(backend: HostBackend, kernel: Kernel, problem: Problem) -> None:
    """Launch as the plugin does, without watching; raises unless C is exact."""
    executable = backend.compile(CudaProgram(*kernel.program_fields))

    def launch(workspace: Workspace) -> None:
        config = LaunchConfig(*kernel.launch(problem))
        backend.time(executable, config, arguments_of(kernel, workspace))

    check_exactly(launch, backend, problem, kernel=kernel.id)


@pytest.mark.parametrize("wild", WILD, ids=lambda wild: wild.name)
def test_a_kernel_of_the_wild_is_adopted_or_refused_with_the_reason(
    wild: Wild,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    backend: HostBackend,
) -> None:
    monkeypatch.chdir(tmp_path)
    before = (FILES / f"{wild.name}.cu").read_text(encoding="utf-8")
    path = Path(shutil.copy(FILES / f"{wild.name}.cu", tmp_path))
    code, said = adopted(Path(path.name), capsys, "--write")
    for pattern in wild.says:
        assert re.search(pattern, said), said
    if not wild.args:
        assert code == 1
        assert path.read_text(encoding="utf-8") == before
        return
    assert code == 0, said
    kernel = only_kernel(path)
    assert " ".join(kernel.args) == wild.args
    assert (kernel.grid, kernel.block) == (wild.grid, wild.block)
    assert (kernel.requires, kernel.shared_mem) == (wild.requires, wild.shared_mem)
    assert kernel.params == wild.params
    plain = KernelSpec("plain")
    for key in KIND:
        assert getattr(kernel, key) == dict(wild.kind).get(key, getattr(plain, key)), key
    if not wild.says:
        assert "only" not in said
        assert "other" not in said
    problem = kernel.problem(wild.problem)
    assert not kernel.skip_reason(problem)
    run_on(backend, kernel, problem)


def test_every_file_is_in_the_table() -> None:
    assert {wild.name for wild in WILD} == {path.stem for path in FILES.glob("*.cu")}
    assert len(WILD) >= 20


def test_the_plugin_runs_what_was_written(
    pytester: pytest.Pytester, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = pytester.mkdir("kernels")
    for name in ("wide_integers", "vectors_of_four"):
        path = Path(shutil.copy(FILES / f"{name}.cu", folder))
        assert adopted(path, capsys, "--write")[0] == 0
    pytester.makepyfile("def test_kernels(gemm):\n    gemm.check()\n")
    result = pytester.runpytest_subprocess(
        "-W", "error", "--gemm-device=host", "--gemm-bench", "--gemm-size=37x44x19"
    )
    assert result.parseoutcomes() == {"passed": 2, "new": 2}


# The command


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


GUARDED = """__global__ void mul(const float *A, const float *B, float *C, int M, int N, int K)
{
    int row = blockIdx.y * blockDim.y + threadIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < M && col < N) {
        float sum = 0;
        for (int k = 0; k < K; ++k)
            sum += A[row * K + k] * B[k * N + col];
        C[row * N + col] = sum;
    }
}
"""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["gone.cu"], "gone.cu: there is no such file"),
        (["."], ".: it is no file: name one"),
        (["mul.cu", "--sidecar"], "--sidecar says where to write: add --write"),
        (["mul.cu", "--entry", "other"], "--entry other: mul.cu has the kernels mul"),
        (["none.cu"], "none.cu has no __global__ function with a body: there is no kernel"),
        (["made.cu"], "with a body: the macro MAKE makes some: write one out"),
        (["two.cu"], "two.cu has several kernels: choose one with --entry: mul, mul2"),
        (["done.cu"], "done.cu:1: mul is declared here already: remove that to have it"),
    ],
)
def test_a_mistake_in_the_command_is_one_sentence(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "mul.cu", GUARDED)
    write(tmp_path / "none.cu", "int main() {}\n")
    write(tmp_path / "made.cu", "#define MAKE(n) __global__ void n() {}\nMAKE(k)\n")
    write(tmp_path / "two.cu", GUARDED + GUARDED.replace("mul", "mul2"))
    write(tmp_path / "done.cu", "// /// gemm\n// block = [16]\n// ///\n" + GUARDED)
    assert main(["adopt", *arguments]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "soon"])
def test_seconds_are_a_number_above_zero(seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        main(["adopt", "mul.cu", "--seconds", seconds])
    assert raised.value.code == 2
    assert "is no number of seconds above 0" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ("const float *A, float *C, int n", "k.cu:1: k takes 2 pointers, and a product or a sum"),
        ("float **A, float *B, float *C", "k.cu:1: k takes 'float* * A', which is no pointer to"),
        ("float *A, float *B, float *C, float a, float b, float c", "k takes 3 floats, and there"),
        ("float *A, float *B, float *C, Shape s", "k.cu:1: 'Shape s' is a type that is not known"),
        (
            "float *A, float *B, float *C, const int& n",
            "k.cu:1: 'const int& n' is a reference, which",
        ),
        (
            "cuComplex *A, cuComplex *B, cuComplex *C",
            "k.cu:1: 'cuComplex* A' holds complex numbers",
        ),
        (
            "Pair *A, float *B, float *C",
            "k.cu:1: 'Pair* A' points to a struct, which is no element",
        ),
        (
            "float *A, float *B, float *C, Op op",
            "k.cu:1: 'Op op' is an object that k calls: write a",
        ),
    ],
)
def test_a_signature_that_no_declaration_serves_is_refused_with_its_line(
    parameters: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    kernel = f"template <class Op> __global__ void k({parameters}) {{ op(1); }}\n"
    write(tmp_path / "k.cu", kernel + "struct Pair { int x, y; };\n")
    with pytest.raises(SpecError, match=re.escape(message)):
        read_source(Path("k.cu"))


EXTENSION = """#include <torch/extension.h>
namespace py = pybind11;
template <typename scalar_t>
__global__ void accessors(torch::PackedTensorAccessor32<scalar_t, 2> a, scalar_t *b, scalar_t *c)
{
    c[threadIdx.y] = a[0][0] * b[threadIdx.x];
}
__global__ void halves(const float *A, const float *B, float *C, int M, int N, int K)
{
    C[threadIdx.y] = at::Half(A[threadIdx.x]);
}
torch::Tensor mul_cuda(torch::Tensor a, torch::Tensor b)
{
    auto c = torch::empty({a.size(0), b.size(1)}, a.options());
    AT_DISPATCH_FLOATING_TYPES(a.scalar_type(), "mul", ([&] {
        mul<scalar_t><<<dim3(4, 4), dim3(16, 16)>>>(a.data_ptr<scalar_t>());
    }));
    return c;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("mul", &mul_cuda); }
"""


def test_a_file_of_a_library_is_adopted_less_what_needs_the_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = Path(write(tmp_path / "k.cu", EXTENSION + GUARDED).name)
    assert read_source(path).function.name == "mul"  # which is launched
    with pytest.raises(SpecError, match=r"^k.cu:4: accessors takes 'torch::Packed.* no pointer to"):
        read_source(path, "accessors")
    with pytest.raises(SpecError, match=r"^k.cu:8: halves uses at::Half of a host library, which"):
        read_source(path, "halves")
    source = read_source(path, "mul")
    assert source.device.strip() == GUARDED.strip()


def test_other_kernels_of_the_file_say_nothing_of_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    flat = "__global__ void flat(const float *A, const float *B, float *C, int M, int N, int K) "
    text = GUARDED.replace("row <", "blockIdx.z < 1 && row <") + flat + "{ C[threadIdx.x] = 1; }\n"
    write(tmp_path / "k.cu", "#define GPU __global__\n" + text.replace("__global__", "GPU", 1))
    mul, flat_source = (read_source(Path("k.cu"), name) for name in ("mul", "flat"))
    assert (mul.is_flat, mul.has_layers) == (False, True)
    assert (flat_source.is_flat, flat_source.has_layers) == (True, False)
    assert "blockDim" in mul.words
    assert "blockDim" not in flat_source.words


def test_a_template_s_class_is_no_struct(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    head = (
        "template <class T, class S = T> __global__ void k(const T *A, const S *B, S *C, T alpha)"
    )
    write(tmp_path / "k.cu", head + " { C[0] = A[0] * B[0]; }\n")
    signature = read_source(Path("k.cu")).signature
    assert (signature.pointers, signature.constant) == ((0, 1, 2), frozenset({0, 1}))
    assert signature.scalars == (3,)


def test_what_cannot_be_compiled_is_said_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "mul.cu", GUARDED.replace("float sum = 0;", "float sum = none();"))
    assert main(["adopt", "mul.cu"]) == 1
    assert "mul.cu:5: error: 'none' was not declared in this scope" in capsys.readouterr().err


def test_a_kernel_that_computes_something_else_is_refused_with_its_nearest_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    path = write(tmp_path / "mul.cu", GUARDED.replace("k = 0", "k = 1"))
    code, said = adopted(Path("mul.cu"), capsys, "--write")
    assert code == 1
    assert "no reading of mul as a product or a sum passes; the nearest one is" in said
    assert '// grid  = ["cdiv(N, 16)", "cdiv(M, 16)"]' in said
    assert "term k = 0 of " in said
    assert path.read_text(encoding="utf-8") == GUARDED.replace("k = 0", "k = 1")


def test_a_bracket_that_is_never_closed_is_told_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "mul.cu", GUARDED.replace("        C[row", "        { C[row").rstrip())
    code, said = adopted(Path("mul.cu"), capsys)
    assert (code, said) == (1, "pytest-gemm: mul.cu:2: { is never closed: mend the brackets\n")


def test_that_c_is_read_hides_no_other_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    scaled = GUARDED.replace("int K)", "int K, float alpha, float beta)").replace("k = 0", "k = 1")
    write(
        tmp_path / "mul.cu",
        scaled.replace("= sum;", "= alpha * sum + beta * C[row * N + col];"),
    )
    code, said = adopted(Path("mul.cu"), capsys)
    assert code == 1
    assert "term k = 0 of 96 is missing" in said
    assert "finite_c" not in said


def test_sums_in_another_type_are_wrong_for_numbers_that_are_not_whole() -> None:
    with prober(GUARDED.replace("float sum", "int sum")) as process:
        assert process.attempt(NATURAL, SMALL).is_exact
        assert process.check(NATURAL).startswith("mul on 64x128x192: 8191 of 8192 elements of C")


def test_a_refusal_tells_what_was_not_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    part = "int k = blockIdx.z * (K / 4); k < (blockIdx.z + 1) * (K / 4)"
    kernel = GUARDED.replace("int k = 0; k < K", part)
    launch = "void f(int m, int n, int k) { mul<<<m, n>>>(a, b, c, m, n, k); }\n"
    write(tmp_path / "mul.cu", kernel + launch)
    code, said = adopted(Path("mul.cu"), capsys)
    assert (code, "mul: it reads blockIdx.z, and the grid" in said) == (1, True), said
    assert "the launch in line 11 has a block as long as an argument" in said


def test_vectors_of_bytes_are_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    kernel = "__global__ void k(const char4 *p, const char2 *q, int *r) {}"
    signature = read_source(Path(write(tmp_path / "k.cu", kernel).name)).signature
    assert signature.elements({}) == {0: "int8", 1: "int8", 2: "int32"}


def test_constants_that_a_kernel_multiplies_by_are_told() -> None:
    subtracted = Reading(more=(("alpha", -1), ("beta", 1)))
    (told,) = on_keys(subtracted)
    assert told.endswith("by constants, which are declared: alpha = -1, beta = 1")
    assert "adds the product" in "".join(on_keys(Reading(more=(("beta", 1),))))


def test_where_the_first_block_writes_another_tile_a_thread_is_an_element_s() -> None:
    problem, attempt = Problem("gemm", 96, 64, 32), Attempt()
    pair, row = (Reading(block=block) for block in (("16", "8"), ("256",)))
    assert usual(Found(pair, problem, attempt, Variant(""))) == ("cdiv(N, 16)", "cdiv(M, 8)")
    assert usual(Found(row, problem, attempt, Variant(""))) == ("cdiv(M * N, 256)",)


def test_what_has_no_loop_is_no_product(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "mul.cu", GUARDED)
    write(tmp_path / "difference.cu", re.sub(r"for .*\n.*;", "sum = A[row] - B[row];", GUARDED))
    assert [read_source(Path(f)).has_loops for f in ("mul.cu", "difference.cu")] == [True, False]


def test_elements_that_are_right_by_chance_make_no_reading_the_nearest() -> None:
    problem = Problem("gemm", 96, 64, 32)
    every, some = (
        Found(Reading(grid=("2",)), problem, Attempt(wrong=wrong), Variant(""))
        for wrong in (6144, 6120)
    )
    assert every.closeness == some.closeness
    half = replace(every, attempt=Attempt(wrong=3072))
    assert half.closeness > every.closeness


def test_without_a_compiler_nothing_can_be_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTEST_GEMM_CXX", "/nowhere/c++")
    write(tmp_path / "mul.cu", GUARDED)
    assert main(["adopt", "mul.cu"]) == 1
    said = capsys.readouterr()
    assert "/nowhere/c++" in said.err
    assert not said.out
    assert "Traceback" not in said.err


def test_without_time_nothing_is_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "mul.cu", GUARDED)
    with prober(GUARDED, seconds=-1.0) as process, pytest.raises(Uncompilable, match="enough time"):
        adopt(read_source(Path("mul.cu")), process, print)


@pytest.mark.parametrize(("bound", "larger"), [("M < 400", "608x576x32"), ("K < 256", "96x64x544")])
def test_what_is_right_for_small_sizes_alone_is_not_taken(
    bound: str,
    larger: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    guard = f"if (row < M && col < N && {bound})"
    write(tmp_path / "mul.cu", GUARDED.replace("if (row < M && col < N)", guard))
    code, said = adopted(Path("mul.cu"), capsys, "--write")
    assert code == 1
    assert f"on {larger}, " in said
    assert "are not written" in said


def test_a_kernel_of_fixed_size_is_refused_with_the_constant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    text = "#define SIDE 96\n" + GUARDED.replace(", int M, int N, int K", "")
    write(tmp_path / "mul.cu", re.sub(r"\b[MNK]\b", "SIDE", text))
    code, said = adopted(Path("mul.cu"), capsys)
    assert code == 1
    assert (
        "mul takes no sizes, and computes with what the file fixes (SIDE = 96): make M, N" in said
    )


# Where the declaration goes


def test_the_block_stands_before_the_kernel_and_keeps_the_file_s_line_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    text = "#include <cstdio>\n\n// Multiplies.\n" + GUARDED + "int main() {}\n"
    path = tmp_path / "mul.cu"
    path.write_bytes(text.replace("\n", "\r\n").encode())
    code, said = adopted(Path("mul.cu"), capsys, "--write")
    assert code == 0
    assert "written into mul.cu, line 4" in said
    rows = path.read_bytes().decode().split("\r\n")
    assert rows[2:5] == ["// Multiplies.", "// /// gemm", "// block = [16, 16]"]
    assert "\n".join(rows[:3] + rows[7:]) == text
    assert only_kernel(path).args == ("A", "B", "C", "M", "N", "K")


def test_a_byte_order_mark_stays_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "mul.cu"
    path.write_text(GUARDED, encoding="utf-8-sig")
    place_for(read_source(Path("mul.cu")), sidecar=False).write(NATURAL)
    text = path.read_text(encoding="utf-8-sig")
    assert text.startswith("// /// gemm\n")
    assert text.endswith(GUARDED)
    assert "\ufeff" not in text


def test_the_block_stands_first_where_the_kernel_is_in_an_included_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "mul.cuh", GUARDED)
    path = write(tmp_path / "mul.cu", '#include "mul.cuh"\n')
    place = place_for(read_source(Path("mul.cu")), sidecar=False)
    place.write(NATURAL)
    assert path.read_text(encoding="utf-8").startswith("// /// gemm\n")
    assert only_kernel(path).block == ("16", "16")


def test_a_file_that_cannot_name_a_kernel_gives_it_that_of_the_function(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    layers = GUARDED.replace("int row =", "if (blockIdx.z) return;\n    int row =")
    path = write(tmp_path / "my kernel (1).cu", layers)
    code, said = adopted(Path(path.name), capsys, "--write")
    assert (code, "it reads blockIdx.z, and the grid" in said) == (0, True)
    assert only_kernel(path).name == "mul"


@pytest.mark.parametrize("name", ["mul.cuh", "mul.cu"])
def test_a_sidecar_takes_what_the_file_cannot(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    path = write(tmp_path / name, GUARDED)
    before = '[[kernel]]\nsource = "other.cu"\n'
    write(tmp_path / "mul.gemm.toml", before)
    options = ["--write", "--sidecar"] if name == "mul.cu" else ["--write"]
    code, said = adopted(Path(name), capsys, *options)
    assert code == 0
    assert "written into mul.gemm.toml" in said
    assert ("only .cu files hold front matter" in said) == (name == "mul.cuh")
    assert path.read_text(encoding="utf-8") == GUARDED
    sidecar = (tmp_path / "mul.gemm.toml").read_text(encoding="utf-8")
    assert sidecar.startswith(before + f'\n[[kernel]]\nsource = "{name}"\n')
    registry = load_registry([tmp_path], tmp_path)
    assert [kernel.name for kernel in registry.kernels("host")] == ["mul"]


def test_what_a_sidecar_declares_is_not_declared_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "mul.cu", GUARDED)
    sidecar = write(tmp_path / "all.gemm.toml", '\n[[kernel]]\nsource = "./mul.cu"\n')
    for options in ([], ["--write"], ["--write", "--sidecar"]):
        code, said = adopted(Path("mul.cu"), capsys, *options)
        assert code == 2
        assert said.startswith("pytest-gemm: all.gemm.toml:2: mul is declared here already: ")
    write(sidecar, "kernel = [")
    code, said = adopted(Path("mul.cu"), capsys, "--write", "--sidecar")
    assert code == 2
    assert re.match(r"pytest-gemm: all.gemm.toml:1: .*; mend or remove that first\n$", said), said
    assert {path.name for path in tmp_path.iterdir()} == {"mul.cu", "all.gemm.toml"}


def test_a_long_list_goes_over_several_lines_of_a_block() -> None:
    args = tuple(f"M * {number}" for number in range(20))
    lines = Reading(args=args, block=("16",), grid=("1",)).toml()
    assert max(map(len, lines)) <= 77
    assert lines[0].startswith("args")


# What names say


@pytest.mark.parametrize(
    ("name", "role"),
    [
        *(("M", "M"), ("numARows", "rowsA"), ("rows", "M"), ("hA", "rowsA")),
        ("height_A", "rowsA"),
        *(("n", "N"), ("wB", "columnsB"), ("numBColumns", "columnsB"), ("width", "N")),
        *(("K", "K"), ("wA", "columnsA"), ("inner", "K"), ("numBRows", "rowsB")),
        *(("common_dim", "K"), ("cols", "N")),
        *(("lda", "lda"), ("strideB", "ldb"), ("pitch_c", "ldc"), ("dim_m", "M")),
    ],
)
def test_a_size_s_name_speaks_for_a_role(name: str, role: str) -> None:
    scores = size_scores(name)
    assert max(scores, key=lambda known: scores[known]) == role


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("M", "A"),
        ("d_N", "B"),
        ("Pd", "C"),
        ("d_A", "A"),
        ("matB", "B"),
        ("dev_c", "C"),
        ("lhs", "A"),
        ("out", "C"),
        ("rhs", "B"),
    ],
)
def test_a_pointer_s_name_speaks_for_a_matrix(name: str, role: str) -> None:
    assert {*matrix_scores(name)} == {role}


def test_names_that_say_nothing_speak_for_nothing() -> None:
    assert size_scores("q") == matrix_scores("foo") == scalar_scores("s") == {}
    assert scalar_scores("alpha") == {"alpha": 3}


# What launch code says


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("(N + 15) / 16", "cdiv(N, 16)"),
        ("(N + TILE - 1) / TILE", "cdiv(N, 16)"),
        ("(N - 1) / TILE + 1", "cdiv(N, 16)"),
        ("ceil(N / 16.0)", "cdiv(N, 16)"),
        ("(unsigned)std::ceil((float)N / (float)TILE)", "cdiv(N, 16)"),
        ("div_up(N, TILE)", "cdiv(N, 16)"),
        ("CEIL_DIV(N, 2 * TILE)", "cdiv(N, 32)"),
        ("N / block.x", "N // 16"),
        ("(N + block.y - 1) / block.y", "cdiv(N, 8)"),
        ("columns", "cdiv(N, 16)"),
        ("std::max(N, 1)", "max(N, 1)"),
        ("N * (TILE + 1)", "N * 17"),
        ("(N + 3) * (N + 1)", "(N + 3) * (N + 1)"),
        ("7 - (N - 1)", "7 - (N - 1)"),
        ("TILE * TILE * sizeof(float)", "1024"),
        ("something(N)", None),
        ("N > 5 ? 1 : 2", None),
        ("unknown + 1", None),
        ("N / 0", None),
    ],
)
def test_an_expression_of_the_launch_code_is_read(text: str, expected: str | None) -> None:
    source = f"""
    #define CEIL_DIV(a, b) (((a) + (b) - 1) / (b))
    const int TILE = 16;
    int main() {{
        dim3 block(TILE, TILE / 2);
        int columns = (N + TILE - 1) / TILE;
        int looked_at = {text};
    }}
    """
    host = HostCode(Code(source))
    tokens = host.value_of("looked_at", len(host.code.texts))
    assert tokens is not None
    found = host.text(tokens, {"N": "N"}.get)
    assert found == expected
    if found is not None:
        compile_expression(found)


@pytest.mark.parametrize("text", ["loop", "a.x", "recursive(1)"])
def test_a_name_that_means_itself_is_not_followed_for_ever(text: str) -> None:
    source = f"""
    #define recursive(x) recursive(x)
    int main() {{ int loop = loop + 1; dim3 a(a.x, 1); int looked_at = {text}; }}
    """
    host = HostCode(Code(source))
    tokens = host.value_of("looked_at", len(host.code.texts))
    assert tokens is not None
    assert host.text(tokens, lambda _: None) is None


def test_launches_are_found_with_their_parts() -> None:
    source = """
    template <int T> __global__ void k(float *A, int n);
    void run(float *d_A, int n) {
        dim3 grid(n / 32, 4), block = dim3(32, 8);
        ns::k<32><<<grid, block, 32 * 4>>>(d_A, n);
        k<16><<<n, 256>>>((float *)d_A, n);
        if (a << 3 < b) {}
    }
    """
    first, second = find_launches(Code(source), source)
    assert (first.name, first.line, len(first.template or ())) == ("k", 5, 1)
    assert [len(first.grid), len(first.block), len(second.grid)] == [2, 2, 1]
    assert first.host.text(first.shared_mem, lambda _: None) == "128"
    assert first.names() == second.names() == ["d_A", "n"]


def test_a_launch_whose_dimensions_are_set_one_by_one() -> None:
    source = """
    __global__ void k(float *A, int n);
    void run(float *d_A, int n) {
        dim3 grid, block(7, 8);
        k<<<grid, block>>>(d_A, n);
        block.x = 128;
        block.y = 4;
        grid.x = (n + 16 * block.x / 32 - 1) / (16 * block.x / 32);
        grid.y = n / block.y;
        k<<<grid, block>>>(d_A, n);
        grid.x = 1;
    }
    """
    first, second = find_launches(Code(source), source)

    def texts(launch: LaunchCode, tokens: tuple[range, ...]) -> list[str | None]:
        return [launch.host.text(t, lambda name: "N" if name == "n" else None) for t in tokens]

    assert texts(first, first.block) == ["7", "8"]
    assert texts(second, second.block) == ["128", "4"]
    assert texts(second, second.grid) == ["cdiv(N, 64)", "N // 4"]


@pytest.mark.parametrize("body", ["", "__restrict__", "__restrict"])
def test_a_macro_for_restrict_says_nothing_of_a_type(
    body: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = "typedef double real;\n__global__ void k(const real *RESTRICT a, real *RESTRICT b,\n"
    write(tmp_path / "k.cu", f"#define RESTRICT {body}\n{text}real *RESTRICT c, int n) {{}}\n")
    signature = read_source(Path("k.cu")).signature
    assert (signature.pointers, signature.constant) == ((0, 1, 2), {0})
    assert signature.elements({}) == dict.fromkeys(range(3), "float64")


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ("if (n == 0) return;\nC[n] = a * n +\n    b * C[n];", "k.cu:3"),
        ('#include "t.cuh"\nC[n] = b == 0 ? a : a + b * C[n];', "k.cu:2"),
        ("float old = C[n];\nC[n] = a + b * old;", ""),
        ("b = a; C[n] = a;", ""),
    ],
)
def test_the_line_that_reads_c_times_beta_is_found(
    body: str, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "t.cuh", "float t = 0;\n" * 5)
    head = "__global__ void k(float *A, float *B, float *C, float a, float b, int n) {"
    write(tmp_path / "k.cu", f"{head} {body}\n}}\n")
    assert read_source(Path("k.cu")).place_of("b", "C") == place


def test_what_an_argument_means_takes_its_place_in_an_expression() -> None:
    assert by_meaning("cdiv(arg3, 16) * arg1", ("A", "N", "C", "M * N")) == "cdiv(M * N, 16) * N"
    assert by_meaning("2 * arg3", ("A", "B", "C", "M * N")) == "2 * (M * N)"


# What is tried


def test_a_tile_may_be_less_deep_than_it_is_wide() -> None:
    sizes = Sizes(Problem("gemm", 384, 256, 64), ())
    assert [sizes.tile(group) for group in sizes.groups] == [128, 128, 64]
    equal = Sizes(Problem("gemm", 64, 64, 64), ("M == N", "N == K"))
    assert [equal.tile(group) for group in equal.groups] == [64]
    assert Sizes(Problem("add", 96, 64, 0), ()).tile(("M",)) == 32


def test_the_likeliest_arguments_come_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(
        tmp_path / "k.cu", "__global__ void k(float *p, float *q, float *r, int a, int b, int c) {}"
    )
    source = read_source(Path("k.cu"))
    found = arguments(source.signature, "gemm", None, {})
    assert found[0] == (("A", "B", "C", "M", "K", "N"), Kind(), ())
    assert len(found) == len({*found}) == 4 * 6 * 27
    assert [v.entry for v in variants(source)] == [""]
    assert blocks(source, next(iter(variants(source))))


@pytest.mark.parametrize(
    ("parameter", "passed", "texts"),
    [
        ("bool transposed", "true", {"0", "1"}),
        ("int transB", "0", {"0", "1"}),
        ("char op", "'T'", {"78", "84"}),
        ("int TILE", "t", {"16", "32", "8"}),
        ("int block_size", "side", {"24"}),
        ("int num_tiles", "t", {"cdiv(K, 16)", "cdiv(K, 32)", "cdiv(K, 8)"}),
        ("size_t pitchA", "p", {"4 * lda", "4 * ldb", "4 * ldc", "M", "N", "K"}),
        ("int incRowA", "1", {"lda", "1"}),
        ("int stride_cn", "1", {"ldc", "1"}),
        ("int q", "4", {"4", "M", "N", "K"}),
        ("int alpha", "a", {"M", "N", "K"}),
        ("int kPerBlock", "k", {"M", "N", "K"}),
        ("int offA", "0", {"0"}),
    ],
)
def test_integers_that_are_no_sizes(
    parameter: str,
    passed: str,
    texts: set[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    usual = "const float *A, const float *B, float *C, int M, int N, int K"
    launch = f"void f() {{ int side = 24; mul<<<1, 1>>>(a, b, c, m, n, k, {passed}); }}\n"
    write(tmp_path / "k.cu", f"__global__ void mul({usual}, {parameter}) {{}}\n{launch}")
    source = read_source(Path("k.cu"))
    found = arguments(source.signature, "gemm", source.launches[0], {})
    assert {given.args[6] for given in found} == texts
    assert found[0].args[:6] == ("A", "B", "C", "M", "N", "K")


def test_numbers_that_are_all_that_is_passed_are_sizes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "mul.cu", f"{GUARDED}void f() {{ mul<<<1, 1>>>(a, b, c, 96, 64, 32); }}\n")
    source = read_source(Path("mul.cu"))
    found = arguments(source.signature, "gemm", source.launches[0], {})
    assert not any(arg.isdecimal() for given in found for arg in given.args)


@pytest.mark.parametrize(
    ("names", "args"), [("n m p", "M K N"), ("m n p", "M K N"), ("p m n", "N M K")]
)
def test_sizes_are_called_m_n_and_p_together(
    names: str, args: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    sizes = "".join(f", int {name}" for name in names.split())
    kernel = f"__global__ void mul(const float *A, const float *B, float *C{sizes}) {{}}\n"
    source = read_source(Path(write(tmp_path / "mul.cu", kernel).name))
    assert arguments(source.signature, "gemm", None, {})[0].args == ("A", "B", "C", *args.split())


def test_a_template_for_a_template_is_what_is_launched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    head = "template <class T> struct Same {};\ntemplate <class T, template <class> class Op>\n"
    kernel = head + GUARDED.replace("float", "T")
    path = Path(write(tmp_path / "mul.cu", kernel).name)
    with pytest.raises(SpecError, match=r"^mul.cu:3: mul: the template parameter Op is a template"):
        list(variants(read_source(path)))
    write(path, kernel + "void f() { mul<double, Same><<<1, 8>>>(a, b, c, m, n, k); }\n")
    assert [v.entry for v in variants(read_source(path))] == ["mul<double, Same>"]


@pytest.mark.parametrize("type_", ["unsigned char", "uint16_t", "const unsigned short", "int64_t"])
def test_matrices_of_other_integers_are_refused_as_such(
    type_: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    kernel = GUARDED.replace("const float *A", f"{type_} *A")
    source = read_source(Path(write(tmp_path / "mul.cu", kernel).name))
    named = type_.removeprefix("const ")
    message = f"mul takes matrices of A: {named}, B: float32, C: float32, and there is neither"
    with prober(kernel) as process, pytest.raises(SpecError, match=message):
        adopt(source, process, lambda text: None)


def test_steps_from_row_to_row_and_from_column_to_column(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names = ["incRowA", "incColA", "strideRowB", "strideColB", "stride_cm", "stride_cn"]
    sizes = ", ".join(f"int {name}" for name in ("M", "N", "K", *names))
    kernel = f"__global__ void mul(const float *A, const float *B, float *C, {sizes}) {{}}\n"
    source = read_source(Path(write(tmp_path / "k.cu", kernel).name))
    found = arguments(source.signature, "gemm", None, {})
    assert found[0].args[3:] == ("M", "N", "K", "lda", "1", "ldb", "1", "ldc", "1")


def test_enumerations_of_a_template_are_what_is_launched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    head = "enum class Layout { Row, Col };\ntemplate <Layout L, int SIDE, typename T>\n"
    kernel = head + GUARDED.replace("float", "T")
    path = Path(write(tmp_path / "mul.cu", kernel).name)
    with pytest.raises(SpecError, match=r"^mul.cu:3: mul: the template parameter L is of Layout,"):
        list(variants(read_source(path)))
    write(path, kernel + "void f() { mul<Layout::Row, 8, double><<<1, 8>>>(a, b, c, m, n, k); }\n")
    (variant,) = variants(read_source(path))
    assert (variant.entry, variant.values) == ("mul<Layout::Row, SIDE, double>", {"SIDE": 8})


def test_defaults_of_a_template_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    template = "template <bool check = true, int SIDE = 8, bool more = false>\n"
    write(tmp_path / "mul.cu", template + GUARDED)
    first, *_ = variants(read_source(Path("mul.cu")))
    assert first.params == (("SIDE", 8), ("check", 1), ("more", 0))


def test_a_constant_pointer_is_never_the_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "k.cu", "__global__ void k(float *p, const float *q, const float *r) {}")
    found = arguments(read_source(Path("k.cu")).signature, "gemm", None, {})
    assert {given.args[0] for given in found} == {"C"}
    assert found[0].args == ("C", "A", "B")


@pytest.mark.parametrize(
    ("kind", "rows", "columns", "lda"),
    [
        (Kind(), "M", "K", "K"),
        (Kind(transa="T"), "K", "M", "M"),
        (Kind(layout="column-major"), "M", "K", "M"),
        (Kind(layout="column-major", transa="T"), "K", "M", "K"),
    ],
)
def test_what_names_of_sides_mean_depends_on_the_layout(
    kind: Kind, rows: str, columns: str, lda: str
) -> None:
    meanings = kind.meanings
    assert (meanings["rowsA"], meanings["columnsA"], meanings["lda"]) == (rows, columns, lda)
    assert (meanings["rowsC"], meanings["columnsC"]) == ("M", "N")


def test_a_column_major_reading_is_the_row_major_one_of_the_same_launch() -> None:
    args = ("M", "N", "K", "A", "B", "C")
    column = Kind(layout="column-major", transb="T")
    assert column.in_memory(args) == Kind(transa="T").in_memory(("N", "M", "K", "B", "A", "C"))
    assert len({kind.in_memory(args) for kind in kinds("gemm")}) == 8


def test_sizes_that_are_tied_change_together() -> None:
    sizes = Sizes(Problem("gemm", 64, 64, 32), ("M == N",))
    assert sizes.groups == [("M", "N"), ("K",)]
    assert sizes.moved({"M": 8}) == Problem("gemm", 72, 72, 32)
    odd = sizes.with_residues()
    assert (odd.M, odd.M % 2, odd.K % 2) == (odd.N, 1, 1)


# The process that tries


def prober(text: str, **options: float) -> Prober:
    seconds = options.get("seconds", 60.0)
    return Prober("mul.cu", text, "mul", time.monotonic() + seconds)


NATURAL = Reading("", ("A", "B", "C", "M", "N", "K"), ("16", "16"), ("cdiv(N, 16)", "cdiv(M, 16)"))
SMALL = Problem("gemm", 37, 29, 19)


def test_an_attempt_says_what_was_written_and_whether_it_is_right() -> None:
    with prober(GUARDED) as process:
        whole = process.attempt(NATURAL, SMALL)
        one = process.attempt(NATURAL.with_grid("1"), SMALL)
        again = process.attempt(NATURAL.with_grid("1"), SMALL)
        assert process.launches == 2
    assert whole.is_exact
    assert (one.is_right, one.is_exact, one.extent.rows, one.extent.columns) == (
        *(True, False),
        *((0, 16), (0, 16)),
    )
    assert one is again


def test_a_kernel_that_ends_its_process_harms_no_other_attempt() -> None:
    text = "#include <cstdlib>\n" + GUARDED.replace(
        "float sum = 0;", 'float sum = 0; if (K == 19) { printf("[]\\n"); abort(); }'
    )
    with prober(text) as process:
        assert process.attempt(NATURAL, SMALL).fault
        assert process.attempt(NATURAL, Problem("gemm", 37, 29, 20)).is_exact


def test_a_process_that_cannot_start_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    message = "no process to try the kernel in: /bin/false ended; see: pytest-gemm doctor"
    with prober(GUARDED) as process, pytest.raises(BackendError, match=message):
        process.attempt(NATURAL, SMALL)


def test_what_a_process_wrote_goes_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = tmp_path / "compiler"
    compiler.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && exec g++ --version\n'
        f'touch "$TMPDIR/cc.s"; echo "$TMPDIR" > {tmp_path}/where; kill -9 $PPID\n'
    )
    compiler.chmod(0o755)
    monkeypatch.setenv("PYTEST_GEMM_CXX", str(compiler))
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    with prober(GUARDED) as process:
        assert process.attempt(NATURAL, SMALL).fault
        left = Path((tmp_path / "where").read_text().strip()) / "cc.s"
        assert left.is_relative_to(temporary)
        assert left.exists()
    assert list(temporary.iterdir()) == []


def test_a_matrix_that_is_overwritten_is_no_fault_of_the_kernel_s_own_arrays() -> None:
    with prober(GUARDED.replace("const float", "float")) as process:
        swapped = replace(NATURAL, args=("A", "C", "B", "M", "N", "K"), grid=("1",))
        attempt = process.attempt(swapped, SMALL)
    assert [seen.argument for seen in attempt.seen] == [3]
    assert "elements of B overwritten" in attempt.first_fault
    assert not attempt.is_misfit


def test_an_endless_kernel_is_ended() -> None:
    text = GUARDED.replace("++k", "k += K > 19 ? 0 : 1")
    with prober(text) as process:
        assert process.attempt(NATURAL.with_grid("1"), Problem("gemm", 37, 29, 20)).is_slow
        assert process.attempt(NATURAL, SMALL).is_exact


def test_an_impossible_launch_is_told() -> None:
    with prober(GUARDED) as process:
        attempt = process.attempt(Reading("", NATURAL.args, ("2048",), ("1",)), SMALL)
    assert "exceeds 1024" in attempt.impossible
    assert not attempt.is_right


def test_the_result_that_is_added_to_the_old_one_is_recognised() -> None:
    with prober(GUARDED.replace("] = sum", "] += sum")) as process:
        attempt = process.attempt(NATURAL, SMALL)
    assert attempt.scalars == (("beta", 1),)
    assert attempt.is_right
