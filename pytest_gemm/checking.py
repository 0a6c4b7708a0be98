"""Launches a kernel on the CPU with every memory access watched, before it is believed.

The same ``.cu`` file runs wherever the cases run, so its mistakes are found without a GPU too.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from typing import Literal

import numpy as np

from pytest_gemm.backends.base import CudaProgram, LaunchConfig
from pytest_gemm.backends.host import HostBackend
from pytest_gemm.backends.host.check import (
    ASCENDING,
    DESCENDING,
    CheckReport,
    Finding,
    ThreadOrder,
)
from pytest_gemm.backends.host.check import Traffic as Counted
from pytest_gemm.bits import Elements, raw
from pytest_gemm.comparison import number
from pytest_gemm.correctness import check_exactly, exact_suite
from pytest_gemm.device import Workspace
from pytest_gemm.errors import CompileError, ConfigError, KernelFault, WrongResultError
from pytest_gemm.kernelspec import Kernel
from pytest_gemm.launching import arguments_of, loaded
from pytest_gemm.matrices import operands
from pytest_gemm.problem import Problem
from pytest_gemm.traffic import Traffic, counted

Scope = Literal["off", "auto", "full"]
"""Nothing; the first problems of the exact suite; all of them."""

FIRST = 3
"""Problems of ``auto``: a square with residues, and rectangles of several blocks each way.

Besides them the first with gaps, for a kernel that is told leading dimensions or strides.
"""

ORDERS = (ASCENDING, DESCENDING, ThreadOrder("random", seed=1))

SHOWN = 4
"""Findings that are told in full."""


@dataclass(frozen=True)
class Checked:
    """What checking a kernel found.

    ``failure`` is empty, or a text whose first line is complete in itself. ``traffic`` was
    counted on ``traffic.COUNTED``. ``unchecked`` says why nothing was checked, if nothing was.
    """

    failure: str = ""
    traffic: Traffic = field(default_factory=dict)
    unchecked: str = ""


class Checker:
    """Checks each kernel once, on a back end that can watch launches.

    ``seed`` is that of the operands, ``timeout`` the most seconds of a launch.
    """

    def __init__(self, backend: HostBackend, scope: Scope, seed: int, timeout: float) -> None:
        self._backend = backend
        self._scope = scope
        self._seed = seed
        self._timeout = timeout
        self._known: dict[str, Checked] = {}

    def check(self, kernel: Kernel) -> Checked:
        """Launch a ``.cu`` kernel on small problems, in several orders of its threads."""
        if self._scope == "off" or kernel.is_python:
            return Checked()
        key = f"{kernel.id} {kernel.source_hash}"
        if key not in self._known:
            self._known[key] = self._check(kernel)
        return self._known[key]

    def _check(self, kernel: Kernel) -> Checked:
        problems = exact_suite(kernel)
        if self._scope == "auto":
            with_gaps = [problem for problem in problems[FIRST:] if problem.has_gaps]
            problems = (*problems[:FIRST], *with_gaps[:1])
        try:
            for problem in problems:
                if failure := self._mistakes(kernel, problem):
                    return Checked(failure)
            if failure := self._moved(kernel, problems[:1]):
                return Checked(failure)
            return self._counted(kernel)
        except CompileError as error:
            return Checked(unchecked=str(error).splitlines()[0])
        except ConfigError as error:  # of the kernel's reference
            return Checked(f"{kernel.id}: {error}")

    def _mistakes(self, kernel: Kernel, problem: Problem) -> str:
        """What the accesses of a kernel and its result show, or an empty text."""
        findings: dict[Hashable, Finding] = {}
        more = 0
        orders = cycle((ORDERS[0], ORDERS[2]))

        def launch(workspace: Workspace) -> None:
            nonlocal more
            report = self._launch(kernel, workspace, next(orders))
            for finding in report.findings:
                findings.setdefault(_mistake(finding), finding)
            more += report.more
            if report.fault is not None:
                raise report.fault

        wrong = ""
        try:
            check_exactly(launch, self._backend, problem, self._seed, kernel=kernel.id)
        except WrongResultError as error:
            wrong = str(error)
        except KernelFault as fault:
            wrong = "" if findings else str(fault)
        return "\n".join(_told(kernel, problem, list(findings.values()), more, wrong))

    def _moved(self, kernel: Kernel, problems: Sequence[Problem]) -> str:
        """Whether C depends on the order in which threads run, where no access said why."""
        for problem in problems if kernel.deterministic else ():
            results: list[Elements] = []
            for order in ORDERS:
                with loaded(self._backend, problem, operands(problem, self._seed)) as workspace:
                    report = self._launch(kernel, workspace, order)
                    results.append(workspace.read())
                if report.findings:
                    return "\n".join(_told(kernel, problem, report.findings, report.more, ""))
            for order, C in zip(ORDERS, results, strict=True):
                different = np.argwhere(raw(C) != raw(results[0]))
                for index in map(tuple, different[:1].tolist()):
                    return (
                        f"{kernel.id} on {problem.id}: C depends on the order of the threads: "
                        f"C{[*index]} = {number(results[0][index])} in ascending order and "
                        f"{number(C[index])} in {order.kind} order; set deterministic = false "
                        "where that is meant"
                    )
        return ""

    def _counted(self, kernel: Kernel) -> Checked:
        """The traffic of a launch on whole tiles, unless that shows a mistake."""
        problem = counted(kernel)
        if kernel.skip_reason(problem):
            return Checked()
        with loaded(self._backend, problem, operands(problem, self._seed)) as workspace:
            report = self._launch(kernel, workspace, ASCENDING)
        if report.findings:
            return Checked("\n".join(_told(kernel, problem, report.findings, report.more, "")))
        return Checked(traffic=dict(_counts(report.traffic)))

    def _launch(self, kernel: Kernel, workspace: Workspace, order: ThreadOrder) -> CheckReport:
        return self._backend.check(
            CudaProgram(*kernel.program_fields),
            LaunchConfig(*kernel.launch(workspace.problem)),
            arguments_of(kernel, workspace),
            order=order,
            timeout=self._timeout,
            names=dict(enumerate(kernel.args, start=1)),
        )


def _mistake(finding: Finding) -> Hashable:
    """What is the same in another order of the threads, and seen from the other of two lines."""
    lines = frozenset((finding.place, finding.other_place))
    return finding.kind, lines, finding.argument, finding.shared, finding.variable


def _told(
    kernel: Kernel, problem: Problem, findings: Sequence[Finding], more: int, wrong: str
) -> Iterator[str]:
    """The findings, and below them what the result shows."""
    title = f"{kernel.id} on {problem.id}: "
    for index, finding in enumerate(findings[:SHOWN]):
        yield f"  {finding}" if index else f"{title}{finding}"
    if left := max(0, len(findings) - SHOWN) + more:
        yield f"  and {left} more"
    if wrong:
        yield f"  {wrong.removeprefix(title)}" if findings else wrong


def _counts(counted: Counted) -> Iterator[tuple[str, int]]:
    for name, accesses in (("global", counted.matrices), ("shared", counted.shared)):
        yield f"{name}_loads", accesses.loads
        yield f"{name}_load_words", accesses.load_words
        yield f"{name}_stores", accesses.stores
        yield f"{name}_store_words", accesses.store_words
        yield f"{name}_atomics", accesses.atomics
    yield "barriers", counted.barriers
