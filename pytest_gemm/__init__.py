"""pytest-gemm: CUDA matrix kernels as exact, timed and judged pytest cases."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_gemm.python_kernel import kernel as kernel

__all__ = ["kernel"]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # Every pytest run imports this package, few declare kernels in Python.
    if name == "kernel":
        from pytest_gemm.python_kernel import kernel

        return kernel
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
