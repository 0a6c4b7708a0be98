"""Checks of the values in stored files.

A check returns the value as it is kept, or raises ``UnusableError`` with a phrase that says why
not: "is -1, not ...". Only the store knows the path and makes the sentence.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from itertools import pairwise
from typing import Any

Json = dict[str, Any]
Check = Callable[[Any], Any]

HUGE = 2**63
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?Z")
_SHA256 = re.compile(r"(?:[0-9a-f]{64})?")


class UnusableError(Exception):
    """Why a file cannot be used.

    ``newer``: another version of pytest-gemm could; ``remedy``: what to do, where that is better
    than to restore the file.
    """

    def __init__(self, reason: str, *, newer: bool = False, remedy: str = "") -> None:
        super().__init__(reason)
        self.newer = newer
        self.remedy = remedy


def parsed(text: str, first_line: int = 1) -> Any:
    """JSON without a key that stands twice; ``first_line`` is where the text begins in its file."""
    try:
        return json.loads(text, object_pairs_hook=_unique_keys)
    except json.JSONDecodeError as error:
        line = first_line - 1 + error.lineno
        raise UnusableError(f"it is not JSON ({error.msg} in line {line})") from None
    except (ValueError, RecursionError) as error:
        where = f" in line {first_line}" if first_line > 1 else ""
        raise UnusableError(f"it is not JSON ({error}{where})") from None


def _unique_keys(pairs: list[tuple[str, Any]]) -> Json:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands twice in one object")
    return found


def checked(where: str, data: Any, checks: Mapping[str, Check]) -> Json:
    """Every key that has a check, and no other, each with its value checked."""
    if not isinstance(data, dict):
        raise UnusableError(f"{where} is {shown(data)}, not an object")
    for key in sorted(checks.keys() - data.keys()):
        raise UnusableError(f"{where} lacks {key!r}")
    for key in sorted(data.keys() - checks.keys()):
        raise UnusableError(f"{where} has the unknown key {shown(key)}")
    kept = {}
    for key, check in checks.items():
        try:
            kept[key] = check(data[key])
        except UnusableError as error:
            raise UnusableError(f"{where}: {key} {error}") from None
    return kept


def a_list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise UnusableError(f"is {shown(value)}, not a list")
    return value


def a_text(value: Any) -> str:
    if not isinstance(value, str) or not value or not value.isprintable():
        raise UnusableError(f"is {shown(value)}, not a printable text")
    return sys.intern(value)


def a_text_or_none(value: Any) -> str | None:
    return None if value is None else a_text(value)


def a_date(value: Any) -> str:
    if isinstance(value, str) and _DATE.fullmatch(value):
        with suppress(ValueError):
            datetime.fromisoformat(value)
            return value
    raise UnusableError(f"is {shown(value)}, not a UTC date such as 2025-01-31T23:59:59Z")


def a_sha256(value: Any) -> str:
    if not isinstance(value, str) or not _SHA256.fullmatch(value):
        raise UnusableError(f"is {shown(value)}, not a SHA-256")
    return sys.intern(value)


def a_whole_number(value: Any) -> int:
    if type(value) is not int or not abs(value) < HUGE:
        raise UnusableError(f"is {shown(value)}, not a usable whole number")
    return value


def a_count(value: Any) -> int:
    if a_whole_number(value) < 1:
        raise UnusableError(f"is {shown(value)}: a count is at least 1")
    return int(value)


def a_number(value: Any) -> float:
    if type(value) not in (int, float) or not abs(value) < HUGE:
        raise UnusableError(f"is {shown(value)}, not a finite number")
    return value  # type: ignore[no-any-return]


def a_deviation(value: Any) -> float:
    seconds = float(a_number(value))
    if seconds < 0:
        raise UnusableError(f"is {shown(value)}: a deviation is not negative")
    return seconds


def a_time(value: Any) -> float:
    seconds = float(a_number(value))
    if seconds <= 0:
        raise UnusableError(f"is {shown(value)}: seconds are above 0")
    return seconds


def nine_deciles(value: Any) -> tuple[float, ...]:
    seconds = tuple(map(a_time, a_list(value)))
    if len(seconds) != 9 or any(before > after for before, after in pairwise(seconds)):
        raise UnusableError("is not nine rising numbers")
    return seconds


def a_plain_object(value: Any) -> Json:
    """Texts, finite numbers, booleans and None, in at most four levels."""
    if not isinstance(value, dict):
        raise UnusableError(f"is {shown(value)}, not an object")
    return {known_text(key): _plain(value[key]) for key in value}


def counters(value: Any) -> dict[str, float]:
    return {key: a_number(count) for key, count in a_plain_object(value).items()}


known_text = lru_cache(maxsize=4096)(a_text)
"""``a_text`` for what recurs."""


def _plain(value: Any, depth: int = 4) -> Any:
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, list) and depth:
        return [_plain(entry, depth - 1) for entry in value]
    if isinstance(value, dict) and depth:
        return {known_text(key): _plain(value[key], depth - 1) for key in value}
    return a_number(value)


def shown(value: Any) -> str:
    """A short rendering on one line, of anything."""
    if type(value) is int and abs(value) >= HUGE:
        return "a huge number"
    text = ascii(value) if isinstance(value, str | int | float | None) else type(value).__name__
    return text if len(text) <= 40 else f"{text[:36]}..."
