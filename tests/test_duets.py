"""The whole way of a duet: real kernels in real workers, on a clock that the source scripts."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.conftest import Project

# Loaded by every Python that starts there; execnet's workers read their program from stdin.
SITECUSTOMIZE = """
import sys

if any("stdin" in word for word in sys.orig_argv):
    import os, re
    import pytest_gemm.backends
    from pytest_gemm.backends.host import HostBackend

    class Scripted(HostBackend):
        def compile(self, program):
            executable = super().compile(program)
            (seconds,) = re.findall(r"// seconds: (\\S+)", program.source)
            executable.seconds = float(seconds)
            return executable

        def time(self, executable, config, arguments, *, launches=1, cold=False, timeout=60.0):
            super().time(executable, config, arguments, timeout=timeout)
            return executable.seconds * launches / float(os.environ.get("SPEED", "1"))

    def open_backend(kind, progress, gpu=0):
        progress("starting the clock (once)")
        return Scripted(progress=progress)

    pytest_gemm.backends.open_backend = open_backend
"""


@pytest.fixture
def scripted(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project with two ``.cu`` kernels whose launches last as long as their sources say."""
    (project.path / "conftest.py").unlink()
    (project.path / "sitecustomize.py").write_text(SITECUSTOMIZE)
    monkeypatch.setenv("PYTHONPATH", str(project.path))
    folder = project.path / "kernels"
    folder.mkdir()
    source = (Path(__file__).parent.parent / "kernels" / "naive.cu").read_text()
    for name in ("naive", "second"):
        text = source.replace("naive(", f"{name}(")
        (folder / f"{name}.cu").write_text(f"{text}// seconds: 0.010\n")
    bench(project, "--gemm-baseline=update")
    return project


def bench(project: Project, *args: str) -> pytest.RunResult:
    return project.bench(
        *("-o", "gemm_in_process=false", "--gemm-device=host", "--gemm-check=off"),
        *("--gemm-size=16", *args),
    )


def slow_down(project: Project, seconds: float) -> None:
    path = project.path / "kernels" / "naive.cu"
    path.write_text(re.sub(r"// seconds: \S+", f"// seconds: {seconds}", path.read_text()))


def test_a_slower_kernel_fails_by_a_duet_and_its_neighbour_does_not(scripted: Project) -> None:
    slow_down(scripted, 0.012)
    result = bench(scripted, "--gemm-report=out.json")
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        [
            "naive on 16x16x16: slower by 20.0 % (12.0 ms, was 10.0 ms, measured side by side, *",
            "  decided by a duet of the stored kernel and this one: 12 processes, 2 rounds; *",
        ]
    )
    records = json.loads((scripted.path / "out.json").read_text())["records"]
    gates = {record["case"]["kernel"]["name"]: record["gate"] for record in records}
    assert gates == {"naive": "slower", "second": "same"}
    (naive,) = (r for r in records if r["case"]["kernel"]["name"] == "naive")
    assert naive["verdict"]["workers"] == 12
    assert result.outlines.count("starting the clock (once)") == 1
    assert naive["verdict"]["change"] == pytest.approx(0.2)


def test_a_faster_kernel_is_so_side_by_side(scripted: Project) -> None:
    slow_down(scripted, 0.006)
    result = bench(scripted)
    assert result.ret == 0
    assert result.parseoutcomes() == {"passed": 2, "faster": 1}
    result.stdout.fnmatch_lines(
        ["naive on 16x16x16: faster by 40.0 % (6.00 ms, was 10.0 ms, measured side by side, *"]
    )


def test_a_faster_machine_is_no_faster_kernel_and_asks_for_another_session(
    scripted: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One kernel is as it was stored, the other is 10 % slower than the faster machine makes it."""
    monkeypatch.setenv("SPEED", "1.6")
    slow_down(scripted, 0.011)
    result = bench(scripted)
    assert result.ret == 1
    assert result.parseoutcomes() == {"passed": 1, "failed": 1}
    result.stdout.fnmatch_lines(
        [
            "naive on 16x16x16: slower by 10.0 % (6.87 ms, was 10.0 ms, measured side by side, *",
            "  *; against 1 stored session: -31.3 %",
            "1 faster than stored, by no change of the kernel, *: store another session with: *",
        ]
    )


def test_a_stored_source_that_is_gone_leaves_the_sessions_to_decide(scripted: Project) -> None:
    for path in (scripted.path / "baselines" / "sources").iterdir():
        path.unlink()
    slow_down(scripted, 0.02)
    result = bench(scripted)
    assert result.ret == 1
    result.stdout.fnmatch_lines(["naive on 16x16x16: slower by *", "  no duet: no source *"])
