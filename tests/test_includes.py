"""Local includes: what is put in their place, what errors and compilers call the lines then."""

from __future__ import annotations

import posixpath
import random
import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from pytest_gemm.backends.base import CudaProgram
from pytest_gemm.backends.cuda.compiler import first_line
from pytest_gemm.backends.host.compiler import find_compiler
from pytest_gemm.baselines import source_hash
from pytest_gemm.errors import CompileError, KernelFault, SpecError
from pytest_gemm.includes import MAX_LEVELS, MAX_SIZE, expand
from pytest_gemm.kernelspec import Kernel
from pytest_gemm.registry import load_registry
from tests.host_kernels.harness import Host, zeros

Write = Callable[[str, str], Path]

BLOCK = """\
// /// gemm
// block = [16, 16]
// grid = ["cdiv(N, 16)", "cdiv(M, 16)"]
// ///
"""
MUL = """\
__global__ void mul(const float* A, const float* B, float* C, int M, int N, int K)
{
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= M || col >= N)
        return;
    float acc = 0.0f;
    for (int k = 0; k < K; ++k)
        acc = add(acc, A[row * K + k] * B[k * N + col]);
    C[row * N + col] = acc;
}
"""
ADD = "__device__ float add(float x, float y) { return x + y; }\n"


def expanded(path: Path, root: Path) -> str:
    return expand(path.read_text(encoding="utf-8"), path, path.relative_to(root).as_posix())


def only_kernel(root: Path) -> Kernel:
    registry = load_registry([root / "kernels"], root)
    assert registry.errors == ()
    (kernel,) = registry.kernels("host")
    return kernel


def errors(root: Path) -> list[str]:
    return [str(error) for error in load_registry([root / "kernels"], root).errors]


# ---- the text -----------------------------------------------------------------------------


def test_includes_are_put_in_their_place(write: Write, tmp_path: Path) -> None:
    path = write(
        "kernels/k.cu",
        'int a;\n#include "sub/tile.cuh" // tiles\n  #  include/**/"sub/tile.cuh"\nint z;\n',
    )
    write("kernels/sub/tile.cuh", '#include "../../common/ids.h"\nint b;')
    write("common/ids.h", "int c;\n")
    tile = """\
#line 1 "kernels/sub/tile.cuh"
#line 1 "common/ids.h"
int c;
#line 1 "kernels/sub/tile.cuh"

int b;
"""
    assert expanded(path, tmp_path) == (
        f'int a;\n{tile}#line 2 "kernels/k.cu"\n // tiles\n'
        f'  {tile}#line 3 "kernels/k.cu"\n\nint z;\n'
    )


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_what_includes_no_local_file_stays_as_it_is(
    write: Write, tmp_path: Path, newline: str
) -> None:
    source = BLOCK + dedent("""\
        #pragma once
        #line 40 "k.in"
        #include <tile.cuh>
        #include "cuda_runtime.h"
        #include "mma.h"
        #include "cub/cub.cuh"
        // #include "tile.cuh"
        /*
        #include "tile.cuh"
        */
        const char* text = R"(
        #include "tile.cuh"
        )";
        #define HEADER "tile.cuh"
        #include HEADER
        #define SPLIT a \\
        #include "tile.cuh"
        #if __has_include("config.cuh")
        #include "config.cuh"
        #endif
        __global__ void mul(float* A, float* B, float* C) {}
        """)
    path = write("kernels/k.cu", "")
    path.write_bytes(source.replace("\n", newline).encode())
    write("kernels/tile.cuh", "int x;\n")
    kernel = only_kernel(tmp_path)
    assert kernel.source == source
    assert kernel.source_hash == (
        "7fdeba8f1ed8d971a6fd6237bc3464d9d8ad756de6ca6d391d07c34cffcec682"
    )


def test_pragma_once_and_include_guards(write: Write, tmp_path: Path) -> None:
    path = write(
        "k.cu", '#include "a.cuh"\n#include "b.cuh"\n#include "a.cuh"\n#include "c.cuh"\n' * 2
    )
    write("a.cuh", '// A\n#pragma once /* why */\n#include "b.cuh"\nint a;\n')
    write("b.cuh", '#ifndef B_CUH // B\n#define B_CUH\n#include "a.cuh"\nint b;\n#endif\n')
    write("c.cuh", "int c;\n")
    text = expanded(path, tmp_path)
    assert [text.count(f"int {name};") for name in "abc"] == [1, 1, 2]
    assert "pragma" not in text


def test_a_condition_may_leave_the_first_of_two_includes_out(write: Write, tmp_path: Path) -> None:
    path = write(
        "k.cu",
        '#ifdef X\n#include "a.cuh"\n#else\n#include "a.cuh"\n#endif\n#include "a.cuh"\n'
        '#include "a.cuh"\n',
    )
    write("a.cuh", "#pragma once\nint a;\n")
    text = expanded(path, tmp_path)
    assert text.count("int a;") == 3
    assert text.count("#ifndef PYTEST_GEMM_ONCE_1\n#define PYTEST_GEMM_ONCE_1\n") == 3


def test_beside_the_includer_comes_before_beside_the_kernel(write: Write, tmp_path: Path) -> None:
    path = write("k.cu", '#include "sub/a.cuh"\n')
    write("sub/a.cuh", '#include "b.cuh"\n#include "c.cuh"\n')
    for name in ("sub/b.cuh", "b.cuh", "c.cuh"):
        write(name, f"// {name}\n")
    assert re.findall("^// (.*)", expanded(path, tmp_path), re.MULTILINE) == ["sub/b.cuh", "c.cuh"]


@pytest.mark.parametrize("end", ["", "\\", "\\\n", "\n\n"])
def test_the_end_of_a_file_does_not_run_into_the_next_line(
    write: Write, tmp_path: Path, end: str
) -> None:
    path = write("k.cu", '#include "a.cuh"\nint z;\n')
    write("a.cuh", f"#define A 1 // a{end}")
    assert expanded(path, tmp_path) == (
        '#line 1 "a.cuh"\n#define A 1 // a\n#line 1 "k.cu"\n\nint z;\n'
    )


def test_line_directives_of_the_authors_own_hold(write: Write, tmp_path: Path) -> None:
    path = write("k.cu", '#line 70 "k.in"\nint a;\n#include "a.cuh"\nint z;\n')
    write("a.cuh", "")
    assert '#line 71 "k.in"\n\nint z;\n' in expanded(path, tmp_path)


def test_a_name_that_needs_quoting(write: Write, tmp_path: Path) -> None:
    path = write('a "b\\/k.cu', '#include "a.cuh"\n')
    write('a "b\\/a.cuh', "")
    assert expanded(path, tmp_path).startswith('#line 1 "a \\"b\\\\/a.cuh"\n')


# ---- mistakes -----------------------------------------------------------------------------


def test_cycles(write: Write, tmp_path: Path) -> None:
    write("kernels/k.cu", BLOCK + '\n#include "a.cuh"\n' + MUL)
    write("kernels/a.cuh", 'int x;\n#include "b.cuh"\n')
    write("kernels/b.cuh", '\n\n#include "a.cuh"\n')
    assert errors(tmp_path) == [
        "kernels/b.cuh:3: kernels/a.cuh includes itself by way of kernels/b.cuh: "
        "give it an include guard"
    ]
    write("kernels/a.cuh", '#include "k.cu"\n')
    assert errors(tmp_path) == [
        "kernels/a.cuh:1: kernels/k.cu includes itself by way of kernels/a.cuh: "
        "give it an include guard"
    ]
    write("kernels/a.cuh", '#include "a.cuh"\n')
    assert errors(tmp_path) == [
        "kernels/a.cuh:1: kernels/a.cuh includes itself: give it an include guard"
    ]


@pytest.mark.parametrize("levels", [MAX_LEVELS, MAX_LEVELS + 1])
def test_the_most_levels(write: Write, tmp_path: Path, levels: int) -> None:
    path = write("0.cu", '#include "1.cuh"\n')
    for level in range(1, levels):
        write(f"{level}.cuh", f'\n#include "{level + 1}.cuh"\n')
    write(f"{levels}.cuh", "int deepest;\n")
    if levels <= MAX_LEVELS:
        assert "int deepest;" in expanded(path, tmp_path)
        return
    with pytest.raises(SpecError) as caught:
        expanded(path, tmp_path)
    assert str(caught.value) == ("32.cuh:2: includes nest deeper than 32 levels: include less")


def test_the_most_characters(write: Write, tmp_path: Path) -> None:
    path = write("k.cu", '\n#include "a.cuh"\n#include "a.cuh"\n')
    write("a.cuh", "x" * (MAX_SIZE // 2) + "\n")
    with pytest.raises(SpecError) as caught:
        expanded(path, tmp_path)
    assert str(caught.value) == (
        "k.cu:3: with a.cuh the source exceeds 1000000 characters: include less"
    )


def test_includes_that_double_end_early(write: Write, tmp_path: Path) -> None:
    path = write("0.cu", '#include "1.cuh"\n')
    for level in range(1, 31):
        write(f"{level}.cuh", f'#include "{level + 1}.cuh"\n' * 2)
    write("31.cuh", "int deepest;\n")
    with pytest.raises(SpecError, match="exceeds 1000000 characters"):
        expanded(path, tmp_path)


@pytest.mark.parametrize("name", ["tile.cuh", "other.cu", "./tile.h", "../x/tile.h", "."])
def test_an_own_file_that_does_not_exist(write: Write, tmp_path: Path, name: str) -> None:
    write("kernels/k.cu", BLOCK + '#include "guarded.h"\n' + ADD + MUL)
    write("kernels/guarded.h", f'#ifndef X\n#define X\n#include "{name}"\n#endif\n')
    shown = posixpath.normpath(f"kernels/{name}")
    expected = [f"kernels/guarded.h:3: {shown} does not exist: correct the #include"]
    assert errors(tmp_path) == ([] if name == "." else expected)


def test_a_file_that_is_not_utf8(write: Write, tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(f"kernels/{name}.cu", BLOCK + '#include "tile.cuh"\n' + MUL)
    write("kernels/c.cu", BLOCK + ADD + MUL)
    write("kernels/tile.cuh", "").write_bytes(b"int x;\n// \xff\n")
    registry = load_registry([tmp_path / "kernels"], tmp_path)
    assert list(registry.specs) == ["c"]
    assert [str(error) for error in registry.errors] == [
        "kernels/tile.cuh:2: is not UTF-8: save the file as UTF-8"
    ]


def test_a_byte_order_mark_and_windows_line_ends(write: Write, tmp_path: Path) -> None:
    path = write("k.cu", '#include "a.cuh"\n')
    write("a.cuh", "").write_bytes(b"\xef\xbb\xbfint a;\r\nint b;\r\n")
    assert '"a.cuh"\nint a;\nint b;\n#line' in expanded(path, tmp_path)


# ---- declarations -------------------------------------------------------------------------


def test_a_kernel_in_a_header(write: Write, tmp_path: Path) -> None:
    keys = '// entry = "tile::mul<SIDE>"\n// params.SIDE = 4\n// params.UNROLL = 2\n// ///\n'
    block = BLOCK.replace("// ///\n", "") + keys
    write("kernels/k.cu", block + '#include "tile.cuh"\n')
    code = "namespace tile {\n" + ADD + "template <int S>\n" + MUL + "const int n = UNROLL;\n}\n"
    write("kernels/tile.cuh", code)
    kernel = only_kernel(tmp_path)
    assert (kernel.entry, kernel.defines) == ("tile::mul<4>", (("UNROLL", 2),))
    assert kernel.args == ("A", "B", "C", "M", "N", "K")
    write("kernels/tile.cuh", code.replace("UNROLL", "2"))
    assert errors(tmp_path) == [
        "kernels/k.cu:6: params.UNROLL is used nowhere: not in the source, not in a key"
    ]
    write("kernels/tile.cuh", code.replace("int K)", "\nint wA)"))
    (text,) = errors(tmp_path)
    assert text.startswith("kernels/tile.cuh:5: parameter 'wA' of tile::mul is none of A, B, C,")
    write("kernels/tile.cuh", code.replace("int M", "\n\nfloat M"))
    (text,) = errors(tmp_path)
    assert text.startswith("kernels/tile.cuh:6: tile::mul declares 'float M', which needs")
    write("kernels/tile.cuh", code.replace("float* C, ", ""))
    assert errors(tmp_path) == ["kernels/tile.cuh:4: no argument is C, so nothing can be computed"]


def test_lines_after_an_include_are_the_files_own(write: Write, tmp_path: Path) -> None:
    wrong = MUL.replace("int K", "int wA")
    block = BLOCK.replace("16, 16]", "32, 33]")
    write("kernels/k.cu", '\n#include "tile.cuh"\n' + BLOCK + wrong)
    write("kernels/l.cu", '\n#include "tile.cuh"\n' + block + ADD + MUL)
    write("kernels/tile.cuh", "\n" * 20)
    first, second = errors(tmp_path)
    assert first.startswith("kernels/k.cu:7: parameter 'wA' of mul is none of")
    assert second.startswith("kernels/l.cu:4: l: a block of 32 x 33")


def test_a_kernel_of_the_file_itself_comes_first(write: Write, tmp_path: Path) -> None:
    write("kernels/k.cu", BLOCK + '#include "fill.cuh"\n' + MUL)
    write("kernels/fill.cuh", ADD + "__global__ void fill(float* x) {}\n")
    assert only_kernel(tmp_path).entry == "mul"


def test_a_sidecar_and_a_second_kernel_that_is_included(write: Write, tmp_path: Path) -> None:
    write(
        "kernels/all.gemm.toml", '[[kernel]]\nsource = "v/k.cu"\nblock = [1]\ngrid = ["M", "N"]\n'
    )
    write("kernels/v/k.cu", '#define add plus\n#include "../mul.cu"\n')
    write("kernels/mul.cu", BLOCK + ADD + MUL)
    registry = load_registry([tmp_path / "kernels"], tmp_path)
    assert registry.errors == ()
    assert list(registry.specs) == ["k", "mul"]
    source = registry.specs["k"].source
    assert "gemm" not in source, "the included file's block declares nothing here"
    assert f'#line 1 "kernels/mul.cu"\n\n\n\n\n{ADD}' in source


def test_an_undeclared_source_may_include_what_it_likes(write: Write, tmp_path: Path) -> None:
    write("kernels/helpers.cu", '#include "missing.cuh"\n#include "helpers.cu"\n')
    write("kernels/k.cu", BLOCK + ADD + MUL)
    assert only_kernel(tmp_path).name == "k"


def test_the_hash_counts_headers_and_not_the_block(write: Write, tmp_path: Path) -> None:
    write(
        "kernels/k.cu", BLOCK + '#include "add.cuh" // +\n#ifdef X\n#include "x.h"\n#endif\n' + MUL
    )
    write("kernels/add.cuh", ADD)
    write("kernels/x.h", "")
    before = only_kernel(tmp_path)
    path = tmp_path / "kernels" / "k.cu"
    path.write_text(path.read_text().replace("// ///\n", "// sizes = [64]\n// ///\n"))
    assert only_kernel(tmp_path).source_hash == before.source_hash
    path.write_text(path.read_text().replace("// sizes = [64]\n", ""))
    assert only_kernel(tmp_path) == before
    write("kernels/add.cuh", ADD.replace("x + y", "y + x"))
    after = only_kernel(tmp_path)
    assert after.source_hash != before.source_hash
    assert source_hash(after.source) != source_hash(before.source)


def test_a_stored_source_is_complete(write: Write, tmp_path: Path) -> None:
    write("kernels/k.cu", BLOCK + '#include "sub/add.cuh"\n' + MUL)
    write("kernels/sub/add.cuh", "#pragma once\n" + ADD)
    kernel = only_kernel(tmp_path)
    write("stored/kernels/k.cu", kernel.source)
    assert only_kernel(tmp_path / "stored") == kernel


def test_paths_of_this_machine_stay_out(write: Write, tmp_path: Path) -> None:
    write("project/kernels/k.cu", BLOCK + '#include "../../shared/add.cuh"\n' + MUL)
    write("shared/add.cuh", ADD)
    assert '#line 1 "../shared/add.cuh"\n' in only_kernel(tmp_path / "project").source
    assert str(tmp_path) not in only_kernel(tmp_path / "project").source


# ---- compilers ----------------------------------------------------------------------------


NAMES = ("k.cu", "t.cuh", "sub/u.cuh", "sub/v.h", "w.cuh", "sub/deep/x.cuh")


def random_file(rng: random.Random, name: str) -> str:
    """Conditions, macros, includes and lines that say where they are."""
    place = f"at {re.sub(r'[^a-z]', '_', name)} __FILE__ __LINE__"
    lines: list[str] = []
    depth = 0
    for _ in range(rng.randrange(2, 12)):
        target = posixpath.relpath(rng.choice(NAMES[1:]), posixpath.dirname(name) or ".")
        macro = f"D{rng.randrange(3)}"
        choice = rng.randrange(10)
        if choice < 3:
            lines.append(f'#include "{target}"' + rng.choice(["", " // c", " /* a\n b */", "  "]))
        elif choice == 3:
            lines.append(rng.choice(["#if 0", "#if 1", f"#ifdef {macro}", f"# ifndef {macro}"]))
            depth += 1
        elif choice == 4 and depth:
            branch = rng.choice(["#else // x", f"#elif defined({macro}) \\\n && 1"])
            lines += [branch, place, "#endif /* y\n z */"]
            depth -= 1
        elif choice == 5:
            lines.append(f"#define {macro}")
        elif choice == 6:
            lines.append(f'// #include "{target}"\n/*\n#include "{target}"\n*/')
        else:
            lines.append(place)
    text = "\n".join([*lines, *depth * ["#endif"], place])
    guard = re.sub(r"\W", "_", name).upper()
    guarded = f"#ifndef {guard}\n#define {guard}\n{text}\n#endif"
    forms = [f"// l\n#pragma once // o\n{text}", guarded, f"#pragma once\n{guarded}"]
    if name != NAMES[0]:
        text = rng.choice(
            [*forms, f"{guarded} // {guard}", text.replace("#include", "// #include")]
        )
    return text + rng.choice(["", "\n", "\n\n"])


def preprocessed(path: str, root: Path) -> list[str]:
    command = find_compiler().command
    run = subprocess.run(
        [*command, "-E", "-P", "-w", "-x", "c++", path],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.strip(), shlex.join(command)
    return [posixpath.normpath(word) for word in run.stdout.split()]


@pytest.mark.parametrize("seed", range(25))
def test_the_preprocessor_finds_the_same_words_in_the_same_lines(
    write: Write, tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    for name in NAMES:
        write(f"kernels/{name}", random_file(rng, name))
    text = expanded(tmp_path / "kernels" / NAMES[0], tmp_path)
    write("elsewhere/k.cu", f'#line 1 "kernels/k.cu"\n{text}')
    assert preprocessed("elsewhere/k.cu", tmp_path) == preprocessed("kernels/k.cu", tmp_path)


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Host:
    return Host(tmp_path_factory.mktemp("cache"))


def compile_error(host: Host, path: Path, root: Path, entry: str = "k") -> str:
    program = CudaProgram(expanded(path, root), path.relative_to(root).as_posix(), entry)
    with pytest.raises(CompileError) as caught:
        host.backend.compile(program)
    return str(caught.value).partition("\n")[0]


def test_compile_errors_name_the_header_and_its_line(
    write: Write, tmp_path: Path, host: Host
) -> None:
    path = write(
        "kernels/k.cu",
        '#ifdef NOT\n#include "a.cuh"\n#endif\n#include "a.cuh"\n'
        "__global__ void k(float* x) { x[0] = a(); }\n",
    )
    write("kernels/a.cuh", "#pragma once\n\n__device__ float a() { return wrong; }\n")
    first = compile_error(host, path, tmp_path)
    assert first.startswith("kernels/a.cuh:3: error: ")
    assert "wrong" in first
    write("kernels/a.cuh", '__device__ float a() {\n  asm("x");\n  return 1; }\n')
    assert compile_error(host, path, tmp_path).startswith("kernels/a.cuh:2: error: inline PTX")
    write("kernels/a.cuh", "\n\n\n__device__ int b() { return 1; }\n")
    first = compile_error(host, path, tmp_path)
    assert first.startswith("kernels/k.cu:5: error: ")
    assert compile_error(host, path, tmp_path, "k<x>").startswith("kernels/k.cu")


def test_nvrtc_errors_name_the_header_and_its_line(write: Write, tmp_path: Path) -> None:
    path = write("kernels/k.cu", '#include "a.cuh"\n__global__ void k(float* x) { x[0] = a(); }\n')
    write("kernels/a.cuh", "\n__device__ float a() { return wrong; }\n")
    # What NVRTC 13.0 says of this source.
    log = """kernels/a.cuh(2): error: identifier "wrong" is undefined
  __device__ float a() { return wrong; }
                                ^

1 error detected in the compilation of "kernels/k.cu".
"""
    program = CudaProgram(expanded(path, tmp_path), "kernels/k.cu", "k")
    assert first_line(log, program) == ('kernels/a.cuh:2: error: identifier "wrong" is undefined')


def test_faults_name_the_header_and_its_line(write: Write, tmp_path: Path, host: Host) -> None:
    path = write(
        "kernels/k.cu",
        '#include <assert.h>\n#include "a.cuh"\n'
        "__global__ void k(float* x, int n) {\n check(n);\n assert(n != 2);\n}\n",
    )
    write("kernels/a.cuh", "\n__device__ void check(int n) {\n\n assert(n != 1);\n}\n")
    executable = host.backend.compile(CudaProgram(expanded(path, tmp_path), "kernels/k.cu", "k"))
    host.launch(executable, [zeros(1), 3])
    for n, place in ((1, "kernels/a.cuh:4: "), (2, "kernels/k.cu:5: ")):
        with pytest.raises(KernelFault, match=f"^{re.escape(place)}assertion `n != {n}` failed"):
            host.launch(executable, [zeros(1), n])


def test_barriers_in_the_same_line_of_two_files_differ(
    write: Write, tmp_path: Path, host: Host
) -> None:
    path = write(
        "kernels/k.cu",
        '#include "a.cuh"\n__global__ void k(float* x) {\n'
        " if (threadIdx.x) __syncthreads();\n else wait();\n}\n",
    )
    write("kernels/a.cuh", "__device__ void wait() {\n\n __syncthreads();\n}\n")
    executable = host.backend.compile(CudaProgram(expanded(path, tmp_path), "kernels/k.cu", "k"))
    with pytest.raises(KernelFault) as caught:
        host.launch(executable, [zeros(1)], block=(2, 1, 1))
    assert str(caught.value) == (
        "barrier divergence in block (0, 0, 0): thread (1, 0, 0) waits at the barrier in "
        "kernels/k.cu:3, thread (0, 0, 0) at the one in kernels/a.cuh:3"
    )


def test_a_run_from_another_folder(
    write: Write, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makepyfile(test_kernels="def test_gemm(gemm):\n    gemm.check()\n")
    pytester.makeini("[pytest]\n")
    for name, text in {
        "kernels/good.cu": BLOCK + '#include "sub/add.cuh"\n' + MUL,
        "kernels/bad.cu": BLOCK + '#include "sub/bad.cuh"\n' + MUL,
        "kernels/sub/add.cuh": ADD,
        "kernels/sub/bad.cuh": "\n" + ADD.replace("x + y", "wrong"),
    }.items():
        path = pytester.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    elsewhere = pytester.mkdir("elsewhere")
    for folder, argument in ((pytester.path, "."), (elsewhere, "..")):
        monkeypatch.chdir(folder)
        result = pytester.runpytest_subprocess(argument, "--gemm-size=20x24x8")
        assert result.parseoutcomes() == {"passed": 1, "failed": 1}
        result.stdout.fnmatch_lines(["*kernels/sub/bad.cuh:2: error: *wrong*"])
