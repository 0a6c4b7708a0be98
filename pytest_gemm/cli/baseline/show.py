"""``pytest-gemm baseline show NAME``: every session of a benchmark."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import groupby

from pytest_gemm.baselines import Session, differing, epoch
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
from pytest_gemm.report.text import percent, seconds

_CONDITIONS = (
    *("sm_clock", "memory_clock", "canary_s", "power", "power_cap", "temperature", "utilisation"),
    *("slowdown", "limited_by", "foreign_utilisation", "load"),
)
"""What may have disturbed a session; shown where it is known and not nothing."""


def add(commands: Commands) -> None:
    parser = commands.add_parser(
        "show",
        help="the sessions of a benchmark",
        description="Show every session of a benchmark, oldest first: median with its 95 %% "
        "interval, samples, commit, conditions. What differs so much that times are not compared "
        "stands between them.",
    )
    parser.add_argument("names", nargs="+", metavar="NAME", help="a benchmark, as 'list' names it")
    add_common(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    store = open_store(arguments)
    devices = devices_of(store, arguments)
    for stored in all_stored(store, devices, arguments.names):
        print("\n".join(_shown(stored)))
    return report_unreadable(store, devices)


def _shown(stored: Stored) -> Iterator[str]:
    yield stored.title
    before: Session | None = None
    for _, group in groupby(stored.sessions, lambda s: (s.program, s.epoch)):
        sessions = list(group)
        yield f"  {_heading(before, sessions[0])}"
        yield from (f"    {line}" for line in aligned([*map(_row, sessions)]))
        before = sessions[-1]


def _heading(before: Session | None, now: Session) -> str:
    facts = comparable_facts(now)
    if before is None:
        return ", ".join(f"{key} {_short(value)}" for key, value in facts.items())
    old = comparable_facts(before)
    changes = [
        f"{key} {_short(old.get(key))} -> {_short(facts.get(key))}" for key in differing(old, facts)
    ]
    return f"not comparable with those before: {', '.join(changes)}"


def comparable_facts(session: Session) -> dict[str, object]:
    """All whose change starts a series or an epoch, by name."""
    return {
        "source": session.source,
        **{f"launch {key}": value for key, value in session.launch.items()},
        "seed": session.seed,
        "recipe": session.recipe,
        **session.settings,
        **epoch(session.environment),
    }


def _row(session: Session) -> tuple[str, ...]:
    conditions = (
        f"{key} {_short(session.environment[key])}"
        for key in _CONDITIONS
        if session.environment.get(key) not in (None, "", False, 0)
    )
    return *session_row(session), ", ".join(conditions)


def session_row(session: Session) -> tuple[str, ...]:
    """Date, median with its interval, samples, commit and anchor."""
    estimate = session.estimate
    low, high = (percent(end / estimate.median - 1) for end in (estimate.low, estimate.high))
    return (
        session.date[:19].replace("T", " "),
        seconds(estimate.median),
        f"{low} to {high}",
        f"{estimate.n} x {session.launches}",
        (session.commit or "no commit")[:12],
        f"anchor {session.anchor}" if session.anchor else "",
    )


def _short(value: object) -> str:
    if isinstance(value, list | tuple):
        return "x".join(map(str, value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)[:32]
