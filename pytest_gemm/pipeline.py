"""How one case is run: the page to read first.

compile -> verify exactly -> verify on the timed data -> sample -> verify again -> summarize
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from pytest_gemm import overheads
from pytest_gemm.backends.base import Backend, Device
from pytest_gemm.case import Case, Settings
from pytest_gemm.comparison import Agreement
from pytest_gemm.correctness import check_suite, check_timed, exact_suite
from pytest_gemm.errors import BackendError, GemmError, KernelFault, WrongResultError
from pytest_gemm.kernelspec import Kernel
from pytest_gemm.launching import Launcher, loaded, placements, program_of
from pytest_gemm.matrices import Operands, operands
from pytest_gemm.overheads import seconds_of
from pytest_gemm.problem import Problem
from pytest_gemm.result import Result
from pytest_gemm.reuse import Reuse
from pytest_gemm.stats import summarize
from pytest_gemm.timing import PLANS, Samples, take_samples

TIMED_RECIPE = "uniform"
"""The recipe of the operands that are timed, and whose C is digested."""

BUILD = ("registers", "local_bytes", "static_shared_bytes")
"""What a build says of a kernel, where it can, and what is stored of it."""

Function = Callable[..., object]


def run_case(
    case: Case,
    backend: Backend,
    function: Function | None = None,
    reuse: Reuse | None = None,
) -> Result:
    """Run one case; what the kernel or the device does wrong is in the result.

    ``function`` is the callable of a Python kernel; ``reuse`` is shared by the cases of a run.
    Raises BackendError where the device cannot be used at all.
    """
    if reason := _skip_reason(case, backend.device):
        result = Result("skipped", f"{case.title}: {reason}")
    else:
        try:
            result = _verify_and_time(case, backend, function, reuse or Reuse())
        except GemmError as error:
            result = Result("failed", _titled(case, str(error)))
    return result.on(backend.device)


def verified_launcher(
    case: Case, backend: Backend, function: Function | None, reuse: Reuse
) -> Launcher:
    """What launches a case's kernel as it is timed, after the checks that ``run_case`` makes.

    Raises BackendError with the text that would be in the result.
    """
    if reason := _skip_reason(case, backend.device):
        raise BackendError(f"{case.title}: {reason}")
    try:
        launcher, _ = _build(case, backend, function, reuse)
        data = reuse.operands(case.problem, case.settings.seed, TIMED_RECIPE)
        with loaded(backend, case.problem, data) as workspace:
            _check_of(case.kernel, data)(launcher.once, workspace)
    except GemmError as error:
        raise BackendError(_titled(case, str(error))) from error
    return replace(launcher, cold=case.settings.cold)


def _skip_reason(case: Case, device: Device) -> str:
    problem = case.problem
    if reason := case.kernel.skip_reason(problem):
        return reason
    if device.memory is None or problem.bytes <= device.memory:
        return ""
    needed, there = f"{problem.bytes / 1e9:,.0f}", f"{device.memory / 1e9:,.0f}"
    return f"it needs {needed} GB for A, B and C, and the device has {there} GB in all"


def _verify_and_time(
    case: Case, backend: Backend, function: Function | None, reuse: Reuse
) -> Result:
    kernel, problem, settings = case.kernel, case.problem, case.settings
    launcher, counters = _build(case, backend, function, reuse)
    data = reuse.operands(problem, settings.seed, TIMED_RECIPE)
    check = _check_of(kernel, data)
    with loaded(backend, problem, data) as workspace:
        verified = check(launcher.once, workspace)
        if not settings.timed:
            return Result("passed", digest=verified.digest, counters=counters)
        counters |= overheads.measure(backend, workspace, launcher.once, data)
        if settings.trips:
            counters |= overheads.trips(launcher, workspace, data)

    before = backend.conditions()
    samples = _sample(launcher, problem, data, settings)
    after = backend.conditions()
    _refuse_impossible(min(samples.seconds), problem, backend.device, cold=settings.cold)
    with loaded(backend, problem, data) as workspace:
        # Launched as it is timed, all launches of a sample at once; where C is read, a second one
        # would find the result of the first.
        batch = partial(launcher.time, launches=1 if problem.reads_c else samples.launches)
        check(batch, workspace, verified=verified)
    return Result(
        "passed",
        digest=verified.digest,
        samples=samples.seconds,
        launches=samples.launches,
        estimate=summarize(samples.seconds),
        counters=counters,
        conditions={"before": dict(before), "after": dict(after)},
    )


def _build(
    case: Case, backend: Backend, function: Function | None, reuse: Reuse
) -> tuple[Launcher, dict[str, float]]:
    """Compile a kernel and run its exact suite; what launches it, and what that took."""
    kernel, settings = case.kernel, case.settings
    started = time.perf_counter()
    executable = backend.compile(program_of(kernel, function))
    counters = {"compile_s": time.perf_counter() - started}
    counters |= {name: executable.facts[name] for name in BUILD if name in executable.facts}
    launcher = Launcher(kernel, backend, executable, settings.launch_timeout)
    first = _run_exact_suite(launcher, case.problem, settings.seed, reuse.exact)
    return launcher, {**counters, "first_launch_s": first}


def _check_of(kernel: Kernel, data: Operands) -> Callable[..., Agreement]:
    """``check_timed`` of a kernel on its operands."""
    return partial(check_timed, data=data, kernel=kernel.id, deterministic=kernel.deterministic)


def _run_exact_suite(
    launcher: Launcher, problem: Problem, seed: int, known: dict[str, str]
) -> float:
    """Run the exact suite, if that was not done, and return the seconds of the first launch.

    A kernel that is made for none of the suite's problems is checked on the case's own.
    """
    kernel, backend = launcher.kernel, launcher.backend
    small = exact_suite(kernel) or (problem,)
    # Stored kernels of one name may be different ones.
    key = f"{kernel.id} {kernel.source_hash} {small[0].id}"
    if failure := known.get(key):
        raise WrongResultError(failure)
    try:
        with loaded(backend, small[0], operands(small[0], seed, TIMED_RECIPE)) as workspace:
            first = seconds_of(partial(launcher.once, workspace))
        if key not in known:
            check_suite(launcher.once, backend, small, seed, kernel=kernel.id)
    except (WrongResultError, KernelFault) as error:
        known[key] = str(error)
        raise
    known[key] = ""
    return first


def time_reference(
    kernel: Kernel,
    function: Function,
    problem: Problem,
    backend: Backend,
    settings: Settings,
    reuse: Reuse,
) -> float:
    """Seconds per launch of a library's own routine, timed like a case but not checked."""
    executable = backend.compile(program_of(kernel, function))
    launcher = Launcher(kernel, backend, executable, settings.launch_timeout)
    data = reuse.operands(problem, settings.seed, TIMED_RECIPE)
    return summarize(_sample(launcher, problem, data, settings).seconds).median


def _sample(launcher: Launcher, problem: Problem, data: Operands, settings: Settings) -> Samples:
    timed = replace(launcher, cold=settings.cold)
    plan = replace(PLANS[launcher.backend.kind], cap=settings.time_cap)
    return take_samples(placements(timed, problem, data, settings.seed), plan)


def _refuse_impossible(fastest: float, problem: Problem, device: Device, *, cold: bool) -> None:
    """Raise BackendError for a launch faster than the hardware's arithmetic or memory allows.

    The memory's limit holds only where the operands cannot all come from a cache.
    """
    # The peak is that of float32 lanes; other types have others, and tensor cores.
    peak = device.peak_flops if problem.dtype == "float32" else None
    limits = {"arithmetic": problem.flops / (peak or math.inf)}
    cache = float(device.environment.get("l2_bytes") or math.inf)
    if cold or problem.bytes > 4 * cache:
        limits["memory"] = problem.bytes / (device.peak_bandwidth or math.inf)
    for name, limit in limits.items():
        if fastest < limit:
            raise BackendError(
                f"a launch of {fastest:.3g} s cannot be true: the device's {name} needs at least "
                f"{limit:.3g} s for {problem.id}"
            )


def _titled(case: Case, text: str) -> str:
    """The text, with the kernel and the shape in its first line if they are not there yet."""
    title = f"{case.kernel.id} on "
    return text if text.startswith(title) else f"{title}{case.problem.id}: {text}"
