"""What a kernel can do to the process it runs in: one case fails with a text, the others pass."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from pytest_gemm.backends import choice
from tests.faults import run as faults

DEVICES = [
    "host",
    pytest.param(
        "cuda",
        marks=pytest.mark.skipif(
            choice.choose_backend("auto").kind != "cuda", reason="no GPU, or no CuPy"
        ),
    ),
]

# By kernel: what the case's text says, on the host and on a GPU where that is something else.
TEXTS = {
    "wild_pointer": ("out-of-bounds write in block", "IllegalAddress|ILLEGAL_ADDRESS"),
    "misaligned": ("misaligned vector access", "MisalignedAddress|MISALIGNED_ADDRESS"),
    "traps": (
        r"traps.cu:\d+: __trap\(\)",
        "the kernel failed, as after __trap|ILLEGAL_INSTRUCTION",
    ),
    "never_ends": ("one launch took longer than 1 s",),
    # Where its memory lies decides whether it meets a guard, or something else first.
    "overruns_shared": ("out-of-bounds write|killed by SIGSEGV", "IllegalAddress"),
    "too_many_threads": ("1025 threads",),
    "too_much_shared": (r"shared_mem = 26\d+ bytes",),
    "aborts": (r"killed by SIGABRT",),
    "ends_the_process": ("exit code 3",),
    "is_killed": (r"killed by SIGKILL \(Killed, by hand or by the system for lack of memory",),
    "reads_address_zero": ("killed by SIGSEGV",),
    "calls_sys_exit": ("SystemExit: goodbye",),
    "sleeps_forever": (f"no answer for {faults.CASE_TIMEOUT} s",),
    "wants_all_memory": ("MemoryError", "OutOfMemoryError"),
}


@pytest.fixture(scope="module", params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def run(device: str, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """One run of every broken kernel and 20 healthy cases, and its records by benchmark."""
    folder = tmp_path_factory.mktemp("faults")
    return *faults.run(folder, device), folder


def test_the_run_ends_with_every_verdict(run: Any) -> None:
    done, records, _ = run
    assert done.returncode == 1
    assert "14 failed" in done.stdout, done.stdout
    assert len(records) == len(TEXTS) + 22


def test_each_kernel_has_an_expectation() -> None:
    assert set(faults.described()) == set(TEXTS)


def test_twenty_neighbours_pass(run: Any) -> None:
    _, records, _ = run
    healthy = [r for name, r in records.items() if name.startswith("healthy-")]
    assert [record["outcome"] for record in healthy] == ["passed"] * 20
    assert all(record["result"]["samples"] for record in healthy)


@pytest.mark.parametrize("kernel", TEXTS)
def test_the_broken_case_fails_with_its_text(kernel: str, device: str, run: Any) -> None:
    _, records, _ = run
    (record,) = [r for name, r in records.items() if name.startswith(f"{kernel}-")]
    assert record["outcome"] == "failed"
    first = record["message"].splitlines()[0]
    assert first.startswith(f"{kernel} on ")
    texts = TEXTS[kernel]
    assert re.search(texts[-1] if device == "cuda" else texts[0], record["message"]), first


def test_a_problem_larger_than_the_memory_is_skipped(run: Any) -> None:
    _, records, _ = run
    small = records["too_large_a_problem-64x64x64-float32"]
    large = records["too_large_a_problem-8000000x8000000x1-float32"]
    assert small["outcome"] == "passed"
    assert large["outcome"] == "skipped"
    assert re.search(
        r"needs 256,000 GB for A, B and C, and the device has \d+ GB", large["message"]
    ), large["message"]


def test_no_process_is_left(run: Any) -> None:
    *_, folder = run
    assert faults.processes_in(folder) == []


def test_a_process_that_is_left_would_be_seen(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"], cwd=tmp_path) as left:
        assert faults.processes_in(tmp_path) == ["sleep\x0060\x00"]
        left.kill()
