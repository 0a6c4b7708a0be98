"""The end of a run: store what was asked for, write the report, say what there is to say."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from pytest_gemm.baselines import BaselineStore, Session, source_hash
from pytest_gemm.errors import BaselineError, ConfigError
from pytest_gemm.exact import facts_of
from pytest_gemm.judging import session_of
from pytest_gemm.limiting import unchecked_limits
from pytest_gemm.options import Options
from pytest_gemm.record import Record
from pytest_gemm.report import github
from pytest_gemm.report.document import Document, history
from pytest_gemm.report.files import write_report
from pytest_gemm.report.markdown import markdown
from pytest_gemm.report.model import report_of
from pytest_gemm.report.terminal import table
from pytest_gemm.report.verdict import sentence
from pytest_gemm.revival import launch_damage_told
from pytest_gemm.static.gate import remarks

_PROBLEM = re.compile(r"-(?:\d+x)*\d+-[a-z]+\d+(?:\+[^\[\]]*)?$")
"""The ``Problem.label`` at the end of a benchmark's name."""

UPDATE = "pytest --gemm-bench --gemm-baseline=update"


@dataclass(frozen=True)
class Closing:
    """What to print at the end, and whether the run fails for a reason that is no item's.

    ``unwritten`` are the ids of cases that were to be stored, and could not be.
    """

    title: str
    lines: tuple[str, ...]
    failed: bool
    unwritten: frozenset[str] = frozenset()


def close(
    options: Options,
    records: Sequence[Record],
    unchecked: Sequence[str],
    cases: Collection[str] | None,
    kernels: Collection[str],
    *,
    interrupted: bool,
) -> Closing:
    """End a run.

    ``unchecked`` are the node ids of cases that never called ``check``; ``cases`` the ids of all
    cases of the project, or None where only some were collected, ``kernels`` the names of all its
    kernels. Of a case that ran several times, in two tests or again after a failure, the last
    record counts.
    """
    records = list({record.case.id: record for record in records}.values())
    faults: list[str] = []
    notes: list[str] = []
    unwritten: frozenset[str] = frozenset()
    # Before this run is stored itself.
    past = history(BaselineStore(options.baselines), records) if options.reports else {}
    if interrupted:
        notes.append(f"interrupted: these {len(records)} results are partial; nothing is stored")
        unwritten = frozenset(record.case.id for record in records)
    elif options.baseline == "update":
        unwritten = _store(options, records, notes, faults)
    records = [
        replace(r, gate="ungated") if r.gate == "stored" and r.case.id in unwritten else r
        for r in records
    ]
    timed = [record for record in records if record.case.settings.timed]
    missing = list(_vanished(options, timed, cases))
    if options.accountable:
        if cases is not None and options.baseline != "off":
            missing += _vanished_facts(options, kernels)
        missing += [f"ungated: {name} was skipped or did not call check()" for name in unchecked]
    (faults if options.baseline == "strict" else notes).extend(missing)
    document = Document(
        datetime.now(UTC).isoformat(timespec="seconds"),
        _commit(options.root),
        options.baseline,
        interrupted,
        tuple(missing),
        tuple(records),
        past,
    )
    for path in options.reports:
        try:
            write_report(document, path)
            notes.append(f"report: {path}")
        except ConfigError as error:
            faults.append(str(error))
    told = [*_table_lines(timed), *_words(records), *_remarks(timed), *remarks(records), *notes]
    lines = [*told, *(f"ERROR: {f}" for f in faults)]
    if github.is_actions(os.environ):
        lines += _for_github(document, options.root, faults)
    device = records[0].result.device if records else {}
    title = f"gemm: {device['description']}" if device else "gemm"
    return Closing(title, tuple(lines), bool(faults), unwritten)


def _table_lines(timed: Sequence[Record]) -> list[str]:
    if not timed:
        return []
    on_cpu = any(record.result.device.get("kind") == "host" for record in timed)
    return [*(["CPU execution: not GPU times"] if on_cpu else []), *table(timed)]


def _words(records: Sequence[Record]) -> list[str]:
    """A line for each passed case whose verdict needs words, timed or not."""
    return [
        sentence(r.case, r.result, r.verdict)
        for r in records
        if r.verdict and r.outcome == "passed" and r.gate in ("faster", "withheld", "inconclusive")
    ]


def _remarks(timed: Sequence[Record]) -> list[str]:
    """What to do about new cases, and what of those that were timed was left out."""
    lines = []
    gates = Counter(record.gate for record in timed)
    if gates["new"]:
        reasons = {note for r in timed if r.verdict and r.gate == "new" for note in r.verdict.notes}
        lines += [f"new: {reason}" for reason in sorted(reasons)]
    if unstored := sum(_is_unstored(record) for record in timed):
        lines.append(f"{unstored} new: store them with: {UPDATE}")
    unchecked = {r.case.kernel.id: r.result.unchecked for r in timed if r.result.unchecked}
    if slow := sum(bool(r.verdict and r.verdict.slow_baseline) for r in timed):
        lines.append(
            f"{slow} faster than stored, by no change of the kernel, which would hide slowdowns: "
            f"store another session with: {UPDATE}"
        )
    lines += [f"not checked on the CPU: {name}: {why}" for name, why in unchecked.items()]
    lines += unchecked_limits(timed)
    if gates["ungated"]:
        lines.append(f"{gates['ungated']} ungated: nothing was compared or stored")
    return lines


def _is_unstored(record: Record) -> bool:
    """Whether a case is new for lack of a baseline, and not to what it is measured against."""
    return record.gate == "new" and not (record.verdict and record.verdict.against)


def _store(
    options: Options, records: Sequence[Record], notes: list[str], faults: list[str]
) -> frozenset[str]:
    """Write the passed cases; return the ids of those timed that could not be written."""
    store = BaselineStore(options.baselines)
    commit = _commit(options.root)
    now = datetime.now(UTC)
    for record in records:
        if record.outcome != "passed":
            continue
        for fact in facts_of(record.case, record.result):
            store.update_exact(fact)
        if record.gate == "stored" and record.case.settings.timed:
            kernel = record.case.kernel
            suffix = ".py" if kernel.is_python else ".cu"
            session = session_of(record.case, record.result, now, commit)
            store.append(session, kernel.code or None, suffix)
    try:
        flushed = store.flush()
    except BaselineError as error:
        faults.append(str(error))
        return store.queued
    count = len(flushed.written)
    files = "file" if count == 1 else "files"
    notes.append(f"stored: {count} {files} written in {options.baselines}")
    faults += map(str, flushed.refused)
    return store.queued


def _commit(root: Path) -> str | None:
    """The commit that is checked out, with ``-dirty`` where files differ from it; None if none."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        run = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return run.stdout.strip() or None if run.returncode == 0 else None


def _vanished(
    options: Options, records: Sequence[Record], cases: Collection[str] | None
) -> Iterator[str]:
    """A line for each stored benchmark that is no case any more; of a renamed kernel, its new name.

    With other sizes than the kernels' own, those of no kernel.
    """
    device = next((r.result.device["name"] for r in records if r.result.device), None)
    if cases is None or device is None or not options.bench or options.baseline == "off":
        return
    compared = _kernel_of if options.sizes else _hot
    known = {compared(case) for case in cases}
    store = BaselineStore(options.baselines)
    new = {_program_of(r): r.case.id for r in records if r.gate in ("new", "stored")}
    for kernel, name in store.names(device):
        if compared(name) in known:
            continue
        now = None
        with suppress(BaselineError, ConfigError):
            if new and (series := store.reference(device, kernel, name)):
                now = new.get(_stored_program(store, series.newest))
        if now:
            yield (
                f"renamed: {name} is {now} now, by its source: store that one, and drop the old "
                f"one with: pytest-gemm baseline prune {name} --remove --yes"
            )
        else:
            yield f"vanished: {name} is stored, but is no case of this project"


def _vanished_facts(options: Options, kernels: Collection[str]) -> list[str]:
    """A line for each kernel of which facts are stored, and which is none of the project's.

    Of single cases nobody knows: facts hold for every device, and each has sizes of its own.
    """
    files = BaselineStore(options.baselines).facts_of_others(kernels)
    return [f"vanished: {path} is of no kernel of this project: delete it" for path in files]


Program = tuple[str, str, str]
"""A source without the name of its kernel, parameters, and a problem."""


def _program_of(record: Record) -> Program:
    kernel = record.case.kernel
    return _program(kernel.code, kernel.entry, dict(kernel.params), record.case.id)


@launch_damage_told
def _stored_program(store: BaselineStore, session: Session) -> Program:
    """Raises BaselineError where the source is not stored, ConfigError for a damaged launch."""
    source = store.source(session.source)
    return _program(source, session.launch["entry"], session.launch["params"], session.benchmark)


def _program(source: str, entry: str, params: Mapping[str, int], benchmark: str) -> Program:
    names = re.findall(r"\w+", re.sub(r"<.*?>", "", entry))  # none, where that is a lambda
    nameless = re.sub(rf"\b{names[-1]}\b", "", source) if names else source
    return source_hash(nameless), json.dumps(params, sort_keys=True), _problem_of(benchmark)


def _problem_of(benchmark: str) -> str:
    """``512x512x512-float32``, with ``-cold`` where it is."""
    return benchmark.removeprefix(_kernel_of(benchmark))


def _hot(benchmark: str) -> str:
    return benchmark.removesuffix("-cold")


def _kernel_of(benchmark: str) -> str:
    return _PROBLEM.sub("", _hot(benchmark))


def _for_github(document: Document, root: Path, faults: Sequence[str]) -> list[str]:
    """Annotations to print; the summary of the step is added to."""
    report = report_of(document)
    note = github.add_summary(markdown(report), os.environ)
    return [*github.errors(report, root, os.environ, faults), *filter(None, [note])]
