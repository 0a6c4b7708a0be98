"""What the actions on baselines share: which folder, devices, benchmarks; and a table."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple

from pytest_gemm.baselines import BaselineStore, Session
from pytest_gemm.cli.project import baselines_folder
from pytest_gemm.errors import BaselineError, ConfigError


class Stored(NamedTuple):
    """A benchmark of a device and its sessions, oldest first."""

    device: str
    kernel: str
    benchmark: str
    sessions: Sequence[Session]

    @property
    def title(self) -> str:
        return f"{self.benchmark} on {self.device}"

    @property
    def release(self) -> str:
        """What the benchmark is pinned for, or an empty text."""
        return next((s.anchor for s in reversed(self.sessions) if s.anchor), "")

    @property
    def current(self) -> list[Session]:
        """The sessions that a new one would be compared with."""
        return current_of(self.sessions)


def current_of(sessions: Sequence[Session]) -> list[Session]:
    """Of a benchmark's sessions, oldest first, those of the newest series and epoch."""
    last = sessions[-1]
    return [s for s in sessions if (s.program, s.epoch) == (last.program, last.epoch)]


def add_common(parser: argparse.ArgumentParser) -> None:
    """Declare where to look."""
    parser.add_argument("--device", metavar="NAME", help="only what is stored for this device")
    parser.add_argument(
        "--baselines",
        metavar="FOLDER",
        type=Path,
        help="the folder of baselines (default: that of the project around the current folder)",
    )


def open_store(arguments: argparse.Namespace) -> BaselineStore:
    """The store that the arguments name. Raises ConfigError where there is none."""
    folder: Path = arguments.baselines or baselines_folder(Path.cwd())
    if not folder.is_dir():
        raise ConfigError(
            f"{folder} is no folder: name that of the baselines with --baselines, or store some "
            "with pytest --gemm-bench --gemm-baseline=update"
        )
    return BaselineStore(folder)


def devices_of(store: BaselineStore, arguments: argparse.Namespace) -> tuple[str, ...]:
    """The devices that the arguments name. Raises ConfigError for one that has nothing stored."""
    devices = store.devices()
    if arguments.device is None:
        return devices
    if arguments.device not in devices:
        known = ", ".join(devices) or "no device"
        raise ConfigError(f"nothing is stored for {arguments.device!r}: there is {known}")
    return (arguments.device,)


def all_stored(
    store: BaselineStore, devices: Iterable[str], names: Sequence[str] = ()
) -> list[Stored]:
    """Every benchmark of the devices, or those named; files that cannot be read are left out.

    Raises ConfigError for a name that no device has.
    """
    wanted = set(names)
    found, seen = [], set()
    for device in devices:
        for kernel, benchmark in store.names(device):
            if names and benchmark not in wanted:
                continue
            seen.add(benchmark)
            with suppress(BaselineError):
                sessions = store.sessions(device, kernel, benchmark)
                found.append(Stored(device, kernel, benchmark, sessions))
    for name in sorted(wanted - seen):
        known = {benchmark for device in devices for benchmark in store.benchmarks(device)}
        alike = get_close_matches(name, known, n=1)
        hint = f"did you mean {alike[0]}?" if alike else "see: pytest-gemm baseline list"
        raise ConfigError(f"no benchmark {name!r} is stored: {hint}")
    return found


def by_file(found: Iterable[Stored]) -> dict[tuple[str, str], list[Stored]]:
    """Benchmarks by device and kernel: those that share a file."""
    files: dict[tuple[str, str], list[Stored]] = {}
    for each in found:
        files.setdefault((each.device, each.kernel), []).append(each)
    return files


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of cells as lines, in columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def report_unreadable(store: BaselineStore, devices: Iterable[str]) -> int:
    """Say what cannot be read; the exit code."""
    errors = [error for device in devices for error in store.unreadable(device)]
    for error in errors:
        print(f"pytest-gemm: {error}", file=sys.stderr)
    return int(bool(errors))
