"""The text of a baseline file: written so that diffs and merges read well, read with suspicion.

``read_*`` raise ``UnusableError``, whose text says what is wrong in a phrase; only the store knows
the path and makes the sentence.
"""

from __future__ import annotations

import json
import marshal
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from pytest_gemm.baselines.records import Fact, Session
from pytest_gemm.stats import Estimate

FORMAT = 1
"""History. 1: first."""

Json = dict[str, Any]
Check = Callable[[Any], Any]
"""Returns the value as it is kept, or raises UnusableError: "is -1, not ..."."""

MIGRATIONS: dict[int, Callable[[Json], Json]] = {}
"""From a format to the next: takes and returns a whole file, without its ``format``."""

_DIGITS = 7
_HUGE = 2**63
_MOST_SHARED = 4096
_shared: dict[bytes, Json] = {}
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?Z")
_SHA256 = re.compile(r"(?:[0-9a-f]{64})?")


class UnusableError(Exception):
    """Why a file cannot be used. ``newer``: another version of pytest-gemm could."""

    def __init__(self, reason: str, *, newer: bool = False) -> None:
        super().__init__(reason)
        self.newer = newer


def read_sessions(text: str) -> tuple[str, str, list[Session]]:
    """Device, kernel, and the sessions in the file's order: newest first."""
    data = _checked("the file", _loaded(text), _SESSION_FILE)
    device, kernel = data["device"], data["kernel"]
    sessions = [
        _session(f"sessions[{i}]", entry, device, kernel)
        for i, entry in enumerate(data["sessions"])
    ]
    return device, kernel, _distinct(sessions)


def read_facts(text: str) -> tuple[str, dict[tuple[str, int, str], Fact]]:
    """Kernel, and its facts by key."""
    data = _checked("the file", _loaded(text), _FACT_FILE)
    facts: dict[tuple[str, int, str], Fact] = {}
    for i, entry in enumerate(data["facts"]):
        fact = _fact(f"facts[{i}]", entry, data["kernel"])
        if facts.setdefault(fact.key, fact) != fact:
            raise UnusableError(f"facts[{i}] contradicts another fact of {fact.benchmark}")
    return data["kernel"], facts


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
    names = {"device": session.device, "kernel": session.kernel}
    _checked("session", names, {"device": _text, "kernel": _text})
    return _session("session", _reread(session_line, session), session.device, session.kernel)


def checked_fact(fact: Fact) -> Fact:
    """The fact as it will be read back. Raises UnusableError where it would not be."""
    _checked("fact", {"kernel": fact.kernel}, {"kernel": _text})
    return _fact("fact", _reread(fact_line, fact), fact.kernel)


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


def _loaded(text: str) -> Json:
    try:
        data = json.loads(text, object_pairs_hook=_unique_keys)
    except json.JSONDecodeError as error:
        raise UnusableError(f"it is not JSON ({error.msg} in line {error.lineno})") from None
    except (ValueError, RecursionError) as error:
        raise UnusableError(f"it is not JSON ({error})") from None
    if not isinstance(data, dict):
        raise UnusableError("it is not a JSON object")
    return _migrated(data)


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


def _session(where: str, data: Any, device: str, kernel: str) -> Session:
    value = _checked(where, data, _SESSION)
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
    return Fact(kernel, **_checked(where, data, _FACT))


def _checked(where: str, data: Any, checks: Mapping[str, Check]) -> Json:
    """Every key that has a check, and no other, each with its value checked."""
    if not isinstance(data, dict):
        raise UnusableError(f"{where} is {_shown(data)}, not an object")
    if data.keys() != checks.keys():
        for key in sorted(checks.keys() - data.keys()):
            raise UnusableError(f"{where} lacks {key!r}")
        for key in sorted(data.keys() - checks.keys()):
            raise UnusableError(f"{where} has the unknown key {_shown(key)}")
    return {key: _field(where, key, data[key], check) for key, check in checks.items()}


def _field(where: str, key: str, value: Any, check: Check) -> Any:
    try:
        return check(value)
    except UnusableError as error:
        raise UnusableError(f"{where}: {key} {error}") from None


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise UnusableError(f"is {_shown(value)}, not a list")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value or not value.isprintable():
        raise UnusableError(f"is {_shown(value)}, not a printable text")
    return sys.intern(value)


def _optional_text(value: Any) -> str | None:
    return None if value is None else _text(value)


def _date(value: Any) -> str:
    if isinstance(value, str) and _DATE.fullmatch(value):
        with suppress(ValueError):
            datetime.fromisoformat(value)
            return value
    raise UnusableError(f"is {_shown(value)}, not a UTC date such as 2025-01-31T23:59:59Z")


def _sha256(value: Any) -> str:
    if not isinstance(value, str) or not _SHA256.fullmatch(value):
        raise UnusableError(f"is {_shown(value)}, not a SHA-256")
    return sys.intern(value)


def _whole(value: Any) -> int:
    if type(value) is not int or not abs(value) < _HUGE:
        raise UnusableError(f"is {_shown(value)}, not a usable whole number")
    return value


def _count(value: Any) -> int:
    if _whole(value) < 1:
        raise UnusableError(f"is {_shown(value)}: a count is at least 1")
    return int(value)


def _number(value: Any) -> float:
    if type(value) not in (int, float) or not abs(value) < _HUGE:
        raise UnusableError(f"is {_shown(value)}, not a finite number")
    return value  # type: ignore[no-any-return]


def _deviation(value: Any) -> float:
    seconds = float(_number(value))
    if seconds < 0:
        raise UnusableError(f"is {_shown(value)}: a deviation is not negative")
    return seconds


def _seconds(value: Any) -> float:
    seconds = float(_number(value))
    if seconds <= 0:
        raise UnusableError(f"is {_shown(value)}: seconds are above 0")
    return seconds


def _deciles(value: Any) -> tuple[float, ...]:
    seconds = tuple(_seconds(entry) for entry in _list(value))
    if len(seconds) != 9 or list(seconds) != sorted(seconds):
        raise UnusableError("is not nine rising numbers")
    return seconds


def _plain(value: Any, depth: int = 4) -> Any:
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, list) and depth:
        return [_plain(entry, depth - 1) for entry in value]
    if isinstance(value, dict) and depth:
        return {_text(key): _plain(value[key], depth - 1) for key in value}
    return _number(value)


def _mapping(value: Any) -> Json:
    """Equal ones are checked once and shared: most sessions have the environment of others."""
    if not isinstance(value, dict):
        raise UnusableError(f"is {_shown(value)}, not an object")
    try:
        # Version 2 has no back references, so equal values (of equal types) have equal bytes.
        content = marshal.dumps(value, 2)
    except ValueError:
        raise UnusableError("is too deeply nested") from None
    if content not in _shared:
        if len(_shared) >= _MOST_SHARED:
            _shared.clear()
        _shared[content] = {_text(key): _plain(value[key]) for key in value}
    return _shared[content]


def _counters(value: Any) -> dict[str, float]:
    return {key: _number(count) for key, count in _mapping(value).items()}


def _shown(value: Any) -> str:
    """A short rendering on one line, of anything."""
    if type(value) is int and abs(value) >= _HUGE:
        return "a huge number"
    text = ascii(value) if isinstance(value, str | int | float | None) else type(value).__name__
    return text if len(text) <= 40 else f"{text[:36]}..."


_ESTIMATE = ("median", "low", "high", "mad", "deciles")

_SESSION: dict[str, Check] = {
    "benchmark": _text,
    "commit": _optional_text,
    "date": _date,
    "deciles": _deciles,
    "environment": _mapping,
    "high": _seconds,
    "launch": _mapping,
    "launches": _count,
    "low": _seconds,
    "mad": _deviation,
    "median": _seconds,
    "n": _count,
    "recipe": _text,
    "seed": _whole,
    "settings": _mapping,
    "source": _sha256,
}

_FACT: dict[str, Check] = {
    "benchmark": _text,
    "counters": _counters,
    "digest": _text,
    "recipe": _text,
    "seed": _whole,
}

_SESSION_FILE: dict[str, Check] = {"device": _text, "kernel": _text, "sessions": _list}
_FACT_FILE: dict[str, Check] = {"facts": _list, "kernel": _text}
