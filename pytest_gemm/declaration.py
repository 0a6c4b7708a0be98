"""From a table of keys to a ``KernelSpec``: finds the entry, binds arguments, checks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from math import prod
from pathlib import Path

from pytest_gemm import binding, cuda_source, epilogue
from pytest_gemm.cuda_source import Function
from pytest_gemm.errors import ConfigError, SpecError
from pytest_gemm.expressions import compile_expression
from pytest_gemm.frontmatter import Table
from pytest_gemm.kernelspec import (
    BUFFERS,
    MAX_COMBINATIONS,
    SCALARS,
    KernelSpec,
    entry_names,
    macro_names,
)
from pytest_gemm.operation import Operation, integers, read_operation
from pytest_gemm.problem import DIMENSIONS
from pytest_gemm.schema import KEYS, Reader, short
from pytest_gemm.slicing import device_part

_ENTRY = re.compile(r"(?:::)?(?P<name>[A-Za-z_]\w*(?:::[A-Za-z_]\w*)*)\s*(?:<[^;{}\"']*>)?")


def read_kernel(
    table: Table,
    *,
    path: str,
    source: str,
    filename: str,
    default_name: str,
    keys: Mapping[str, str] = KEYS,
) -> KernelSpec:
    """A CUDA kernel from its table.

    ``path`` is the file with the table, ``filename`` the one with the source, which may have
    its includes expanded; an empty ``default_name`` stands for the entry's. Raises SpecError with
    the file and line at fault.
    """
    reader = Reader(table.data, table.line_of, path)
    reader.reject_unknown(keys)
    op = reader.choice("op", "gemm", tuple(DIMENSIONS))
    params, sweep = reader.parameters()
    names = {name for name, _ in (*params, *sweep)}
    code = device_part(source, filename)
    function, entry = _find_entry(reader, code, filename, names)
    name = reader.name(default_name or entry.partition("<")[0].rpartition("::")[2])
    _check_macros(reader, macro_names(code, entry, names), entry, code)
    known = (*integers(op), *sorted(names))
    operation = read_operation(reader, op, sorted(names))
    block = reader.dimensions("block", known)
    grid = reader.dimensions("grid", known)
    shared_mem = reader.expression("shared_mem", "0", known)
    requires = reader.conditions("requires", known)
    args = _arguments(reader, function, op, operation, known, filename)
    leading = (text for _, text in operation.leading)
    texts = (*args, *block, *grid, shared_mem, *requires, *leading)
    used = [text for text in texts if text not in SCALARS]
    _check_used(reader, names, entry, code, used)
    spec = KernelSpec(
        name=name,
        path=path,
        line=table.line,
        filename=filename,
        source=source,
        entry=entry,
        signature=function.parameters,
        args=args,
        block=block,
        grid=grid,
        shared_mem=shared_mem,
        requires=requires,
        op=op,
        **vars(operation),
        launch_bounds=_launch_bounds(function),
        params=params,
        sweep=sweep,
        deterministic=reader.boolean("deterministic", True),
        different_barriers=reader.boolean("different_barriers", False),
        lines=tuple(sorted((key, table.line_of(key)) for key in table.data)),
    )
    return finish(reader, spec)


def with_reference(spec: KernelSpec, folder: Path) -> KernelSpec:
    """The declaration with its reference found, from the folder of the file that names it.

    Raises SpecError.
    """
    if not spec.reference:
        return spec
    try:
        reference, taken = epilogue.find(spec.reference, folder)
    except ConfigError as error:
        spec.fail("reference", f"reference: {error}")
    return replace(spec, reference=reference, reference_reads_c="C" in taken)


def finish(reader: Reader, spec: KernelSpec) -> KernelSpec:
    """Add what all doors share (sizes, limits, provenance) and check every kernel of it."""
    derived_from = reader.text("derived_from")
    change = reader.text("change")
    if change and not derived_from:
        reader.fail("change says what differs from derived_from: give derived_from too", "change")
    if derived_from == spec.name:
        reader.fail(f"{spec.name} is derived_from itself: name another kernel", "derived_from")
    sizes = reader.sizes(spec.op, spec.dtype)
    spec = replace(
        spec,
        sizes=sizes,
        margin=reader.margin(),
        limits=reader.limits(spec.op, spec.dtype, sizes),
        derived_from=derived_from,
        change=change,
    )
    for backend in spec.backends:
        count = prod(len(values(backend)) for _, values in spec.sweep)
        if count > MAX_COMBINATIONS:
            reader.fail(f"the sweeps make {count} kernels, more than {MAX_COMBINATIONS}", "sweep")
        for kernel in spec.kernels(backend):
            kernel.check()
    return spec


def _find_entry(
    reader: Reader, source: str, filename: str, params: set[str]
) -> tuple[Function, str]:
    """The function that is the kernel, and the entry's text."""
    functions = {function.name: function for function in cuda_source.find_kernels(source)}
    entry = " ".join(reader.text("entry").split())
    if not entry:
        if not functions:
            reader.fail(f"{filename} has no __global__ function: add one, or name its entry")
        own = [name for name, f in functions.items() if f.file in ("", filename)]
        names = own or list(functions)
        if len(names) > 1:
            reader.fail(
                f"{filename} has several __global__ functions: add entry, one of {', '.join(names)}"
            )
        (entry,) = names
    match = _ENTRY.fullmatch(entry)
    if not match:
        reader.fail(f"entry = {short(entry)} is not {KEYS['entry']}", "entry")
    function = functions.get(match["name"])
    if function is None:
        inside = [name for name in functions if name.endswith("::" + match["name"])]
        close = inside or get_close_matches(match["name"], functions, 1)
        known = ", ".join(functions) or "none"
        advice = f"did you mean {close[0]}?" if close else f"its __global__ functions: {known}"
        reader.fail(f"entry {match['name']!r} is not in {filename}: {advice}", "entry")
    _check_template(reader, function, entry, params)
    return function, entry


def _launch_bounds(function: Function) -> str:
    """The text of the kernel's launch bounds, if it does not depend on template parameters."""
    words = set(re.findall(r"\w+", function.launch_bounds))
    own = {parameter.name for parameter in function.template or ()}
    return "" if words & own else function.launch_bounds


def _check_template(reader: Reader, function: Function, entry: str, params: set[str]) -> None:
    given = cuda_source.template_arguments(entry)
    if function.template is None:
        if given is not None:
            reader.fail(f"{function.name} is no template: write entry without <...>", "entry")
        return
    names = ", ".join(parameter.name or "?" for parameter in function.template)
    if given is None:
        reader.fail(
            f"{function.name} is a template: give its parameters with "
            f'entry = "{function.name}<{names}>"',
            "entry",
        )
    least = sum(not (p.has_default or p.is_pack) for p in function.template)
    if len(given) < least or (
        len(given) > len(function.template) and not any(p.is_pack for p in function.template)
    ):
        reader.fail(
            f"entry gives {len(given)} template arguments, {function.name} takes "
            f"{len(function.template)} ({names})",
            "entry",
        )


def _check_macros(reader: Reader, macros: frozenset[str], entry: str, source: str) -> None:
    template_names = cuda_source.template_names(source)
    for name in sorted(macros):
        key = "params" if name in reader.data.get("params", ()) else "sweep"
        if len(name) == 1:
            reader.fail(
                f"{key}.{name} would be a macro of one letter, which breaks the compiler's own "
                f"headers: call it TILE_{name} or use it in entry",
                key,
                name,
            )
        if name in template_names:
            reader.fail(
                f"{key}.{name} would be a macro and break the template parameter {name}: put it "
                f'into entry = "{entry.partition("<")[0]}<{name}>", or call it otherwise',
                key,
                name,
            )


def _check_used(
    reader: Reader, params: set[str], entry: str, source: str, expressions: Sequence[str]
) -> None:
    used = entry_names(entry) | cuda_source.identifiers(source)
    for text in expressions:
        used |= compile_expression(text).names
    for name in sorted(params - used):
        key = "params" if name in reader.data.get("params", ()) else "sweep"
        reader.fail(f"{key}.{name} is used nowhere: not in the source, not in a key", key, name)


def _arguments(
    reader: Reader,
    function: Function,
    op: str,
    operation: Operation,
    known: Sequence[str],
    filename: str,
) -> tuple[str, ...]:
    if "args" in reader.data:
        args = _declared_arguments(reader, op, known)
        path, line = reader.path, reader.line_of("args")
        binding.check_types(function, args, operation.types, path, line)
    else:
        args = binding.bind_by_name(function, op, filename)
        binding.check_types(function, args, operation.types, filename)
        path, line = function.file or filename, function.line
    if "C" not in args:
        raise SpecError("no argument is C, so nothing can be computed", path=path, line=line)
    return args


def _declared_arguments(reader: Reader, op: str, known: Sequence[str]) -> tuple[str, ...]:
    direct = (*BUFFERS, *(SCALARS if op == "gemm" else ()))
    args = tuple(
        value if value in direct else reader.one_expression("args", value, (*direct, *known))
        for value in reader.items("args", int | str)
    )
    for arg in args:
        if arg not in direct and compile_expression(arg).names & set(direct):
            reader.fail(f"args: {arg!r} computes with a buffer or alpha, beta", "args")
    return args
