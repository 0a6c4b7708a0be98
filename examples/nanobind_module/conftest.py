"""A Python module written with nanobind: matrices by DLPack, the stream by its address.

``multiply.cpp`` is for a CPU, ``multiply.cu`` for a GPU; ``module.cpp`` binds either.
"""

import os
import shlex
import subprocess
import sysconfig
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import nanobind

import pytest_gemm

HERE = Path(__file__).parent
NANOBIND = Path(nanobind.source_dir())
INCLUDES = (
    Path(nanobind.include_dir()),
    NANOBIND.parent / "ext" / "robin_map" / "include",
    Path(sysconfig.get_path("include")),
)
SHARED = ("-O2", "-std=c++17", "-shared")
CXX = (*shlex.split(os.environ.get("CXX", "c++")), *SHARED, "-fPIC", "-fno-strict-aliasing")
NVCC = ("nvcc", *SHARED, "-arch=native", "-Xcompiler=-fPIC,-fno-strict-aliasing", "-DON_GPU")


@cache
def module(name, compiler, source):
    """The module with that source in it, built if it is older or not there."""
    sources = [HERE / source, HERE / "module.cpp"]
    # Named by the version of Python, too: a module of one cannot be loaded by another.
    built = HERE / "build" / f"{name}{sysconfig.get_config_var('EXT_SUFFIX')}"
    if not built.exists() or built.stat().st_mtime < max(s.stat().st_mtime for s in sources):
        built.parent.mkdir(exist_ok=True)
        own = built.with_name(f"{built.name}.{os.getpid()}")  # others may build it at the same time
        options = [f"-DNAME={name}", *(f"-I{folder}" for folder in INCLUDES), "-o", str(own)]
        files = map(str, [*sources, NANOBIND / "nb_combined.cpp"])
        subprocess.run([*compiler, *options, *files], check=True)
        own.replace(built)
    spec = spec_from_file_location(name, built)
    found = module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


class OnStream:
    """A matrix for nanobind, which names no stream: CuPy would make the default stream wait."""

    def __init__(self, matrix):
        self._matrix = matrix

    def __dlpack__(self, **keywords):
        return self._matrix.__dlpack__(stream=-1, **keywords)

    def __dlpack_device__(self):
        return self._matrix.__dlpack_device__()


@pytest_gemm.kernel(backend="host", sizes=["128", "67x45x33"])
def nanobind_module(A, B, C):
    module("gemm_cpu", CXX, "multiply.cpp").multiply(A, B, C, 0)


@pytest_gemm.kernel(backend="cuda", sizes=["1024", "67x45x33"])
def nanobind_cuda_module(A, B, C, stream):
    multiply = module("gemm_cuda", NVCC, "multiply.cu").multiply
    multiply(OnStream(A), OnStream(B), OnStream(C), stream.ptr)
