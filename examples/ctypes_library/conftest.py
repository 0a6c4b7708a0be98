"""A shared library, called by ctypes: it takes addresses, sizes and the stream.

It is built from its source when it is first needed, so that a revision that is measured against
(``--gemm-against``) is built from the source of that revision.
"""

import os
import shlex
import subprocess
from ctypes import CDLL, c_char_p, c_int, c_void_p
from functools import cache
from pathlib import Path

import pytest_gemm

HERE = Path(__file__).parent
CXX = (*shlex.split(os.environ.get("CXX", "c++")), "-O2", "-shared", "-fPIC")
NVCC = ("nvcc", "-O2", "-arch=native", "-shared", "-Xcompiler=-fPIC")


@cache
def library(compiler, source):
    """The library of a source, built if it is older or not there."""
    source = HERE / source
    built = HERE / "build" / f"{source.name}.so"
    if not built.exists() or built.stat().st_mtime < source.stat().st_mtime:
        built.parent.mkdir(exist_ok=True)
        own = built.with_suffix(f".{os.getpid()}")  # others may build it at the same time
        subprocess.run([*compiler, str(source), "-o", str(own)], check=True)
        own.replace(built)
    return CDLL(str(built))


@pytest_gemm.kernel(backend="host", sizes=["128", "67x45x33"])
def shared_library(A, B, C, M, N, K):
    gemm = library(CXX, "gemm.cpp").gemm
    gemm.argtypes = [c_void_p] * 3 + [c_int] * 3
    gemm.restype = None
    gemm(A.ctypes.data, B.ctypes.data, C.ctypes.data, M, N, K)


@pytest_gemm.kernel(backend="cuda", sizes=["1024", "67x45x33"])
def shared_cuda_library(A, B, C, M, N, K, stream):
    gemm = library(NVCC, "gemm.cu").gemm
    gemm.argtypes = [c_void_p] * 3 + [c_int] * 3 + [c_void_p]
    gemm.restype = c_char_p
    error = gemm(A.data.ptr, B.data.ptr, C.data.ptr, M, N, K, stream.ptr)
    if error:
        raise RuntimeError(error.decode())
