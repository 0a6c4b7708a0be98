"""The one place where CuPy is imported, and the few driver calls that it does not wrap."""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from pytest_gemm.errors import BackendError

SUCCESS = 0
NOT_READY = 600
"""``cudaErrorNotReady``: not an error, the work is still running."""

# CUgraphNodeType: kernel, memcpy, memset, child graph, conditional. The others only order work.
_WORK_NODES = {0, 1, 2, 4, 13}


@dataclass(frozen=True)
class Api:
    """CuPy and its thin wrappers of CUDA's APIs, which carry C's names and raise for statuses."""

    cupy: Any
    runtime: Any
    driver: Any
    nvrtc: Any
    libcuda: Libcuda

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """What a failed CUDA call raises; the text starts with the error's name."""
        return self.runtime.CUDARuntimeError, self.driver.CUDADriverError

    @property
    def include_folders(self) -> tuple[str, ...]:
        """Where CUDA's own headers and libcu++ are, of those that exist."""
        bundled = Path(self.cupy.__file__).parent / "_core/include/cupy/_cccl/libcudacxx"
        toolkit = self.cupy.cuda.get_cuda_path()
        found = [Path(toolkit) / "include"] if toolkit else []
        return tuple(str(folder) for folder in (*found, bundled) if folder.is_dir())


class Libcuda:
    """Calls of the driver's library itself; ``library`` has C functions that return a status."""

    def __init__(self, library: Any) -> None:
        self._library = library

    def count_work(self, graph: int) -> int:
        """How many nodes of a graph do something on the device; none in a graph that is null."""
        handle, count = ctypes.c_void_p(graph), ctypes.c_size_t()
        if graph:
            self._call("cuGraphGetNodes", handle, None, ctypes.byref(count))
        if not count.value:
            return 0  # to ask for the nodes of an empty graph is an error
        nodes = (ctypes.c_void_p * count.value)()
        self._call("cuGraphGetNodes", handle, nodes, ctypes.byref(count))
        kind, found = ctypes.c_int(), 0
        for node in nodes[: count.value]:
            self._call("cuGraphNodeGetType", ctypes.c_void_p(node), ctypes.byref(kind))
            found += kind.value in _WORK_NODES
        return found

    def parameter_sizes(self, function: int) -> tuple[int, ...] | None:
        """Bytes of each parameter of a compiled kernel; None where the driver cannot tell."""
        if not hasattr(self._library, "cuFuncGetParamInfo"):
            return None  # a driver older than CUDA 12.4
        handle, offset, size = ctypes.c_void_p(function), ctypes.c_size_t(), ctypes.c_size_t()
        sizes: list[int] = []
        while True:
            index = ctypes.c_size_t(len(sizes))
            status = self._library.cuFuncGetParamInfo(
                handle, index, ctypes.byref(offset), ctypes.byref(size)
            )
            if status != SUCCESS:
                return tuple(sizes)
            sizes.append(size.value)

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._library, name)(*arguments)
        if status != SUCCESS:
            raise BackendError(f"{name} failed with CUDA error {status}")


def load_api() -> Api:
    """Import CuPy. Raises BackendError where it is missing or finds no driver."""
    try:
        cupy = import_module("cupy")
        cuda = import_module("cupy.cuda")
        runtime, driver, nvrtc = cuda.runtime, cuda.driver, cuda.nvrtc
        library = ctypes.CDLL("libcuda.so.1")
    except (ImportError, AttributeError, OSError, RuntimeError) as error:
        reason = str(error).strip().partition(os.linesep)[0]
        raise BackendError(f"CuPy cannot be used here: {reason}") from error
    return Api(cupy, runtime, driver, nvrtc, Libcuda(library))
