"""Checks a declared kernel on one problem, for tests.

The tests run once for each kind of compiler that is installed, save ziglang, whose first build
takes a minute; ``PYTEST_GEMM_TEST_COMPILER`` names another one and it alone, such as
``python -m ziglang c++``.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pytest_gemm.backends.base import Argument, CudaProgram, LaunchConfig, Matrix
from pytest_gemm.backends.host import HostBackend
from pytest_gemm.backends.host.check import ASCENDING, CheckReport, ThreadOrder
from pytest_gemm.kernelspec import Kernel
from pytest_gemm.problem import Problem
from tests.host_kernels.harness import installed_compilers

NAMED = os.environ.get("PYTEST_GEMM_TEST_COMPILER")
COMPILERS = [
    re.sub("^python ", f"{sys.executable} ", name)
    for name in ([NAMED] if NAMED else installed_compilers())
    if NAMED or "zig" not in name
]

Float32 = npt.NDArray[np.float32]


def check(
    backend: HostBackend,
    kernel: Kernel,
    problem: Problem,
    *,
    order: ThreadOrder = ASCENDING,
    timeout: float = 20.0,
    padding: int = 0,
) -> tuple[CheckReport, Float32, Float32]:
    """The report, C, and what C should be: operands are small integers, so it is exact.

    ``padding`` elements lie behind each row. C holds zeros before.
    """
    random = np.random.default_rng(1)
    shapes = problem.shapes
    data = {n: random.integers(1, 5, shapes[n]).astype(np.float32) for n in ("A", "B")}
    data["C"] = np.zeros(shapes["C"], np.float32)
    matrices: dict[str, Matrix] = {}
    for name, values in data.items():
        rows, columns = values.shape
        padded = np.full((rows, columns + padding), np.nan, np.float32)
        padded[:, :columns] = values
        buffer = backend.allocate(padded.nbytes)
        backend.upload(buffer, padded.view(np.uint8).reshape(-1))
        matrices[name] = Matrix(buffer, 0, rows, columns, columns + padding, "float32")
    given = kernel.arguments(problem)
    arguments: list[Argument] = [matrices[v] if isinstance(v, str) else v for v in given]
    names = {i: v for i, v in enumerate(given, start=1) if isinstance(v, str)}
    try:
        report = backend.check(
            CudaProgram(*kernel.program_fields),
            LaunchConfig(*kernel.launch(problem)),
            arguments,
            order=order,
            timeout=timeout,
            names=names,
        )
        C = backend.download(matrices["C"].buffer).view(np.float32).reshape(shapes["C"][0], -1)
    finally:
        for matrix in matrices.values():
            backend.free(matrix.buffer)
    wanted = data["A"] + data["B"] if kernel.op == "add" else data["A"] @ data["B"]
    return report, C[:, : shapes["C"][1]], wanted


def marked_lines(path: Path, mark: str) -> list[int]:
    """The lines, from 1, whose comment starts with the mark."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [i for i, line in enumerate(lines, start=1) if re.search(rf"// {mark}\b", line)]
