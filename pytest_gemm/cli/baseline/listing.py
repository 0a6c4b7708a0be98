"""``pytest-gemm baseline list``: what is stored, a line for each benchmark."""

from __future__ import annotations

import argparse

from pytest_gemm.cli.baseline.stored import (
    Stored,
    add_common,
    aligned,
    all_stored,
    devices_of,
    open_store,
    report_unreadable,
)
from pytest_gemm.cli.commands import Commands

_HEADINGS = ("benchmark", "sessions", "earlier", "newest", "anchor")


def add(commands: Commands) -> None:
    parser = commands.add_parser(
        "list",
        help="devices, benchmarks, sessions, dates, anchors",
        description="List what is stored. 'sessions' are those that a new run would be compared "
        "with; 'earlier' ones are of other sources, launches, methods or toolchains.",
    )
    add_common(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    store = open_store(arguments)
    devices = devices_of(store, arguments)
    for device in devices:
        found = all_stored(store, [device])
        print(f"{device}: {len(found)} benchmarks")
        for line in aligned([_HEADINGS, *map(_row, found)]):
            print(f"  {line}")
    if not devices:
        print(f"{store.root}: nothing is stored")
    return report_unreadable(store, devices)


def _row(stored: Stored) -> tuple[str, ...]:
    current = len(stored.current)
    earlier = len(stored.sessions) - current
    date = stored.sessions[-1].date[:10]
    return stored.benchmark, str(current), str(earlier or ""), date, stored.release
