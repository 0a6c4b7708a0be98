"""A profile as Markdown: sentences first, then the numbers that they come from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from pytest_gemm.markdown import NOTHING, code, digits, plain, table
from pytest_gemm.profile.document import Profile, Profiled, Sanitized
from pytest_gemm.profile.facts import counted_loads, predicted_loads, stalls
from pytest_gemm.profile.limiter import UNITS
from pytest_gemm.profile.metrics import STALLS
from pytest_gemm.report.text import seconds
from pytest_gemm.static.inspection import multiply_adds
from pytest_gemm.traffic import COUNTED, loads_on

WAITS = 3
"""Reasons that are shown of what warps wait for."""

Cell = Callable[[Profiled], str]


def report(profile: Profile) -> Iterator[str]:
    """The whole report, with a heading."""
    yield "## Profile"
    yield ""
    yield f"{plain(profile.device['description'])}; {profile.date[:10]}."
    yield ""
    yield from tables(profile)


def tables(profile: Profile) -> Iterator[str]:
    """What was found, without a heading."""
    counted = [case for case in profile.cases if case.counters]
    for case in counted:
        yield f"- {plain(profile.sentence(case))}"
    if counted:
        yield ""
    if profile.cases:
        yield from _loads(profile)
    if counted:
        yield from _work(counted)
        yield from _memory(counted)
        yield from _units(counted)
        yield from _stalls(counted)
    if profile.sanitized:
        yield from _sanitized(profile.sanitized)
    yield from _left(profile)


def _loads(profile: Profile) -> Iterator[str]:
    yield "Elements loaded from global memory per element of C:"
    yield ""
    sizes = {COUNTED[case.problem.op].id for case in profile.cases}
    yield from _table(
        profile.cases,
        {
            "model": lambda case: loads_on(case.problem, case.traffic) or NOTHING,
            "predicted": lambda case: _number(predicted_loads(case.problem, case.traffic)),
            f"CPU, on {' or '.join(sorted(sizes))}": lambda case: _number(
                counted_loads(case.problem, case.traffic)
            ),
            "ncu": lambda case: _number(case.derived["loads"]),
        },
    )


def _work(cases: Sequence[Profiled]) -> Iterator[str]:
    yield "What a multiply-add of a warp takes, and what there is room for:"
    yield ""
    yield from _table(
        cases,
        {
            "time": lambda case: seconds(case.time) if case.time else NOTHING,
            "under ncu": lambda case: _shown(case, "time", seconds),
            "instructions": lambda case: _number(case.derived["instructions_per_multiply_add"]),
            "loads": lambda case: _number(case.derived["loads_per_multiply_add"]),
            "cycles of the data banks": lambda case: _number(
                case.derived["bank_cycles_per_multiply_add"]
            ),
            "of the inner loop": _inner,
            "registers": lambda case: str(case.build.get("registers", NOTHING)),
            "occupancy": _occupancy,
        },
    )


def _memory(cases: Sequence[Profiled]) -> Iterator[str]:
    yield "Bytes, what the cache had of them, sectors of a warp's load, cycles for bank conflicts:"
    yield ""
    yield from _table(
        cases,
        {
            "L1": lambda case: _bytes_of(case, "l1"),
            "L2": lambda case: _bytes_of(case, "l2"),
            "DRAM": lambda case: _bytes(case.derived["dram_bytes"]),
            "sectors": lambda case: _number(case.derived["sectors_per_load"]),
            "bank conflicts": lambda case: _part(case.derived["conflicts"]),
        },
    )


def _units(cases: Sequence[Profiled]) -> Iterator[str]:
    yield "How busy each unit is, in percent of its peak:"
    yield ""
    names = [name for name in UNITS if any(case.counters.get(name) for case in cases)]
    yield from _table(
        cases,
        {
            UNITS[name].removeprefix("the "): lambda case, name=name: _shown(  # type: ignore[misc]
                case, name, lambda value: f"{value:.1f}"
            )
            for name in names
        },
    )


def _stalls(cases: Sequence[Profiled]) -> Iterator[str]:
    yield "What resident warps wait for, in percent of their time:"
    yield ""
    for case in cases:
        waits = [f"{STALLS[s.reason]} {_part(s.share)}" for s in stalls(case.counters)[:WAITS]]
        yield f"- {plain(case.title)}: {', '.join(waits) or 'not known'}"
    yield ""


def _sanitized(rows: Sequence[Sanitized]) -> Iterator[str]:
    tools = list(rows[0].tools)
    yield from table(
        ["kernel", "check on the CPU", *tools, "agree"],
        (
            [
                code(row.kernel),
                _said(row.cpu) if not row.unchecked else "not checked",
                *(_said(row.tools[tool]) for tool in tools),
                {True: "yes", False: "**no**", None: NOTHING}[row.agrees],
            ]
            for row in rows
        ),
    )
    notes = [
        f"- {code(row.kernel)}, {name}: {plain(text.partition(chr(10))[0])}"
        for row in rows
        for name, text in (("CPU", row.cpu), ("CPU", row.unchecked), *row.tools.items())
        if text
    ]
    yield from (*notes, "") if notes else ()


def _left(profile: Profile) -> Iterator[str]:
    """What is missing, and why."""
    for case in profile.cases:
        if case.message:
            yield f"No counters: {plain(case.message.partition(chr(10))[0])}"
            yield ""
    for kernel, why in {case.kernel: case.unchecked for case in profile.cases}.items():
        if why:
            yield f"{code(kernel)} is not counted on the CPU: {plain(why)}"
            yield ""
    if profile.unknown:
        yield f"Not known to this ncu on this GPU: {', '.join(map(code, profile.unknown))}."
        yield ""
    if profile.missing is not None:
        yield f"Missing: {plain(profile.missing.text)}: {plain(profile.missing.remedy)}"
        yield ""


def _table(cases: Sequence[Profiled], columns: dict[str, Cell]) -> Iterator[str]:
    yield from table(
        ["kernel", "problem", *columns],
        (
            [code(case.kernel), case.problem.id, *(cell(case) for cell in columns.values())]
            for case in cases
        ),
    )


def _inner(case: Profiled) -> str:
    """``16 of 88``: multiply-adds of the inner loop's instructions, by the static gate."""
    total = case.static.get("loop.instructions")
    facts = {name: int(value) for name, value in case.static.items()}
    return f"{multiply_adds(facts, 'loop.')} of {total:.0f}" if total else NOTHING


def _occupancy(case: Profiled) -> str:
    """``93 of 100 %``: what was achieved of what fits."""
    most = case.build.get("occupancy")
    got = _shown(case, "occupancy", lambda value: f"{value:.0f}")
    return f"{got} of {100 * most:.0f} %" if most else f"{got} %"


def _bytes_of(case: Profiled, cache: str) -> str:
    """``541 MB, 2 %``: what was asked of a cache, and what it had of that where it is known."""
    asked, hits = _bytes(case.counters.get(f"{cache}_bytes")), case.derived[f"{cache}_hits"]
    return asked if hits is None else f"{asked}, {100 * hits:.0f} %"


def _bytes(value: float | None) -> str:
    return NOTHING if value is None else f"{digits(value / 1e6)} MB"


def _number(value: float | None) -> str:
    return NOTHING if value is None else digits(value)


def _part(value: float | None) -> str:
    return NOTHING if value is None else f"{100 * value:.1f} %"


def _shown(case: Profiled, name: str, show: Callable[[float], str]) -> str:
    value = case.counters.get(name)
    return NOTHING if value is None else show(value)


def _said(text: str | None) -> str:
    if text is None:
        return NOTHING
    return "found" if text else "nothing"
