"""The folder of stored baselines: reading, and one write at the end of a run.

::

    exact/<kernel>.json            what holds on every machine
    <device>/<kernel>.json         sessions: of each benchmark, oldest first
    <device>/calibration.json      what duets of equal kernels found there: see ``calibration``
    sources/<sha256>.cu or .py     the sources that were measured
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from pytest_gemm.baselines import schema
from pytest_gemm.baselines.checks import UnusableError
from pytest_gemm.baselines.files import (
    locked,
    read_regular,
    restoring,
    safe_name,
    write_atomically,
)
from pytest_gemm.baselines.records import (
    Fact,
    Series,
    Session,
    distinct,
    family,
    newest,
    source_bytes,
    source_hash,
)
from pytest_gemm.baselines.session_file import SESSIONS_KEPT, SessionFile
from pytest_gemm.errors import BaselineError

EXACT, SOURCES = "exact", "sources"
CALIBRATION = "calibration"
SUFFIXES = (".cu", ".py")

GIT_ATTRIBUTES = """\
# Lines that two branches added are both kept; a source must keep its bytes.
*.json merge=union
sources/* -text
"""


Change = Callable[[Sequence[Session]], Iterable[Session]]
"""Takes a benchmark's sessions, oldest first, and returns those to store."""


@dataclass(frozen=True)
class Flushed:
    """What a flush did: the files written, and why others were not."""

    written: tuple[Path, ...]
    refused: tuple[BaselineError, ...]


@dataclass
class _Queue:
    sessions: list[Session] = field(default_factory=list)
    facts: list[Fact] = field(default_factory=list)
    sources: dict[str, tuple[str, bytes]] = field(default_factory=dict)


class BaselineStore:
    """The baselines below one folder, which need not exist.

    Reading raises BaselineError for a file that cannot be used, and never changes anything.
    ``append`` and ``update_exact`` queue; ``flush`` writes. A kernel's variants
    (``block_size[SIDE:16]``) share the file of the kernel.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._queue = _Queue()
        self._files: dict[Path, SessionFile | None] = {}
        self._facts: dict[Path, dict[tuple[str, int, str], Fact]] = {}
        self._benchmarks: dict[str, tuple[str, ...]] = {}

    # Reading

    def load_exact(self, kernel: str) -> dict[tuple[str, int, str], Fact]:
        """The kernel's facts by (benchmark, seed, recipe)."""
        path = self._exact_path(kernel)
        if path not in self._facts:
            self._facts[path] = self._read_facts(path, family(kernel))
        return self._facts[path]

    def series(self, device: str, kernel: str, benchmark: str) -> tuple[Series, ...]:
        """Every series of a benchmark; the one that was added to last comes last."""
        with self._opened(device, kernel) as file:
            return file.series(benchmark)

    def reference(self, device: str, kernel: str, benchmark: str) -> Series | None:
        """The series that a new run is compared with: the one that was added to last.

        Whatever its program: a changed source must be compared with the source that was accepted,
        or the commit that made a kernel slower would pass as "new". Its sessions come without
        their deciles, by which nothing is decided.
        """
        with self._opened(device, kernel) as file:
            return file.reference(benchmark)

    def anchor(self, device: str, kernel: str, benchmark: str) -> Series | None:
        """The sessions pinned last, as ``baseline pin`` does for a release; None where none is."""
        with self._opened(device, kernel) as file:
            return file.anchor(benchmark)

    def sessions(self, device: str, kernel: str, benchmark: str) -> list[Session]:
        """All that is stored of a benchmark, whatever its series and epoch, oldest first."""
        with self._opened(device, kernel) as file:
            return file.sessions(benchmark)

    def benchmarks(self, device: str) -> tuple[str, ...]:
        """The ids stored for a device, sorted; files that cannot be used are left out."""
        if device not in self._benchmarks:
            found = (name for file in self._usable(device) for name in file.benchmarks)
            self._benchmarks[device] = tuple(sorted(set(found)))
        return self._benchmarks[device]

    def names(self, device: str) -> list[tuple[str, str]]:
        """Kernel (without parameters) and id of every benchmark stored for a device, sorted."""
        return sorted((f.kernel, name) for f in self._usable(device) for name in f.benchmarks)

    def medians(self, device: str) -> Iterator[tuple[float, ...]]:
        """Of every benchmark stored for a device, the medians that say how much sessions scatter.

        Those of the reference's sessions that share the newest one's epoch and conditions, in
        seconds, oldest first. They are read without the rest of their lines; what cannot be read
        is left out.
        """
        for file in self._usable(device):
            for benchmark in file.benchmarks:
                with suppress(UnusableError):
                    yield file.medians(benchmark)

    def unreadable(self, device: str) -> tuple[BaselineError, ...]:
        """One error for each of the device's files that cannot be used."""

        def check(path: Path) -> None:
            if file := self._file(path, device):
                file.check()

        return _damage(self._device_files(device), check)

    def unreadable_facts(self) -> tuple[BaselineError, ...]:
        """One error for each file of what is exact that cannot be used."""

        def check(path: Path) -> None:
            kernel, _ = schema.read_facts(_text(path) or "")
            if self._exact_path(kernel) != path:
                raise UnusableError(f"it belongs to the kernel {kernel!a}")

        return _damage(self.facts_of_others(()), check)

    def devices(self, kind: str = "") -> tuple[str, ...]:
        """The stored devices of a kind (``host`` or ``cuda``) or of any, sorted.

        A host's name begins with ``host-``, a GPU's does not.
        """
        return tuple(
            folder.name
            for folder in _listed(self.root)
            if folder.name not in (EXACT, SOURCES)
            and kind in ("", "host" if folder.name.startswith("host-") else "cuda")
            and any(map(_is_of_sessions, _listed(folder)))
        )

    def source(self, sha256: str) -> str:
        """A stored source. Raises BaselineError where it is missing or not what its name says."""
        for suffix in SUFFIXES:
            path = self.root / SOURCES / f"{safe_name(sha256)}{suffix}"
            content = _content(path)
            if content is None:
                continue
            text = content.decode("utf-8", "surrogateescape")
            if source_hash(text) == sha256:
                return text
            raise BaselineError(f"{path}: its content is not what its name says; {_way_out(path)}")
        raise BaselineError(f"no source {sha256} is stored in {self.root / SOURCES}")

    def calibration_path(self, device: str) -> Path:
        """Where the calibration of a device is stored, if it is."""
        return self.root / safe_name(device, (EXACT, SOURCES)) / f"{CALIBRATION}.json"

    def facts_of_others(self, kernels: Iterable[str]) -> list[Path]:
        """The files with facts of a kernel that is none of these."""
        known = set(map(self._exact_path, kernels))
        files = [path for path in _listed(self.root / EXACT) if path.suffix == ".json"]
        return [path for path in files if path not in known]

    # Writing

    def append(self, session: Session, source: str | None = None, suffix: str = ".cu") -> None:
        """Queue a session, and the source that it measured.

        Raises ValueError where the session could not be read back, or names another source.
        """
        if suffix not in SUFFIXES:
            raise ValueError(f"{suffix!r} is none of {', '.join(SUFFIXES)}")
        if session.source != (source_hash(source) if source is not None else ""):
            raise ValueError("session.source is not the hash of the source")
        try:
            checked = schema.checked_session(session)
        except UnusableError as error:
            raise ValueError(str(error)) from None
        self._queue.sessions.append(checked._replace(kernel=family(checked.kernel)))
        if source is not None:
            self._queue.sources[session.source] = suffix, source_bytes(source)

    def update_exact(self, fact: Fact) -> None:
        """Queue a fact; it replaces the stored one. Raises ValueError as ``append``."""
        try:
            checked = schema.checked_fact(fact)
        except UnusableError as error:
            raise ValueError(str(error)) from None
        self._queue.facts.append(replace(checked, kernel=family(checked.kernel)))

    def flush(self) -> Flushed:
        """Write what is queued, each file by itself; what is refused stays queued.

        Files are read again under a lock, so that nothing another process stored is lost. Raises
        BaselineError where the folder itself cannot be used.
        """
        queue = self._queue
        if not (queue.sessions or queue.facts):
            return Flushed((), ())
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            with locked(self.root):
                attributes = self.root / ".gitattributes"
                if not attributes.exists():
                    write_atomically(attributes, GIT_ATTRIBUTES.encode())
                return self._write()
        except OSError as error:
            raise self._unusable(error) from None

    @property
    def queued(self) -> frozenset[str]:
        """The benchmarks with sessions that are not written: after a flush, those refused."""
        return frozenset(session.benchmark for session in self._queue.sessions)

    def edit(
        self, device: str, kernel: str, benchmarks: Iterable[str], change: Change
    ) -> Path | None:
        """Put other sessions in the place of some benchmarks', and write the kernel's file.

        ``change`` takes a benchmark's sessions, oldest first, and returns those to store. A file
        without sessions is deleted. Returns the file, or None where nothing changed. Raises
        BaselineError; nothing is written then.
        """
        path = self._device_path(device, kernel)
        try:
            with locked(self.root), _explained(path):
                self._forget()
                file = self._file(path, device)
                if file is None:
                    return None
                file.check()
                before = {name: file.sessions(name) for name in benchmarks}
                after = {name: list(change(sessions)) for name, sessions in before.items()}
                self._forget()
                if after == before:
                    return None
                text = file.changed(after)
                return _save(path, text.encode()) if text else _delete(path)
        except OSError as error:
            raise self._unusable(error) from None

    def forget_exact(self, kernel: str, benchmarks: Collection[str]) -> Path | None:
        """Drop the facts of some benchmarks; otherwise as ``edit``."""
        path = self._exact_path(kernel)
        try:
            with locked(self.root):
                self._forget()
                before = self._read_facts(path, family(kernel))
                kept = [fact for fact in before.values() if fact.benchmark not in benchmarks]
                if len(kept) == len(before):
                    return None
                text = schema.write_facts(family(kernel), kept)
                return _save(path, text.encode()) if kept else _delete(path)
        except OSError as error:
            raise self._unusable(error) from None

    # How

    def _unusable(self, error: OSError) -> BaselineError:
        return BaselineError(
            f"{self.root}: cannot be used as the folder of baselines ({error.strerror}): "
            "name another one with the ini key gemm_baselines"
        )

    def _forget(self) -> None:
        self._files.clear()
        self._facts.clear()
        self._benchmarks.clear()

    def _write(self) -> Flushed:
        queue, self._queue = self._queue, _Queue()
        self._forget()
        written: list[Path] = []
        refused: list[BaselineError] = []
        for path, sessions in _grouped_by(queue.sessions, self._session_path).items():
            try:
                written += self._write_sessions(path, sessions, queue.sources)
            except BaselineError as error:
                refused.append(error)
                self._queue.sessions += sessions
                self._queue.sources |= queue.sources
        for path, facts in _grouped_by(queue.facts, lambda f: self._exact_path(f.kernel)).items():
            try:
                written += self._write_facts(path, facts)
            except BaselineError as error:
                refused.append(error)
                self._queue.facts += facts
        return Flushed(tuple(written), tuple(refused))

    def _write_sessions(
        self, path: Path, new: list[Session], sources: dict[str, tuple[str, bytes]]
    ) -> list[Path]:
        device, kernel = new[0].device, new[0].kernel
        with _explained(path):
            file = self._file(path, device) or SessionFile(device, kernel)
            file.check()
            changes = {
                benchmark: newest(distinct([*file.sessions(benchmark), *added]), SESSIONS_KEPT)
                for benchmark, added in _grouped_by(new, lambda s: s.benchmark).items()
            }
        self._files.pop(path, None)
        # A session must never name a source that is not there.
        written = [
            self._write_source(sha256, *sources[sha256])
            for sha256 in sorted({session.source for session in new} - {""})
        ]
        return [*filter(None, written), _save(path, file.changed(changes).encode())]

    def _write_source(self, sha256: str, suffix: str, content: bytes) -> Path | None:
        path = self.root / SOURCES / f"{sha256}{suffix}"
        if _content(path) is None:
            return _save(path, content)
        self.source(sha256)
        return None

    def _write_facts(self, path: Path, new: list[Fact]) -> list[Path]:
        kernel = new[0].kernel
        facts = self._read_facts(path, kernel)
        before = dict(facts)
        for fact in new:
            stored = facts.get(fact.key)
            facts[fact.key] = stored.merged(fact) if stored else fact
        if facts == before:
            return []
        return [_save(path, schema.write_facts(kernel, facts.values()).encode())]

    def _usable(self, device: str) -> Iterator[SessionFile]:
        for path in self._device_files(device):
            with suppress(BaselineError):
                if file := self._file(path, device):
                    yield file

    @contextmanager
    def _opened(self, device: str, kernel: str) -> Iterator[SessionFile]:
        path = self._device_path(device, kernel)
        with _explained(path):
            yield self._file(path, device) or SessionFile(device, kernel)

    def _file(self, path: Path, device: str) -> SessionFile | None:
        if path not in self._files:
            self._files[path] = self._read(path, device)
        return self._files[path]

    def _read(self, path: Path, device: str) -> SessionFile | None:
        text = _text(path)
        if text is None:
            return None
        with _explained(path):
            file = SessionFile.parse(text)
            if file.device != device:
                raise UnusableError(f"it was stored for {file.device!a}, not for {device!a}")
            if self._device_path(device, file.kernel) != path:
                raise UnusableError(f"it belongs to the kernel {file.kernel!a}")
        return file

    def _read_facts(self, path: Path, kernel: str) -> dict[tuple[str, int, str], Fact]:
        text = _text(path)
        if text is None:
            return {}
        with _explained(path):
            stored_for, facts = schema.read_facts(text)
            if stored_for != kernel:
                raise UnusableError(f"it belongs to the kernel {stored_for!a}")
        return facts

    def _device_files(self, device: str) -> Iterator[Path]:
        folder = self.root / safe_name(device, (EXACT, SOURCES))
        return filter(_is_of_sessions, _listed(folder))

    def _device_path(self, device: str, kernel: str) -> Path:
        return _sessions_path(self.root, device, kernel)

    def _session_path(self, session: Session) -> Path:
        return self._device_path(session.device, session.kernel)

    def _exact_path(self, kernel: str) -> Path:
        return self.root / EXACT / f"{safe_name(family(kernel))}.json"


_Record = TypeVar("_Record")
_Key = TypeVar("_Key")


def _grouped_by(
    records: Iterable[_Record], key_of: Callable[[_Record], _Key]
) -> dict[_Key, list[_Record]]:
    groups: dict[_Key, list[_Record]] = {}
    for record in records:
        groups.setdefault(key_of(record), []).append(record)
    return groups


@lru_cache(maxsize=4096)
def _sessions_path(root: Path, device: str, kernel: str) -> Path:
    folder = safe_name(device, (EXACT, SOURCES))
    return root / folder / f"{safe_name(family(kernel), (CALIBRATION,))}.json"


def _is_of_sessions(path: Path) -> bool:
    return path.suffix == ".json" and path.stem != CALIBRATION


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _content(path: Path) -> bytes | None:
    """A file's bytes, or None where there is none. Raises BaselineError."""
    try:
        return read_regular(path)
    except FileNotFoundError:
        return None
    except NotADirectoryError:
        blocking = next(folder for folder in path.parents if folder.exists())
        raise BaselineError(
            f"{path}: it cannot be read: {blocking} is a file in the place of a folder: move it "
            "away, or name another folder with the ini key gemm_baselines"
        ) from None
    except OSError as error:
        raise BaselineError(
            f"{path}: it cannot be read ({error.strerror}); {_way_out(path)}"
        ) from None


def _text(path: Path) -> str | None:
    content = _content(path)
    if content is None:
        return None
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        raise BaselineError(f"{path}: it is not UTF-8 text; {_way_out(path)}") from None


def _save(path: Path, content: bytes) -> Path:
    try:
        write_atomically(path, content)
    except OSError as error:
        raise BaselineError(
            f"{path}: it cannot be written ({error.strerror}); what was there is unchanged"
        ) from None
    return path


def _delete(path: Path) -> Path:
    try:
        path.unlink()
    except OSError as error:
        raise BaselineError(f"{path}: it cannot be deleted ({error.strerror})") from None
    return path


def _damage(paths: Iterable[Path], check: Callable[[Path], None]) -> tuple[BaselineError, ...]:
    """One error for each file that a check finds unusable."""
    errors = []
    for path in paths:
        try:
            with _explained(path):
                check(path)
        except BaselineError as error:
            errors.append(error)
    return tuple(errors)


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except UnusableError as error:
        upgrade = "upgrade pytest-gemm, or " if error.newer else ""
        remedy = error.remedy or f"{upgrade}{_way_out(path)}"
        raise BaselineError(f"{path}: {error}; {remedy}") from None


def _way_out(path: Path) -> str:
    return f"{restoring(path)}, or delete it and store it again with --gemm-baseline update"
