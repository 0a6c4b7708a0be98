"""The CUDA back end: kernels compiled by NVRTC and timed on a GPU through CuPy."""

from pytest_gemm.backends.cuda.backend import CudaBackend

__all__ = ["CudaBackend"]
