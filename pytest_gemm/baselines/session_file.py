"""One file of sessions: its lines by benchmark, read as they are asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from pytest_gemm.baselines.checks import UnusableError
from pytest_gemm.baselines.records import Series, Session, distinct, grouped
from pytest_gemm.baselines.schema import (
    Fields,
    Line,
    is_pinned,
    median_of,
    read_frame,
    read_sessions,
    session_line,
    setup_of,
    split_lines,
    write_sessions,
)

SESSIONS_KEPT = 20
"""The newest sessions of a series, of one epoch, that stay in its file and are compared with."""


class SessionFile:
    """The sessions of one device and kernel.

    Reading a benchmark checks its lines alone, so that damage stays where it is, and a store of
    many sessions is read quickly; ``check`` reads all. Each raises UnusableError.
    """

    def __init__(self, device: str, kernel: str) -> None:
        self.device = device
        self.kernel = kernel
        self._fields: dict[str, list[Fields]] = {}

    @classmethod
    def parse(cls, text: str) -> SessionFile:
        """Take a file's text apart. Raises UnusableError."""
        frame = read_frame(text)
        file = cls(frame.names["device"], frame.names["kernel"])
        file._fields = split_lines(frame.entries)
        if not file._fields:
            raise UnusableError("it holds no session")
        return file

    @property
    def benchmarks(self) -> Iterable[str]:
        return self._fields.keys()

    def check(self) -> None:
        """Read everything."""
        for benchmark in self._fields:
            self.sessions(benchmark)

    def sessions(self, benchmark: str) -> list[Session]:
        """Every session of a benchmark, oldest first."""
        return self._read(self._lines(benchmark))

    def series(self, benchmark: str) -> tuple[Series, ...]:
        """Every series of a benchmark; the one that was added to last comes last."""
        return grouped(self._read(_recent(self._lines(benchmark))))

    def reference(self, benchmark: str) -> Series | None:
        """The last series alone, its sessions without their deciles."""
        lines = self._lines(benchmark)
        if not lines:
            return None
        newest = lines[-1]
        alike = [x for x in lines if x.shared is newest.shared or x.program == newest.program]
        return Series(tuple(self._read(_recent(alike), deciles=False)))

    def anchor(self, benchmark: str) -> Series | None:
        """The sessions that were pinned last."""
        fields = self._fields.get(benchmark, ())
        lines = [Line(*each) for each in fields if is_pinned(each[1])]
        pinned = self._read(lines) if lines else []
        release = next((s.anchor for s in reversed(pinned) if s.anchor), None)
        found = tuple(s for s in pinned if s.anchor == release)
        return Series(found) if release else None

    def medians(self, benchmark: str) -> tuple[float, ...]:
        """Seconds, oldest first: the reference's sessions that share the newest one's epoch."""
        fields = self._fields.get(benchmark, [])[-SESSIONS_KEPT:]
        newest = fields[-1][2] if fields else ""
        alike = {
            measured: place
            for place, measured, shared in fields
            if shared is newest or setup_of(shared) == setup_of(newest)
        }
        return tuple(median_of(place, measured) for measured, place in alike.items())

    def changed(self, sessions: Mapping[str, Sequence[Session]]) -> str:
        """The file's text with other sessions for some benchmarks; empty where none is left.

        The lines of the rest keep every byte.
        """
        lines: list[str] = []
        for benchmark in sorted(self._fields.keys() | sessions.keys()):
            if benchmark in sessions:
                lines += map(session_line, sessions[benchmark])
            else:
                lines += dict.fromkeys(line.text for line in self._lines(benchmark))
        return write_sessions(self.device, self.kernel, lines) if lines else ""

    def _lines(self, benchmark: str) -> list[Line]:
        return [Line(*fields) for fields in self._fields.get(benchmark, ())]

    def _read(self, lines: Sequence[Line], *, deciles: bool = True) -> list[Session]:
        return distinct(read_sessions(lines, self.device, self.kernel, deciles=deciles))


def _recent(lines: Sequence[Line]) -> list[Line]:
    """Of each epoch the last lines: a pinned session of long ago is no part of its series."""
    if len(lines) <= SESSIONS_KEPT:
        return list(lines)
    seen: Counter[str] = Counter()
    kept = []
    for line in reversed(lines):
        seen[line.shared] += 1
        if seen[line.shared] <= SESSIONS_KEPT:
            kept.append(line)
    return kept[::-1]
