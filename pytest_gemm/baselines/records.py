"""The records that are stored: plain values, compared and grouped here, written elsewhere."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from pytest_gemm.stats import Estimate

EPOCH_KEYS = (
    "compiler",
    "compiler_version",
    "flags",
    "runtime",
    "driver",
    "cuda",
    "nvrtc",
    "cupy",
    "numpy",
)
"""The parts of an environment that change what a kernel compiles to or how it is launched."""

VARYING_KEYS = ("canary_s", "load", "power", "temperature", "utilisation")
"""The parts that no two sessions share. Only the layout of a stored line depends on it."""


class Session(NamedTuple):
    """One benchmark as one process measured it; a tuple, as stores hold hundreds of thousands.

    ``date`` is UTC, ``YYYY-MM-DDTHH:MM:SSZ`` or with a fraction of the second. ``estimate`` is in
    seconds per launch, each sample over ``launches`` launches. ``source`` is the SHA-256 of the
    kernel's source (empty where there is none to store); ``launch`` is how it is launched: entry,
    macros, grid, block, shared memory. ``environment`` is what may change on the same device;
    ``settings`` is what must not differ between sessions that are compared, beside seed and recipe.
    ``anchor`` names the release that the session is pinned for.
    """

    device: str
    kernel: str
    benchmark: str
    date: str
    estimate: Estimate
    launches: int
    seed: int
    recipe: str
    source: str
    launch: Mapping[str, Any]
    environment: Mapping[str, Any]
    settings: Mapping[str, Any]
    commit: str | None = None
    anchor: str | None = None

    @property
    def program(self) -> str:
        """Names source and launch together: sessions of one program form a series."""
        return program(self.source, self.launch)

    @property
    def epoch(self) -> str:
        """Names all that makes times incomparable: method and settings, operands, toolchain."""
        return _short_hash([self.seed, self.recipe, self.settings, epoch(self.environment)])

    @property
    def conditions(self) -> dict[str, Any]:
        """Everything that must be equal before two sessions are compared."""
        return {
            "device": self.device,
            "benchmark": self.benchmark,
            "seed": self.seed,
            "recipe": self.recipe,
            **self.settings,
        }


@dataclass(frozen=True)
class Series:
    """The stored sessions of one benchmark with one program on one device, oldest first."""

    sessions: tuple[Session, ...]

    @property
    def newest(self) -> Session:
        return self.sessions[-1]

    @property
    def program(self) -> str:
        return self.newest.program


@dataclass(frozen=True)
class Fact:
    """What holds on every machine for a benchmark, a seed and a recipe of operands.

    ``digest`` names the bits of C; ``counters`` are exact numbers by name.
    """

    kernel: str
    benchmark: str
    seed: int
    recipe: str
    digest: str
    counters: Mapping[str, float] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, int, str]:
        return self.benchmark, self.seed, self.recipe

    def merged(self, newer: Fact) -> Fact:
        """The newer fact; counters that it lacks are kept as long as the digest is the same."""
        kept = self.counters if self.digest == newer.digest else {}
        return replace(newer, counters={**kept, **newer.counters})


def differing(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """The keys whose values differ, sorted. A missing key is None; a tuple equals a list."""

    if before == now:
        return []

    def plain(value: Any) -> str:
        return json.dumps(value, sort_keys=True, default=str)

    pairs = ((key, before.get(key), now.get(key)) for key in sorted({*before, *now}))
    return [key for key, old, new in pairs if old != new and plain(old) != plain(new)]


def family(kernel: str) -> str:
    """The kernel without its parameters: ``block_size[SIDE:16]`` is of ``block_size``."""
    return kernel.partition("[")[0] or kernel


def epoch(environment: Mapping[str, Any]) -> dict[str, Any]:
    """The part of an environment that opens a new epoch when it changes."""
    return {key: environment[key] for key in EPOCH_KEYS if key in environment}


def source_hash(source: str) -> str:
    """The SHA-256 of a source's UTF-8 bytes, in hex."""
    return hashlib.sha256(source_bytes(source)).hexdigest()


def source_bytes(source: str) -> bytes:
    return source.encode("utf-8", "surrogateescape")


def grouped(sessions: Iterable[Session]) -> tuple[Series, ...]:
    """Sessions of one benchmark, oldest first, as series; the series with the newest comes last."""
    programs: dict[str, list[Session]] = {}
    for session in reversed(list(sessions)):
        programs.setdefault(session.program, []).append(session)
    return tuple(Series(tuple(reversed(group))) for group in reversed(programs.values()))


def distinct(sessions: Iterable[Session]) -> list[Session]:
    """Sessions of one benchmark, each once: merged branches may both hold one.

    Where one branch pinned it, it is pinned.
    """
    sessions = list(sessions)
    if len({session.date for session in sessions}) == len(sessions):
        return sessions
    kept: dict[str, list[Session]] = {}
    for session in sessions:
        same_date = kept.setdefault(session.date, [])
        for i, other in enumerate(same_date):
            if session._replace(anchor=other.anchor) == other:
                same_date[i] = other._replace(anchor=other.anchor or session.anchor)
                break
        else:
            same_date.append(session)
    return [session for same_date in kept.values() for session in same_date]


def newest(sessions: Sequence[Session], keep: int) -> list[Session]:
    """What stays of one benchmark's sessions, oldest first: pruning that needs no question.

    Of each series the last ``keep`` of each epoch, and whatever is pinned.
    """
    seen: Counter[tuple[str, str]] = Counter()
    kept = []
    for session in reversed(sessions):
        key = session.program, session.epoch
        seen[key] += 1
        if seen[key] <= keep or session.anchor:
            kept.append(session)
    return kept[::-1]


def program(source: str, launch: Mapping[str, Any]) -> str:
    """``Session.program`` of what it is made of."""
    return _short_hash([source, launch])


def _short_hash(value: Any) -> str:
    text = json.dumps(value, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
