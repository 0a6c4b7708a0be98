"""What stands in a line of a stored file: a session or a fact, as text and as a record.

Raises ``UnusableError``, whose text is a phrase; only the store knows the path.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from operator import le
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
    known_date,
    known_text,
    nine_deciles,
    parsed,
)
from pytest_gemm.baselines.frame import Frame, Place, framed, parsed_entry, placed, unframed
from pytest_gemm.baselines.records import EPOCH_KEYS, VARYING_KEYS, Fact, Session, program
from pytest_gemm.stats import Estimate

_DIGITS = 7
_MACHINE_KEY, _SETUP_KEY = ', "machine": ', ', "setup": '
_OPENING = '{"benchmark": "'
_MEDIAN = re.compile(r'"date": "([^"]*)".*?"median": ([0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?),')

_decode = json.JSONDecoder().raw_decode


class Line(NamedTuple):
    """A session's line: its measurements, its machine and its setup, each as text.

    The last two are few texts that all lines share. ``setup`` is what must be equal before two
    sessions are compared and form a series. ``place`` is the line's number, or how to name it.
    """

    benchmark: str
    measured: str
    machine: str
    setup: str
    place: Place

    @property
    def text(self) -> str:
        return f"{self.measured[:-1]}{_MACHINE_KEY}{self.machine}{_SETUP_KEY}{self.setup}}}"

    @property
    def is_pinned(self) -> bool:
        return '"anchor": null' not in self.measured

    @property
    def program(self) -> str:
        """``Session.program``, or an empty text where the setup cannot be read."""
        try:
            return _setup(self.setup).program
        except UnusableError:
            return ""

    def median(self) -> tuple[str, float]:
        """Date and median alone (seconds). Raises UnusableError."""
        found = _MEDIAN.search(self.measured)
        if found is None:
            raise UnusableError(f"{placed(self.place)} is no session")
        return found[1], a_time(float(found[2]))


class _Setup(NamedTuple):
    launch: Json
    recipe: str
    seed: int
    settings: Json
    source: str
    toolchain: Json
    program: str


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
    line = split_line("session", _written(session_line, session))
    return read_session(line, session.device, session.kernel)


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


def split_line(place: Place, text: str) -> Line:
    """A session's line, hardly checked: most lines of a store are never asked for."""
    measured, has_machine, rest = text.partition(_MACHINE_KEY)
    machine, has_setup, setup = rest.partition(_SETUP_KEY)
    if not (has_machine and has_setup and text.startswith(_OPENING)):
        text = _session_text(placed(place), parsed_entry(place, text))
        measured, _, rest = text.partition(_MACHINE_KEY)
        machine, _, setup = rest.partition(_SETUP_KEY)
    try:
        benchmark, _ = _decode(text, len(_OPENING) - 1)
        return Line(known_text(benchmark), measured + "}", machine, setup[:-1], place)
    except (ValueError, UnusableError):
        raise UnusableError(f"{placed(place)} names no benchmark") from None


def read_session(line: Line, device: str, kernel: str) -> Session:
    """The session of a line, checked."""
    found = _read_quickly(line)
    if found is None:
        where = placed(line.place)
        measured = checked(where, parsed_entry(line.place, line.text), _SESSION)
        if not measured["low"] <= measured["median"] <= measured["high"]:
            raise UnusableError(f"{where}: median does not lie between low and high")
        machine = measured["machine"]
        setup = _checked_setup(f"{where}.setup", measured["setup"])
    else:
        measured, machine, setup = found
    return Session(
        device,
        kernel,
        measured["benchmark"],
        measured["date"],
        Estimate(
            measured["n"],
            measured["median"],
            measured["low"],
            measured["high"],
            measured["mad"],
            tuple(measured["deciles"]),
        ),
        measured["launches"],
        setup.seed,
        setup.recipe,
        setup.source,
        setup.launch,
        {**measured["conditions"], **machine, **setup.toolchain},
        setup.settings,
        measured["commit"],
        measured["anchor"],
    )


def _read_quickly(line: Line) -> tuple[Json, Json, _Setup] | None:
    """What all is well with, as nearly always; None leaves it to the checks by name.

    It must not accept what they refuse. A line is an object because its three parts are.
    """
    text = line.measured
    try:
        found, end = _decode(text)
        benchmark, date, deciles = found["benchmark"], found["date"], found["deciles"]
        conditions, median, n = found["conditions"], found["median"], found["n"]
        machine, setup = _machine(line.machine), _setup(line.setup)
        times = [found["low"], found["high"], found["mad"], median, *deciles]
        good = (
            end == len(text)
            and found.keys() == _MEASURED.keys()
            and known_text(benchmark) is not None
            and known_date(date) is not None
            and type(conditions) is dict
            and all(map(known_text, conditions))
            and all(known_text(found[key]) for key in _NULLABLE if found[key] is not None)
            and type(deciles) is list
            and len(deciles) == 9
            and {*map(type, times)} == {float}
            and {type(n), type(found["launches"])} == {int}
            and 0 < found["low"] <= median <= found["high"] < HUGE
            and 0 <= found["mad"] < HUGE
            and 1 <= n < HUGE
            and 1 <= found["launches"] < HUGE
            and deciles[0] > 0
            and deciles[8] < HUGE
            and all(map(le, deciles, deciles[1:]))
        )
    except (KeyError, TypeError, ValueError, RecursionError, UnusableError):
        return None
    # A key's colon stands outside of texts: with no more colons, no key stands twice.
    colons = len(found) + len(conditions) + benchmark.count(":") + date.count(":") if good else 0
    for value in conditions.values() if good else ():
        kind = type(value)
        if kind is float or kind is int:
            good = good and -HUGE < value < HUGE
        elif kind is str:
            colons += value.count(":")
        elif kind is not bool and value is not None:
            return None
    if not good or "\\" in text or text.count(":") != colons:
        return None
    return found, machine, setup


@lru_cache(maxsize=4096)
def _machine(text: str) -> Json:
    return a_plain_object(parsed(text))


@lru_cache(maxsize=4096)
def _setup(text: str) -> _Setup:
    return _checked_setup("setup", parsed(text))


def _checked_setup(where: str, data: Any) -> _Setup:
    values = checked(where, data, _SETUP)
    return _Setup(**values, program=program(values["source"], values["launch"]))


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
                f"{placed(first)} and {placed(place)} contradict each other on {fact.benchmark}: "
                "two branches changed it, delete the line that is wrong"
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


_NULLABLE = ("anchor", "commit")

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

_SESSION: dict[str, Check] = {**_MEASURED, "machine": a_plain_object, "setup": _anything}

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
