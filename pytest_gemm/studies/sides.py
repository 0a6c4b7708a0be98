"""What a device is compared with: serial C, and NumPy as people use it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from pytest_gemm.kernelspec import Kernel
from pytest_gemm.python_kernel import kernel
from pytest_gemm.registry import load_registry

SOURCE = Path(__file__).parent / "c" / "matrices.c"

DTYPE = "float32"

Function = Callable[..., object]


@kernel(name="numpy_add", op="add", backend="host")
def add(A: Any, B: Any, C: Any) -> None:
    np.add(A, B, out=C)


@kernel(name="numpy_multiply", backend="host")
def multiply(A: Any, B: Any, C: Any) -> None:
    np.matmul(A, B, out=C)


def c_kernels() -> dict[str, Kernel]:
    """A plain C function for each operation, for the back end ``serial``."""
    text = SOURCE.read_text(encoding="utf-8")
    sizes = {"add": ("M", "N", "0"), "gemm": ("M", "N", "K")}
    names = {"add": "add", "gemm": "multiply"}
    return {
        op: Kernel(
            name=f"c_{name}",
            path=SOURCE.name,
            filename=SOURCE.name,
            source=text,
            entry=name,
            op=op,
            args=("A", "B", "C", *sizes[op]),
            block=("1",),
            grid=("1",),
            dtype=DTYPE,
        )
        for op, name in names.items()
    }


def numpy_kernels() -> tuple[dict[str, Kernel], Mapping[str, Function]]:
    """NumPy's function for each operation, and the functions by ``Kernel.callable``."""
    import sys

    registry = load_registry((), Path(__file__).parent, modules=(sys.modules[__name__],))
    kernels = {kernel.op: kernel for kernel in registry.kernels("host")}
    return kernels, MappingProxyType(dict(registry.functions))
