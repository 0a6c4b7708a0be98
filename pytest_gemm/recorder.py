"""Gathers the records of a run where its reports arrive, and closes the run.

Under xdist the tests run in worker processes; their records travel on the reports, so that the
one process which prints the summary is also the one that writes baselines.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest

from pytest_gemm.options import Options

if TYPE_CHECKING:
    from pytest_gemm.closing import Closing

RECORD = pytest.StashKey[dict[str, Any]]()
"""On an item: the record of its case (``Record.to_dict``)."""

GATE_WORDS = frozenset({"new", "stored", "faster", "withheld", "inconclusive", "ungated"})
"""What the gate says of a passed item other than "same": counted in pytest's last line."""


def is_case(item: pytest.Item) -> bool:
    """Whether the item is a kernel on a problem."""
    return item.get_closest_marker("gemm") is not None


class Recorder:
    """The hooks that see every report of a run."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.records: list[dict[str, Any]] = []
        self.unchecked: list[str] = []
        self.closing: Closing | None = None

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if is_case(item):
            report.gemm = item.stash.get(RECORD, None)
        return report

    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        # The teardown's report is free to carry a second count beside "passed".
        if report.when == "teardown" and report.passed:
            word = self._gate(report)
            if word in GATE_WORDS:
                return word, "", ""
        return None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "teardown" and hasattr(report, "gemm"):
            if report.gemm:
                self.records.append(report.gemm)
            else:
                self.unchecked.append(report.nodeid)

    def _gate(self, report: pytest.TestReport) -> str:
        if not hasattr(report, "gemm"):
            return ""
        if report.gemm is None:
            return "ungated" if self.options.bench else ""
        return str(report.gemm["gate"])

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        worker = hasattr(session.config, "workerinput")
        if worker or not (self.records or self.unchecked):
            return
        from pytest_gemm.closing import close

        interrupted = exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
        self.closing = close(self.options, self.records, self.unchecked, interrupted)
        if self.closing.failed and exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.closing is not None:
            self.closing.print(terminalreporter)
