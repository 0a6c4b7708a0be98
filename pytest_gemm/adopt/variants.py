"""Values to try for what is fixed when a kernel is compiled: template parameters, macros."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from math import prod

from pytest_gemm.adopt.arguments import arguments
from pytest_gemm.adopt.kinds import ELEMENTS
from pytest_gemm.adopt.launches import LaunchCode
from pytest_gemm.adopt.prober import Prober
from pytest_gemm.adopt.reading import Reading
from pytest_gemm.adopt.source import TRUTH, Source
from pytest_gemm.adopt.variant import Variant, launch_texts, number_of
from pytest_gemm.errors import GemmError, SpecError
from pytest_gemm.kernelspec import MAX_THREADS
from pytest_gemm.problem import DIMENSIONS, Problem

ONE_VALUE = (16, 32, 8, 64, 4)
"""What is tried for a parameter whose name says nothing."""

BUILD_VALUES = (16, 32, 8)
"""What is tried for a macro that the build defines."""

TILES = ((64, 8, 8), (128, 8, 8), (64, 16, 4), (32, 8, 4), (128, 16, 8), (32, 32, 2))
"""(side, depth, side per thread) of tiles that published kernels have."""

_UNKNOWN = re.compile(
    r"['\u2018](?P<gcc>\w+)['\u2019] was not declared"
    r"|undeclared identifier '(?P<clang>\w+)'|identifier \"(?P<nvrtc>\w+)\" is undefined"
)
_PER_THREAD = re.compile(r"t(?!ile)|.*(?:per_?thread|wpt)", re.IGNORECASE)


class Uncompilable(GemmError):
    """The kernel does not compile, whatever it is given."""


def compiling(source: Source, prober: Prober, progress: Callable[[str], None]) -> Iterator[Variant]:
    """The variants that compile, with values for macros that the file leaves to its build.

    Raises Uncompilable where none does.
    """
    reason, count = "", 0
    todo = list(variants(source))
    while todo and prober.seconds_left > 0:
        variant = todo.pop(0)
        progress(f"compiling {variant.title(source)}")
        text = _compile_error(source, prober, variant)
        if not text:
            count += 1
            yield variant
            continue
        reason = reason or text
        missing = _UNKNOWN.search(text)
        name = next(filter(None, missing.groups()), "") if missing else ""
        if name.isupper() and len(name) > 1 and name not in variant.values:
            todo += [variant.with_macro(name, value) for value in BUILD_VALUES]
    if not count:
        raise Uncompilable(reason or "there was not enough time to compile the kernel")


def _compile_error(source: Source, prober: Prober, variant: Variant) -> str:
    for op in DIMENSIONS:
        for given in arguments(source.signature, op, variant.launch, dict(variant.types))[:1]:
            more = (*given.kind.keys, *given.keys)
            block = grid = ("1",)
            reading = Reading(variant.entry, given.args, block, grid, "0", variant.params, (), more)
            attempt = prober.attempt(reading, Problem(op, 3, 2, 0 if op == "add" else 1))
            return attempt.impossible if attempt.does_not_compile else ""
    return ""


def variants(source: Source) -> Iterator[Variant]:
    """What the launches in the file say, then what is usual."""
    template = source.function.template
    plain = "" if source.is_only else source.function.name
    if not template:
        yield from (Variant(plain, (), launch) for launch in source.launches[:4])
        if not source.launches:
            yield Variant(plain)
        return
    names = [parameter.name for parameter in template]
    others = {*source.types, *source.enumerations}
    integers = [name for name in names if name not in others]
    found: dict[object, Variant] = {}
    for launch in source.launches:
        known = _launched_params(launch, names, integers)
        types = _launched_types(source, launch, names)
        # A launcher may be a template itself: what it leaves open gets usual values.
        complete = len(known) == len(integers)
        for values in [known] if complete else _usual(source, integers):
            variant = _instance(source, names, {**values, **known}, launch, types)
            found.setdefault((variant.entry, variant.params), variant)
    if not found:
        _check_known(source)
        for values in _usual(source, integers):
            variant = _instance(source, names, values, None, ())
            found[variant.entry, variant.params] = variant
    fitting = [v for v in found.values() if v.launch is None or _has_block(source, v)]
    yield from fitting or found.values()


def _has_block(source: Source, variant: Variant) -> bool:
    """Whether the launch's block is one that a device takes."""
    assert variant.launch is not None
    texts = launch_texts(source, variant, variant.launch.block)
    return prod(number_of(text, variant.values) or 1 for text in texts) <= MAX_THREADS


def _instance(
    source: Source,
    names: Sequence[str],
    values: Mapping[str, int],
    launch: LaunchCode | None,
    types: tuple[tuple[str, str], ...],
) -> Variant:
    """A template with values for its parameters; types that are not known are float."""
    known = {name: "float" for name in names if name in source.types} | dict(types)
    given = ", ".join(known.get(name, name) for name in names)
    entry = f"{source.function.name}<{given}>"
    return Variant(entry, tuple(sorted(values.items())), launch, tuple(sorted(known.items())))


def _launched_types(
    source: Source, launch: LaunchCode, names: Sequence[str]
) -> tuple[tuple[str, str], ...]:
    found = []
    for name, tokens in zip(names, launch.template or (), strict=False):
        texts = [launch.host.code.texts[at] for at in tokens]
        if name in source.enumerations:
            found.append((name, "".join(texts)))
        elif (text := " ".join(texts)) in ELEMENTS or {*texts} & source.structs:
            found.append((name, text))
    return tuple(found)


def _check_known(source: Source) -> None:
    """Raise SpecError for a template parameter of which no value is usual."""
    strange = {name: f"is of {type_}" for name, type_ in source.enumerations.items()}
    strange |= dict.fromkeys(source.templates, "is a template itself")
    for name, what in strange.items():
        raise SpecError(
            f"{source.function.name}: the template parameter {name} {what}, and is given no value "
            "here: launch the kernel in this file, or declare it by hand",
            path=source.function.file or source.shown,
            line=source.function.line,
        )


def _launched_params(
    launch: LaunchCode, names: Sequence[str], integers: Sequence[str]
) -> dict[str, int]:
    """The values of a launch's template arguments, as far as the file says."""
    found: dict[str, int] = {}
    for name, tokens in zip(names, launch.template or (), strict=False):
        if name in integers:
            value = number_of(launch.host.text(tokens, TRUTH.get), {})
            if value is not None:
                found[name] = value
    return found


def _usual(source: Source, names: Sequence[str]) -> Iterator[dict[str, int]]:
    """Values that published kernels have; defaults, and every combination of truth values, defaults
    first."""
    flags = [name for name in names if name in source.flags]
    sizes = [name for name in names if name not in source.flags]
    truth = [(1, 0) if source.defaults.get(name) else (0, 1) for name in flags]
    for values in _usual_sizes(sizes):
        for chosen in product(*truth):
            yield values | source.defaults | dict(zip(flags, chosen, strict=True))


def _usual_sizes(names: Sequence[str]) -> Iterator[dict[str, int]]:
    if not names:
        yield {}
        return
    if len(names) < 2:
        yield from (dict.fromkeys(names, value) for value in ONE_VALUE)
        return
    for side, depth, per_thread in TILES:
        yield {name: _size(name, side, depth, per_thread) for name in names}
    yield from (dict.fromkeys(names, value) for value in ONE_VALUE[:2])


def _size(name: str, side: int, depth: int, per_thread: int) -> int:
    if _PER_THREAD.match(name):
        return per_thread
    return depth if name.lower().endswith("k") else side
