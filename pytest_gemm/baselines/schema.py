"""What stands in a line of a stored file: a session or a fact, as text and as a record.

Raises ``UnusableError``, whose text is a phrase; only the store knows the path.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain, islice
from operator import itemgetter, le
from typing import Any, NamedTuple

from pytest_gemm.baselines.checks import (
    HUGE,
    Check,
    Json,
    UnusableError,
    a_count,
    a_date,
    a_deviation,
    a_plain_object,
    a_sha256,
    a_text,
    a_text_or_none,
    a_time,
    a_whole_number,
    checked,
    counters,
    nine_deciles,
    parsed,
)
from pytest_gemm.baselines.frame import Frame, Place, framed, parsed_entry, placed, unframed
from pytest_gemm.baselines.records import EPOCH_KEYS, VARYING_KEYS, Fact, Session, program
from pytest_gemm.stats import Estimate

_DIGITS = 7
_MACHINE_KEY, _SETUP_KEY = ', "machine": ', ', "setup": '
_OPENING, _MEDIAN, _DECILES = '{"benchmark": "', '"median": ', '"deciles": ['


def _refused(constant: str) -> None:
    raise ValueError(f"{constant} is no number")


_decode = json.JSONDecoder(parse_constant=_refused).raw_decode


class Line(NamedTuple):
    """A session's line in two halves: what was measured, and on what machine in what setup.

    Many lines share the second half, and it decides whether two sessions are of one series and
    one epoch, where only the machine differs. ``place`` is the line's number, or its name.
    """

    place: Place
    measured: str
    shared: str

    @property
    def text(self) -> str:
        return f"{self.measured}{_MACHINE_KEY}{self.shared}"

    @property
    def without_deciles(self) -> str:
        """The first half with an empty list of deciles."""
        before, key, after = self.measured.partition(_DECILES)
        return f"{before}{key}{after[after.find(']') :]}"

    @property
    def program(self) -> str:
        """``Session.program``, or an empty text where the setup cannot be read."""
        try:
            return _shared(self.shared)[1].program
        except UnusableError:
            return ""


Fields = tuple[Place, str, str]
"""Those of a ``Line`` that is not asked for yet: Python's garbage collector visits a plain tuple of
texts once, and hundreds of thousands of objects again and again."""


def is_pinned(measured: str) -> bool:
    """Whether a line's first half names an anchor."""
    return '"anchor": null' not in measured


def setup_of(shared: str) -> str:
    """The setup's text in a line's second half."""
    return shared.partition(_SETUP_KEY)[2]


def median_of(place: Place, measured: str) -> float:
    """The median alone (seconds), from a line's first half. Raises UnusableError."""
    start = measured.find(_MEDIAN) + len(_MEDIAN)
    try:
        return a_time(float(measured[start : measured.find(",", start)]))
    except ValueError:
        raise UnusableError(f"{placed(place)} is no session") from None


class Setup(NamedTuple):
    """What must be equal before two sessions are compared, and their program's name."""

    launch: Json
    recipe: str
    seed: int
    settings: Json
    source: str
    toolchain: Json
    program: str


Row = tuple[Any, ...]
"""The values of a line's first half, in the order of ``_MEASURED``."""

Shared = tuple[Json, Setup]
"""The environment as far as it is stored with the machine and the setup, and the setup."""


# Writing


def session_line(session: Session) -> str:
    """The session's line. Raises TypeError or ValueError for what is not plain data."""
    estimate = session.estimate
    conditions, machine, toolchain = _environment_apart(session.environment)
    return _dump(
        {
            "benchmark": session.benchmark,
            "date": session.date,
            "anchor": session.anchor,
            "commit": session.commit,
            "median": _rounded(estimate.median),
            "low": _rounded(estimate.low),
            "high": _rounded(estimate.high),
            "mad": _rounded(estimate.mad),
            "n": estimate.n,
            "launches": session.launches,
            "deciles": [_rounded(value) for value in estimate.deciles],
            "conditions": conditions,
            "machine": machine,
            "setup": {
                "launch": session.launch,
                "recipe": session.recipe,
                "seed": session.seed,
                "settings": session.settings,
                "source": session.source,
                "toolchain": toolchain,
            },
        }
    )


def write_sessions(device: str, kernel: str, lines: Iterable[str]) -> str:
    return framed({"device": device, "kernel": kernel}, "sessions", lines)


def write_facts(kernel: str, facts: Iterable[Fact]) -> str:
    lines = [fact_line(fact) for fact in sorted(facts, key=lambda fact: fact.key)]
    return framed({"kernel": kernel}, "facts", lines)


def fact_line(fact: Fact) -> str:
    return _dump(
        {
            "benchmark": fact.benchmark,
            "digest": fact.digest,
            "seed": fact.seed,
            "recipe": fact.recipe,
            "counters": fact.counters,
        }
    )


def checked_session(session: Session) -> Session:
    """The session as it will be read back. Raises UnusableError where it would not be."""
    names = {"device": session.device, "kernel": session.kernel}
    checked("session", names, {"device": a_text, "kernel": a_text})
    ((fields,),) = split_lines([("session", _written(session_line, session))]).values()
    (read,) = read_sessions([Line(*fields)], session.device, session.kernel)
    return read


def checked_fact(fact: Fact) -> Fact:
    """The fact as it will be read back. Raises UnusableError where it would not be."""
    checked("fact", {"kernel": fact.kernel}, {"kernel": a_text})
    return _fact("fact", parsed(_written(fact_line, fact)), fact.kernel)


def _written(line: Callable[[Any], str], record: Session | Fact) -> str:
    try:
        return line(record)
    except (TypeError, ValueError, AttributeError, RecursionError) as error:
        raise UnusableError(f"it is not plain data ({error})") from None


def _dump(entry: Mapping[str, Any], *, allow_nan: bool = False) -> str:
    """One line; keys in the order given, inner ones sorted."""
    fields = (
        f"{json.dumps(key)}: {json.dumps(value, sort_keys=True, allow_nan=allow_nan)}"
        for key, value in entry.items()
    )
    return f"{{{', '.join(fields)}}}"


def _environment_apart(environment: Mapping[str, Any]) -> tuple[Json, Json, Json]:
    """What varies, what does not, and what opens an epoch."""
    conditions: Json = {}
    machine: Json = {}
    toolchain: Json = {}
    for key, value in environment.items():
        part = toolchain if key in EPOCH_KEYS else conditions if key in VARYING_KEYS else machine
        part[key] = value
    return conditions, machine, toolchain


def _rounded(seconds: float) -> float:
    return float(f"{seconds:.{_DIGITS}g}")


# Reading


def read_frame(text: str) -> Frame:
    """A file of sessions with ``device`` and ``kernel``; its lines are still to be split."""
    names: dict[str, Check] = {"device": a_text, "kernel": a_text}
    return unframed(text, "sessions", names, MIGRATIONS, _session_text)


def split_lines(entries: Iterable[tuple[Place, str]]) -> dict[str, list[Fields]]:
    """The lines of each benchmark, hardly checked: most are never asked for."""
    found: dict[str, list[Fields]] = {}
    kept: dict[str, str] = {}
    before = ""
    start = len(_OPENING)
    for place, text in entries:
        measured, has_both, shared = text.partition(_MACHINE_KEY)
        benchmark = text[start : text.find('"', start)]
        if not (has_both and text.startswith(_OPENING)) or "\\" in benchmark:
            entry = parsed_entry(place, text)
            canonical = _session_text(placed(place), entry)
            measured, _, shared = canonical.partition(_MACHINE_KEY)
            benchmark = _benchmark(place, entry["benchmark"])
        if shared != before:
            before = kept.setdefault(shared, shared)
        line = place, measured, before
        if benchmark in found:
            found[benchmark].append(line)
        else:
            found[benchmark] = [line]
    for benchmark, lines in found.items():
        _benchmark(lines[0][0], benchmark)
    return found


def _benchmark(place: Place, value: Any) -> str:
    try:
        return a_text(value)
    except UnusableError as error:
        raise UnusableError(f"{placed(place)}: benchmark {error}") from None


def read_sessions(
    lines: Sequence[Line], device: str, kernel: str, *, deciles: bool = True
) -> list[Session]:
    """The sessions of some lines, checked; without ``deciles`` these are neither read nor checked.

    They are half of the numbers of a line, and nothing is decided by them.
    """
    return [
        Session(
            device,
            kernel,
            benchmark,
            date,
            Estimate(n, median, low, high, mad, tuple(tenths) if deciles else ()),
            launches,
            setup.seed,
            setup.recipe,
            setup.source,
            setup.launch,
            {**steady, **varying},
            setup.settings,
            commit,
            anchor,
        )
        for (
            (benchmark, date, anchor, commit, median, low, high, mad, n, launches, tenths, varying),
            (steady, setup),
        ) in _read_quickly(lines, deciles=deciles) or map(_read_carefully, lines)
    ]


def _read_carefully(line: Line) -> tuple[Row, Shared]:
    """A line's two halves; each check by name, so that an error can name what is wrong."""
    where = placed(line.place)
    found = checked(where, parsed_entry(line.place, line.text), _SESSION)
    if not found["low"] <= found["median"] <= found["high"]:
        raise UnusableError(f"{where}: median does not lie between low and high")
    setup = _checked_setup(f"{where}.setup", found["setup"])
    return _row(found), ({**found["machine"], **setup.toolchain}, setup)


def _read_quickly(
    lines: Sequence[Line], *, deciles: bool = True
) -> list[tuple[Row, Shared]] | None:
    """The halves of all lines at once, if nothing is wrong with any of them; else None.

    It must not accept what ``_read_carefully`` refuses. Large stores have hundreds of thousands of
    lines. The text that they make together cannot hide that one is broken: each begins with
    ``{"benchmark"``, which can continue nothing but a list, and no list holds objects.
    """
    halves = [line.measured if deciles else line.without_deciles for line in lines]
    text = f"[{'}, '.join(halves)}}}]"
    try:
        entries: list[Json] = _decode(text)[0]
        shared = [_shared(line.shared) for line in lines]
        rows = list(map(_row, entries))
        keys = {*map(len, entries)} == {len(_MEASURED)}
        good = keys and len(rows) == len(lines) and _are_plausible(text, rows, deciles=deciles)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError, UnusableError):
        return None
    return list(zip(rows, shared, strict=True)) if good else None


def _are_plausible(text: str, rows: Sequence[Row], *, deciles: bool) -> bool:
    """Whether nothing is wrong with any row of a text. Raises whatever wrong types raise."""
    columns = zip(*rows, strict=True)
    benchmarks, dates, anchors, commits, *times = islice(columns, 8)
    counts, launches, tenths, conditions = columns
    medians, lows, highs, mads = times
    values = [value for each in conditions for value in each.values()]
    counted = counts + launches
    seconds = [*chain.from_iterable(times)]
    numbers = [abs(value) for value in values if type(value) in _NUMBERS]
    # A key's colon stands outside of texts: with no more colons, no key stands twice.
    keys = len(_MEASURED) * len(rows) + len(values)
    return (
        "\\" not in text
        and text.count(":") == keys + "".join((*benchmarks, *dates)).count(":")
        and {*map(type, seconds)} == {float}
        and {*map(type, counted)} == {int}
        and min(counted) >= 1
        and max(counted) < HUGE
        and min(lows) > 0
        and all(map(le, lows, medians))
        and all(map(le, medians, highs))
        and max(highs) < HUGE
        and 0 <= min(mads) <= max(mads) < HUGE
        and (_are_deciles(tenths) if deciles else tenths.count([]) == len(tenths))
        and {*map(type, conditions)} == {dict}
        and {*map(type, values)} <= _SCALARS
        and max(numbers, default=0) < HUGE
        and all(map(_known_date, {*dates}))
        and all(a_text(each) for each in {*benchmarks, *anchors, *commits} - {None})
        and all(map(_are_texts, {*map(tuple, conditions)}))
    )


def _are_deciles(lists: Sequence[Any]) -> bool:
    return (
        {*map(type, lists)} == {list}
        and {*map(len, lists)} == {9}
        and {*map(type, chain.from_iterable(lists))} == {float}
        and [*map(sorted, lists)] == [*lists]
        and min(map(_FIRST, lists)) > 0
        and max(map(_LAST, lists)) < HUGE
    )


_known_date = lru_cache(maxsize=4096)(a_date)


@lru_cache(maxsize=4096)
def _are_texts(keys: tuple[str, ...]) -> bool:
    return all(map(a_text, keys))


@lru_cache(maxsize=4096)
def _shared(text: str) -> Shared:
    """Machine and setup. Raises UnusableError."""
    entry = checked("line", parsed(f"{{{_MACHINE_KEY[2:]}{text}"), _SHARED)
    setup = _checked_setup("setup", entry["setup"])
    return {**entry["machine"], **setup.toolchain}, setup


def _checked_setup(where: str, data: Any) -> Setup:
    values = checked(where, data, _SETUP)
    return Setup(**values, program=program(values["source"], values["launch"]))


def _session_text(where: str, entry: Json) -> str:
    """An entry's text as ``session_line`` lays it out, whatever its values are."""
    checked(where, entry, dict.fromkeys(_SESSION, _anything))
    try:
        return _dump({key: entry[key] for key in _SESSION}, allow_nan=True)
    except (ValueError, RecursionError):
        raise UnusableError(f"{where} is too deeply nested") from None


def read_facts(text: str) -> tuple[str, dict[tuple[str, int, str], Fact]]:
    """Kernel, and its facts by key."""
    frame = unframed(text, "facts", {"kernel": a_text}, MIGRATIONS, _fact_text)
    kernel = frame.names["kernel"]
    facts: dict[tuple[str, int, str], Fact] = {}
    places: dict[tuple[str, int, str], Place] = {}
    for place, line in frame.entries:
        fact = _fact(placed(place), parsed_entry(place, line), kernel)
        first = places.setdefault(fact.key, place)
        if facts.setdefault(fact.key, fact) != fact:
            raise UnusableError(
                f"{placed(first)} and {placed(place)} contradict each other on {fact.benchmark}",
                remedy="two branches changed it, delete the line that is wrong",
            )
    return kernel, facts


def _fact(where: str, data: Any, kernel: str) -> Fact:
    return Fact(kernel, **checked(where, data, _FACT))


def _fact_text(where: str, entry: Json) -> str:
    try:
        return json.dumps(entry)
    except (ValueError, RecursionError):
        raise UnusableError(f"{where} is too deeply nested") from None


# Formats


def _from_format_1(data: Json) -> Json:
    """Sessions stood newest first, in any order of benchmarks, and had one level of keys."""
    if "facts" in data:
        return {**data, "facts": [*data["facts"], None]}
    entries = [_of_format_1(entry) for entry in reversed(data["sessions"])]
    entries.sort(key=lambda entry: str(entry["benchmark"]))
    return {**data, "sessions": [*entries, None]}


def _of_format_1(entry: Json) -> Json:
    entry = {"anchor": None, **entry}
    setup = {key: entry.pop(key) for key in _SETUP if key in entry}
    conditions, machine, setup["toolchain"] = _environment_apart(entry.pop("environment"))
    return {**entry, "conditions": conditions, "machine": machine, "setup": setup}


MIGRATIONS: dict[int, Callable[[Json], Json]] = {1: _from_format_1}
"""From a format to the next: takes and returns a whole file, without its ``format``."""


def _anything(value: Any) -> Any:
    return value


_FIRST, _LAST = itemgetter(0), itemgetter(-1)

_NUMBERS = {float, int}
_SCALARS = {float, int, str, bool, type(None)}

_MEASURED: dict[str, Check] = {
    "benchmark": a_text,
    "date": a_date,
    "anchor": a_text_or_none,
    "commit": a_text_or_none,
    "median": a_time,
    "low": a_time,
    "high": a_time,
    "mad": a_deviation,
    "n": a_count,
    "launches": a_count,
    "deciles": nine_deciles,
    "conditions": a_plain_object,
}

_row = itemgetter(*_MEASURED)

_SHARED: dict[str, Check] = {"machine": a_plain_object, "setup": _anything}

_SESSION: dict[str, Check] = {**_MEASURED, **_SHARED}

_SETUP: dict[str, Check] = {
    "launch": a_plain_object,
    "recipe": a_text,
    "seed": a_whole_number,
    "settings": a_plain_object,
    "source": a_sha256,
    "toolchain": a_plain_object,
}

_FACT: dict[str, Check] = {
    "benchmark": a_text,
    "digest": a_text,
    "seed": a_whole_number,
    "recipe": a_text,
    "counters": counters,
}
