"""What a run leaves behind, in one JSON document: every report of the run is made from it alone.

::

    {"format": 1, "date": ..., "commit": ..., "baseline": ..., "partial": ..., "missing": [...],
     "records": [...], "history": {"tiled-512x512x512-float32": [...]}, "studies": [...]}
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime
from pathlib import Path
from typing import Any

from pytest_gemm.baselines import BaselineStore, Session
from pytest_gemm.errors import BaselineError, ConfigError
from pytest_gemm.record import Record
from pytest_gemm.versioned import read_json

FORMAT = 1
"""1: the first. ``history`` and ``studies`` joined later, and may be missing."""

SESSIONS = 20
"""The newest stored sessions of a benchmark that its history shows."""

DIGITS = 6
"""Significant digits of a stored session's times here: the files keep them whole."""

DECIDED = frozenset({"slower", "faster", "drifted", "inconclusive", "withheld"})
"""Gates whose old times are shown beside the new ones: their sessions come with deciles."""


@dataclass(frozen=True)
class Past:
    """A stored session of a benchmark, in seconds per launch.

    ``date`` is UTC. ``program`` names source and launch, ``epoch`` the method and the toolchain,
    both shortened; ``deciles`` may be empty; ``anchor`` is the release it is pinned for.
    """

    date: str
    median: float
    low: float
    high: float
    program: str
    epoch: str
    commit: str = ""
    anchor: str = ""
    deciles: tuple[float, ...] = ()

    @classmethod
    def of(cls, session: Session, *, deciles: bool) -> Past:
        """What a report keeps of a session."""
        estimate = session.estimate
        return cls(
            session.date[:19] + "Z",
            _rounded(estimate.median),
            _rounded(estimate.low),
            _rounded(estimate.high),
            session.program[:8],
            session.epoch[:8],
            (session.commit or "")[:12],
            session.anchor or "",
            tuple(map(_rounded, estimate.deciles)) if deciles else (),
        )


@dataclass(frozen=True)
class Document:
    """A run, as it is written: see docs/running.md for the fields.

    ``history`` has the stored sessions that a benchmark was held against, oldest first, by its
    id; ``studies`` are results of ``pytest-gemm study``, as plain values.
    """

    date: str
    commit: str | None
    baseline: str
    partial: bool
    missing: tuple[str, ...]
    records: tuple[Record, ...]
    history: Mapping[str, tuple[Past, ...]] = field(default_factory=dict)
    studies: tuple[Mapping[str, Any], ...] = ()

    def to_json(self) -> str:
        """The document's text: one line for each record and each history."""
        parts = [
            f'"format": {FORMAT}',
            *(f'"{name}": {_json(getattr(self, name))}' for name in _HEAD),
            f'"records": {_lines(_json(record.to_dict()) for record in self.records)}',
            f'"history": {_lines(map(_series, self.history.items()), "{}")}',
            f'"studies": {_lines(map(_json, self.studies))}',
        ]
        return "{\n" + ",\n".join(parts) + "\n}\n"


_HEAD = ("date", "commit", "baseline", "partial", "missing")
_PAST = tuple(f.name for f in fields(Past))


def read(path: Path) -> Document:
    """The document in a file. Raises ConfigError, with the file's name."""
    data = read_json(path)
    try:
        return document_of(data)
    except ValueError as error:
        raise ConfigError(f"{path}: {str(error).splitlines()[0]}") from None


def parsed(text: str) -> Document:
    """The document that a text holds. Raises ValueError."""
    return document_of(json.loads(text))


def document_of(data: Any) -> Document:
    """The document that plain values are. Raises ValueError."""
    if not isinstance(data, dict) or not isinstance(data.get("records"), list):
        raise ValueError(
            "it is no result of pytest --gemm-report=FILE.json, nor of pytest-gemm study"
        )
    if data.get("format") != FORMAT:
        raise ValueError(
            f"its format is {data.get('format')!r} and {FORMAT} can be read: use the pytest-gemm "
            "that wrote it"
        )
    try:
        return Document(
            *(data["date"], data["commit"], data["baseline"], data["partial"]),
            tuple(data["missing"]),
            tuple(Record.from_dict(record) for record in data["records"]),
            {name: tuple(map(_past, rows)) for name, rows in data.get("history", {}).items()},
            tuple(data.get("studies", ())),
        )
    except (LookupError, TypeError, AttributeError, ArithmeticError) as error:
        what = f"{type(error).__name__}: {error}"
        raise ValueError(f"a record in it is damaged ({what}): run pytest again") from None


def history(store: BaselineStore, records: Iterable[Record]) -> dict[str, tuple[Past, ...]]:
    """The stored sessions of every timed case, by its id; what cannot be read is left out."""
    found = {}
    for record in records:
        case, device = record.case, record.result.device.get("name")
        if device is None or record.result.estimate is None:
            continue
        with suppress(BaselineError):
            if sessions := store.sessions(device, case.kernel.id, case.id)[-SESSIONS:]:
                wanted = record.gate in DECIDED
                found[case.id] = tuple(Past.of(session, deciles=wanted) for session in sessions)
    return found


def _series(item: tuple[str, Sequence[Past]]) -> str:
    """A history as rows of values in the order of ``Past``."""
    name, sessions = item
    return f"{_json(name)}: {_json([[*asdict(past).values()] for past in sessions])}"


def _past(row: Sequence[Any]) -> Past:
    values = dict(zip(_PAST, row, strict=False))
    datetime.fromisoformat(values["date"])
    return Past(**values | {"deciles": tuple(values.get("deciles", ()))})


def _lines(texts: Iterable[str], brackets: str = "[]") -> str:
    body = ",\n".join(texts)
    return f"{brackets[0]}\n{body}\n{brackets[1]}" if body else brackets


def _json(value: Any) -> str:
    return json.dumps(value)


def _rounded(seconds: float) -> float:
    return float(f"{seconds:.{DIGITS}g}")
