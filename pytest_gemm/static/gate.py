"""Machine code held against what is stored: a fact for each kernel, architecture and toolchain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from pytest_gemm.baselines import BaselineStore, Fact, Session, source_hash
from pytest_gemm.case import Case
from pytest_gemm.errors import BaselineError, GemmError
from pytest_gemm.exact import facts_of
from pytest_gemm.kernelspec import Kernel
from pytest_gemm.record import Record
from pytest_gemm.result import Result
from pytest_gemm.revival import stored_kernel
from pytest_gemm.static.inspection import Facts, Inspector
from pytest_gemm.static.policy import changes, worsened
from pytest_gemm.static.toolchain import find_toolchain

STORE = "pytest --gemm-check=full --gemm-baseline=update"
SHOWN = 6
"""Changes that a sentence names."""


def held_against_stored(
    case: Case, result: Result, store: BaselineStore, *, mode: str, accept: str
) -> Record:
    """The record of an inspection that was made, or could not be made (``skipped``).

    ``mode`` is that of ``--gemm-baseline``; ``accept`` the command that stores what is found.
    Without a stored fact of this very toolchain the code is new, and nothing is compared: another
    compiler makes other code of the same source. What is new, or was not inspected, or cannot be
    compared for a file that is damaged, fails in ``strict`` mode.
    """
    if result.outcome == "failed":
        return Record(case, result, "failed", message=result.message)
    if result.outcome == "skipped":
        outcome = "failed" if mode == "strict" else "skipped"
        return Record(case, result, outcome, "ungated", result.message)
    if mode == "off":
        return Record(case, result, "passed", "ungated")
    (fact,) = facts_of(case, result)
    try:
        facts = store.load_exact(case.kernel.id)
    except BaselineError as error:
        outcome = "failed" if mode == "strict" else "passed"
        return Record(case, result, outcome, "withheld", f"{case.title}: {error}")
    stored = facts.get(fact.key)
    if stored is None:
        note = f"{case.title}: {_why_new(fact, facts.values())}"
        if mode == "strict":
            return Record(case, result, "failed", "new", f"{note}; store it with: {accept}")
        return Record(case, result, "passed", "stored" if mode == "update" else "new", note)
    before, now = _whole(stored.counters), _whole(fact.counters)
    moved = _shortened(changes(before, now))
    note = f"{case.title}: {moved}" if moved else ""
    if mode == "update":
        return Record(case, result, "passed", "stored", note)
    if worse := worsened(before, now):
        text = f"{case.title}: {'; '.join(worse)}; accept with: {accept}\n  all changes: {moved}"
        return Record(case, result, "failed", "worse", text)
    return Record(case, result, "passed", "changed" if note else "same", note)


def remarks(records: Sequence[Record]) -> Iterator[str]:
    """Lines for the end of a run about what was inspected; nothing where all is as it was."""
    inspected = [r for r in records if r.case.settings.architecture]
    for record in inspected:
        if record.outcome == "passed" and record.gate == "changed":
            yield f"{record.message}; store it with: {STORE}"
        if record.outcome == "passed" and record.gate == "withheld":
            yield record.message
    reasons = Counter(
        (record.gate, record.message.removeprefix(f"{record.case.title}: "))
        for record in inspected
        if record.outcome != "failed"
    )
    for (gate, reason), count in reasons.items():
        if gate == "new":
            yield f"machine code: {count} new: {reason}; store with: {STORE}"
        elif gate == "ungated" and reason:
            yield f"machine code: {count} not inspected: {reason}"


def since_stored(case: Case, result: Result, store: BaselineStore) -> str:
    """What changed in the machine code since the sessions that a time is held against.

    Of another source, by compiling both for the GPU that was timed; of the same one, from what is
    stored of the code that the compiler of those sessions made. Empty where there is nothing to
    tell: on a CPU, of kernels in Python, of code that is the same or was not stored.
    """

    def stored(inspector: Inspector, architecture: str) -> Facts | None:
        reference = store.reference(result.device["name"], case.kernel.id, case.id)
        if reference is None:
            return None
        return _code_of(reference.newest, case.kernel, architecture, store, inspector)

    return _since(stored, case.kernel, result)


def since_opponent(opponent: Kernel, case: Case, result: Result) -> str:
    """As ``since_stored``, of a kernel that this one was measured against."""
    if opponent.is_python:
        return ""
    return _since(lambda i, name: i.inspect(opponent, name).facts, case.kernel, result)


def _since(old: Callable[[Inspector, str], Facts | None], kernel: Kernel, result: Result) -> str:
    capability = result.environment.get("compute_capability")
    if not capability or kernel.is_python:
        return ""
    architecture = f"sm_{str(capability).replace('.', '')}"
    try:
        inspector = Inspector(find_toolchain())
        before = old(inspector, architecture)
        if before is None:
            return ""
        moved = _shortened(changes(before, inspector.inspect(kernel, architecture).facts))
    except GemmError as error:
        return f"machine code not compared: {str(error).partition(chr(10))[0]}"
    return f"machine code for {architecture}: {moved}" if moved else ""


def _code_of(
    session: Session, kernel: Kernel, architecture: str, store: BaselineStore, inspector: Inspector
) -> Facts | None:
    """The facts of the code that a session measured, as far as they can be had."""
    if session.source != source_hash(kernel.code):
        old = stored_kernel(kernel, session.launch, store.source(session.source))
        return inspector.inspect(old, architecture).facts
    made_by = f"nvrtc {session.environment.get('nvrtc')}."
    for fact in store.load_exact(kernel.id).values():
        same = fact.benchmark == f"{kernel.id}-{architecture}"
        if same and fact.recipe.startswith(made_by):
            return _whole(fact.counters)
    return None


def _why_new(fact: Fact, facts: Iterable[Fact]) -> str:
    if fact.counters.get("blocks_per_sm") == 0:
        return "no block of it fits on a multiprocessor, so a launch would fail there"
    others = sorted({f.recipe for f in facts if f.benchmark == fact.benchmark})
    if not others:
        return f"nothing is stored for {fact.recipe}"
    return f"{fact.recipe} opens a new epoch: what is stored is of {', '.join(others)}"


def _whole(counters: Mapping[str, float]) -> Facts:
    return {name: int(count) for name, count in counters.items()}


def _shortened(texts: Sequence[str]) -> str:
    more = [f"{len(texts) - SHOWN} more"] if len(texts) > SHOWN else []
    return "; ".join([*texts[:SHOWN], *more])
