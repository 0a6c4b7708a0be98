"""The host back end: an unmodified ``.cu`` kernel compiled for and run on the CPU."""

from pytest_gemm.backends.host.backend import HostBackend

__all__ = ["HostBackend"]
