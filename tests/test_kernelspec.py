from __future__ import annotations

import dataclasses
import inspect
import json
import pickle
import re
import subprocess
import sys
import tomllib
import types
from pathlib import Path

import numpy as np
import pytest

from pytest_gemm.declaration import read_kernel
from pytest_gemm.errors import ConfigError, SpecError
from pytest_gemm.frontmatter import read_front_matter
from pytest_gemm.kernelspec import Kernel, KernelSpec, Launch
from pytest_gemm.limits import Limits
from pytest_gemm.problem import Problem
from pytest_gemm.registry import load_registry
from pytest_gemm.schema import KEYS, PYTHON_KEYS

GEMM = "__global__ void gemm(const float* A, const float* B, float* C, int M, int N, int K) {}\n"
TEMPLATE = (
    "template <int BM, int BN>\n"
    "__global__ void gemm(const float* A, const float* B, float* C, int M, int N, int K) {}\n"
)
DIMS = "block = [16, 16]\ngrid = ['cdiv(N, 16)', 'cdiv(M, 16)']\n"


def declare(keys: str = DIMS, code: str = GEMM) -> KernelSpec:
    block = "".join(f"// {line}".rstrip() + "\n" for line in keys.splitlines())
    source = f"// /// gemm\n{block}// ///\n{code}"
    (table,) = read_front_matter(source, "k.cu")
    return read_kernel(table, path="k.cu", source=source, filename="k.cu", default_name="k")


def one(keys: str = DIMS, code: str = GEMM) -> Kernel:
    (kernel,) = declare(keys, code).kernels("host")
    return kernel


def problem(text: str = "100x70x33", op: str = "gemm") -> Problem:
    return Problem.parse(text, op)


def test_a_finite_c_is_of_the_problem_and_of_no_other_benchmark() -> None:
    plain, declared = one(), one(DIMS + "finite_c = true")
    assert not plain.problem("64").finite_c
    assert declared.problem("64") == dataclasses.replace(plain.problem("64"), finite_c=True)
    assert declared.problem("64").label == plain.problem("64").label
    assert declared.problem("64").bytes == plain.problem("64").bytes
    assert declared.source_hash == plain.source_hash


def test_defaults() -> None:
    spec = declare()
    assert (spec.name, spec.path, spec.line, spec.op, spec.entry) == (
        "k",
        "k.cu",
        1,
        "gemm",
        "gemm",
    )
    assert spec.args == ("A", "B", "C", "M", "N", "K")
    assert (spec.dtype, spec.layout, spec.deterministic) == ("float32", "row-major", True)
    assert (spec.derived_from, spec.change, spec.sizes("host"), spec.sizes("cuda")) == (
        "",
        "",
        (),
        (),
    )
    assert spec.scalars == ()
    assert not spec.is_python
    kernel = one()
    assert kernel.id == "k"
    assert kernel.launch(problem()) == Launch((5, 7, 1), (16, 16, 1), 0)
    assert kernel.arguments(problem()) == ("A", "B", "C", 100, 70, 33)
    assert kernel.program_fields == (spec.source, "k.cu", "gemm", ())
    assert kernel.skip_reason(problem()) == ""
    assert kernel.uses_ld == ()


def test_names_bind_in_any_order() -> None:
    code = (
        "__global__ void f(float* C, long K, float beta, float* B, float* A, float alpha, int ldb);"
    )
    kernel = one(DIMS, code)
    values = dataclasses.replace(problem(), alpha=2.0, beta=-1.0, ldb=80)
    assert kernel.arguments(values) == ("C", 33, -1.0, "B", "A", 2.0, 80)
    assert kernel.scalars == ("alpha", "beta")
    assert kernel.uses_ld == ("ldb",)


def test_only_one_scalar() -> None:
    kernel = one(DIMS, "__global__ void f(float* C, float* B, float* A, float alpha);")
    assert kernel.scalars == ("alpha",)


def test_explicit_arguments() -> None:
    code = "__global__ void matrixMulCUDA(float* C, float* A, float* B, int wA, int wB, int n) {}"
    kernel = one(DIMS + "args = ['C', 'A', 'B', 'lda', ' N*2 ', 7]", code)
    assert kernel.arguments(problem()) == ("C", "A", "B", 33, 140, 7)
    assert kernel.uses_ld == ("lda",)


def test_add() -> None:
    code = "__global__ void add(const float* A, const float* B, float* C, int M, int N) {}"
    kernel = one("op = 'add'\nblock = [256]\ngrid = ['cdiv(M * N, 256)']", code)
    assert kernel.launch(problem("30x40", "add")) == Launch((5, 1, 1), (256, 1, 1), 0)
    assert kernel.arguments(problem("30x40", "add")) == ("A", "B", "C", 30, 40)


SWEPT = """block = ['BN', 'BM // 2']
grid = ['cdiv(N, BN)', 'cdiv(M, BM)']
shared_mem = '4 * BM * BN'
entry = "gemm<BM, BN>"
params.STAGES = 2
params.BN = 8
[sweep]
BM = [32, 16]
ROWS = {host = [1], cuda = [1, 2]}
"""
SWEPT_CODE = "const int rows = ROWS, stages = STAGES;\n" + TEMPLATE


def test_sweep() -> None:
    spec = declare(SWEPT, SWEPT_CODE)
    host = spec.kernels("host")
    assert [kernel.id for kernel in host] == ["k[BM:32+ROWS:1]", "k[BM:16+ROWS:1]"]
    assert [kernel.id for kernel in spec.kernels("cuda")] == [
        "k[BM:32+ROWS:1]",
        "k[BM:32+ROWS:2]",
        "k[BM:16+ROWS:1]",
        "k[BM:16+ROWS:2]",
    ]
    kernel = host[1]
    assert kernel.params == (("BM", 16), ("BN", 8), ("ROWS", 1), ("STAGES", 2))
    assert kernel.program_fields.entry == "gemm<16, 8>"
    assert kernel.program_fields.defines == (("ROWS", 1), ("STAGES", 2))
    assert kernel.launch(problem()) == Launch((9, 7, 1), (8, 8, 1), 512)
    with pytest.raises(ConfigError, match="'metal' is no back end: host or cuda"):
        spec.kernels("metal")


def test_entry_substitutes_whole_identifiers_only() -> None:
    code = "template <int A1, int B1, int C1> __global__ void BM(float* C) {}"
    kernel = one(DIMS + "params.BM = 4\nentry = 'BM<BM, BM2 + BM*2, xBM>'", code)
    assert kernel.entry == "BM<4, BM2 + 4*2, xBM>"


def test_a_parameter_that_the_code_does_not_use_is_no_macro() -> None:
    kernel = one("block = ['T', 'T']\ngrid = ['cdiv(N, T)', 'cdiv(M, T)']\nparams.T = 8")
    assert kernel.defines == ()
    assert kernel.launch(problem()).block == (8, 8, 1)


def test_sizes() -> None:
    spec = declare(DIMS + "sizes = [64, '32x48x16']")
    assert spec.sizes("host") == spec.sizes("cuda") == ("64", "32x48x16")
    spec = declare(DIMS + "sizes.host = ['128']")
    assert (spec.sizes("host"), spec.sizes("cuda")) == (("128",), ())
    assert spec.kernels("host")[0].sizes("host") == ("128",)


def limits(keys: str, backend: str, size: str = "64") -> Limits:
    (kernel,) = declare(DIMS + keys).kernels(backend)
    return kernel.limits_on(backend, problem(size))


def test_a_limit_holds_everywhere_on_one_kind_of_device_or_for_one_problem() -> None:
    assert limits("", "host") == Limits()
    everywhere = "max_us = 900\nmin_gflops = 0.5"
    for backend in ("host", "cuda"):
        for size in ("64", "8x16x24"):
            assert limits(everywhere, backend, size) == Limits(max_us=900, min_gflops=0.5)

    on_a_gpu = "min_percent_of_cublas.cuda = 60\nmax_us.host = 7"
    assert limits(on_a_gpu, "cuda") == Limits(min_percent_of_cublas=60)
    assert limits(on_a_gpu, "host") == Limits(max_us=7)

    of_one = "sizes = [64, '8x16x24']\nmax_us = { 64 = 900, 8x16x24 = 2.5 }"
    for backend in ("host", "cuda"):
        assert limits(of_one, backend) == limits(of_one, backend, "64x64x64") == Limits(max_us=900)
        assert limits(of_one, backend, "8x16x24") == Limits(max_us=2.5)
        assert limits(of_one, backend, "128") == Limits()

    of_both = "sizes = [64]\nmax_us.cuda.64 = 9\nmax_us.host = 80"
    assert limits(of_both, "cuda") == Limits(max_us=9)
    assert limits(of_both, "cuda", "128") == Limits()
    assert limits(of_both, "host", "128") == Limits(max_us=80)


def test_a_problems_limit_holds_where_the_problem_is_among_the_sizes() -> None:
    apart = "max_us.4096 = 900\n[sizes]\nhost = [64]\ncuda = [4096]"
    assert limits(apart, "cuda", "4096") == Limits(max_us=900)
    assert limits(apart, "host", "4096") == Limits()


def test_a_margin_is_a_fraction_and_may_differ_between_devices() -> None:
    def margins(keys: str) -> list[float | None]:
        return [declare(DIMS + keys).kernels(b)[0].margin_on(b) for b in ("host", "cuda")]

    assert margins("") == [None, None]
    assert margins("margin = 2") == [0.02, 0.02]
    assert margins("margin = 0") == [0.0, 0.0]
    assert margins("margin = 99.5") == [0.995, 0.995]
    assert margins("margin = { host = 5, cuda = 0.5 }") == [0.05, 0.005]
    assert margins("margin.cuda = 0.5") == [None, 0.005]


def test_limits_and_margins_are_plain_data_and_no_part_of_the_program() -> None:
    keys = "sizes = [64]\nmargin = 2\nmax_us.cuda = { 64 = 900 }\nmin_gflops = 5"
    (kernel,) = declare(DIMS + keys).kernels("cuda")
    again = Kernel.from_dict(json.loads(json.dumps(kernel.to_dict())))
    assert again == kernel
    assert again.limits_on("cuda", problem("64")) == Limits(max_us=900, min_gflops=5)
    assert kernel.source_hash == one().source_hash


def test_requires() -> None:
    kernel = one(DIMS + "requires = ['M % 4 == 0', 'K % 16 == 0']")
    assert kernel.skip_reason(problem("100x70x33")) == "requires K % 16 == 0"
    assert kernel.skip_reason(problem("101x70x33")) == "requires M % 4 == 0"
    assert kernel.skip_reason(problem("100x70x32")) == ""


def test_an_addition_has_no_cublas() -> None:
    code = "__global__ void add(const float* A, const float* B, float* C, int M, int N) {}\n"
    keys = "op = 'add'\nmin_percent_of_cublas = 60\n" + DIMS
    check(keys, code, ("k.cu", 3), "min_percent_of_cublas is for op = 'gemm'")
    (kernel,) = declare(
        keys.replace("percent_of_cublas", "gflops") + "sizes = ['64x32']\nmax_us.64x32 = 9", code
    ).kernels("host")
    found = kernel.limits_on("host", problem("64x32x5", "add"))
    assert found == Limits(max_us=9, min_gflops=60)


def test_plain_data() -> None:
    for kernel in declare(SWEPT, SWEPT_CODE).kernels("cuda"):
        assert pickle.loads(pickle.dumps(kernel)) == kernel
        assert Kernel.from_dict(json.loads(json.dumps(kernel.to_dict()))) == kernel


def test_source_hash() -> None:
    def hashes(keys: str = SWEPT, code: str = SWEPT_CODE) -> set[str]:
        return {kernel.source_hash for kernel in declare(keys, code).kernels("cuda")}

    assert len(hashes()) == 4
    assert hashes() == hashes(
        "sizes = [64]\nname = 'other'\nchange = 'x'\nderived_from = 'y'\n" + SWEPT
    )
    assert not hashes() & hashes(code=SWEPT_CODE + "//")
    for old, new in (
        ("BM // 2", "BM // 4"),
        ("cdiv(N, BN)", "cdiv(N, BN) * 1"),
        ("4 * BM", "8 * BM"),
        ("STAGES = 2", "STAGES = 3"),
    ):
        assert not hashes() & hashes(SWEPT.replace(old, new)), new
    assert not hashes() & hashes("args = ['A', 'B', 'C', 'M', 'N', 'K * 1']\n" + SWEPT)


MISTAKES = [
    ("blok = [16]\n" + DIMS, 2, "unknown key 'blok': did you mean 'block'?"),
    ("zzz = 1\n" + DIMS, 2, "unknown key 'zzz': the keys are name, op, entry"),
    ("strideA = 4\n" + DIMS, 2, "strideA is no key: a kernel that takes strideA gets it as an"),
    ("block = [16]", 1, "grid is missing: add one to three entries"),
    ("grid = [16]", 1, "block is missing: add one to three entries"),
    ("grid = [1]\nblock = 16", 3, "block is an integer: it takes a list of one to three"),
    ("grid = [1]\nblock = []", 3, "block is empty"),
    ("grid = [1]\nblock = [1, 1, 1, 1]", 3, "block has 4 entries"),
    ("grid = [1]\nblock = [1.5]", 3, "block holds a float"),
    ("grid = [1]\nblock = [true]", 3, "block holds a truth value"),
    ("grid = [1]\nblock = ['16 +']", 3, "block: '16 +' is not an expression"),
    (
        "grid = [1]\nblock = ['P']",
        3,
        "block: 'P' uses the unknown name 'P': known are M, N, K, lda",
    ),
    ("grid = [1]\nblock = ['TILES']\nparams.TILE = 1", 3, "'TILES': did you mean TILE?"),
    ("grid = [1]\nblock = ['A']", 3, "unknown name 'A'"),
    ("grid = [1]\nblock = ['M == 1']", 3, "block: 'M == 1' is a condition: write a number"),
    ("grid = [1]\nblock = ['1 // 0']", 3, "'1 // 0' divides by zero"),
    ("grid = [1]\nblock = [32, 33]", 3, "a block of 32 x 33 x 1 = 1056 threads exceeds 1024"),
    ("grid = [1]\nblock = [1, 1, 65]", 3, "the block's z = 65 exceeds 64"),
    ("grid = [1]\nblock = [0]", 3, "the block (0, 1, 1) has an entry below 1"),
    ("grid = [1]\nblock = ['16 * T2']\n[sweep]\nT2 = [8, 65]", 3, "k[T2:65]: a block of 1040"),
    (
        "block = [1]\ngrid = [1, 65536]",
        3,
        "the grid's y = 65536 exceeds 65535 (grid (1, 65536, 1))",
    ),
    ("block = [1]\ngrid = [1, 1, 65536]", 3, "the grid's z = 65536 exceeds 65535"),
    ("block = [1]\ngrid = [2147483648]", 3, "the grid's x = 2147483648 exceeds 2147483647"),
    (DIMS + "shared_mem = 232449", 4, "shared_mem = 232449 bytes is not within 0..232448"),
    (DIMS + "shared_mem = -1", 4, "shared_mem = -1 bytes"),
    (DIMS + "shared_mem = [1]", 4, "shared_mem is a list"),
    (DIMS + "op = 'axpy'", 4, "op = 'axpy' is not supported: it is gemm or add"),
    (DIMS + "op = 1", 4, "op is an integer: it takes 'gemm' or 'add'"),
    (DIMS + "dtype = 'fp8'", 4, "dtype = 'fp8' is not supported: it is float32 or float64 or"),
    (
        DIMS + "dtype = 'float64'",
        6,
        "gemm declares 'const float* A', but A holds float64: make it double*",
    ),
    (
        DIMS + "out_dtype = 'float16'",
        4,
        "out_dtype = 'float16' is not supported: with float32 it is float32",
    ),
    (
        DIMS + "dtype = 'float16'\nacc_dtype = 'int32'",
        5,
        "acc_dtype = 'int32' is not supported: with float16 it is float32 or float16",
    ),
    (
        DIMS + "layout = 'col'",
        4,
        "layout = 'col' is not supported: it is row-major or column-major",
    ),
    (DIMS + "transa = true", 4, "transa is a truth value: it takes 'N' or 'T', as in BLAS"),
    (DIMS + "transb = 'C'", 4, "transb = 'C' is not supported: it is N or T"),
    (DIMS + "op = 'add'\ntransa = 'T'", 5, "transa is for op = 'gemm': op is 'add'"),
    (DIMS + "alpha = 0", 4, "alpha = 0 cannot be: nothing would be multiplied"),
    (DIMS + "alpha = inf", 4, "alpha = inf cannot be: it is a finite number"),
    (DIMS + "beta = '1'", 4, "beta is a text: it takes a number such as 1"),
    (DIMS + "dtype = 'int8'\nbeta = 0.5", 5, "beta = 0.5 cannot be with int32 sums"),
    (DIMS + "batch = 0", 4, "batch = 0 cannot be: it is at least 1"),
    (DIMS + "lda = 'L'", 4, "lda: 'L' uses the unknown name 'L': known are M, N, K"),
    (DIMS + "reference = 'gemm_relu'", 4, "reference = 'gemm_relu' is not a Python file and a"),
    (DIMS + "op = 'add'\nfinite_c = true", 5, "finite_c is for op = 'gemm': op is 'add'"),
    (DIMS + "finite_c = 1", 4, "finite_c is an integer: it takes true or false"),
    (DIMS + "deterministic = 1", 4, "deterministic is an integer: it takes true or false"),
    (DIMS + "name = 'a b'", 4, "'a b' cannot name a kernel"),
    (DIMS + "name = ''", 4, "name is the empty text ''"),
    (DIMS + "entry = 'gem'", 4, "entry 'gem' is not in k.cu: did you mean gemm?"),
    (DIMS + "entry = 'xyz'", 4, "entry 'xyz' is not in k.cu: its __global__ functions: gemm"),
    (DIMS + "entry = 'a b'", 4, "entry = 'a b' is not a function's name or a template"),
    (DIMS + "entry = 'gemm<1>'", 4, "gemm is no template: write entry without <...>"),
    (DIMS + "args = ['C']", 4, "args has 1 entries, gemm takes 6 (A, B, C, M, N, K)"),
    (DIMS + "args = 'C'", 4, "args is a text: it takes a list"),
    (DIMS + "args = []", 4, "args is empty"),
    (DIMS + "args = ['A', 'B', 'C', 'M', 'N', '?']", 4, "args: '?' is a gap to fill in"),
    (DIMS + "args = ['A', 'B', 'C', 'M', 'N', 'C + 1']", 4, "'C + 1' computes with a buffer"),
    (DIMS + "args = ['A', 'B', 'A', 'M', 'N', 'K']", 4, "no argument is C"),
    (
        DIMS + "args = ['A', 'B', 'M', 'C', 'N', 'K']",
        4,
        "gemm declares 'float* C', which needs a buffer, but gets M, an integer",
    ),
    (
        DIMS + "args = ['A', 'B', 'C', 'alpha', 'N', 'K']",
        4,
        "gemm declares 'int M', which needs an integer, but gets alpha, a float",
    ),
    (DIMS + "params = 3", 4, "params is an integer: it takes a table"),
    (DIMS + "params.TILE = 'x'", 4, "params.TILE holds a text: a parameter is an integer"),
    (DIMS + "params.TILE = 2147483648", 4, "params.TILE does not fit into 32 bits"),
    (DIMS + "params.M = 3", 4, "params.M hides the problem's own M"),
    (DIMS + "sweep.beta = [3]", 4, "sweep.beta hides the problem's own beta"),
    (DIMS + "params.min = 3", 4, "params.min is a reserved word"),
    (DIMS + "params.float = 3", 4, "params.float is a reserved word"),
    (DIMS + 'params."a-b" = 3', 4, "'a-b' cannot name a parameter"),
    (DIMS + "params.TILE = 3", 4, "params.TILE is used nowhere"),
    (DIMS + "params.TILE = 3\nsweep.TILE = [1]", 5, "TILE is in both params and sweep"),
    (DIMS + "sweep.TILE = 3", 4, "sweep.TILE is an integer: it takes a list"),
    (DIMS + "sweep.TILE = []", 4, "sweep.TILE is empty"),
    (DIMS + "sweep.TILE = [1, 2, 1]", 4, "sweep.TILE holds 1 twice: drop one"),
    (DIMS + "sweep.TILE = [1, 'M']", 4, "sweep.TILE holds a text"),
    (DIMS + "sweep.TILE.host = [1]", 4, "sweep.TILE lacks cuda: give host and cuda"),
    (DIMS + "[sweep.TILE]\nhost = [1]\ncuda = [2]\ncpu = [3]", 4, "sweep.TILE has the key 'cpu'"),
    (DIMS + "[sweep.TILE]\nhost = [1]\ncuda = [2, 2]", 6, "sweep.TILE.cuda holds 2 twice"),
    (
        DIMS + f"sweep.X1 = {list(range(17))}\nsweep.X2 = {list(range(16))}\n"
        "requires = ['X1 + X2 < 99']",
        4,
        "the sweeps make 272 kernels, more than 256",
    ),
    (DIMS + "requires = 'K == 1'", 4, "requires is a text: it takes a list of conditions"),
    (DIMS + "requires = [1]", 4, "requires holds an integer"),
    (DIMS + "requires = ['K % 16']", 4, "requires: 'K % 16' is a number: write a condition"),
    (DIMS + "requires = ['K % 16 = 0']", 4, "requires: 'K % 16 = 0' is not an expression"),
    (DIMS + "sizes = '64'", 4, "sizes is a text: it takes a list"),
    (DIMS + "sizes = []", 4, "sizes is empty"),
    (DIMS + "sizes = [1.5]", 4, "sizes holds a float"),
    (DIMS + "sizes = ['64x32']", 4, "sizes: '64x32' is not a size: write N or MxNxK"),
    (DIMS + "sizes = [0]", 4, "sizes: '0' is not a size"),
    (DIMS + "sizes = ['64', '64x64x64']", 4, "sizes holds 64x64x64 twice"),
    (DIMS + "sizes = ['" + "1" * 50 + "']", 4, "is too long for a size"),
    (DIMS + "sizes.gpu = ['64']", 4, "sizes has the key 'gpu': it takes host and cuda"),
    (DIMS + "[sizes]\nhost = [1]\ncuda = ['a']", 6, "sizes: 'a' is not a size"),
    (DIMS + "margin = '2 %'", 4, "margin is a text: it takes a number of percent such as 2"),
    (DIMS + "margin = -1", 4, "margin = -1 cannot be: it is a number of at least 0"),
    (DIMS + "margin = 1e9", 4, "margin = 1000000000.0 cannot be: a margin is below 100 percent"),
    (DIMS + "[margin]\nhost = 1\ncuda = 100", 6, "margin.cuda = 100 cannot be: a margin is"),
    (DIMS + "margin = nan", 4, "margin = nan cannot be"),
    (DIMS + "margin = true", 4, "margin is a truth value"),
    (DIMS + "margin = {}", 4, "margin is empty: it takes"),
    (DIMS + "margin = { 64 = 1 }", 4, "margin is a table: it takes a number of percent"),
    (DIMS + "[margin]\nhost = 1\ncuda = inf", 6, "margin.cuda = inf cannot be"),
    (DIMS + "max_us = 0", 4, "max_us = 0 cannot be: it is a number above 0"),
    (DIMS + "min_gflops = -2.5", 4, "min_gflops = -2.5 cannot be: it is a number above 0"),
    (DIMS + "min_gflops = nan", 4, "min_gflops = nan cannot be"),
    (DIMS + f"max_us = 1{'0' * 400}", 4, "cannot be: it is a number above 0"),
    (DIMS + "max_us = [9]", 4, "max_us is a list: it takes a number of microseconds such as 900"),
    (DIMS + "max_us = {}", 4, "max_us is empty: it takes"),
    (DIMS + "max_us.host = {}", 4, "max_us.host is empty: it takes"),
    (DIMS + "max_us.hots = 3", 4, "max_us has the key 'hots': did you mean host?"),
    (DIMS + "[margin]\nhost = 3\nCuda = 1", 6, "margin has the key 'Cuda': did you mean cuda?"),
    (DIMS + "max_us.gpu = 9", 4, "max_us: 'gpu' is not a size: write N or MxNxK"),
    (DIMS + "max_us = { host = 1, gpu = 9 }", 4, "max_us has the key 'gpu': it takes host and"),
    (DIMS + "max_us = { cuda = 1, 64 = 9 }", 4, "max_us has the key '64': it takes host and cuda"),
    (DIMS + "max_us.64 = 9", 4, "max_us has 64, which sizes has not: add it there"),
    (DIMS + "sizes = [64]\nmax_us.host.65 = 9", 5, "max_us.host has 65, which sizes has not"),
    (DIMS + "sizes.cuda = [64]\nmax_us.host.64 = 9", 5, "max_us.host has 64, which sizes has"),
    (DIMS + "sizes = [64]\n[max_us]\n64 = 'x'", 6, "max_us.64 is a text: it takes a number"),
    (DIMS + "sizes = [64]\n[max_us]\n64 = 1\n64x64x64 = 2", 5, "max_us holds 64x64x64 twice"),
    (DIMS + "max_us = 1\nmax_uss = 1", 5, "unknown key 'max_uss': did you mean 'max_us'?"),
    (DIMS + "change = 'x'", 4, "change says what differs from derived_from: give derived_from"),
    (DIMS + "derived_from = 'k'", 4, "k is derived_from itself"),
    (DIMS + "derived_from = 'x'\nchange = '''a\nb'''", 5, "change holds a line break"),
]


def check(keys: str, code: str, path_line: tuple[str, int], part: str) -> None:
    with pytest.raises(SpecError) as caught:
        declare(keys, code)
    message = str(caught.value)
    assert part in message
    assert (caught.value.path, caught.value.line) == path_line
    assert message.startswith(f"{path_line[0]}:{path_line[1]}: ")
    assert "\n" not in message


@pytest.mark.parametrize(("keys", "line", "part"), MISTAKES, ids=[m[2][:40] for m in MISTAKES])
def test_mistakes_in_keys(keys: str, line: int, part: str) -> None:
    check(keys, GEMM, ("k.cu", line), part)


CODE_MISTAKES = [
    (DIMS, "int x;\n", 1, "k.cu has no __global__ function"),
    (
        DIMS,
        GEMM + "__global__ void f() {}",
        1,
        "several __global__ functions: add entry, one of gemm, f",
    ),
    (DIMS, "namespace a { " + GEMM + "}", None, ""),
    (DIMS + "entry = 'gemm'", "namespace a { " + GEMM + "}", 4, "did you mean a::gemm?"),
    (DIMS, TEMPLATE, 1, 'gemm is a template: give its parameters with entry = "gemm<BM, BN>"'),
    (
        DIMS + "entry = 'gemm<1>'",
        TEMPLATE,
        4,
        "entry gives 1 template arguments, gemm takes 2 (BM, BN)",
    ),
    (DIMS + "entry = 'gemm<1, 2, 3>'", TEMPLATE, 4, "entry gives 3 template arguments"),
    (
        DIMS + "entry = 'gemm<8, 8>'\nparams.BM = 8",
        TEMPLATE,
        5,
        'would be a macro and break the template parameter BM: put it into entry = "gemm<BM>"',
    ),
    (
        DIMS + "params.T = 8",
        "const int t = T;\n" + GEMM,
        4,
        "params.T would be a macro of one letter",
    ),
    (
        DIMS,
        "__global__ void mm(float* C, float* A, float* B, int wA, int N) {}",
        5,
        "parameter 'wA' of mm is none of A, B, C, M, N, K, alpha, beta, lda, ldb, ldc, batch, "
        "strideA, strideB, strideC: say what "
        'each parameter gets with args = ["C", "A", "B", "?", "N"]',
    ),
    (DIMS, "__global__ void mm(float* C,\n float*) {}", 6, "parameter 2 of mm is none of"),
    (DIMS, "__global__ void mm(float* a, float* C) {}", 5, "parameter 'a' of mm is none of"),
    (DIMS, "__global__ void mm(float* A, float* B) {}", 5, "no argument is C"),
    (DIMS, "\n__global__ void mm(int A, float* C) {}", 6, "'int A', which needs an integer"),
    (
        DIMS,
        "__global__ void mm(float* C, const int& K) {}",
        5,
        "'const int& K', a reference, which",
    ),
    (DIMS, "__global__ void mm(float* C, float K) {}", 5, "'float K', which needs alpha or beta"),
    (DIMS, "__global__ void mm(float* C,\n int alpha) {}", 6, "gets alpha, a float"),
    (DIMS, "__global__ void mm(float* C, double* A) {}", 5, "A holds float32: make it float*"),
    (DIMS, "__global__ void mm(float* C, const __half* A) {}", 5, "A holds float32"),
    (
        "op = 'add'\nblock = [1]\ngrid = [1]",
        "__global__ void add(float* C, int K) {}",
        6,
        "parameter 'K' of add is none of A, B, C, M, N, lda, ldb, ldc",
    ),
    (
        "block = [128]\ngrid = [1]",
        "__global__ void __launch_bounds__(64, 2) mm(float* C) {}",
        2,
        "a block of 128 threads exceeds __launch_bounds__(64)",
    ),
]


@pytest.mark.parametrize(
    ("keys", "code", "line", "part"),
    CODE_MISTAKES,
    ids=[m[3][:40] or "fine" for m in CODE_MISTAKES],
)
def test_mistakes_between_keys_and_code(keys: str, code: str, line: int | None, part: str) -> None:
    if line is None:
        assert declare(keys, code).entry == "a::gemm"
    else:
        check(keys, code, ("k.cu", line), part)


@pytest.mark.parametrize(
    ("constants", "bounds", "bound"),
    [
        ("constexpr int R = 32 / 4, S = R;", "R * S - 1", 63),
        ("#define HALF 32", "HALF", 32),
        ("constexpr int N = 32;", "N, 2", 32),  # the file's N is not the problem's
        ("constexpr int R = 8;", "R * R", 0),
        ("#if WIDE\nconstexpr int R = 4;\n#else\nconstexpr int R = 8;\n#endif", "R * R", 0),
        ("constexpr int R = side();", "R", 0),
        ("", "sizeof(int)", 0),
    ],
)
def test_launch_bounds_made_of_constants(constants: str, bounds: str, bound: int) -> None:
    code = f"{constants}\n__global__ void __launch_bounds__({bounds}) mm(float* C) {{}}"
    keys = "block = [8, 8]\ngrid = [1]"
    if bound:
        check(keys, code, ("k.cu", 2), f"a block of 64 threads exceeds __launch_bounds__({bound})")
    else:
        assert one(keys, code).launch(problem()).block == (8, 8, 1)


def test_a_parameter_comes_before_the_file_s_constant_of_its_name() -> None:
    code = (
        "#ifndef SIDE\n#define SIDE 4\n#endif\n"
        "__global__ void __launch_bounds__(SIDE * SIDE) mm(float* C) {}"
    )
    keys = "block = ['SIDE', 'SIDE']\ngrid = [1]\nparams.SIDE = 16"
    assert one(keys, code).launch(problem()).block == (16, 16, 1)


def test_launch_bounds_of_a_template_are_left_to_the_compiler() -> None:
    code = "template <int X2, int X1> __global__ void __launch_bounds__(X1) mm(float* C) {}"
    keys = "block = ['X2']\ngrid = [1]\nentry = 'mm<X1, X2>'\nparams.X1 = 1\nparams.X2 = 64"
    assert one(keys, code).launch(problem()).block == (64, 1, 1)


def test_unknown_types_pass() -> None:
    code = (
        "template <typename T> __global__ void mm(T* C, const float4* A, const void* B, T alpha, "
        "Index<T> K) {}"
    )
    assert one(DIMS + "entry = 'mm<float>'", code).args == ("C", "A", "B", "alpha", "K")


def test_limits_that_depend_on_the_problem() -> None:
    kernel = one("block = ['N']\ngrid = ['M // 16', 'K']\nshared_mem = '4 * K'")
    assert kernel.launch(problem("16x8x2")) == Launch((1, 2, 1), (8, 1, 1), 8)
    for text, line, part in (
        ("16x2000x2", 2, "a block of 2000 x 1 x 1 = 2000 threads exceeds 1024"),
        ("8x8x2", 3, "the grid (0, 2, 1) has an entry below 1"),
        ("16x8x70000", 3, "the grid's y = 70000 exceeds 65535"),
        ("16x8x60000", 4, "shared_mem = 240000 bytes is not within"),
    ):
        with pytest.raises(SpecError, match=r"^k\.cu:") as caught:
            kernel.launch(problem(text))
        assert part in str(caught.value)
        assert caught.value.line == line
    with pytest.raises(SpecError, match=r"k.cu:3: k: grid: 'N // \(M - 4\)' divides by zero"):
        one("block = [1]\ngrid = ['N // (M - 4)']").launch(problem("4"))


def test_an_integer_that_its_type_cannot_hold() -> None:
    keys = DIMS + "args = ['C', 'M * N']"
    big = problem("65536x65536x1")
    assert one(keys, "__global__ void f(float* C, long long n) {}").arguments(big)[1] == 2**32
    assert one(keys, "__global__ void f(float* C, Index n) {}").arguments(big)[1] == 2**32
    with pytest.raises(SpecError, match=r"k.cu:4: k: M \* N = 4294967296 does not fit into int \("):
        one(keys, "__global__ void f(float* C, int n) {}").arguments(big)


def test_what_is_timed_is_declared() -> None:
    words = "transa = 'T'\nlda = 'cdiv(M, 64) * 64'\nldb = 70\nbeta = 0.5\nbatch = 4\n"
    kernel = one(DIMS + words)
    timed = kernel.problem("100x70x33")
    assert (timed.lda, timed.ldb, timed.transa, timed.beta, timed.batch) == (128, 0, "T", 0.5, 4)
    assert timed.label == "100x70x33-float32+TN+beta:0.5+lda:128+batch:4"
    assert kernel.problem("64").label == "64x64x64-float32+TN+beta:0.5+ldb:70+batch:4"
    assert kernel.skip_reason(timed) == ""
    assert kernel.skip_reason(kernel.problem("9x80x9")) == "ldb = 70 is less than 80"


def test_a_kernel_of_before_is_the_same_benchmark() -> None:
    """What is not declared changes neither the name nor the hash."""
    kernel = one()
    assert kernel.problem("64") == Problem.parse("64")
    assert kernel.problem("64").label == "64x64x64-float32"
    for words in ("batch = 2", "alpha = 2", "lda = 'K + 1'", "transa = 'T'"):
        other = one(DIMS + words)
        assert other.source_hash == kernel.source_hash
        assert other.problem("64").label != kernel.problem("64").label


def test_a_batch_is_what_arguments_or_the_grid_depend_on() -> None:
    assert one().uses_batch == ()
    grid = "block = [16]\ngrid = ['M', 'N', 'batch']"
    assert one(grid).uses_batch == ("batch",)
    code = "__global__ void f(float* A, float* B, float* C, long strideB, int batch) {}"
    kernel = one(DIMS, code)
    assert kernel.uses_batch == ("batch", "strideB")
    assert kernel.arguments(kernel.problem("8x4x2")) == ("A", "B", "C", 8, 1)


def test_numbers_are_integers_where_c_is() -> None:
    code = "__global__ void f(int alpha, const int8_t* A, const int* B, int* C, float beta) {}"
    kernel = one(DIMS + "dtype = 'int8'\nalpha = 3", code)
    assert kernel.arguments(kernel.problem("8")) == (3, "A", "B", "C", 0)
    assert kernel.scalars == ("alpha", "beta")


def test_nothing_heavy_is_loaded() -> None:
    code = (
        "import sys, pytest_gemm; early = set(sys.modules);"
        "import pytest_gemm.registry; pytest_gemm.kernel;"
        "print('pytest_gemm.errors' in early, {'numpy', 'pytest'} & set(sys.modules))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["False", "set()"]


DOCS = Path(__file__).parent.parent / "docs"
DOC = (DOCS / "kernels.md").read_text(encoding="utf-8")
PYTHON_DOC = (DOCS / "python-kernels.md").read_text(encoding="utf-8")


def examples(language: str, doc: str = DOC) -> list[str]:
    blocks = re.findall(r"^```(\w+)\n(.*?)^```$", doc, re.MULTILINE | re.DOTALL)
    return [text for name, text in blocks if name == language]


def test_the_documentation_has_every_key_once() -> None:
    assert re.findall(r"^\| `(\w+)` \|", DOC, re.MULTILINE) == list(KEYS)
    rows = re.findall(r"^\| `(\w+)` \|.*\| `([^`]+)` \|$", DOC, re.MULTILINE)
    assert [next(iter(tomllib.loads(example))) for _, example in rows] == list(KEYS)
    (sentence,) = re.findall(r"The keywords are\n(.*?)\nThe function itself", PYTHON_DOC, re.DOTALL)
    words = set(re.findall(r"`(\w+)`", sentence)) - {"False", "None"}
    assert words == set(PYTHON_KEYS)


@pytest.mark.parametrize("text", examples("cuda"))
def test_the_documented_front_matter(text: str) -> None:
    (table,) = read_front_matter(text, "doc.cu")
    spec = read_kernel(table, path="doc.cu", source=text, filename="doc.cu", default_name="doc")
    for kernel in (*spec.kernels("host"), *spec.kernels("cuda")):
        kernel.launch(problem("512"))
        kernel.arguments(problem("512"))
    if spec.name != "doc":
        assert set(table.data) == set(KEYS), "the full example has every key"
        assert len(spec.kernels("cuda")) == 6


def test_the_documented_sidecar(tmp_path: Path) -> None:
    (text,) = (text for text in examples("toml") if "[[kernel]]" in text)
    (tmp_path / "vendor").mkdir()
    (tmp_path / "vendor" / "matrix_mul.cu").write_text(
        "template <int B> __global__ void matrixMul(float* C, float* A, float* B, int wA, int wB);"
    )
    (tmp_path / "vendor.gemm.toml").write_text(text)
    registry = load_registry([tmp_path], tmp_path)
    assert registry.errors == ()
    assert registry.kernels("host")[0].arguments(problem("64x32x96"))[3:] == (96, 32)


def test_the_documented_python() -> None:
    (text,) = examples("python", PYTHON_DOC)
    path = Path(__file__).with_name("doc.py")
    module = types.ModuleType("doc")
    exec(compile(text, path, "exec"), vars(module))
    registry = load_registry((), path.parent, modules=[module])
    assert registry.errors == ()
    assert [k.id for k in registry.kernels("host")] == [
        "blas",
        "panels[panel:32]",
        "panels[panel:64]",
    ]
    A, B, C = np.ones((3, 100)), np.ones((100, 2)), np.empty((3, 2))
    for function in registry.functions.values():
        C[:] = np.nan
        named = {"A": A, "B": B, "C": C, "K": 100, "panel": 32}
        function(*(named[name] for name in inspect.signature(function).parameters))
        assert (C == 100).all()
