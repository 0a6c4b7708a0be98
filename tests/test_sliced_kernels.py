"""The device part of files with host code in them, in the styles that are found in the wild."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pytest_gemm.backends.base import Argument, CudaProgram, LaunchConfig, Matrix
from pytest_gemm.backends.cuda.compiler import Compiler
from pytest_gemm.backends.host import HostBackend
from pytest_gemm.kernelspec import Kernel
from pytest_gemm.problem import Problem
from pytest_gemm.registry import load_registry
from pytest_gemm.slicing import device_part, slice_source
from tests.fake_cupy import FakeCuda

FOLDER = Path(__file__).parent / "sliced"
REGISTRY = load_registry([FOLDER], FOLDER)
KERNELS = REGISTRY.kernels("host")
# What no launch needs; left in, NVRTC or g++ would reject each of them.
HOST = ("main", "<<<", "cudaMalloc", "cudaEvent_t", "std::vector", "iostream", "cublasCreate")


@pytest.fixture(scope="module")
def backend() -> HostBackend:
    return HostBackend()


def test_all_are_declared() -> None:
    assert REGISTRY.errors == ()
    assert len({kernel.filename for kernel in KERNELS}) == len(list(FOLDER.glob("*.cu"))) >= 12


@pytest.mark.parametrize("sizes", ["37x29x19", "64"])
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.id)
def test_the_result_is_right(backend: HostBackend, kernel: Kernel, sizes: str) -> None:
    problem = Problem.parse(sizes)
    if kernel.skip_reason(problem):
        pytest.skip("the kernel's own condition")
    rng = np.random.default_rng(1)
    A, B = (rng.integers(-8, 9, problem.shapes[x]).astype(np.float32) for x in "AB")
    C = np.full(problem.shapes["C"], np.nan, np.float32)
    matrices = {}
    for name, data in (("A", A), ("B", B), ("C", C)):
        buffer = backend.allocate(data.nbytes)
        backend.upload(buffer, data.view(np.uint8).reshape(-1))
        matrices[name] = Matrix(buffer, 0, *data.shape, data.shape[1], "float32")
    arguments: list[Argument] = [
        matrices[value] if isinstance(value, str) else value for value in kernel.arguments(problem)
    ]
    executable = backend.compile(CudaProgram(*kernel.program_fields))
    backend.time(executable, LaunchConfig(*kernel.launch(problem)), arguments, timeout=20)
    result = backend.download(matrices["C"].buffer).view(np.float32).reshape(C.shape)
    for matrix in matrices.values():
        backend.free(matrix.buffer)
    assert np.array_equal(result, A @ B)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.id)
def test_lines_stay_and_host_code_goes(kernel: Kernel) -> None:
    text = device_part(kernel.source, kernel.filename)
    lines, kept = kernel.source.split("\n"), text.split("\n")
    assert len(lines) == len(kept)
    assert len([line for line in kept if line]) < len([line for line in lines if line])
    code = [line for line in kept if not line.startswith(("#define", "//", "    "))]
    assert not any(word in line for word in HOST for line in code)
    pairs = [(a, b) for a, b in zip(lines, kept, strict=True) if a != b]
    # What stays of a line stands where it stood; a C header may take the place of a host's.
    assert all(b.rstrip() in ("", a[: len(b)]) or _is_part(a, b) for a, b in pairs)
    assert device_part(text, kernel.filename) is text


def _is_part(line: str, kept: str) -> bool:
    if kept.startswith("#include <c"):
        return line.startswith("#include <")
    return all(c in (" ", line[at]) for at, c in enumerate(kept))


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.id)
def test_nvrtc_is_given_the_device_part(kernel: Kernel) -> None:
    fake = FakeCuda()
    compiler = Compiler(fake.api(), 9, 0)
    compiler.compile(CudaProgram(*kernel.program_fields))
    part = slice_source(kernel.source, kernel.filename)
    assert fake.sources[0].endswith(f'#line 1 "{kernel.filename}"\n{part.text}\n')
    assert ("-default-device" in fake.options) == part.has_plain_constexpr
