"""``pytest-gemm baseline diff``: two sessions of a benchmark, or two revisions of the folder."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from pytest_gemm.baselines import BaselineStore, Session, differing
from pytest_gemm.cli.baseline.show import comparable_facts, session_row
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
from pytest_gemm.errors import ConfigError
from pytest_gemm.report.text import percent
from pytest_gemm.revision import Export, find_revision


def add(commands: Commands) -> None:
    parser = commands.add_parser(
        "diff",
        help="compare two sessions of a benchmark, or two revisions",
        description="Compare two stored sessions of a benchmark; or, with --since, what a git "
        "revision stored with what is stored now. It only shows: verdicts are pytest's.",
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="a benchmark")
    which = "'anchor', 'newest' or the beginning of a date"
    usual = "the anchor, or the session before the newest"
    parser.add_argument("old", nargs="?", metavar="OLD", help=f"{which} (default: {usual})")
    parser.add_argument("new", nargs="?", metavar="NEW", help="likewise (default: newest)")
    parser.add_argument("--since", metavar="REV", help="the git revision to compare with")
    parser.add_argument("--until", metavar="REV", help="another one (default: the files)")
    add_common(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    if arguments.since is None and (arguments.until or not arguments.name):
        raise ConfigError("diff takes the name of a benchmark, or --since REV")
    if arguments.since is not None and arguments.old:
        raise ConfigError("diff takes two sessions or --since REV, not both")
    store = open_store(arguments)
    if arguments.since is not None:
        return _diff_revisions(store, arguments)
    devices = devices_of(store, arguments)
    for stored in all_stored(store, devices, [arguments.name]):
        old, new = _chosen(stored, arguments.old), _chosen(stored, arguments.new or "newest")
        print(stored.title)
        print("\n".join(f"  {line}" for line in _compared(old, new)))
    return report_unreadable(store, devices)


# Two sessions


def _chosen(stored: Stored, word: str | None) -> Session:
    sessions = stored.sessions
    if word is None and not stored.release:
        return sessions[-2] if len(sessions) > 1 else sessions[-1]
    if word in (None, "anchor"):
        found = [s for s in sessions if s.anchor and s.anchor == stored.release]
    else:
        found = [s for s in sessions if word == "newest" or s.date.startswith(str(word))]
    if not found:
        dates = f"{sessions[0].date} to {sessions[-1].date}"
        raise ConfigError(f"{stored.title}: no session is {word!r}; there are {dates}")
    return found[-1]


def _compared(old: Session, new: Session) -> list[str]:
    lines = aligned([("old", *session_row(old)), ("new", *session_row(new))])
    facts, others = comparable_facts(old), comparable_facts(new)
    program = ("source", *(key for key in facts if key.startswith("launch ")))
    changed = differing(facts, others)
    if barred := [key for key in changed if key not in program]:
        lines.append(f"not comparable: {_changes(barred, facts, others)}")
    else:
        change = new.estimate.median / old.estimate.median - 1
        lines.append(f"change of the median: {percent(change)}")
    if own := [key for key in changed if key not in barred]:
        lines.append(f"another kernel: {_changes(own, facts, others)}")
    around = [key for key in differing(old.environment, new.environment) if key not in barred]
    if around:
        lines.append(f"also: {_changes(around, old.environment, new.environment)}")
    return lines


def _changes(keys: Sequence[str], old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {old.get(key)} -> {new.get(key)}" for key in keys)


# Two revisions


def _diff_revisions(store: BaselineStore, arguments: argparse.Namespace) -> int:
    with ExitStack() as stack:
        before = _store_at(stack, store.root, arguments.since)
        after = store
        if arguments.until is not None:
            after = _store_at(stack, store.root, arguments.until)
        devices = sorted({*before.devices(), *after.devices()})
        if arguments.device is not None:
            devices = [device for device in devices if device == arguments.device]
        old = {stored[:3]: stored for stored in all_stored(before, devices)}
        new = {stored[:3]: stored for stored in all_stored(after, devices)}
        rows = [
            (*_title(key), *_what_changed(old.get(key), new.get(key)))
            for key in sorted(old.keys() | new.keys())
            if arguments.name in (None, key[2])
        ]
        changed = [row for row in rows if row[-1]]
        print("\n".join(aligned(changed)) if changed else "nothing changed")
        return max(report_unreadable(before, devices), report_unreadable(after, devices))


def _store_at(stack: ExitStack, folder: Path, ref: str) -> BaselineStore:
    """The store as a git revision holds it, empty where there was none. Raises ConfigError."""
    export = stack.enter_context(closing(Export(find_revision(folder, ref), folder)))
    then = export.then(folder)
    assert then is not None
    return BaselineStore(then)


def _title(key: tuple[str, str, str]) -> tuple[str, str]:
    return key[0], key[2]


def _what_changed(old: Stored | None, new: Stored | None) -> tuple[str, str]:
    if old is None or new is None:
        return "gone" if new is None else "new", "now not stored" if new is None else "stored"
    known = {(s.date, s.program, s.estimate) for s in old.sessions}
    added = [s for s in new.sessions if (s.date, s.program, s.estimate) not in known]
    dropped = len(old.sessions) + len(added) - len(new.sessions)
    words = []
    if added:
        words.append(f"{len(added)} added")
    if dropped:
        words.append(f"{dropped} dropped")
    if old.release != new.release:
        words.append(f"anchor {old.release or 'none'} -> {new.release or 'none'}")
    return _change(old.sessions[-1], new.sessions[-1]), ", ".join(words)


def _change(old: Session, new: Session) -> str:
    if old.epoch != new.epoch:
        return "another epoch"
    change = percent(new.estimate.median / old.estimate.median - 1)
    return f"{change} (another kernel)" if old.program != new.program else change
