"""Arguments as the C values that a kernel's parameters take."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from typing import Any

from pytest_gemm.backends.base import Argument, CudaProgram, Matrix, bits_beside
from pytest_gemm.backends.cuda.memory import DeviceBuffer
from pytest_gemm.cuda_source import Parameter, find_kernels, integer_range
from pytest_gemm.dtypes import TYPES
from pytest_gemm.errors import CompileError

_INTEGERS: dict[int, Any] = {
    1: ctypes.c_int8,
    2: ctypes.c_int16,
    4: ctypes.c_int32,
    8: ctypes.c_int64,
}
_FLOATS: dict[int, Any] = {4: ctypes.c_float, 8: ctypes.c_double}
INDEXABLE = 2**31
"""Elements that a C int can count."""


def declared_parameters(program: CudaProgram) -> tuple[Parameter, ...] | None:
    """The entry's parameters as its source declares them; None where it stands in a header."""
    name = program.entry.partition("<")[0].strip().removeprefix("::")
    functions = find_kernels(program.source)
    found = [f for f in functions if f.name == name]
    found = found or [f for f in functions if f.unqualified == name]
    return found[0].parameters if len(found) == 1 else None


class Signature:
    """What a compiled kernel takes: types from its source, sizes in bytes from the driver.

    Either may be unknown. A type that only a compiler knows (a template's T, a typedef) takes a
    value by its size; without that, an int is an int32 and a float a float32.
    """

    def __init__(
        self,
        where: str,
        parameters: Sequence[Parameter] | None,
        sizes: Sequence[int] | None,
    ) -> None:
        self._where = where
        self._sizes = sizes
        if parameters is not None and sizes is not None and len(parameters) != len(sizes):
            parameters = None  # a parameter pack, or a macro
        self._parameters = parameters

    def pack(self, arguments: Sequence[Argument]) -> list[Any]:
        """ctypes values. Raises CompileError where an argument does not fit its parameter."""
        known = self._sizes if self._sizes is not None else self._parameters
        if known is not None and len(arguments) != len(known):
            raise CompileError(
                f"{self._where} takes {len(known)} arguments and was given {len(arguments)}: "
                "list them in `args`"
            )
        self._check_index_space(arguments)
        return [self._pack(index, argument, arguments) for index, argument in enumerate(arguments)]

    def _pack(self, index: int, argument: Argument, arguments: Sequence[Argument]) -> Any:
        parameter = self._parameters[index] if self._parameters else Parameter("", "", 0)
        size = self._sizes[index] if self._sizes else None
        kind = parameter.kind if parameter.type else "other"
        is_a = f"parameter {index + 1} of {self._where} is {parameter.type or 'of unknown type'}"
        if isinstance(argument, Matrix):
            if kind not in ("pointer", "other") or size not in (None, 8):
                raise CompileError(f"{is_a}, not a pointer to a matrix")
            assert isinstance(argument.buffer, DeviceBuffer)
            return ctypes.c_void_p(argument.buffer.address + argument.offset)
        if argument is None:
            raise CompileError(f"{is_a}, not the stream: only a Python kernel can take that")
        if isinstance(argument, int) and kind == "integer":
            low, high = integer_range(parameter.type)
            declared = (high - low + 1).bit_length() // 8 or 1
            if size in (None, declared):
                return _integer(argument, declared, low, high, is_a)
        if isinstance(argument, int) and kind in ("integer", "other"):
            # Signed or not is unknown here: the bits are the same.
            width = size if size in _INTEGERS else 4
            low, high = -(2 ** (8 * width - 1)), 2 ** (8 * width) - 1
            if size is None:
                high = 2**31 - 1
            return _integer(argument, width, low, high, is_a)
        if kind in ("float", "other"):
            width = size or _width(parameter.type)
            if width in _FLOATS:
                return _FLOATS[width](argument)
            if width == 2 and (bits := bits_beside(argument, arguments)) is not None:
                return ctypes.c_uint16(bits)
        given = "an integer" if isinstance(argument, int) else "a floating-point number"
        raise CompileError(f"{is_a}, not {given}")

    def _check_index_space(self, arguments: Sequence[Argument]) -> None:
        if not any(self._is_narrow(index) for index in range(len(arguments))):
            return
        for argument in arguments:
            if isinstance(argument, Matrix) and argument.elements >= INDEXABLE:
                elements = argument.elements
                raise CompileError(
                    f"{self._where} takes its sizes as 32-bit integers, and a matrix has "
                    f"{elements} elements, more than they can count: take them as size_t"
                )

    def _is_narrow(self, index: int) -> bool:
        if not self._parameters or self._parameters[index].kind != "integer":
            return False
        low, high = integer_range(self._parameters[index].type)
        return high < 2**32 and (low, high) != (0, 1)


def _width(type_: str) -> int:
    """Bytes of a floating-point parameter whose size the driver does not tell."""
    words = set(re.findall(r"\w+", type_))
    kinds = (kind for kind in TYPES.values() if not kind.is_integer and words & {*kind.cpp})
    return next((kind.itemsize for kind in kinds), 4)


def _integer(value: int, width: int, low: int, high: int, is_a: str) -> Any:
    if not low <= value <= high:
        raise CompileError(f"{is_a}, which cannot hold {value}")
    return _INTEGERS[width](value)
