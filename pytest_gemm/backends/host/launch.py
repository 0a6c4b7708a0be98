"""Calls into the C++ runtime: loading libraries, packing arguments, launching."""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pytest_gemm.backends.base import Argument, LaunchConfig, Matrix, bits_beside
from pytest_gemm.backends.host.faults import KINDS, Report, kernel_fault
from pytest_gemm.backends.host.memory import HostBuffer
from pytest_gemm.dtypes import TYPES, ElementType
from pytest_gemm.errors import BackendError, CompileError
from pytest_gemm.kernelspec import MAX_SHARED_MEM, MAX_THREADS


class _Parameter(ctypes.Structure):
    """``pytest_gemm::Parameter`` of ``abi.h``."""

    _fields_ = [
        ("kind", ctypes.c_char),
        ("pointee_kind", ctypes.c_char),
        ("pointee_size", ctypes.c_uint16),
        ("size", ctypes.c_uint32),
    ]


class _Kernel(ctypes.Structure):
    """``pytest_gemm::Kernel`` of ``abi.h``."""

    _fields_ = [
        ("parameter_count", ctypes.c_uint32),
        ("parameters", ctypes.POINTER(_Parameter)),
        ("run_threads", ctypes.c_void_p),
        ("shared_variables", ctypes.c_void_p),
        ("device_variables", ctypes.c_void_p),
    ]


class _Launch(ctypes.Structure):
    """``pytest_gemm::Launch`` of ``launch.cpp``."""

    _fields_ = [
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("shared_bytes", ctypes.c_uint32),
        ("launches", ctypes.c_uint32),
        ("timeout", ctypes.c_double),
        ("arguments", ctypes.POINTER(ctypes.c_void_p)),
        ("allow_different_barriers", ctypes.c_uint32),
    ]


_launching = threading.Lock()
"""Shared memory and the runtime's state are static: one launch at a time in a process."""


_runtimes: dict[str, Runtime] = {}


def load_runtime(path: Path) -> Runtime:
    """Load a runtime once per process.

    The dynamic linker tells libraries apart by name, which stands for the content: a copy in
    another cache folder would get the launches, and the first one the kernels.
    """
    if path.name not in _runtimes:
        _runtimes[path.name] = Runtime(path)
    return _runtimes[path.name]


class Runtime:
    """The loaded runtime library: see ``load_runtime``."""

    def __init__(self, path: Path) -> None:
        library = ctypes.CDLL(str(path))
        self._launch = library.pytest_gemm_launch
        self._launch.argtypes = [
            ctypes.POINTER(_Kernel),
            ctypes.POINTER(_Launch),
            ctypes.POINTER(Report),
            ctypes.POINTER(ctypes.c_double),
        ]
        self._check = library.pytest_gemm_check
        self._check.argtypes = [
            ctypes.POINTER(_Kernel),
            ctypes.POINTER(_Launch),
            ctypes.POINTER(Report),
            ctypes.c_void_p,
        ]
        self._printed = library.pytest_gemm_printed
        self._printed.restype = ctypes.c_size_t
        self._printed.argtypes = [ctypes.POINTER(ctypes.c_void_p)]

    def launch(
        self,
        kernel: LoadedKernel,
        config: LaunchConfig,
        values: Sequence[Any],
        launches: int,
        timeout: float,
        describe_address: Callable[[int], str],
    ) -> float:
        """The CPU seconds of all launches. Raises KernelFault, BackendError."""
        report, seconds = Report(), ctypes.c_double()
        request = _launch(config, values, launches, timeout)
        if self._run(lambda: self._launch(kernel.handle, request, report, seconds), report):
            raise kernel_fault(report, timeout, config.shared_mem, describe_address)
        return seconds.value

    def check(
        self,
        kernel: LoadedKernel,
        config: LaunchConfig,
        values: Sequence[Any],
        timeout: float,
        report: Report,
        request: ctypes.Structure,
    ) -> bool:
        """Launch a kernel that was built for checking; whether a fault ended it early.

        Both ``report`` and ``request`` (see ``check_runtime``) are filled in. Raises BackendError.
        """
        launch = _launch(config, values, 1, timeout)
        checked = ctypes.byref(request)
        return self._run(lambda: self._check(kernel.handle, launch, report, checked), report)

    def _run(self, launch: Callable[[], int], report: Report) -> bool:
        """Whether the launch failed, with a report; what it printed is printed."""
        text = ctypes.c_void_p()
        with _launching:
            outcome = launch()
            length = self._printed(text)
            printed = ctypes.string_at(text, length) if length else b""
        if printed:
            sys.stdout.write(printed.decode(errors="replace"))
        if outcome < 0:
            raise BackendError("no memory for the stacks of a block's threads")
        if outcome > 0 and KINDS[report.fault] == "interrupted":
            raise KeyboardInterrupt
        return outcome > 0


def _launch(config: LaunchConfig, values: Sequence[Any], launches: int, timeout: float) -> _Launch:
    pointers = (ctypes.c_void_p * max(len(values), 1))()
    for index, value in enumerate(values):
        pointers[index] = ctypes.addressof(value)
    return _Launch(
        grid=config.grid,
        block=config.block,
        shared_bytes=config.shared_mem,
        launches=launches,
        timeout=timeout,
        arguments=pointers,
        allow_different_barriers=config.different_barriers,
    )


class LoadedKernel:
    """A kernel's library, and what it says of its parameters."""

    def __init__(self, path: Path) -> None:
        entry = ctypes.CDLL(str(path)).pytest_gemm_kernel
        entry.restype = ctypes.POINTER(_Kernel)
        self.handle = entry()
        kernel = self.handle.contents
        self.parameters = [kernel.parameters[i] for i in range(kernel.parameter_count)]

    def pack(self, arguments: Sequence[Argument], where: str) -> list[Any]:
        """The arguments as C values. Raises CompileError where they do not fit."""
        wanted = len(self.parameters)
        if len(arguments) != wanted:
            raise CompileError(
                f"{where} takes {wanted} arguments and was given {len(arguments)}: "
                "list them in `args`"
            )
        pairs = enumerate(zip(self.parameters, arguments, strict=True), start=1)
        return [
            _pack(p, argument, f"parameter {i} of {where}", arguments) for i, (p, argument) in pairs
        ]


def _pack(
    parameter: _Parameter, argument: Argument, where: str, arguments: Sequence[Argument]
) -> Any:
    kind = parameter.kind.decode()
    if isinstance(argument, Matrix):
        return _pack_matrix(parameter, argument, where)
    if kind in "iub" and isinstance(argument, int):
        return _pack_integer(parameter, argument, where)
    if kind == "f" and parameter.size in (4, 8) and argument is not None:
        return (ctypes.c_float if parameter.size == 4 else ctypes.c_double)(argument)
    if (kind, parameter.size) == ("s", 2) and isinstance(argument, float):
        bits = bits_beside(argument, arguments)
        if bits is not None:
            return ctypes.c_uint16(bits)
    given = "an integer" if isinstance(argument, int) else "a floating-point number"
    raise CompileError(f"{where} is {_type_name(parameter)}, not {given}")


def _pack_matrix(parameter: _Parameter, matrix: Matrix, where: str) -> Any:
    if parameter.kind != b"p":
        raise CompileError(f"{where} is {_type_name(parameter)}, not a pointer to a matrix")
    pointee, size = parameter.pointee_kind.decode(), parameter.pointee_size
    if not _points_to(pointee, size, TYPES[matrix.dtype]):
        raise CompileError(f"{where} is {_type_name(parameter)}, not a pointer to {matrix.dtype}")
    buffer = matrix.buffer
    assert isinstance(buffer, HostBuffer)
    return ctypes.c_void_p(buffer.address + matrix.offset)


def _points_to(pointee: str, size: int, kind: ElementType) -> bool:
    """Whether a pointer may be one to such elements, or to several at once.

    What a struct holds is not known here: half is one, float4 is.
    """
    if pointee in "sv":
        return True
    if kind.is_integer:
        return pointee == "i" and size in (kind.itemsize, 4)
    return pointee == "f" and size == kind.itemsize


def _pack_integer(parameter: _Parameter, value: int, where: str) -> Any:
    kind, bits = parameter.kind.decode(), 8 * parameter.size
    low = -(1 << bits - 1) if kind == "i" else 0
    high = {"i": (1 << bits - 1) - 1, "u": (1 << bits) - 1, "b": 1}[kind]
    if not low <= value <= high:
        raise CompileError(f"{where} is {_type_name(parameter)}, which cannot hold {value}")
    types: dict[int, Any] = {
        1: ctypes.c_int8,
        2: ctypes.c_int16,
        4: ctypes.c_int32,
        8: ctypes.c_int64,
    }
    return types[parameter.size](value)


def _type_name(parameter: _Parameter) -> str:
    if parameter.kind == b"p":
        pointee = _scalar_name(parameter.pointee_kind.decode(), parameter.pointee_size)
        return f"a pointer to {pointee}"
    return _scalar_name(parameter.kind.decode(), parameter.size)


def _scalar_name(kind: str, size: int) -> str:
    names = {"b": "bool", "s": "a struct", "v": "void", "p": "a pointer"}
    if kind in names:
        return names[kind]
    return f"{ {'i': 'int', 'u': 'uint', 'f': 'float'}[kind] }{8 * size}"


def check_config(config: LaunchConfig) -> None:
    """Raise BackendError for a launch that no GPU would take either."""
    x, y, z = config.block
    if min(*config.block, *config.grid) < 1:
        raise BackendError(f"grid {config.grid} and block {config.block} must be at least 1")
    if x * y * z > MAX_THREADS:
        raise BackendError(f"block {config.block} has {x * y * z} threads, at most {MAX_THREADS}")
    if not 0 <= config.shared_mem <= MAX_SHARED_MEM:
        raise BackendError(
            f"{config.shared_mem} bytes of dynamic shared memory, at most {MAX_SHARED_MEM}"
        )
