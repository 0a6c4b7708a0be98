"""``pytest-gemm baseline pin`` and ``unpin``: the anchor that slow drift is held against."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence

from pytest_gemm.baselines import BaselineStore, Session
from pytest_gemm.cli.baseline.stored import (
    Stored,
    add_common,
    all_stored,
    by_file,
    current_of,
    devices_of,
    open_store,
    report_unreadable,
)
from pytest_gemm.cli.commands import Commands
from pytest_gemm.errors import ConfigError


def add(commands: Commands) -> None:
    parser = commands.add_parser(
        "pin",
        help="make what is stored now the anchor that slow drift is held against",
        description="Pin the sessions that a new run would be compared with, as those of a "
        "release. They are kept however many come after them, and replace an earlier anchor.",
    )
    parser.add_argument("release", metavar="RELEASE", help="such as v1.0")
    parser.add_argument(
        "names", nargs="*", default=[], metavar="NAME", help="benchmarks (default: all)"
    )
    add_common(parser)
    parser.set_defaults(run=_pin)

    parser = commands.add_parser("unpin", help="take the anchor away")
    parser.add_argument("names", nargs="*", default=[], metavar="NAME", help="benchmarks")
    parser.add_argument("--all", action="store_true", help="every benchmark")
    add_common(parser)
    parser.set_defaults(run=_unpin)


def _pin(arguments: argparse.Namespace) -> int:
    release = arguments.release
    if not release.strip() or not release.isprintable():
        raise ConfigError(f"{release!r} cannot name a release: it must be a printable text")
    return _set(arguments, arguments.names, release)


def _unpin(arguments: argparse.Namespace) -> int:
    if bool(arguments.names) == arguments.all:
        raise ConfigError("unpin takes either names of benchmarks or --all")
    return _set(arguments, arguments.names, None)


def _set(arguments: argparse.Namespace, names: Sequence[str], release: str | None) -> int:
    store = open_store(arguments)
    devices = devices_of(store, arguments)
    found = all_stored(store, devices, names)
    for stored in found:
        if release:
            was = f" (was {stored.release})" if stored.release else ""
            count = len(stored.current)
            print(f"{stored.title}: {count} sessions pinned for {release}{was}")
        elif stored.release:
            print(f"{stored.title}: no longer pinned for {stored.release}")
    _write(store, found, release)
    return report_unreadable(store, devices)


def _write(store: BaselineStore, found: Iterable[Stored], release: str | None) -> None:
    def pinned(sessions: Sequence[Session]) -> Iterable[Session]:
        current = current_of(sessions)
        for session in sessions:
            yield session._replace(anchor=release if session in current else None)

    for (device, kernel), group in by_file(found).items():
        store.edit(device, kernel, [stored.benchmark for stored in group], pinned)
