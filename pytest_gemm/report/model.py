"""What a report shows of a run, whatever it is written as: plain values, in the order to read them.

Made from a ``Document`` alone; Markdown and HTML are made from this.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pytest_gemm.record import Record
from pytest_gemm.report.document import DECIDED, Document, Past
from pytest_gemm.report.text import percent, rate, seconds
from pytest_gemm.report.verdict import grounds, sentence
from pytest_gemm.traffic import loads_on
from pytest_gemm.verdict import Verdict

STATES = (
    *("error", "slower", "drifted", "worse"),
    *("withheld", "inconclusive", "changed", "faster", "new", "stored"),
    *("ungated", "same", "ok", "skipped"),
)
"""What is said of a case, the most urgent first. ``error``: it failed for no reason of time."""

FAILING = frozenset({"error", "slower", "drifted", "worse"})
NOTABLE = frozenset({"withheld", "inconclusive", "changed", "faster"})
"""States that call for a look though nothing failed."""

SAMPLES = 400
"""Most samples of a benchmark that are shown; of more, evenly spaced order statistics."""

UNITS = {
    **dict.fromkeys(("sm_clock", "memory_clock"), "MHz"),
    **dict.fromkeys(("power", "power_limit"), "W"),
    **dict.fromkeys(("utilisation", "foreign_utilisation"), "%"),
    "temperature": "°C",
}
"""Of what is told of a device and its conditions."""

Facts = tuple[tuple[str, str], ...]
"""Labels and texts."""


@dataclass(frozen=True)
class Line:
    """One case. Times in seconds per launch, rates in FLOP/s, or B/s where ``unit`` says so.

    ``size`` is N of a square problem, otherwise that of a square one with as many operations.
    ``is_side``: the one parameter that is ``swept`` is both sides of a square block.
    ``intensity`` is in FLOP per byte of the least traffic; ``ceiling`` the rate of the vendor's
    routine named ``reference``, measured on the same problem. ``changes`` are the change with its
    interval, ``threshold`` the one above which it fails; fractions; ``excuse`` says why a slower
    one passed. ``headline`` is one sentence, ``message`` why it failed. ``facts`` say how the
    verdict was decided and what else is known.
    ``samples`` are there only where old and new are to be compared. None: not measured.
    """

    id: str
    title: str
    kernel: str
    family: str
    problem: str
    op: str
    dtype: str
    size: float
    place: str
    state: str
    fails: bool
    headline: str
    message: str
    facts: Facts
    median: float | None = None
    low: float | None = None
    high: float | None = None
    work: int = 0
    unit: str = "FLOP/s"
    intensity: float = 0.0
    loads: str = ""
    reference: str = ""
    ceiling: float | None = None
    derived_from: str = ""
    change_made: str = ""
    swept: tuple[tuple[str, int], ...] = ()
    is_side: bool = False
    change: float | None = None
    change_low: float | None = None
    change_high: float | None = None
    threshold: float | None = None
    excuse: str = ""
    baseline: float | None = None
    samples: tuple[float, ...] = ()
    history: tuple[Past, ...] = ()

    @property
    def order(self) -> tuple[object, ...]:
        """Sorts kernels by name, and those of a sweep by their parameters, as numbers."""
        return self.family, [value for _, value in self.swept], self.kernel

    @property
    def rate(self) -> float | None:
        """Work per second."""
        return self.work / self.median if self.median else None

    @property
    def is_notable(self) -> bool:
        """Whether it did not fail and calls for a look all the same."""
        return not self.fails and (self.state in NOTABLE or bool(self.excuse))

    @property
    def cause(self) -> tuple[str, ...]:
        """What cases have in common that failed for one reason, which no time is."""
        _, _, reason = self.message.partition(": ")
        return (self.kernel, reason) if self.fails and self.state == "error" else (self.id,)


def alike(lines: Iterable[Line]) -> list[list[Line]]:
    """Lines of one cause together, in the order of their first ones."""
    found: dict[tuple[str, ...], list[Line]] = {}
    for line in lines:
        found.setdefault(line.cause, []).append(line)
    return list(found.values())


@dataclass(frozen=True)
class Report:
    """A run. ``lines`` are sorted, the most urgent first; ``counts`` are by state."""

    title: str
    device: str
    kind: str
    facts: Facts
    missing: tuple[str, ...]
    partial: bool
    lines: tuple[Line, ...]
    studies: tuple[Mapping[str, Any], ...]

    @property
    def counts(self) -> dict[str, int]:
        """How many lines are in each state, the most urgent first."""
        return _counts(self.lines)

    @property
    def failing(self) -> tuple[Line, ...]:
        """What failed, the most urgent first."""
        return tuple(line for line in self.lines if line.fails)

    @property
    def notable(self) -> tuple[Line, ...]:
        """What did not fail and calls for a look all the same."""
        return tuple(line for line in self.lines if line.is_notable)

    @property
    def study_failures(self) -> tuple[str, ...]:
        """The first line of each failure in a study."""
        return tuple(
            f"Study {study['name']}: {measured['message'].partition(chr(10))[0]}"
            for study in self.studies
            for measured in study["measured"]
            if measured.get("outcome") == "failed"
        )

    @property
    def summary(self) -> str:
        """``2 failed (1 error, 1 slower); 12 passed (11 same, 1 faster); 1 skipped``."""
        failed, passed = ([x for x in self.lines if x.fails == fails] for fails in (True, False))
        ran = [line for line in passed if line.state != "skipped"]
        skipped = len(passed) - len(ran)
        parts = [
            f"{len(own)} {word} ({_counted(own)})"
            for word, own in (("failed", failed), ("passed", ran))
            if own
        ]
        return "; ".join([*parts, *([f"{skipped} skipped"] if skipped else [])])


def report_of(document: Document) -> Report:
    """What to show of a document."""
    lines = sorted((_line(r, document.history) for r in document.records), key=_urgency)
    devices = _devices(_of_cases(document) or _of_studies(document))
    described = " and ".join(device.described for device in devices)
    title = f"pytest-gemm on {described}" if described else "pytest-gemm"
    kinds = {device.plain["kind"] for device in devices}
    return Report(
        title=title,
        device=described,
        kind=kinds.pop() if len(kinds) == 1 else "",
        facts=tuple(_run_facts(document)),
        missing=document.missing,
        partial=document.partial,
        lines=tuple(lines),
        studies=document.studies,
    )


def state_of(record: Record) -> str:
    """One of ``STATES``."""
    if record.outcome == "skipped":
        return "skipped"
    if record.outcome == "failed":
        # What failed for its result or its limits may have the best of times.
        strict = {"new", "withheld", "inconclusive"} & {record.gate}
        broken = record.limits.broken or not record.gate
        return record.gate if not broken and (record.gate in FAILING or strict) else "error"
    return record.gate if record.gate in STATES else "ok"


def _line(record: Record, history: Mapping[str, Sequence[Past]]) -> Line:
    case, result, verdict = record.case, record.result, record.verdict
    kernel, problem, estimate = case.kernel, case.problem, result.estimate
    is_add = problem.op == "add"
    work = problem.bytes if is_add else problem.flops
    median = estimate.median if estimate else None
    reference, part = _reference(result.counters)
    return Line(
        id=case.id,
        title=case.title,
        kernel=kernel.id,
        family=kernel.name,
        problem=case.settings.architecture or problem.id,
        op=problem.op,
        # Machine code is of no problem.
        dtype="" if case.settings.architecture else problem.dtype,
        size=_size(problem.op, problem.M, problem.N, problem.K * problem.batch),
        place=f"{kernel.path}:{kernel.line}" if kernel.path else "",
        state=state_of(record),
        fails=record.outcome == "failed",
        headline=_headline(record),
        message=record.message if record.outcome != "passed" else "",
        facts=tuple(_facts(record)),
        median=median,
        low=estimate.low if estimate else None,
        high=estimate.high if estimate else None,
        work=work,
        unit="B/s" if is_add else "FLOP/s",
        intensity=problem.flops / problem.bytes,
        loads=loads_on(problem, result.traffic),
        reference=reference,
        ceiling=100 * work / median / part if median and part else None,
        derived_from=kernel.derived_from,
        change_made=kernel.change,
        swept=tuple((name, value) for name, value in kernel.params if name in kernel.swept),
        is_side=len(kernel.swept) == 1 and kernel.block == kernel.swept * 2,
        change=verdict.change if verdict else None,
        change_low=verdict.low if verdict else None,
        change_high=verdict.high if verdict else None,
        threshold=verdict.threshold if verdict else None,
        excuse=_excuse(verdict) if verdict else "",
        baseline=verdict.baseline_median if verdict else None,
        samples=_spaced(result.samples) if record.gate in DECIDED else (),
        history=tuple(history.get(case.id, ())),
    )


def _headline(record: Record) -> str:
    if record.message:
        return record.message.partition("\n")[0]
    if record.verdict is not None and (record.verdict.change is not None or record.verdict.notes):
        return sentence(record.case, record.result, record.verdict)
    return f"{record.case.title}: {state_of(record)}"


def _excuse(verdict: Verdict) -> str:
    """Why it is no regression though it is slower by more than what fails."""
    known = verdict.decided_by == "program" and verdict.outcome == "same"
    if not known or not (verdict.change or 0.0) > (verdict.threshold or 0.0):
        return ""
    return verdict.notes[-1] if verdict.notes else "the program is the stored one"


def _facts(record: Record) -> Iterator[tuple[str, str]]:
    """How it was decided, then what was measured, then under which conditions."""
    result, verdict, kernel = record.result, record.verdict, record.case.kernel
    if verdict is not None:
        if None not in (verdict.change, verdict.low, verdict.high):
            low, high = percent(verdict.low or 0.0), percent(verdict.high or 0.0)
            yield "change", f"{percent(verdict.change or 0.0)}, between {low} and {high}"
            yield "decided by", grounds(verdict)
        if verdict.threshold is not None:
            yield "fails above", percent(verdict.threshold)
        if verdict.smallest_slowdown is not None:
            yield "smallest slowdown that is found", percent(verdict.smallest_slowdown)
        for note in verdict.notes:
            yield "note", note
    if limits := record.limits.summary:
        yield "limits", limits
    if estimate := result.estimate:
        half = percent((estimate.high - estimate.low) / 2 / estimate.median, signed=False)
        yield "time", f"{seconds(estimate.median)} +- {half} (the median)"
        plural = "es" * (result.launches != 1)
        yield "samples", f"{estimate.n}, each of {result.launches} launch{plural}"
    if result.digest:
        yield "bits of C", result.digest
    if card := result.environment.get("uuid"):
        yield "card", str(card)
    if kernel.path:
        yield "declared at", f"{kernel.path}:{kernel.line}"
    if kernel.derived_from:
        yield "derived from", ": ".join(filter(None, (kernel.derived_from, kernel.change)))
    if result.unchecked:
        yield "not checked on the CPU", result.unchecked
    for name, value in result.counters.items():
        yield name.removesuffix("_s").replace("_", " "), _counter(name, value)
    for when, conditions in result.conditions.items():
        if told := _pairs(conditions):
            yield f"{when} sampling", told


def _counter(name: str, value: float) -> str:
    return seconds(value) if name.endswith("_s") else f"{value:.4g}"


def _run_facts(document: Document) -> Iterator[tuple[str, str]]:
    yield "date", document.date
    if document.commit:
        yield "commit", document.commit
    if document.records or not document.studies:
        yield "baseline", document.baseline
    for device in _devices([*_of_cases(document), *_of_studies(document)]):
        yield "device", f"{device.described} ({device.plain['name']})"
        yield from device.facts
    cpus = (study.get("cpu") for study in document.studies)
    beside = {cpu["description"]: cpu for cpu in cpus if cpu}
    for description, cpu in beside.items():
        yield "C and NumPy on", description
        yield "C compiled by", f"{cpu.get('compiler_version', '')}, {cpu.get('flags', '')}"
    yield from (("operands", f"seed {seed}") for seed in sorted(_seeds(document)))


@dataclass
class _Device:
    """A model of device, and what the cards of it that cases ran on say of themselves."""

    plain: Mapping[str, str]
    environments: list[Mapping[str, Any]] = field(default_factory=list)

    @property
    def described(self) -> str:
        cards = len({e.get("uuid") for e in self.environments})
        return f"{cards} x {self.plain['description']}" if cards > 1 else self.plain["description"]

    @property
    def facts(self) -> Iterator[tuple[str, str]]:
        """Each of the environment's keys; several values where they differ."""
        for key in dict.fromkeys(key for e in self.environments for key in e):
            values = dict.fromkeys(_value(key, e[key]) for e in self.environments if key in e)
            yield key.replace("_", " "), " and ".join(values)


_Where = tuple[Mapping[str, str], Mapping[str, Any]]
"""A device and its environment."""


def _of_cases(document: Document) -> list[_Where]:
    results = [record.result for record in document.records]
    return [(result.device, result.environment) for result in results if result.device]


def _of_studies(document: Document) -> list[_Where]:
    return [(study["device"], study.get("environment", {})) for study in document.studies]


def _devices(places: Sequence[_Where]) -> list[_Device]:
    """By name, in the order of the places."""
    found: dict[str, _Device] = {}
    for plain, environment in places:
        device = found.setdefault(plain["name"], _Device(plain))
        if environment not in device.environments:
            device.environments.append(environment)
    return list(found.values())


def _seeds(document: Document) -> set[int]:
    return {record.case.settings.seed for record in document.records}


def _reference(counters: Mapping[str, float]) -> tuple[str, float | None]:
    prefix = "percent_of_"
    return next(
        ((name.removeprefix(prefix), part) for name, part in counters.items() if prefix in name),
        ("", None),
    )


def _size(op: str, M: int, N: int, K: int) -> float:
    """The side of the square problem with as many operations."""
    size = (M * N) ** (1 / 2) if op == "add" else (M * N * K) ** (1 / 3)
    return round(size) if abs(size - round(size)) < 1e-6 * size else float(f"{size:.5g}")


def _spaced(samples: Sequence[float]) -> tuple[float, ...]:
    """The samples in order, thinned evenly where there are many."""
    ordered = sorted(samples)
    if len(ordered) <= SAMPLES:
        return tuple(ordered)
    return tuple(ordered[round(i * (len(ordered) - 1) / (SAMPLES - 1))] for i in range(SAMPLES))


def _urgency(line: Line) -> tuple[object, ...]:
    """The worst first; of alike ones the largest slowdown, then by kernel and size."""
    return (
        not line.fails,
        STATES.index(line.state),
        -(line.change or 0.0) if line.fails else 0.0,
        line.order,
        line.size,
        line.id,
    )


def _counts(lines: Sequence[Line]) -> dict[str, int]:
    found = Counter(line.state for line in lines)
    return {state: found[state] for state in STATES if found[state]}


def _counted(lines: Sequence[Line]) -> str:
    return ", ".join(f"{count} {state}" for state, count in _counts(lines).items())


def _pairs(values: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{key.removesuffix('_s').replace('_', ' ')} {_value(key, value)}"
        for key, value in values.items()
        if value is not None and value != ""
    )


def _value(key: str, value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    told = _counter(key, value) if isinstance(value, float) else str(value)
    return " ".join(filter(None, (told, UNITS.get(key, ""))))


def told_rate(line: Line) -> str:
    """The rate in words; empty where nothing was timed."""
    return rate(line.rate, line.unit) if line.rate else ""
