"""``python -m pytest_gemm.doctor.cuda_probe``: tries CuPy, NVRTC, the headers and a launch.

A process of its own, because a broken installation may end the one that loads it. Prints one line
of JSON, what was found until a step failed: see ``try_out``.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_gemm.backends.cuda.api import Api

ENTRY = "pytest_gemm_doctor"
_KERNEL = f"{{include}}\n__global__ void {ENTRY}(int n) {{{{}}}}\n"
_HEADERS = ("<cuda_fp16.h>", "<mma.h>", "<limits>")
"""One of CUDA's, one of the compiler's that includes it, one of libcu++, which CuPy brings."""


def try_out(load: Callable[[], Api]) -> dict[str, Any]:
    """``cupy``, ``cuda`` and ``driver`` are versions (CUDA's as 13000), ``gpus`` the names of
    those that are seen, ``nvrtc`` its version, ``headers`` those that do not compile with the
    error. ``failed`` is the step that failed, ``error`` one line.
    """
    found: dict[str, Any] = {}
    for step in (_import, _see, _compile, _launch, _include):
        try:
            step(found, load)
        except Exception as error:
            line = str(error).strip().partition("\n")[0] or type(error).__name__
            return found | {"failed": step.__name__.strip("_"), "error": line}
    return found


def _import(found: dict[str, Any], load: Callable[[], Api]) -> None:
    api = load()
    found["cupy"] = api.cupy.__version__
    found["cuda"] = api.runtime.runtimeGetVersion()
    found["driver"] = api.runtime.driverGetVersion()


def _see(found: dict[str, Any], load: Callable[[], Api]) -> None:
    api = load()
    found["gpus"] = [
        api.runtime.getDeviceProperties(index)["name"].decode()
        for index in range(api.runtime.getDeviceCount())
    ]


def _compile(found: dict[str, Any], load: Callable[[], Api]) -> None:
    from pytest_gemm.backends.cuda import CudaBackend

    found["nvrtc"] = CudaBackend(api=load()).device.environment["nvrtc"]


def _launch(found: dict[str, Any], load: Callable[[], Api]) -> None:
    from pytest_gemm.backends.base import CudaProgram, LaunchConfig
    from pytest_gemm.backends.cuda import CudaBackend
    from pytest_gemm.backends.cuda.kernel import CudaExecutable

    api = load()
    source = _KERNEL.format(include="")
    executable = CudaBackend(api=api).compile(CudaProgram(source, "doctor.cu", ENTRY))
    assert isinstance(executable, CudaExecutable)
    executable.prepare(LaunchConfig((1, 1, 1), (32, 1, 1)), [1])()
    api.runtime.deviceSynchronize()


def _include(found: dict[str, Any], load: Callable[[], Api]) -> None:
    from pytest_gemm.backends.base import CudaProgram
    from pytest_gemm.backends.cuda import CudaBackend
    from pytest_gemm.errors import CompileError

    backend = CudaBackend(api=load())
    found["headers"] = failures = {}
    for header in _HEADERS:
        source = _KERNEL.format(include=f"#include {header}")
        try:
            backend.compile(CudaProgram(source, "doctor.cu", ENTRY))
        except CompileError as error:
            failures[header] = str(error).partition("\n")[0]


if __name__ == "__main__":
    from pytest_gemm.backends.cuda.api import load_api

    print(json.dumps(try_out(load_api)))
