"""The project's own kernels. This is all that a project needs; the annotation is optional."""

from pytest_gemm.fixture import GemmCase


def test_gemm(gemm: GemmCase) -> None:
    gemm.check()
