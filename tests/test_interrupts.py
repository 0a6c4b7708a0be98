"""Runs that end early, or run otherwise than by default: results, exit codes, files, processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.test_worker import write_project

MARK = "PYTEST_GEMM_TEST_RUN"
"""In the environment of all processes of a run, and of no other."""

KERNELS = """
import contextlib, ctypes, os, sys, time
from pathlib import Path
import numpy as np
import pytest_gemm

HERE = Path(__file__).parent

def wait_if(name):
    if (HERE / f"{name}.wanted").exists():
        (HERE / f"{name}.reached").touch()
        time.sleep(1000)

@pytest_gemm.kernel(sizes=[8, 9, 10, 11], deterministic=True)
def product(A, B, C):
    wait_if("in_a_case")
    if (HERE / "with_the_lock.wanted").exists():
        (HERE / "with_the_lock.reached").touch()
        ctypes.PyDLL(None).sleep(1000)
    np.matmul(A, B, out=C)
"""

# Two cases are finished, then something takes forever.
MOMENTS = """
import os
FINISHED = []

def pytest_runtest_logfinish(nodeid):
    if moment := os.environ.get("MOMENT"):
        FINISHED.append(nodeid)
        if len(FINISHED) == 2:
            if "PYTEST_XDIST_WORKER" not in os.environ:
                (HERE / "two_reports.reached").touch()
            (HERE / f"{moment}.wanted").touch()
            wait_if("between_cases")
"""

FAULTY = """
@pytest_gemm.kernel(sizes=[8, 9])
def wrong(A, B, C):
    C[:] = A @ B + 1

@pytest_gemm.kernel(sizes=[8])
def aborts(A, B, C):
    os.abort()

def pytest_sessionfinish():
    children = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parent = path.read_text().rpartition(")")[2].split()[1]
            children += [path.parent.name] * (int(parent) == os.getpid())
    process = os.environ.get("PYTEST_XDIST_WORKER", "main")
    (HERE / f"{process}.children").write_text(" ".join(children))
"""

COMPILER = """#!/bin/sh
for word in "$@"; do
  if [ -f "$word" ] && grep -q compiled_forever "$word"; then
    touch "$TMPDIR/cc.s" "{folder}/in_a_compilation.reached"
    sleep 1000
  fi
done
if [ -e "{folder}/in_the_first_start.wanted" ]; then
  touch "{folder}/in_the_first_start.reached"
  sleep 1000
fi
exec g++ "$@"
"""

SLOW_TO_COMPILE = """
// /// gemm
// block = [16, 16]
// grid = ["cdiv(N, 16)", "cdiv(M, 16)"]
// sizes = [8]
// ///
__global__ void compiled_forever(const float* A, const float* B, float* C, int M, int N, int K) {}
"""

BENCH = ["--gemm-bench", "--gemm-report=out.json", "--benchmark-quiet", "-o", "gemm_time_cap=0.01"]
UPDATE = [*BENCH, "--gemm-baseline=update"]


HEEDING_CTRL_C = """
import signal, sys
import pytest

signal.signal(signal.SIGINT, signal.default_int_handler)
sys.exit(pytest.main(sys.argv[1:]))
"""
"""Where these tests run under xdist they ignore SIGINT, and so would what they start."""


class Run:
    """pytest as a terminal starts it: in the foreground, with a process group of its own."""

    def __init__(self, folder: Path, *args: str, **variables: str) -> None:
        self.folder = folder
        self.mark = f"{folder}-{time.monotonic_ns()}"
        self.process = subprocess.Popen(
            [sys.executable, "-c", HEEDING_CTRL_C, "-W", "error", *args],
            cwd=folder,
            env={**os.environ, MARK: self.mark, "COLUMNS": "200", **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def wait_for(self, name: str) -> None:
        """Until the run has come to a moment."""
        reached = self.folder / f"{name}.reached"
        wait_until(lambda: reached.exists() or self.process.poll() is not None)
        assert reached.exists(), self.process.communicate()[0]

    def signal(self, number: signal.Signals, *, group: bool = False) -> None:
        send = os.killpg if group else os.kill
        send(self.process.pid, number)

    def end(self) -> str:
        """What it printed; all of its processes are gone then."""
        text, _ = self.process.communicate(timeout=60)
        wait_until(lambda: not self.left())
        return text

    def left(self) -> dict[int, str]:
        """The command lines of its processes, in whatever session or group they are."""
        found = {}
        for path in Path("/proc").glob("[0-9]*/environ"):
            try:
                if f"{MARK}={self.mark}".encode() in path.read_bytes().split(b"\0"):
                    found[int(path.parent.name)] = path.with_name("cmdline").read_text()
            except OSError:
                continue
        return found

    def kill(self) -> None:
        for pid in self.left():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.communicate()


def wait_until(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    write_project(
        tmp_path,
        {
            "test_kernels.py": "def test_gemm(gemm): gemm.check()",
            "conftest.py": KERNELS + MOMENTS,
            "pytest.ini": "[pytest]\n",
        },
    )
    return tmp_path


@pytest.fixture
def start(folder: Path) -> Iterator[Callable[..., Run]]:
    runs: list[Run] = []

    def start_one(*args: str, **variables: str) -> Run:
        runs.append(Run(folder, *args, **variables))
        return runs[-1]

    yield start_one
    for run in runs:
        run.kill()


def report(folder: Path) -> dict[str, Any]:
    found = json.loads((folder / "out.json").read_text())
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("moment", ["with_the_lock", "between_cases"])
def test_ctrl_c_reports_what_was_finished_and_stores_nothing(
    moment: str, folder: Path, start: Callable[..., Run]
) -> None:
    run = start(*UPDATE, MOMENT=moment)
    run.wait_for(moment)
    run.signal(signal.SIGINT, group=True)
    text = run.end()
    assert run.process.returncode == pytest.ExitCode.INTERRUPTED, text
    assert "interrupted: these 2 results are partial; nothing is stored" in text
    assert "2 ungated" in text
    assert "Traceback" not in text
    assert report(folder)["partial"] is True
    assert [record["outcome"] for record in report(folder)["records"]] == ["passed"] * 2
    assert not (folder / "baselines").exists()


@pytest.mark.parametrize("moment", ["in_the_first_start", "in_a_compilation"])
def test_ctrl_c_while_something_is_compiled(
    moment: str, folder: Path, start: Callable[..., Run]
) -> None:
    compiler = folder / "compiler"
    compiler.write_text(COMPILER.format(folder=folder))
    compiler.chmod(0o755)
    (folder / f"{moment}.wanted").touch()
    write_project(folder, {"kernels/compiled_forever.cu": SLOW_TO_COMPILE})
    cache, temporary = folder / "cache", folder / "temporary"
    temporary.mkdir()
    variables = {"PYTEST_GEMM_CXX": str(compiler), "PYTEST_GEMM_CACHE": str(cache)}
    run = start(*UPDATE, **variables, TMPDIR=str(temporary))
    run.wait_for(moment)
    wait_until(lambda: any("sleep" in command for command in run.left().values()))
    run.signal(signal.SIGINT, group=True)
    text = run.end()
    assert run.process.returncode == pytest.ExitCode.INTERRUPTED, text
    assert "KeyboardInterrupt" in text
    assert "failed" not in text
    assert not (folder / "baselines").exists()
    assert list(temporary.iterdir()) == []
    assert list(cache.glob("build-*")) == []
    # A report of an earlier run would pass for this one's.
    report = json.loads((folder / "out.json").read_text())
    assert report["partial"] is True
    assert bool(report["records"]) == (moment == "in_a_compilation")


@pytest.mark.parametrize(
    ("number", "moment"),
    [
        (signal.SIGTERM, "in_a_case"),
        (signal.SIGKILL, "with_the_lock"),
        (signal.SIGKILL, "between_cases"),
    ],
)
def test_nothing_is_left_of_a_pytest_that_is_killed(
    number: signal.Signals, moment: str, folder: Path, start: Callable[..., Run]
) -> None:
    run = start(*UPDATE, MOMENT=moment)
    run.wait_for(moment)
    assert len(run.left()) == 2
    run.signal(number)
    run.end()
    assert run.process.returncode == -number
    assert not (folder / "baselines").exists()
    assert not (folder / "out.json").exists()


def test_ctrl_c_under_xdist(folder: Path, start: Callable[..., Run]) -> None:
    run = start(*UPDATE, "-n", "2", MOMENT="in_a_case")
    run.wait_for("in_a_case")
    run.wait_for("two_reports")
    run.signal(signal.SIGINT, group=True)
    text = run.end()
    assert run.process.returncode == pytest.ExitCode.INTERRUPTED, text
    assert "results are partial; nothing is stored" in text
    assert report(folder)["partial"] is True
    assert 2 <= len(report(folder)["records"]) < 4
    assert {record["outcome"] for record in report(folder)["records"]} == {"passed"}
    assert not (folder / "baselines").exists()


# Other ways to run


def outcomes(folder: Path) -> dict[str, tuple[str, str]]:
    return {r["id"]: (r["outcome"], r["gate"]) for r in report(folder)["records"]}


EXPECTED = {
    **{f"product-{n}x{n}x{n}-float32": ("passed", "stored") for n in (8, 9, 10, 11)},
    **{f"wrong-{n}x{n}x{n}-float32": ("failed", "") for n in (8, 9)},
    "aborts-8x8x8-float32": ("failed", ""),
}


@pytest.fixture
def with_faulty_kernels(folder: Path) -> None:
    (folder / "conftest.py").write_text(KERNELS + FAULTY)


@pytest.mark.usefixtures("with_faulty_kernels")
@pytest.mark.parametrize("options", [["-n", "2"], ["-n", "0", "-p", "no:benchmark"]], ids=" ".join)
def test_results_exit_code_and_files_are_those_of_any_run(
    options: list[str], folder: Path, start: Callable[..., Run]
) -> None:
    run = start(*(word for word in UPDATE if "benchmark" not in word), *options)
    text = run.end()
    assert run.process.returncode == pytest.ExitCode.TESTS_FAILED, text
    assert "3 failed, 4 passed" in text
    assert outcomes(folder) == EXPECTED
    assert report(folder)["partial"] is False
    stored = [path.name for path in (folder / "baselines").rglob("*.json")]
    assert stored == ["product.json"] * 2, "the bits, and the times on this device"
    # Whoever ends a process of xdist's while other plugins finish must meet none of ours.
    for process in ("gw0", "gw1") if "2" in options else ("main",):
        assert (folder / f"{process}.children").read_text() == ""


@pytest.mark.usefixtures("with_faulty_kernels")
def test_the_last_failed_alone_run_again(folder: Path, start: Callable[..., Run]) -> None:
    first = start("-p", "no:xdist", "--gemm-report=out.json")
    assert "3 failed, 4 passed" in first.end()
    assert first.process.returncode == pytest.ExitCode.TESTS_FAILED
    assert {i: outcome for i, (outcome, _) in outcomes(folder).items()} == {
        i: outcome for i, (outcome, _) in EXPECTED.items()
    }
    again = start("-p", "no:xdist", "--gemm-report=out.json", "--lf")
    text = again.end()
    assert "3 failed" in text
    assert "passed" not in text
    assert again.process.returncode == pytest.ExitCode.TESTS_FAILED
    assert set(outcomes(folder)) == {
        i for i, (outcome, _) in EXPECTED.items() if outcome == "failed"
    }


@pytest.mark.usefixtures("with_faulty_kernels")
@pytest.mark.parametrize(("option", "failed"), [("-x", 1), ("--maxfail=2", 2)])
def test_a_run_that_stops_at_failures(
    option: str, failed: int, folder: Path, start: Callable[..., Run]
) -> None:
    run = start(*UPDATE, option)
    text = run.end()
    assert run.process.returncode == pytest.ExitCode.TESTS_FAILED, text
    found = [outcome for outcome, _ in outcomes(folder).values()]
    assert found.count("failed") == failed
    assert len(found) < len(EXPECTED)
