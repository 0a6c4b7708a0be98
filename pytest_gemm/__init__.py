"""pytest-gemm: CUDA matrix kernels as exact, timed and judged pytest cases."""

__version__ = "0.1.0"
