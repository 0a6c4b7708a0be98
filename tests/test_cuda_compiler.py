"""From a source to machine code by NVRTC: options, names, and what its logs become."""

from __future__ import annotations

import pytest

from pytest_gemm.backends.base import CudaProgram
from pytest_gemm.backends.cuda.compiler import _TYPES, Compiler, first_line
from pytest_gemm.errors import BackendError, CompileError
from tests.fake_cupy import FakeCuda

KERNEL = "__global__ void k(float* x) {}"

# Recorded from NVRTC 13.5.
LOGS = {
    "undefined": (
        'kernels/x.cu:2: error: identifier "foo" is undefined',
        """\
kernels/x.cu(2): error: identifier "foo" is undefined
    x[0]=foo;
         ^

kernels/x.cu(3): warning #177-D: variable "y" was declared but never referenced
   int y = 3;
       ^

Remark: The warnings can be suppressed with "-diag-suppress <warning-number>"

1 error detected in the compilation of "kernels/x.cu".
""",
    ),
    "warning first": (
        'kernels/x.cu:7: error: expected a ";"',
        """\
kernels/x.cu(3): warning #177-D: variable "y" was declared but never referenced
   int y = 3;
       ^

kernels/x.cu(7): error: expected a ";"
""",
    ),
    "entry": (
        "kernels/x.cu: error: entry 'nope': identifier \"nope\" is undefined (the file has k)",
        """\
__nv_name_map(2): error: identifier "nope" is undefined
  #pragma nv_mangled_name nope
                          ^

__nv_name_map(2): error: Error in parsing name expression for lowered name lookup. Input name\
 expression was: " nope"
  #pragma nv_mangled_name nope
                          ^

2 errors detected in the compilation of "kernels/x.cu".
""",
    ),
    "include": (
        'kernels/x.cu:1: error: cannot open source file "nope.cuh"',
        """\
kernels/x.cu(1): catastrophic error: cannot open source file "nope.cuh"
  #include "nope.cuh"
                     ^

1 catastrophic error detected in the compilation of "kernels/x.cu".
Compilation terminated.
""",
    ),
    "assembler": (
        "kernels/x.cu: error: Entry function '_Z1kPf' uses too much shared data (0x61a80 bytes,"
        " 0x38c00 max)",
        "ptxas error   : Entry function '_Z1kPf' uses too much shared data (0x61a80 bytes,"
        " 0x38c00 max)\n \n",
    ),
    "toolkit header": (
        "kernels/x.cu: error: expected an identifier (in /cuda/include/a.h:30)",
        "/cuda/include/a.h(30): error: expected an identifier\n",
    ),
    "nothing": ("kernels/x.cu: error: NVRTC failed", ""),
}


@pytest.fixture
def fake():
    return FakeCuda()


@pytest.mark.parametrize("name", LOGS)
def test_the_first_line_of_an_error(fake, name):
    line, fake.log = LOGS[name]
    entry = "nope" if name == "entry" else "k"
    program = CudaProgram(KERNEL, "kernels/x.cu", entry)
    if not fake.log:
        assert first_line(fake.log, program) == line
        return
    with pytest.raises(CompileError) as caught:
        Compiler(fake.api(), 9, 0).compile(program)
    first, _, rest = str(caught.value).partition("\n")
    assert first == line
    assert rest == fake.log


def test_an_error_in_a_header_of_the_kernels_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    log = f'{tmp_path}/kernels/inner/a.cuh(3): error: expected a ";"\n'
    program = CudaProgram('#include "inner/a.cuh"', "kernels/x.cu", "k")
    assert first_line(log, program) == 'kernels/inner/a.cuh:3: error: expected a ";"'


def test_an_entry_where_there_is_no_kernel():
    log = '__nv_name_map(2): error: identifier "k" is undefined\n'
    text = first_line(log, CudaProgram("int x;", "kernels/x.cu", "k"))
    assert text.endswith("(the file has no __global__ function)")


def test_macros_stand_before_the_users_first_line(fake):
    program = CudaProgram(KERNEL, 'a "b"/x.cu', "k<16>", (("T", 16), ("BM", 8)))
    image = Compiler(fake.api(), 9, 0).compile(program)
    (source,) = fake.sources
    assert source == f'{_TYPES}#define T 16\n#define BM 8\n#line 1 "a \\"b\\"/x.cu"\n{KERNEL}\n'
    assert (image.code, image.entry) == (b"code of k", "k")
    assert image.seconds > 0


def test_options(fake, tmp_path):
    compiler = Compiler(fake.api(), 9, 0)
    compiler.compile(CudaProgram(KERNEL, f"{tmp_path}/x.cu", "k"))
    assert fake.options == (*compiler.flags, f"-I{tmp_path}")
    assert "-ftz=true" in compiler.flags  # the host back end's floating-point mode
    assert not any(option.startswith("-D") for option in fake.options)


@pytest.mark.parametrize(("capability", "flag"), [
    ((8, 0), "sm_80"),
    ((9, 0), "sm_90a"),
    ((10, 0), "sm_100a"),
    ((12, 1), "compute_100"),  # newer than this NVRTC
    ((8, 9), "compute_80"),
])  # fmt: skip
def test_architecture(fake, capability, flag):
    assert f"--gpu-architecture={flag}" in Compiler(fake.api(), *capability).flags


def test_flags_hash_changes_with_the_flags(fake):
    hashes = {Compiler(fake.api(), *c).flags_hash for c in ((8, 0), (9, 0))}
    assert len(hashes) == 2
    assert all(len(text) == 8 for text in hashes)


def test_programs_are_destroyed_even_after_errors(fake):
    compiler = Compiler(fake.api(), 9, 0)
    compiler.compile(CudaProgram(KERNEL, "x.cu", "k"))
    fake.log = "x.cu(1): error: no\n"
    with pytest.raises(CompileError):
        compiler.compile(CudaProgram(KERNEL, "x.cu", "k"))
    assert fake._programs == {}


def test_nvrtc_that_cannot_be_loaded_says_what_to_install(fake):
    api = fake.api()

    def missing():
        raise RuntimeError("CuPy failed to load libnvrtc.so.13: OSError: no such file\nmore")

    api.nvrtc.getVersion = missing
    with pytest.raises(BackendError, match=r"no such file\): pip install 'pytest-gemm\[cuda13\]'"):
        Compiler(api, 9, 0)
