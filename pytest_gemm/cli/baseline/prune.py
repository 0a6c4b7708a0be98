"""``pytest-gemm baseline prune``: what may go, and only with --yes does it."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence

from pytest_gemm.baselines import SESSIONS_KEPT, BaselineStore, Session, newest
from pytest_gemm.cli.baseline.stored import (
    Stored,
    add_common,
    all_stored,
    by_file,
    devices_of,
    open_store,
    report_unreadable,
)
from pytest_gemm.cli.commands import Commands
from pytest_gemm.errors import ConfigError


def add(commands: Commands) -> None:
    parser = commands.add_parser(
        "prune",
        help="drop old sessions, or whole benchmarks",
        description="Drop sessions that are not among the newest of their epoch, or not of the "
        "newest series, or benchmarks that vanished. What is pinned stays. Without --yes nothing "
        "is written. Sources stay.",
    )
    parser.add_argument(
        "names", nargs="*", default=[], metavar="NAME", help="benchmarks (default: all)"
    )
    parser.add_argument(
        "--keep",
        type=_count,
        default=SESSIONS_KEPT,
        metavar="N",
        help="sessions of each epoch of a series that stay (default: %(default)s)",
    )
    parser.add_argument(
        "--series",
        type=_count,
        metavar="N",
        help="newest series (sources and launches) of a benchmark that stay (default: all)",
    )
    parser.add_argument(
        "--remove", action="store_true", help="drop the named benchmarks as a whole"
    )
    parser.add_argument("--yes", action="store_true", help="do it")
    add_common(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    store = open_store(arguments)
    devices = devices_of(store, arguments)
    if arguments.remove and not arguments.names:
        raise ConfigError("--remove drops the benchmarks that are named: name at least one")
    found = all_stored(store, devices, arguments.names)

    def kept(sessions: Sequence[Session]) -> Sequence[Session]:
        if arguments.remove:
            return ()
        return _kept(sessions, arguments.keep, arguments.series)

    goes = []
    for stored in found:
        if arguments.remove and stored.release:
            raise ConfigError(
                f"{stored.title} is pinned for {stored.release}: unpin it before it is removed"
            )
        count = len(stored.sessions) - len(kept(stored.sessions))
        if count:
            goes.append(stored)
            print(f"{stored.title}: {count} of {len(stored.sessions)} sessions go")
    if not goes:
        print("nothing to prune")
    elif arguments.yes:
        for (device, kernel), group in by_file(goes).items():
            store.edit(device, kernel, [stored.benchmark for stored in group], kept)
        if arguments.remove:
            _forget_exact(store, goes)
    else:
        print("nothing is written without --yes")
    return report_unreadable(store, devices)


def _kept(sessions: Sequence[Session], keep: int, series: int | None) -> Sequence[Session]:
    kept = newest(sessions, keep)
    if series is None:
        return kept
    programs = [*dict.fromkeys(session.program for session in reversed(sessions))][:series]
    return [session for session in kept if session.anchor or session.program in programs]


def _forget_exact(store: BaselineStore, removed: Iterable[Stored]) -> None:
    """Drop the facts of benchmarks that are stored for no device any more."""
    left = {name for device in store.devices() for name in store.benchmarks(device)}
    kernels: dict[str, set[str]] = {}
    for stored in removed:
        if stored.benchmark not in left:
            kernels.setdefault(stored.kernel, set()).add(stored.benchmark)
    for kernel, benchmarks in kernels.items():
        if store.forget_exact(kernel, benchmarks):
            print(f"{kernel}: exact facts dropped, as no device has a time for them")


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)
