"""``@pytest_gemm.kernel``: a Python callable as a kernel."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import FunctionType
from typing import Any, NoReturn, TypeVar, overload

from pytest_gemm.binding import bindable
from pytest_gemm.declaration import finish
from pytest_gemm.errors import SpecError
from pytest_gemm.kernelspec import BACKENDS, STREAM, KernelSpec
from pytest_gemm.operation import integers, read_operation
from pytest_gemm.problem import DIMENSIONS
from pytest_gemm.schema import PYTHON_KEYS, Reader

F = TypeVar("F", bound=Callable[..., object])
Figure = float | Mapping[str | int, float] | Mapping[str, Mapping[str | int, float]]
"""One number, or several by back end, by problem, or by both."""

ATTRIBUTE = "__gemm_kernel__"


@overload
def kernel(function: F, /) -> F: ...


@overload
def kernel(
    *,
    name: str = ...,
    op: str = ...,
    sizes: Sequence[str | int] | Mapping[str, Sequence[str | int]] = ...,
    requires: Sequence[str] = ...,
    params: Mapping[str, int] = ...,
    sweep: Mapping[str, Sequence[int] | Mapping[str, Sequence[int]]] = ...,
    dtype: str = ...,
    out_dtype: str = ...,
    acc_dtype: str = ...,
    layout: str = ...,
    transa: str = ...,
    transb: str = ...,
    lda: int | str = ...,
    ldb: int | str = ...,
    ldc: int | str = ...,
    alpha: float = ...,
    beta: float = ...,
    batch: int = ...,
    reference: str = ...,
    derived_from: str = ...,
    change: str = ...,
    deterministic: bool = ...,
    finite_c: bool = ...,
    margin: float | Mapping[str, float] = ...,
    max_us: Figure = ...,
    min_gflops: Figure = ...,
    min_percent_of_cublas: Figure = ...,
    backend: str | None = ...,
) -> Callable[[F], F]: ...


def kernel(function: Any = None, /, **keys: Any) -> Any:
    """Declare a Python callable as a kernel; the function itself is returned.

    Its parameters are bound by name: any of A, B, C, M, N, K, alpha, beta, lda, ldb, ldc, batch,
    strideA, strideB, strideC, stream and the names of ``params`` and ``sweep``. A, B and C are
    matrices on the device (NumPy arrays on the host); the result is written into C. Usable with and
    without parentheses. The keys mean what they mean in front matter; ``backend`` limits the kernel
    to "host" or "cuda". Nothing is registered: modules that declare kernels are named in the
    settings, or are a ``conftest.py``.

    A mistake does not stop the import: it is kept with the function, and reported with its file
    and line when the kernels are collected. Raises SpecError only for what can keep nothing, such
    as a built-in function.
    """
    if function is not None:
        return _declare(function, keys)
    return lambda function: _declare(function, keys)


def declared(value: object) -> KernelSpec | SpecError | None:
    """The declaration that ``kernel`` attached to something, or the mistake in it."""
    try:
        # Not by vars(): that loads a lazy module, and what it imports.
        attached = object.__getattribute__(value, "__dict__").get(ATTRIBUTE)
    except Exception:  # no __dict__, or one that is computed: a module may hold anything
        return None
    return attached if isinstance(attached, KernelSpec | SpecError) else None


def _declare(function: Any, keys: Mapping[str, Any]) -> Any:
    try:
        result: KernelSpec | SpecError = _read(function, keys)
    except SpecError as error:
        result = error.with_traceback(None)
    try:
        setattr(function, ATTRIBUTE, result)
    except (AttributeError, TypeError):
        if isinstance(result, SpecError):
            raise result from None
        raise
    return function


def _reject(value: object) -> NoReturn:
    """Raise SpecError where the decorator stands: what is no function may have no line itself."""
    frame = sys._getframe()
    while frame.f_code.co_filename == __file__ and frame.f_back:
        frame = frame.f_back
    what = f"the class {value.__name__}" if isinstance(value, type) else f"a {type(value).__name__}"
    raise SpecError(
        f"@pytest_gemm.kernel is for functions, not for {what}: wrap it in a def",
        path=frame.f_code.co_filename,
        line=frame.f_lineno,
    )


def _read(function: object, keys: Mapping[str, Any]) -> KernelSpec:
    if not isinstance(function, FunctionType):
        _reject(function)
    code = function.__code__
    path, line = code.co_filename, code.co_firstlineno
    reader = Reader(keys, lambda *_: line, path, noun="keyword")
    reader.reject_unknown(PYTHON_KEYS)
    op = reader.choice("op", "gemm", tuple(DIMENSIONS))
    params, sweep = reader.parameters()
    names = {name for name, _ in (*params, *sweep)}
    args = _parameters(reader, function, op, frozenset(names))
    for name in sorted(names - set(args)):
        key = "params" if name in dict(params) else "sweep"
        reader.fail(f"{function.__name__} takes no {name}: drop {key}.{name} or take it")
    backend = keys.get("backend")
    if backend is not None and backend not in BACKENDS:
        reader.fail(f"backend = {backend!r} is not supported: it is 'host', 'cuda' or None")
    first = declared(function.__globals__.get(function.__name__))
    if isinstance(first, KernelSpec) and first.path == path and first.line != line:
        reader.fail(
            f"{function.__name__} takes the place of the kernel in line {first.line}: give each "
            "function a name of its own"
        )
    spec = KernelSpec(
        name=reader.name(function.__name__),
        path=path,
        line=line,
        filename=path,
        source=_source(function),
        entry=function.__qualname__,
        op=op,
        args=args,
        params=params,
        sweep=sweep,
        requires=reader.conditions("requires", (*integers(op), *sorted(names))),
        **vars(read_operation(reader, op, sorted(names))),
        deterministic=reader.boolean("deterministic", False),
        callable=f"{path}::{function.__qualname__}",
        backends=BACKENDS if backend is None else (backend,),
    )
    return finish(reader, spec)


def _parameters(
    reader: Reader, function: FunctionType, op: str, params: frozenset[str]
) -> tuple[str, ...]:
    title = function.__name__
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        reader.fail(f"{title} is async or a generator: a kernel is a plain function")
    allowed = (*bindable(op, params), STREAM)
    result = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is not parameter.POSITIONAL_OR_KEYWORD:
            form = parameter.replace(annotation=parameter.empty)
            reader.fail(f"{title} takes {form}: a kernel's parameters are plain names")
        if parameter.name not in allowed:
            reader.fail(
                f"parameter {parameter.name!r} of {title} is none of {', '.join(allowed)}: "
                "rename it, or declare it with params or sweep"
            )
        result.append(parameter.name)
    if "C" not in result:
        reader.fail(f"{title} takes no C, so it cannot write a result: add the parameter C")
    return tuple(result)


def _source(function: FunctionType) -> str:
    """The function's text from ``def`` on: what it does, not how it is declared."""
    try:
        text = inspect.getsource(function)
    except (OSError, TypeError):
        return ""
    match = re.search(r"^[ \t]*(?:def|.*\blambda)\b.*", text, re.MULTILINE | re.DOTALL)
    return match[0] if match else text


def relocate(spec: KernelSpec, path: Path | str) -> KernelSpec:
    """The same declaration under another spelling of its file's path."""
    text = Path(path).as_posix()
    qualname = spec.callable.rpartition("::")[2]
    return replace(spec, path=text, filename=text, callable=f"{text}::{qualname}")
