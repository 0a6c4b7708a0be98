"""Profiles cases: what is predicted of them, counted on the CPU, and counted on the GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime

from pytest_gemm.backends.base import Device
from pytest_gemm.case import Case, Settings
from pytest_gemm.correctness import exact_suite
from pytest_gemm.doctor.finding import Finding, advice
from pytest_gemm.doctor.machine import Machine
from pytest_gemm.executor import Executor
from pytest_gemm.profile.counters import medians
from pytest_gemm.profile.document import Profile, Profiled, Sanitized
from pytest_gemm.profile.ncu import count
from pytest_gemm.profile.sanitizer import Found, of_each, sanitize
from pytest_gemm.report.text import seconds
from pytest_gemm.result import Result
from pytest_gemm.workers.turns import Turns

NO_GPU = advice(
    "gpu",
    "there is no NVIDIA GPU here, or none was asked for",
    "run this where there is one, with --device=cuda (the predicted loads are the same everywhere)",
)

Say = Callable[[str], None]


def profile(
    executor: Executor, cases: Sequence[Case], machine: Machine, gpu: int, say: Say
) -> Profile:
    """Run the cases as pytest does, then count those that passed under ``ncu``.

    Closes the executor between the two, so that its process does not keep the GPU. Cases on a CPU
    are not timed. Raises BackendError.
    """
    try:
        (device,) = executor.devices()
        found = {case.id: _run(executor, device, case, say) for case in cases}
    finally:
        executor.close()
    whole = _empty(device, tuple(found.values()))
    if device.kind != "cuda":
        return replace(whole, missing=NO_GPU)
    passed = [case for case in cases if found[case.id].outcome == "passed"]
    if not passed:
        return whole
    say(f"ncu: {len(passed)} cases")
    with _kept(device, say):
        counted = count(machine, passed, gpu, str(device.environment["compute_capability"]), say)
    if counted.missing is not None:
        return replace(whole, missing=counted.missing)
    for case in passed:
        found[case.id] = replace(
            found[case.id],
            message=counted.errors.get(case.id, ""),
            build=counted.facts.get(case.id, {}),
            counters=medians(counted.launches.get(case.id, ())),
        )
    return replace(whole, cases=tuple(found.values()), unknown=tuple(counted.unknown))


def sanitized(
    executor: Executor, cases: Sequence[Case], machine: Machine, gpu: int, device: Device, say: Say
) -> Profile:
    """Check each kernel on the CPU, by an executor there, and under ``compute-sanitizer``."""
    kernels = of_each(cases)
    checks: dict[str, Result] = {}
    try:
        for case in kernels:
            check = checks[case.kernel.id] = executor.run(_checked(case), None)
            said = check.message.partition("\n")[0] or check.unchecked or "nothing was found"
            say(f"CPU: {case.kernel.id}: {said}")
    finally:
        executor.close()
    with _kept(device, say):
        found = sanitize(machine, kernels, gpu, say)
    if isinstance(found, Finding):
        return replace(_empty(device), missing=found)
    rows = tuple(_beside(checks, found))
    return replace(_empty(device), sanitized=rows, missing=_left(found))


def _left(found: Found) -> Finding | None:
    """That not every tool came to every kernel; the table says which."""
    left = sum(None in tools.values() for tools in found.values())
    if not left:
        return None
    text = f"{left} of {len(found)} kernels were not watched by every tool"
    return advice("compute-sanitizer", text, "run it for fewer kernels at a time, with -k")


@contextmanager
def _kept(device: Device, say: Say) -> Iterator[None]:
    """Nobody else times on the device in between."""
    turns = Turns(device, "run", say)
    turns.start()
    try:
        yield
    finally:
        turns.stop()


def _beside(checks: Mapping[str, Result], found: Found) -> Iterator[Sanitized]:
    for kernel, tools in found.items():
        check = checks[kernel]
        failure = check.message if check.outcome == "failed" else ""
        skipped = check.message if check.outcome == "skipped" else ""
        yield Sanitized(kernel, failure, dict(tools), check.unchecked or skipped)


def _run(executor: Executor, device: Device, case: Case, say: Say) -> Profiled:
    timed = device.kind == "cuda"
    settings = replace(case.settings, timed=timed, check="auto")
    result = executor.run(replace(case, settings=settings), None)
    found = Profiled.of(case, result)
    first = result.message.partition("\n")[0]
    say(f"{case.id}: {seconds(found.seconds) if found.seconds else first or result.outcome}")
    if not timed or result.outcome != "passed":
        return found
    architecture = f"sm_{device.environment['compute_capability'].replace('.', '')}"
    code = executor.run(
        Case(case.kernel, case.problem, Settings(check="full", architecture=architecture)), None
    )
    return replace(found, static=code.counters if code.outcome == "passed" else {})


def _checked(case: Case) -> Case:
    """On the first problem of the exact suite: a CPU would take seconds for each of a GPU's."""
    problems = exact_suite(case.kernel) or (case.problem,)
    settings = replace(case.settings, timed=False, check="auto")
    return replace(case, problem=problems[0], settings=settings)


def _empty(device: Device, cases: tuple[Profiled, ...] = ()) -> Profile:
    date = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    peaks = device.peak_flops, device.peak_bandwidth
    return Profile(date, device.about, dict(device.environment), *peaks, cases)
