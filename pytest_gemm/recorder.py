"""Gathers the records of a run where its reports arrive, and closes the run.

Under xdist the tests run in worker processes; their records travel on the reports, so that the
one process which prints the summary is also the one that writes baselines.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from pytest_gemm.options import Options
from pytest_gemm.selection import is_case

if TYPE_CHECKING:
    from pytest_gemm.closing import Closing

RECORD = pytest.StashKey[dict[str, Any]]()
"""On an item: the record of its case (``Record.to_dict``)."""

PROJECT = "gemm_project"
"""What a node of xdist tells at its end."""

ENDED = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED)
"""Of a run that came to its end."""

GATE_WORDS = frozenset(
    {"new", "stored", "faster", "changed", "withheld", "inconclusive", "ungated"}
)
"""What the gate says of an item other than "same" and "slower": counted in the last line."""


class Project(NamedTuple):
    """The ids of all cases of the project, and the names of all its kernels, of any back end."""

    cases: Collection[str]
    kernels: Collection[str]


class Recorder:
    """The hooks that see every report of a run.

    ``project`` is None where only some of its kernels were collected.
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        self.project: Project | None = None
        self._records: list[dict[str, Any]] = []
        self._unchecked: list[str] = []
        self._finished: set[str] = set()
        self._closing: Closing | None = None

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if is_case(item):
            record = item.stash.get(RECORD, None)
            if record and report.failed and record["outcome"] == "passed":
                record.update(_failed_elsewhere(record))
            report.gemm = record  # type: ignore[attr-defined]
        return report

    def pytest_report_teststatus(
        self, report: pytest.TestReport | pytest.CollectReport
    ) -> tuple[str, str, str] | None:
        # The teardown's report is free to carry a second count, beside "passed" or "failed".
        if report.when == "teardown" and report.passed and hasattr(report, "gemm"):
            gate = report.gemm["gate"] if report.gemm else "ungated" * self.options.accountable
            if gate in GATE_WORDS:
                return gate, "", ""
        return None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "teardown":
            return
        self._finished.add(report.nodeid)
        if hasattr(report, "gemm"):
            if report.gemm:
                self._records.append(report.gemm)
            else:
                self._unchecked.append(report.nodeid)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        # All nodes have collected the same.
        if found := getattr(node, "workeroutput", {}).get(PROJECT):
            self.project = Project(*found)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput[PROJECT] = self.project and tuple(self.project)
            return
        # Where -x ended it, the exit code says no more than that a test failed.
        all_finished = self._finished.issuperset(item.nodeid for item in session.items)
        interrupted = not (exitstatus in ENDED and all_finished)
        # The report of an earlier run must not pass for one of a run that came to nothing.
        if not (self._records or self._unchecked or self.options.reports):
            return
        from pytest_gemm.closing import close
        from pytest_gemm.record import Record

        self._closing = close(
            self.options,
            [Record.from_dict(record) for record in self._records],
            self._unchecked,
            *(self.project or (None, ())),
            interrupted=interrupted,
        )
        if self._closing.failed and exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._closing is None:
            return
        _recount(terminalreporter.stats, self._closing.unwritten)
        if self._closing.lines:
            terminalreporter.section(self._closing.title)
            for line in self._closing.lines:
                terminalreporter.write_line(line)


def _failed_elsewhere(record: Mapping[str, Any]) -> dict[str, str]:
    """What changes in a record whose case passed, and whose test did not: nothing is stored."""
    gate = "withheld" if record["gate"] == "stored" else record["gate"]
    message = f"{record['id']}: its test failed where gemm.check() had passed"
    return {"outcome": "failed", "gate": gate, "message": message}


def _recount(stats: dict[str, list[Any]], unwritten: Collection[str]) -> None:
    """Count as ungated, in the last line, what was counted as stored and then not written."""
    counted = stats.pop("stored", [])
    for report in counted:
        gate = "ungated" if report.gemm["id"] in unwritten else "stored"
        stats.setdefault(gate, []).append(report)
