"""Two kernels are timed side by side: the same operands, blocks of four, both verified."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from pytest_gemm.backends.base import Argument, Executable, LaunchConfig, Matrix
from pytest_gemm.case import Case, Settings
from pytest_gemm.dueling import duet_times
from pytest_gemm.duet import Round, worker_ratio
from pytest_gemm.errors import BackendError
from pytest_gemm.function import Runnable
from pytest_gemm.kernelspec import Kernel
from pytest_gemm.problem import Problem
from pytest_gemm.reuse import Reuse
from tests.memory_backend import MemoryBackend, MemoryExecutable

ROUND = Round(1, workers=6, placements=3, blocks=2)


class Scripted(MemoryBackend):
    """A launch of ``old`` takes 10 ms, of ``new`` 11 ms; a clock that sinks slows both."""

    kind = "host"

    def __init__(self, drift: float = 0.0) -> None:
        super().__init__()
        self.drift = drift
        self.compiled: list[str] = []
        self.timed: list[tuple[str, int, int]] = []

    def compile(self, program: Any) -> MemoryExecutable:
        self.compiled.append(program.function.__name__)
        return super().compile(program)

    def time(
        self,
        executable: Executable,
        config: LaunchConfig,
        arguments: Sequence[Argument],
        *,
        launches: int = 1,
        cold: bool = False,
        timeout: float = 60.0,
    ) -> float:
        super().time(executable, config, arguments, timeout=timeout)
        assert isinstance(executable, MemoryExecutable)
        name = executable.program.function.__name__
        (C,) = (a for a in arguments[2:] if isinstance(a, Matrix))
        self.timed.append((name, id(C.buffer), launches))
        seconds = {"old": 0.010, "new": 0.011}.get(name, 0.010)
        return seconds * launches * (1 + self.drift) ** len(self.timed)


def old(A: Any, B: Any, C: Any) -> None:
    C[:] = A @ B


def new(A: Any, B: Any, C: Any) -> None:
    C[:] = A @ B


def wrong(A: Any, B: Any, C: Any) -> None:
    C[:] = A @ B + 1


def part(function: Any) -> Runnable:
    args = ("A", "B", "C")
    kernel = Kernel(function.__name__, args=args, callable=function.__name__, deterministic=False)
    return Runnable(Case(kernel, Problem("gemm", 24, 16, 8), Settings(timed=True)), function)


def measured(backend: Scripted, worker: int = 0) -> list[list[list[float]]]:
    return duet_times(part(old), part(new), backend, ROUND, worker=worker, reuse=Reuse())


def test_each_block_is_four_times_on_the_same_operands() -> None:
    backend = Scripted()
    times = measured(backend)
    assert [[len(block) for block in placement] for placement in times] == [[4, 4]] * 3
    last = backend.timed[-8:]
    assert [name for name, *_ in last] == [
        *("old", "new", "new", "old"),
        *("new", "old", "old", "new"),
    ]
    assert len({buffer for _, buffer, _ in last}) == 1
    assert len({launches for *_, launches in last}) == 1


def test_each_placement_is_elsewhere() -> None:
    backend = Scripted()
    measured(backend)
    size = 2 + 8
    places = [backend.timed[-size * (i + 1)][1] for i in range(3)]
    assert len(set(places)) == 3


def test_the_ratio_is_found_whatever_the_clock_does() -> None:
    assert worker_ratio(measured(Scripted())) == pytest.approx(0.0953, abs=1e-4)
    assert worker_ratio(measured(Scripted(drift=1e-4))) == pytest.approx(0.0953, abs=1e-4)


def test_every_other_worker_loads_the_new_kernel_first() -> None:
    first: Mapping[int, str] = {}
    for worker in (0, 1):
        backend = Scripted()
        measured(backend, worker)
        first = {**first, worker: backend.compiled[0]}
        assert sorted(backend.compiled) == ["new", "old"], "once each"
    assert first == {0: "old", 1: "new"}


def test_a_kernel_that_is_wrong_is_not_timed() -> None:
    with pytest.raises(BackendError, match=r"wrong on .* elements of C wrong"):
        duet_times(part(old), part(wrong), Scripted(), ROUND, worker=0, reuse=Reuse())


def test_all_memory_is_given_back() -> None:
    backend = Scripted()
    measured(backend)
    assert backend.buffers == []
