"""Which argument each parameter of a ``__global__`` function gets."""

from __future__ import annotations

import re
from typing import NoReturn

from pytest_gemm.cuda_source import Function, Parameter
from pytest_gemm.errors import SpecError
from pytest_gemm.kernelspec import BUFFERS, LEADING_DIMENSIONS, SCALARS
from pytest_gemm.problem import DIMENSIONS

_ITEMS = {"float32": "float"}
_OTHER_ITEMS = {
    *("double", "int", "unsigned", "long", "short", "bool", "half", "__half", "__half2"),
    *("__nv_bfloat16", "__nv_bfloat162", "nv_bfloat16", "half2", "int4", "int2", "double2"),
}
_NEEDS = {"pointer": "a buffer", "integer": "an integer", "float": "alpha or beta"}


def bindable(op: str, params: frozenset[str] = frozenset()) -> tuple[str, ...]:
    """The names that a parameter may have to be bound without ``args``."""
    scalars = SCALARS if op == "gemm" else ()
    return (*BUFFERS, *DIMENSIONS[op], *scalars, *LEADING_DIMENSIONS, *sorted(params))


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
    function: Function, args: tuple[str, ...], dtype: str, path: str, line: int | None = None
) -> None:
    """Raise SpecError where an argument cannot be passed as its parameter's C type.

    Types that only a compiler knows (templates, structs) pass. ``path`` and ``line`` are where
    the arguments were declared; without a line they are the parameter's.
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
        what = f"{parameter.type} {parameter.name}".strip()
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
        if kind == "pointer" and _points_to_other(parameter):
            _fail(
                f"{function.name} declares '{what}', but {arg} holds {dtype}: "
                f"make it {_ITEMS[dtype]}*",
                *place,
            )


def _points_to_other(parameter: Parameter) -> bool:
    words = re.findall(r"\w+", parameter.type)
    return bool(_OTHER_ITEMS & set(words)) and "<" not in parameter.type


def _fail(message: str, path: str, line: int) -> NoReturn:
    raise SpecError(message, path=path, line=line)
