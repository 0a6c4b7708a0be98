"""Duets of equal kernels: chosen, measured, stored and read."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_gemm.backends.base import Device
from pytest_gemm.backends.host import HostBackend
from pytest_gemm.backends.host.backend import CudaExecutable
from pytest_gemm.baselines import BaselineStore
from pytest_gemm.calibrating import LENGTHS, duel, padded, rivals
from pytest_gemm.calibration import Measured, Pair, read_calibration, write_calibration
from pytest_gemm.case import Case, Settings
from pytest_gemm.cli.calibrate import calibrate
from pytest_gemm.dueling import Times
from pytest_gemm.duet import USUAL, Round, order_of
from pytest_gemm.errors import BackendError, BaselineError, GemmError
from pytest_gemm.kernelspec import Kernel
from pytest_gemm.launching import program_of
from pytest_gemm.problem import Problem
from pytest_gemm.slicing import slice_source
from tests.test_baselines import session, stored

DEVICE = "host-a"
DATE = "2026-01-31T00:00:00Z"
SOURCE = """__global__ void k(const float* A, const float* B, float* C, int M, int N)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < M * N)
        C[i] = A[i] + B[i];
}
"""
KERNEL = Kernel(
    "k", filename="k.cu", source=SOURCE, entry="k", op="add", args=("A", "B", "C", "M", "N"),
    block=("64",), grid=("cdiv(M * N, 64)",),
)  # fmt: skip
CASES = [
    Case(KERNEL, Problem.parse(size, "add"), Settings(timed=True)) for size in ("8", "16", "32")
]


def measured(*means: float, device: str = DEVICE) -> Measured:
    """A calibration of pairs with these means; the processes of each scatter by 0.1 %."""
    pairs = [Pair(f"k-{i}", (mean - 0.001, mean, mean + 0.001)) for i, mean in enumerate(means)]
    return Measured(device, DATE, tuple(pairs), {"compiler": "g++ 12"})


MEANS = (0.01, -0.01, 0.01, -0.01, 0.01, -0.01)
BIAS = "0.009983319"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "baselines" / DEVICE / "calibration.json"


# The file


def test_what_is_written_is_read(path: Path) -> None:
    write_calibration(path, measured(*MEANS))
    found = read_calibration(path, DEVICE)
    assert found is not None
    assert (found.device, found.date, found.duets, found.df) == (DEVICE, DATE, 6, 12)
    assert found.bias == pytest.approx(math.sqrt(0.01**2 - 0.001**2 / 3))
    assert found.sd == pytest.approx(0.001)


def test_the_file_can_be_reviewed_a_pair_in_a_line(path: Path) -> None:
    write_calibration(path, measured(*MEANS))
    text = path.read_text(encoding="utf-8")
    assert '\n  "bias": 0.009983319,\n' in text
    assert '    {"benchmark": "k-0", "ratios": [0.009, 0.01, 0.011]},\n' in text
    assert json.loads(text)["toolchain"] == {"compiler": "g++ 12"}


def test_a_pipe_is_no_calibration_and_is_not_waited_for(path: Path) -> None:
    path.parent.mkdir(parents=True)
    os.mkfifo(path)
    with pytest.raises(BaselineError, match=r"calibration\.json: .*it is no regular file"):
        read_calibration(path, DEVICE)


def test_no_file_is_no_calibration(path: Path) -> None:
    assert read_calibration(path, DEVICE) is None


RATIOS = "[0.009, 0.01, 0.011]"
DAMAGE = [
    ("it is not JSON", "]\n}", ""),
    ("it is not JSON", '{\n  "bias"', '<<<<<<< HEAD\n{\n  "bias"'),
    ("a key stands twice in one object", '  "bias"', '  "bias": 0.5,\n  "bias"'),
    ("its format is 2, and 1 is known here", '"format": 1', '"format": 2'),
    ("its format is None, and 1 is known here", '  "format": 1,\n', ""),
    ("the file lacks 'sd'", '  "sd": 0.001,\n', ""),
    ("the file has the unknown key 'sdx'", '"sd"', '"sdx": 1, "sd"'),
    ("the file: bias is nan, not a finite number", BIAS, "NaN"),
    ("the file: date is 'now', not a UTC date", DATE, "now"),
    (f"its bias is 0.001, where its pairs give {BIAS[:8]}", BIAS, "0.001"),
    ("its sd is 0.1, where its pairs give 0.001", '"sd": 0.001', '"sd": 0.1'),
    ("its duets is 7, where its pairs give 6", '"duets": 6', '"duets": 7'),
    ("pairs[0]: ratios is 'x', not a list", f'"k-0", "ratios": {RATIOS}', '"k-0", "ratios": "x"'),
    ("pairs[0]: ratios is inf, not a finite", '"k-0", "ratios": [', '"k-0", "ratios": [Infinity, '),
    ("2 workers or more; there are 6", f'"k-0", "ratios": {RATIOS}', '"k-0", "ratios": [1]'),
    ("it was measured on 'host-b', not on 'host-a'", '"host-a"', '"host-b"'),
]


@pytest.mark.parametrize(("why", "old", "new"), DAMAGE, ids=[why for why, *_ in DAMAGE])
def test_a_damaged_file_is_one_sentence_with_the_way_out(
    path: Path, why: str, old: str, new: str
) -> None:
    write_calibration(path, measured(*MEANS))
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1
    path.write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(BaselineError) as caught:
        read_calibration(path, DEVICE)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert why in message
    assert message.endswith(
        f"restore it with: git checkout -- {path}, or measure again: pytest-gemm calibrate"
    )
    assert "\n" not in message


def test_a_file_that_is_no_object_is_said(path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.write_text("[]")
    with pytest.raises(BaselineError, match="the file is list, not an object"):
        read_calibration(path, DEVICE)


def test_bytes_that_are_no_text_are_said(path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.write_bytes(b"\xff{}")
    with pytest.raises(BaselineError, match="it is not UTF-8 text"):
        read_calibration(path, DEVICE)


def test_too_little_is_not_written(path: Path) -> None:
    with pytest.raises(ValueError, match="5 duets"):
        write_calibration(path, measured(0.01, 0.01))
    assert not path.exists()


def test_a_store_takes_it_for_no_sessions(tmp_path: Path) -> None:
    root = tmp_path / "baselines"
    stored(root, session(1))
    store = BaselineStore(root)
    device = store.devices()[0]
    write_calibration(store.calibration_path(device), measured(*MEANS, device=device))
    write_calibration(store.calibration_path("other"), measured(*MEANS, device="other"))

    store = BaselineStore(root)
    assert store.calibration_path(device).parent == root / device
    assert store.unreadable(device) == ()
    assert store.devices() == (device,)
    assert len(store.names(device)) == 1


def test_a_kernel_may_be_called_calibration(tmp_path: Path) -> None:
    root = tmp_path / "baselines"
    stored(root, session(1, kernel="calibration", benchmark="calibration-8x8x8-float32"))
    store = BaselineStore(root)
    (device,) = store.devices()
    write_calibration(store.calibration_path(device), measured(*MEANS, device=device))
    store = BaselineStore(root)
    assert store.benchmarks(device) == ("calibration-8x8x8-float32",)
    assert store.reference(device, "calibration", "calibration-8x8x8-float32") is not None
    assert store.unreadable(device) == ()


# Measuring


class FakeExecutor:
    """Duets in which the second build of the n-th pair takes ``ratios[n]`` times as long."""

    can_duet = True

    def __init__(self, *ratios: float | GemmError, workers: int = USUAL.workers) -> None:
        self.ratios = list(ratios)
        self.workers = workers
        self.asked: list[tuple[Case, Case]] = []

    def devices(self) -> Sequence[Device]:
        return [Device("host", DEVICE, "a scripted CPU", {"compiler": "g++ 12", "load": 1})]

    def duet(self, old: Any, new: Any, round_: Round) -> Sequence[Times]:
        ratio = self.ratios[len(self.asked) % len(self.ratios)]
        self.asked.append((old.case, new.case))
        if isinstance(ratio, GemmError):
            raise ratio
        blocks = [
            [0.01 * (ratio if letter == "B" else 1.0) for letter in order_of(block)]
            for block in range(round_.blocks)
        ]
        return [[blocks] * round_.placements] * self.workers


def test_pairs_are_two_builds_of_one_case_and_all_cases_take_part() -> None:
    pairs = rivals(CASES, 7, seed=0)
    assert len(pairs) == 7
    for first, second in pairs:
        assert first.problem == second.problem
        assert first.kernel.source != second.kernel.source
        assert first.id != second.id
    problems = [first.problem.id for first, _ in pairs]
    assert sorted(problems[:3]) == sorted(problems[3:6]) == ["16x16", "32x32", "8x8"]
    assert pairs == rivals(CASES, 7, seed=0)
    assert pairs != rivals(CASES, 7, seed=1)


def test_the_builds_have_their_code_in_different_places() -> None:
    backend = HostBackend()
    places = set()
    for length in LENGTHS:
        executable = backend.compile(program_of(padded(KERNEL, length), None))
        assert isinstance(executable, CudaExecutable)
        # A library begins with a page.
        places.add(executable.kernel.handle.contents.run_threads % 4096)
    assert len(places) == len(LENGTHS)


def test_host_code_in_the_file_stays_out_of_the_builds() -> None:
    kernel = replace(KERNEL, source=f"#include <cstdio>\n{SOURCE}int main() {{ return 0; }}\n")
    built = padded(kernel, 2)
    text = slice_source(built.source, built.filename).text
    assert text.startswith("__global__ void gemm_padding(volatile int* x) { *x = 1; *x = 1; }\n")
    assert SOURCE in text
    assert "main" not in text
    assert built.source_hash != padded(kernel, 3).source_hash


def test_a_duel_gives_the_ratio_of_each_process() -> None:
    ((first, second),) = rivals(CASES[:1], 1, seed=0)
    pair = duel(FakeExecutor(1.02), first, second)  # type: ignore[arg-type]
    assert pair.benchmark == "k-8x8-float32"
    assert pair.ratios == pytest.approx([math.log(1.02)] * 6)


def test_a_duel_that_lost_its_processes_is_none() -> None:
    ((first, second),) = rivals(CASES[:1], 1, seed=0)
    with pytest.raises(BackendError, match="2 of 6 processes are left"):
        duel(FakeExecutor(1.0, workers=2), first, second)  # type: ignore[arg-type]


# The command


def run(executor: FakeExecutor, root: Path, count: int = 6) -> int:
    return calibrate(executor, CASES, count, 0, root)  # type: ignore[arg-type]


def test_the_command_stores_and_prints_what_it_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    executor = FakeExecutor(1.02, 1 / 1.02)
    assert run(executor, tmp_path) == 0
    output = capsys.readouterr().out
    assert "6/6 k-" in output
    assert "bias of a build: 2.0 % (of 6 pairs)" in output
    assert "scatter of a process: 0.00 % (usual is 1.0 %)" in output
    assert "margin: 7.2 %, the larger of 3.0 % and 3.5 x the bias" in output
    path = BaselineStore(tmp_path).calibration_path(DEVICE)
    assert f"stored in {path}" in output
    found = read_calibration(path, DEVICE)
    assert found is not None
    assert found.bias == pytest.approx(math.log(1.02))
    assert json.loads(path.read_text())["toolchain"] == {"compiler": "g++ 12"}


def test_a_kernel_that_fails_is_left_out_and_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    executor = FakeExecutor(BackendError("k on 8x8: wrong\nmore"), *[1.0] * 5)
    assert run(executor, tmp_path) == 0
    output, error = capsys.readouterr()
    assert error == "pytest-gemm: left out: k on 8x8: wrong\n"
    assert "(of 5 pairs)" in output


def test_too_few_pairs_store_nothing(tmp_path: Path) -> None:
    executor = FakeExecutor(BackendError("k on 8x8: wrong"), *[1.0] * 4)
    with pytest.raises(GemmError, match="4 pairs could be measured and 5 are needed"):
        run(executor, tmp_path, 5)
    assert list(tmp_path.iterdir()) == []


def command(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    code = "import sys; from pytest_gemm.cli import main; sys.exit(main(sys.argv[1:]))"
    return subprocess.run(
        [sys.executable, "-c", code, "calibrate", "--device=host", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pytest.ini").write_text("[pytest]\ngemm_baselines = stored\n")
    (tmp_path / "conftest.py").write_text("raise RuntimeError('no test is run')")
    kernels = tmp_path / "kernels"
    kernels.mkdir()
    front = '// /// gemm\n// op = "add"\n// block = [64]\n// grid = ["cdiv(M * N, 64)"]\n'
    (kernels / "k.cu").write_text(f'{front}// sizes = ["24", "32"]\n// ///\n{SOURCE}')
    return tmp_path


def test_a_calibration_of_this_machine(folder: Path) -> None:
    done = command(folder, "--pairs=5", "-k", "32x32")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("k-32x32-float32: ") == 5
    (path,) = (folder / "stored").glob("host-*/calibration.json")
    found = read_calibration(path, path.parent.name)
    assert found is not None
    assert (found.duets, found.df) == (5, 25)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--pairs=4"], "'4' is no whole number of at least 5"),
        (["--pairs=x"], "'x' is no whole number of at least 5"),
        (["-k", "nothing"], "-k nothing: no case contains that, such as k-24x24-float32"),
        (["--device=moon"], "pytest-gemm: --device=moon: it is one of"),
    ],
)
def test_a_mistake_is_one_sentence(folder: Path, words: list[str], said: str) -> None:
    done = command(folder, *words)
    assert done.returncode == 2
    assert said in done.stderr.splitlines()[-1]
    assert not (folder / "stored").exists()


def test_a_project_without_cuda_kernels_is_said(folder: Path) -> None:
    (folder / "kernels" / "k.cu").unlink()
    done = command(folder)
    assert done.returncode == 2
    assert "no .cu kernel can be built another way" in done.stderr
