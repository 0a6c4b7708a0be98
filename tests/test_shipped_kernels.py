"""The kernels of this repository: for any shape, bit for bit, and one change at a time."""

from __future__ import annotations

import ctypes
import ctypes.util
import difflib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from pytest_gemm.backends.base import Argument, CudaProgram, LaunchConfig, Matrix
from pytest_gemm.backends.host import HostBackend
from pytest_gemm.frontmatter import strip_front_matter
from pytest_gemm.kernelspec import Kernel
from pytest_gemm.problem import Problem
from pytest_gemm.registry import load_registry

ROOT = Path(__file__).parent.parent
REGISTRY = load_registry([ROOT / "kernels"], ROOT)
KERNELS = REGISTRY.kernels("host")
GEMM = [kernel for kernel in KERNELS if kernel.op == "gemm"]

Float32 = npt.NDArray[np.float32]

# Around the tiles of 16 and 32 and the blocks of 4, and thin in each direction.
SHAPES = ["1", "2x3x5", "1x40x7", "40x1x7", "7x40x1", "16", "15x17x16", "31x33x32", "32", "33"]
SHAPES += ["64x32x96", "32x64x48", "70x45x100", "5x300x3", "300x5x3", "3x5x300"]


@pytest.fixture(scope="module")
def backend() -> HostBackend:
    return HostBackend()


def run(backend: HostBackend, kernel: Kernel, problem: Problem, A: Float32, B: Float32) -> Float32:
    """Launch once into a C of NaN."""
    program = CudaProgram(*kernel.program_fields)
    executable = backend.compile(program)
    C = np.full(problem.shapes["C"], np.nan, np.float32)
    matrices: dict[str, Matrix] = {}
    for name, data in (("A", A), ("B", B), ("C", C)):
        buffer = backend.allocate(data.nbytes)
        backend.upload(buffer, data.view(np.uint8).reshape(-1))
        matrices[name] = Matrix(buffer, 0, data.shape[0], data.shape[1], data.shape[1], "float32")
    arguments: list[Argument] = [
        matrices[value] if isinstance(value, str) else value for value in kernel.arguments(problem)
    ]
    try:
        backend.time(executable, LaunchConfig(*kernel.launch(problem)), arguments, timeout=20)
        result = backend.download(matrices["C"].buffer).view(np.float32).reshape(C.shape)
    finally:
        for matrix in matrices.values():
            backend.free(matrix.buffer)
    return result


def matrices(problem: Problem, *, integers: bool) -> Iterator[Float32]:
    rng = np.random.default_rng(1)
    for name in "AB":
        shape = problem.shapes[name]
        data = rng.integers(-8, 9, shape) if integers else rng.standard_normal(shape)
        yield data.astype(np.float32)


def test_the_registry() -> None:
    assert REGISTRY.errors == ()
    assert {name: spec.derived_from for name, spec in REGISTRY.specs.items()} == {
        "add": "",
        "block_size": "naive",
        "naive": "",
        "register_blocked": "tiled32",
        "tiled": "naive",
        "tiled32": "tiled",
    }
    sides = [kernel.id for kernel in KERNELS if kernel.name == "block_size"]
    assert sides == [f"block_size[SIDE:{side}]" for side in (1, 2, 4, 8, 16, 32)]
    assert REGISTRY.specs["block_size"].sizes("host") == ("128x128x128",)
    assert REGISTRY.specs["block_size"].sizes("cuda") == ("1000x1000x1000",)
    assert len(REGISTRY.specs["block_size"].kernels("cuda")) == 32


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.id)
def test_any_shape(backend: HostBackend, kernel: Kernel) -> None:
    for shape in SHAPES:
        problem = Problem.parse(shape, kernel.op)
        A, B = matrices(problem, integers=True)
        expected = A + B if kernel.op == "add" else A @ B
        np.testing.assert_array_equal(run(backend, kernel, problem, A, B), expected, shape)


def test_all_products_have_the_bits_of_the_chain_in_order(backend: HostBackend) -> None:
    fmaf = ctypes.CDLL(ctypes.util.find_library("m")).fmaf
    fmaf.restype = ctypes.c_float
    fmaf.argtypes = [ctypes.c_float] * 3
    problem = Problem.parse("9x7x67")
    A, B = matrices(problem, integers=False)

    def chain(order: range) -> bytes:
        result = np.zeros((9, 7), np.float32)
        for k in order:
            for (row, col), acc in np.ndenumerate(result):
                result[row, col] = fmaf(A[row, k], B[k, col], acc)
        return result.tobytes()

    expected = chain(range(problem.K))
    assert expected != chain(range(problem.K)[::-1])
    for kernel in GEMM:
        assert run(backend, kernel, problem, A, B).tobytes() == expected, kernel.id


@pytest.mark.parametrize(("one", "other"), [("tiled", "tiled32"), ("naive", "block_size")])
def test_one_change_at_a_time(one: str, other: str) -> None:
    """Without front matter, comments and the kernel's own name nothing but the change is left."""
    before, after = (_code(REGISTRY.specs[name].source, name) for name in (one, other))
    changed = [
        line
        for line in difflib.ndiff(before, after)
        if line[0] in "+-" and not line[2:].startswith("constexpr int TILE = ")
    ]
    assert changed == []


def _code(source: str, name: str) -> list[str]:
    lines = strip_front_matter(source).replace(f"void {name}(", "void kernel(").split("\n")
    return [line.strip() for line in lines if line.strip() and not line.strip().startswith("//")]
