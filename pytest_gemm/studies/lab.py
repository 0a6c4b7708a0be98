"""Runs the cases of a study: those of a project, on the device and on the sides it is compared to.

What would take too long is left out by its size, and said. How long is known from the same
kernel's last case: times grow at least as the work does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from pytest_gemm.case import Case
from pytest_gemm.collection import Collection
from pytest_gemm.errors import ConfigError
from pytest_gemm.executor import Executor
from pytest_gemm.function import Function
from pytest_gemm.problem import Problem
from pytest_gemm.report.text import seconds
from pytest_gemm.result import Result
from pytest_gemm.studies.document import LeftOut, Measured, Side

LAUNCHES = 25
"""As many launches, about, does a case take that is timed by single ones: checks, warm-up, a round
of samples, the ways there and back."""

Say = Callable[[str], None]


class NoCase(ConfigError):
    """No case of the project is one for the study."""


@dataclass(frozen=True)
class Project:
    """The kernels of a project, and their cases of given sizes.

    ``collect`` reads the project with the sizes of every case replaced, or with the kernels' own
    where there are none; ``words`` choose cases by what their ids contain.
    """

    collect: Callable[[Sequence[str]], Collection]
    words: Sequence[str] = ()

    def cases(self, sizes: Sequence[str] = ()) -> list[Case]:
        """Kernel by kernel as they are declared, sizes in the order given.

        Raises ConfigError where there are cases and the words choose none.
        """
        cases = list(self.collect(sizes).cases.values())
        chosen = [case for case in cases if case.is_chosen(self.words)]
        if cases and not chosen:
            raise ConfigError(
                f"-k {' -k '.join(self.words)}: no case contains that, such as {cases[0].id}"
            )
        return chosen

    @cached_property
    def functions(self) -> Mapping[str, Function]:
        """The callables of Python kernels."""
        return self.collect(()).registry.functions


class Bench:
    """Measures cases on one executor, one after another, for one study.

    A case that is expected to take longer than ``limit`` seconds is left out.
    """

    def __init__(
        self,
        executor: Executor,
        functions: Mapping[str, Function],
        say: Say,
        limit: float,
    ) -> None:
        self.executor = executor
        self.measured: list[Measured] = []
        self.left_out: list[LeftOut] = []
        self._functions = functions
        self._say = say
        self._limit = limit
        self._last: dict[str, tuple[int, float]] = {}

    def run(self, case: Case, side: Side = "device") -> Measured | None:
        """Measure a case, or leave it out. Raises BackendError."""
        if left := self._left_out(case):
            self.left_out.append(left)
            self._say(f"{case.id}: left out, {left.reason}")
            return None
        result = self.result(case)
        measured = Measured.of(side, case, result)
        self.measured.append(measured)
        if result.estimate is None:
            self._say(f"{case.id}: {result.outcome}: {result.message.partition(chr(10))[0]}")
        else:
            self._last[case.kernel.id] = (work(case.problem), result.estimate.median)
            self._say(f"{case.id}: {seconds(result.estimate.median)}")
        return measured

    def result(self, case: Case) -> Result:
        """What comes of a case, whatever it takes, and without keeping it."""
        return self.executor.run(case, self._functions.get(case.kernel.callable))

    def _left_out(self, case: Case) -> LeftOut | None:
        about = case.kernel.id, case.problem.id
        if reason := case.kernel.skip_reason(case.problem):
            return LeftOut(*about, reason)
        done, median = self._last.get(case.kernel.id, (0, 0.0))
        expected = LAUNCHES * median * work(case.problem) / done if done else 0.0
        if expected > self._limit:
            reason = f"it would take about {expected:.3g} s, and a case may take {self._limit:g} s"
            return LeftOut(*about, reason, expected)
        return None


class Lab:
    """What a study works with: the project's cases, the device, and the sides to compare with.

    ``sizes`` are those that the user asked for, if any. The executors are opened when they are
    needed, and closed by ``close``.
    """

    def __init__(
        self,
        project: Project,
        kind: str,
        sizes: Sequence[str],
        open_device: Callable[[], Executor],
        open_serial: Callable[[], Executor],
        say: Say,
        limit: float,
    ) -> None:
        self.project = project
        self.kind = kind
        self.sizes = tuple(sizes)
        self._open = {"device": open_device, "serial": open_serial}
        self._say = say
        self._limit = limit
        self.start: dict[str, float] = {}

    @cached_property
    def device(self) -> Bench:
        """The device that was asked for; how long it took to be there is in ``start``."""
        began = time.perf_counter()
        bench = self._bench("device", self.project.functions)
        bench.executor.devices()
        self.start["ready_s"] = time.perf_counter() - began
        return bench

    @cached_property
    def serial(self) -> Bench:
        """C and NumPy on the CPU beside it."""
        from pytest_gemm.studies.sides import numpy_kernels

        return self._bench("serial", numpy_kernels()[1])

    def start_process(self, case: Case) -> None:
        """Run a case in the new process, and run it again: the difference is the start.

        Not timed and not checked for its accesses, which would be a launch before the first.
        """
        bare = replace(case, settings=replace(case.settings, timed=False, check="off"))
        for name in ("first", "next"):
            began = time.perf_counter()
            result = self.device.result(bare)
            self.start[f"{name}_case_s"] = time.perf_counter() - began
            if "first_launch_s" in result.counters:
                self.start[f"{name}_launch_s"] = result.counters["first_launch_s"]

    @property
    def measured(self) -> tuple[Measured, ...]:
        return tuple(m for bench in self._benches for m in bench.measured)

    @property
    def left_out(self) -> tuple[LeftOut, ...]:
        return tuple(left for bench in self._benches for left in bench.left_out)

    @property
    def cpu(self) -> dict[str, Any]:
        """What C and NumPy ran on; empty where they were not asked for."""
        if "serial" not in vars(self):
            return {}
        (device,) = self.serial.executor.devices()
        return {"name": device.name, "description": device.description, **device.environment}

    def close(self) -> None:
        """End the processes."""
        for bench in self._benches:
            bench.executor.close()

    @property
    def _benches(self) -> Iterable[Bench]:
        return [vars(self)[name] for name in ("device", "serial") if name in vars(self)]

    def _bench(self, name: str, functions: Mapping[str, Function]) -> Bench:
        return Bench(self._open[name](), functions, self._say, self._limit)


def work(problem: Problem) -> int:
    """What a time grows with: operations."""
    return problem.flops
