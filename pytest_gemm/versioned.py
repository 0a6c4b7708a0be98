"""JSON documents with a format and a version, as commands keep what they found."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from pytest_gemm.errors import ConfigError

T = TypeVar("T")


def read_versioned(
    path: Path,
    parse: Callable[[Mapping[str, Any]], T],
    *,
    format: str,
    version: int,
    part: str,
    again: str,
) -> T:
    """What ``parse`` makes of a document of that format, which is the command that writes it.

    Raises ConfigError, with the file's name: ``part`` says what is damaged, ``again`` the way out.
    """
    data = read_json(path)
    if not isinstance(data, dict) or data.get("format") != format:
        raise ConfigError(f"{path}: it is no result of {format}")
    if data.get("version") != version:
        raise ConfigError(
            f"{path}: its version is {data.get('version')!r} and {version} can be read: use the "
            f"pytest-gemm that wrote it, or {again}"
        )
    with damage_told(f"{path}: {part}", again):
        return parse(data)


def read_json(path: Path) -> Any:
    """What a file of JSON holds. Raises ConfigError, with the file's name."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: it cannot be read ({error.strerror})") from None
    except json.JSONDecodeError as error:
        raise ConfigError(f"{path}: it is not JSON ({error.msg} in line {error.lineno})") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: it is not JSON ({error})") from None


@contextmanager
def damage_told(what: str, again: str) -> Iterator[None]:
    """Whatever goes wrong in what a document holds is a ConfigError, and ``again`` the way out."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        told = f"{type(error).__name__}: {error}".splitlines()[0]
        raise ConfigError(f"{what} is damaged ({told}): {again}") from None
