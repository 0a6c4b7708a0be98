"""Launches a kernel given as text on NumPy arrays."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Sequence
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_gemm.backends.base import (
    Argument,
    CudaProgram,
    Dim3,
    Executable,
    LaunchConfig,
    Matrix,
)
from pytest_gemm.backends.host import HostBackend

Array = npt.NDArray[Any]

GOOD = "__global__ void k(float* x) { x[0] = 1.0f; }"


def installed_compilers() -> list[str]:
    """One command of each kind of compiler that this machine has: g++, clang++, ziglang."""
    clang = ["clang++", *(f"clang++-{version}" for version in range(22, 13, -1))]
    found = [next((name for name in names if shutil.which(name)), "") for names in (["g++"], clang)]
    if importlib.util.find_spec("ziglang"):
        found.append("python -m ziglang c++")
    return [name for name in found if name]


class Host:
    """A back end, and one call that compiles and launches."""

    def __init__(self, cache: Path, compiler: str | None = None) -> None:
        self.backend = HostBackend(cache, compiler)

    def compile(
        self,
        source: str,
        entry: str = "k",
        *,
        filename: str = "kernels/x.cu",
        defines: tuple[tuple[str, int], ...] = (),
    ) -> Executable:
        return self.backend.compile(CudaProgram(dedent(source), filename, entry, defines))

    def launch(
        self,
        executable: Executable,
        arguments: Sequence[Array | int | float],
        grid: Dim3 = (1, 1, 1),
        block: Dim3 = (1, 1, 1),
        *,
        shared_mem: int = 0,
        timeout: float = 20.0,
        launches: int = 1,
    ) -> float:
        """Arrays are copied to the device and back, also where the launch fails."""
        values: list[Argument] = []
        copies = []
        for argument in arguments:
            if isinstance(argument, np.ndarray):
                buffer = self.backend.allocate(argument.nbytes)
                self.backend.upload(buffer, argument.reshape(-1).view(np.uint8))
                columns = argument.shape[-1]
                values.append(
                    Matrix(buffer, 0, argument.size // columns, columns, columns, "float32")
                )
                copies.append((argument, buffer))
            else:
                values.append(argument)
        config = LaunchConfig(grid, block, shared_mem)
        try:
            return self.backend.time(executable, config, values, launches=launches, timeout=timeout)
        finally:
            for argument, buffer in copies:
                argument.reshape(-1).view(np.uint8)[:] = self.backend.download(buffer)
                self.backend.free(buffer)

    def run(
        self,
        source: str,
        arguments: Sequence[Array | int | float],
        grid: Dim3 = (1, 1, 1),
        block: Dim3 = (1, 1, 1),
        entry: str = "k",
        *,
        defines: tuple[tuple[str, int], ...] = (),
        shared_mem: int = 0,
        timeout: float = 20.0,
    ) -> None:
        executable = self.compile(source, entry, defines=defines)
        self.launch(executable, arguments, grid, block, shared_mem=shared_mem, timeout=timeout)


def zeros(*shape: int) -> npt.NDArray[np.float32]:
    return np.zeros(shape, np.float32)


def still_works(host: Host) -> bool:
    """A launch after a fault gives the right result."""
    x = zeros(1)
    host.run(GOOD, [x])
    return bool(x[0] == 1.0)
