"""Which argument each parameter of a ``__global__`` function gets."""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from typing import NoReturn

from pytest_gemm.cuda_source import Function, Parameter
from pytest_gemm.dtypes import TYPES
from pytest_gemm.errors import SpecError
from pytest_gemm.kernelspec import BUFFERS, LEADING_DIMENSIONS, SCALARS
from pytest_gemm.problem import BATCH, DIMENSIONS

_PACKED = {"int", "int32_t", "int4", "int2"}
_ITEMS: Mapping[str, Set[str]] = {
    "float32": {"float"},
    "float64": {"double", "double2"},
    "float16": {*TYPES["float16"].cpp, "half2", "__half2", "nv_half2", "int4", "int2"},
    "bfloat16": {*TYPES["bfloat16"].cpp, "nv_bfloat162", "__nv_bfloat162", "int4", "int2"},
    "int8": {"char", "int8_t", *_PACKED},
    "int32": _PACKED,
}
"""What a pointer to elements of a type, or to several at once, may be written with."""

_ALL_ITEMS = {"unsigned", "long", "short", "bool", "uint8_t"}.union(*_ITEMS.values())
REFERENCE = "a reference, which CUDA does not let a kernel take: pass it by value"
_NEEDS = {"pointer": "a buffer", "integer": "an integer", "float": "alpha or beta"}


def bindable(op: str, params: frozenset[str] = frozenset()) -> tuple[str, ...]:
    """The names that a parameter may have to be bound without ``args``."""
    scalars = SCALARS if op == "gemm" else ()
    batch = BATCH if op == "gemm" else ()
    return (*BUFFERS, *DIMENSIONS[op], *scalars, *LEADING_DIMENSIONS, *batch, *sorted(params))


def bind_by_name(function: Function, op: str, path: str) -> tuple[str, ...]:
    """The arguments of a function whose parameters are called as the field calls them.

    Raises SpecError, with the parameter's file (``path`` where it names none) and line, for any
    other name.
    """
    names = bindable(op)
    for position, parameter in enumerate(function.parameters, 1):
        if parameter.name not in names:
            title = f"parameter {parameter.name!r}" if parameter.name else f"parameter {position}"
            known = ", ".join(
                f'"{p.name}"' if p.name in names else '"?"' for p in function.parameters
            )
            _fail(
                f"{title} of {function.name} is none of {', '.join(names)}: "
                f"say what each parameter gets with args = [{known}]",
                parameter.file or path,
                parameter.line,
            )
    return tuple(parameter.name for parameter in function.parameters)


def check_types(
    function: Function,
    args: tuple[str, ...],
    types: Mapping[str, str],
    path: str,
    line: int | None = None,
) -> None:
    """Raise SpecError where an argument cannot be passed as its parameter's C type.

    ``types`` are the element types of A, B and C. C types that only a compiler knows (templates,
    structs) pass; so does an integer for alpha and beta where C holds integers. ``path`` and
    ``line`` are where the arguments were declared; without a line they are the parameter's.
    """
    if len(args) != len(function.parameters):
        names = ", ".join(p.name or p.type for p in function.parameters)
        _fail(
            f"args has {len(args)} entries, {function.name} takes "
            f"{len(function.parameters)} ({names})",
            path if line else function.file or path,
            line or function.line,
        )
    for arg, parameter in zip(args, function.parameters, strict=True):
        kind = "pointer" if arg in BUFFERS else "float" if arg in SCALARS else "integer"
        if arg in SCALARS and TYPES[types["C"]].is_integer and parameter.kind == "integer":
            continue
        what = f"{parameter.type} {parameter.name}".strip()
        if "&" in parameter.type:
            _fail(
                f"{function.name} declares '{what}', {REFERENCE}",
                parameter.file or path,
                parameter.line,
            )
        place = (path, line) if line else (parameter.file or path, parameter.line)
        if parameter.kind not in (kind, "other"):
            is_a = (
                "a buffer" if kind == "pointer" else "a float" if kind == "float" else "an integer"
            )
            _fail(
                f"{function.name} declares '{what}', which needs {_NEEDS[parameter.kind]}, "
                f"but gets {arg}, {is_a}",
                *place,
            )
        if kind == "pointer" and _points_to_other(parameter, types[arg]):
            _fail(
                f"{function.name} declares '{what}', but {arg} holds {types[arg]}: "
                f"make it {TYPES[types[arg]].cpp[0]}*",
                *place,
            )


def _points_to_other(parameter: Parameter, dtype: str) -> bool:
    words = set(re.findall(r"\w+", parameter.type))
    others = _ALL_ITEMS - _ITEMS[dtype]
    return bool(words & others) and "<" not in parameter.type


def _fail(message: str, path: str, line: int) -> NoReturn:
    raise SpecError(message, path=path, line=line)
