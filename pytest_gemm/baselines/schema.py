"""The text of a baseline file: written so that diffs and merges read well, read with suspicion.

``read_*`` raise ``UnusableError``, whose text says what is wrong in a phrase; only the store knows
the path and makes the sentence.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from pytest_gemm.baselines.records import Fact, Session
from pytest_gemm.stats import Estimate

FORMAT = 1
"""History. 1: first."""

Json = dict[str, Any]

MIGRATIONS: dict[int, Callable[[Json], Json]] = {}
"""From a format to the next: takes and returns a whole file, without its ``format``."""

_DIGITS = 7
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?Z")
_SHA256 = re.compile(r"(?:[0-9a-f]{64})?")


class UnusableError(Exception):
    """Why a file cannot be used. ``newer``: another version of pytest-gemm could."""

    def __init__(self, reason: str, *, newer: bool = False) -> None:
        super().__init__(reason)
        self.newer = newer


def read_sessions(text: str) -> tuple[str, str, list[Session]]:
    """Device, kernel, and the sessions in the file's order: newest first."""
    data = _file(text, ("device", "kernel", "sessions"))
    device, kernel = _text("device", data["device"]), _text("kernel", data["kernel"])
    sessions = [
        _session(f"sessions[{i}]", entry, device, kernel)
        for i, entry in enumerate(_list("sessions", data["sessions"]))
    ]
    return device, kernel, _distinct(sessions)


def read_facts(text: str) -> tuple[str, dict[tuple[str, int, str], Fact]]:
    """Kernel, and its facts by key."""
    data = _file(text, ("facts", "kernel"))
    kernel = _text("kernel", data["kernel"])
    facts: dict[tuple[str, int, str], Fact] = {}
    for i, entry in enumerate(_list("facts", data["facts"])):
        fact = _fact(f"facts[{i}]", entry, kernel)
        if facts.setdefault(fact.key, fact) != fact:
            raise UnusableError(f"facts[{i}] contradicts another fact of {fact.benchmark}")
    return kernel, facts


def write_sessions(device: str, kernel: str, sessions: Iterable[Session]) -> str:
    """One line for each session, in the order given (newest first)."""
    header = {"device": device, "format": FORMAT, "kernel": kernel}
    return _dump(header, "sessions", [session_line(session) for session in sessions])


def write_facts(kernel: str, facts: Iterable[Fact]) -> str:
    """One line for each fact, sorted."""
    lines = [fact_line(fact) for fact in sorted(facts, key=lambda fact: fact.key)]
    return _dump({"format": FORMAT, "kernel": kernel}, "facts", lines)


def session_line(session: Session) -> str:
    estimate = session.estimate
    return _line(
        {
            "benchmark": session.benchmark,
            "commit": session.commit,
            "date": session.date,
            "deciles": [_rounded(value) for value in estimate.deciles],
            "environment": session.environment,
            "high": _rounded(estimate.high),
            "launch": session.launch,
            "launches": session.launches,
            "low": _rounded(estimate.low),
            "mad": _rounded(estimate.mad),
            "median": _rounded(estimate.median),
            "n": estimate.n,
            "recipe": session.recipe,
            "seed": session.seed,
            "settings": session.settings,
            "source": session.source,
        }
    )


def fact_line(fact: Fact) -> str:
    return _line(
        {
            "benchmark": fact.benchmark,
            "counters": fact.counters,
            "digest": fact.digest,
            "recipe": fact.recipe,
            "seed": fact.seed,
        }
    )


def checked_session(session: Session) -> Session:
    """The session as it will be read back. Raises UnusableError where it would not be."""
    device, kernel = _text("device", session.device), _text("kernel", session.kernel)
    return _session("session", _reread(session_line, session), device, kernel)


def checked_fact(fact: Fact) -> Fact:
    """The fact as it will be read back. Raises UnusableError where it would not be."""
    return _fact("fact", _reread(fact_line, fact), _text("kernel", fact.kernel))


def _reread(line: Callable[[Any], str], record: Session | Fact) -> Any:
    try:
        return json.loads(line(record))
    except (TypeError, ValueError, RecursionError) as error:
        raise UnusableError(f"it is not plain data ({error})") from None


# Writing


def _dump(header: Json, name: str, lines: Sequence[str]) -> str:
    fields = [f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in header.items()]
    body = ",\n".join(f"    {line}" for line in lines)
    fields.append(f'  "{name}": [\n{body}\n  ]')
    return "{\n" + ",\n".join(sorted(fields)) + "\n}\n"


def _line(record: Mapping[str, Any]) -> str:
    return json.dumps(record, sort_keys=True, allow_nan=False)


def _rounded(seconds: float) -> float:
    return float(f"{seconds:.{_DIGITS}g}")


# Reading


def _file(text: str, keys: Sequence[str]) -> Json:
    try:
        data = json.loads(text, object_pairs_hook=_unique_keys, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise UnusableError(f"it is not JSON ({error.msg} in line {error.lineno})") from None
    except (ValueError, RecursionError) as error:
        raise UnusableError(f"it is not JSON ({error})") from None
    if not isinstance(data, dict):
        raise UnusableError("it is not a JSON object")
    return _keys("the file", _migrated(data), keys)


def _migrated(data: Json) -> Json:
    version = data.pop("format", None)
    if type(version) is not int or version < 1:
        raise UnusableError(f"its format is {_shown(version)}, which is not a version")
    if version > FORMAT:
        raise UnusableError(f"its format is {_shown(version)}, newer than {FORMAT}", newer=True)
    for step in range(version, FORMAT):
        try:
            data = MIGRATIONS[step](data)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError):
            raise UnusableError(f"it cannot be brought from format {step} to {step + 1}") from None
    return data


def _unique_keys(pairs: list[tuple[str, Any]]) -> Json:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands twice in one object")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number that can be stored")


def _session(where: str, data: Any, device: str, kernel: str) -> Session:
    _keys(where, data, _SESSION)
    value = {key: check(f"{where}.{key}", data[key]) for key, check in _SESSION.items()}
    estimate = Estimate(*(value.pop(key) for key in ("n", *_ESTIMATE)))
    if not estimate.low <= estimate.median <= estimate.high:
        raise UnusableError(f"{where}.median does not lie between low and high")
    return Session(device=device, kernel=kernel, estimate=estimate, **value)


def _distinct(sessions: Iterable[Session]) -> list[Session]:
    """A union merge may keep a line twice."""
    seen: dict[tuple[str, str], list[Session]] = {}
    kept = []
    for session in sessions:
        same_time = seen.setdefault((session.date, session.benchmark), [])
        if session not in same_time:
            same_time.append(session)
            kept.append(session)
    return kept


def _fact(where: str, data: Any, kernel: str) -> Fact:
    _keys(where, data, _FACT)
    return Fact(kernel, **{key: check(f"{where}.{key}", data[key]) for key, check in _FACT.items()})


def _keys(where: str, data: Any, keys: Iterable[str]) -> Json:
    if not isinstance(data, dict):
        raise UnusableError(f"{where} is {_shown(data)}, not an object")
    expected = set(keys)
    for key in sorted(expected - data.keys()):
        raise UnusableError(f"{where} lacks {key!r}")
    for key in sorted(data.keys() - expected):
        raise UnusableError(f"{where} has the unknown key {_shown(key)}")
    return data


def _list(where: str, value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise UnusableError(f"{where} is {_shown(value)}, not a list")
    return value


def _text(where: str, value: Any) -> str:
    if not isinstance(value, str) or not value or not value.isprintable():
        raise UnusableError(f"{where} is {_shown(value)}, not a printable text")
    return value


def _optional_text(where: str, value: Any) -> str | None:
    return None if value is None else _text(where, value)


def _date(where: str, value: Any) -> str:
    try:
        if _DATE.fullmatch(_text(where, value)):
            datetime.fromisoformat(value)
            return str(value)
    except ValueError:
        pass
    raise UnusableError(f"{where} is {_shown(value)}, not a UTC date such as 2025-01-31T23:59:59Z")


def _sha256(where: str, value: Any) -> str:
    if not isinstance(value, str) or not _SHA256.fullmatch(value):
        raise UnusableError(f"{where} is {_shown(value)}, not a SHA-256")
    return value


def _whole(where: str, value: Any, least: int = -(2**63)) -> int:
    if type(value) is not int or not least <= value < 2**63:
        raise UnusableError(f"{where} is {_shown(value)}, not a usable whole number")
    return value


def _count(where: str, value: Any) -> int:
    return _whole(where, value, least=1)


def _number(where: str, value: Any) -> float:
    if type(value) not in (int, float) or not abs(value) < 2**63:
        raise UnusableError(f"{where} is {_shown(value)}, not a finite number")
    return value  # type: ignore[no-any-return]


def _deviation(where: str, value: Any) -> float:
    seconds = float(_number(where, value))
    if seconds < 0:
        raise UnusableError(f"{where} is {_shown(value)}: a deviation is not negative")
    return seconds


def _seconds(where: str, value: Any) -> float:
    seconds = float(_number(where, value))
    if seconds <= 0:
        raise UnusableError(f"{where} is {_shown(value)}: seconds are above 0")
    return seconds


def _deciles(where: str, value: Any) -> tuple[float, ...]:
    seconds = tuple(_seconds(where, entry) for entry in _list(where, value))
    if len(seconds) != 9 or list(seconds) != sorted(seconds):
        raise UnusableError(f"{where} is not nine rising numbers")
    return seconds


def _plain(where: str, value: Any, depth: int = 4) -> Any:
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, list) and depth:
        return [_plain(where, entry, depth - 1) for entry in value]
    if isinstance(value, dict) and depth:
        return {_text(where, key): _plain(where, value[key], depth - 1) for key in value}
    return _number(where, value)


def _facts_of(where: str, value: Any) -> Json:
    if not isinstance(value, dict):
        raise UnusableError(f"{where} is {_shown(value)}, not an object")
    return {_text(where, key): _plain(f"{where}.{key}", value[key]) for key in value}


def _counters(where: str, value: Any) -> dict[str, float]:
    return {key: _number(f"{where}.{key}", count) for key, count in _facts_of(where, value).items()}


def _shown(value: Any) -> str:
    """A short rendering on one line, of anything."""
    if type(value) is int and abs(value) >= 2**63:
        return "a huge number"
    text = ascii(value) if isinstance(value, str | int | float | None) else type(value).__name__
    return text if len(text) <= 40 else f"{text[:36]}..."


_ESTIMATE = ("median", "low", "high", "mad", "deciles")

_SESSION: dict[str, Callable[[str, Any], Any]] = {
    "benchmark": _text,
    "commit": _optional_text,
    "date": _date,
    "deciles": _deciles,
    "environment": _facts_of,
    "high": _seconds,
    "launch": _facts_of,
    "launches": _count,
    "low": _seconds,
    "mad": _deviation,
    "median": _seconds,
    "n": _count,
    "recipe": _text,
    "seed": _whole,
    "settings": _facts_of,
    "source": _sha256,
}

_FACT: dict[str, Callable[[str, Any], Any]] = {
    "benchmark": _text,
    "counters": _counters,
    "digest": _text,
    "recipe": _text,
    "seed": _whole,
}
