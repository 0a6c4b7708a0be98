"""Lets kernels duel with themselves, built another way: what they differ by is the machine's bias.

A bias stays however often it is measured, such as where the compiler happened to put the code.
Two builds here do the same work and differ in the length of a function that stands before the
kernel; and, as in every duet, half of the processes load the one first, half the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import cycle, islice
from random import Random

from pytest_gemm.calibration import Pair
from pytest_gemm.case import Case
from pytest_gemm.duet import LEAST_WORKERS, USUAL, worker_ratio
from pytest_gemm.errors import BackendError
from pytest_gemm.executor import Executor
from pytest_gemm.function import Runnable
from pytest_gemm.kernelspec import Kernel

LENGTHS = range(0, 88, 11)
"""How many stores the function before the kernel has: on a CPU, eleven take a cache line more."""

Rivals = tuple[Case, Case]


def rivals(cases: Sequence[Case], pairs: int, seed: int) -> list[Rivals]:
    """Choose pairs of builds, the same for a seed; no case comes again before all have come."""
    random = Random(seed)
    shuffled = random.sample(list(cases), len(cases))
    return [_built(case, *random.sample(LENGTHS, 2)) for case in islice(cycle(shuffled), pairs)]


def duel(executor: Executor, first: Case, second: Case) -> Pair:
    """Time two builds side by side in several processes.

    Raises BackendError, for a kernel that failed its checks and where processes were lost.
    """
    workers = executor.duet(Runnable(first), Runnable(second), USUAL)
    if len(workers) < LEAST_WORKERS:
        raise BackendError(f"{len(workers)} of {USUAL.workers} processes are left of its duet")
    return Pair(_original(first), tuple(map(worker_ratio, workers)))


def padded(kernel: Kernel, length: int) -> Kernel:
    """The kernel behind a function of that many stores, under a name of its own."""
    function = f"__global__ void gemm_padding(volatile int* x) {{ {'*x = 1; ' * length}}}"
    source = f'{function}\n#line 1 "{kernel.filename}"\n{kernel.source}'
    return replace(kernel, name=f"{kernel.name} (behind {length} stores)", source=source)


def _built(case: Case, *lengths: int) -> Rivals:
    first, second = (replace(case, kernel=padded(case.kernel, length)) for length in lengths)
    return first, second


def _original(case: Case) -> str:
    name = case.kernel.name.partition(" (behind ")[0]
    return replace(case, kernel=replace(case.kernel, name=name)).id
