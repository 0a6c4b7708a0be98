"""Which margin counts, in verdicts: of the run, the kernel, the project, the device."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pytest_gemm.baselines import BaselineStore
from pytest_gemm.calibration import write_calibration
from pytest_gemm.judging import Judge, session_of
from pytest_gemm.kernelspec import Kernel, PerBackend
from pytest_gemm.tolerance import Tolerance
from pytest_gemm.verdict import Verdict
from tests.conftest import KERNELS, Project
from tests.test_calibration import DEVICE, MEANS, measured
from tests.test_judging import CASE, CHANGED, FakeExecutor, result


@pytest.fixture
def store(tmp_path: Path) -> BaselineStore:
    """Five stored sessions of 10 ms, nothing calibrated."""
    store = BaselineStore(tmp_path)
    for day in range(5):
        when = datetime(2026, 1, 1 + day, tzinfo=UTC)
        store.append(session_of(CASE, result(0.010 + day * 1e-6), when, None), CASE.kernel.code)
    store.flush()
    return BaselineStore(tmp_path)


def calibrate(store: BaselineStore, times: float = 1.0) -> float:
    """Store a calibration; the margin that follows from it."""
    means = [times * mean for mean in MEANS]
    write_calibration(store.calibration_path(DEVICE), measured(*means))
    return math.expm1(3.5 * math.sqrt((times * 0.01) ** 2 - 0.001**2 / 3))


def test_the_command_line_then_the_kernel_then_the_project_then_the_device(
    store: BaselineStore,
) -> None:
    kernel = Kernel("k", margin=PerBackend(host=(0.02,)))

    def margin(of: Kernel, **given: float) -> float:
        return Tolerance(store.calibration_path, **given).margin(of, "host", DEVICE)

    assert margin(kernel, run=0.01, project=0.04) == 0.01
    assert margin(kernel, run=0.0, project=0.04) == 0.0
    assert margin(kernel, project=0.04) == 0.02
    assert margin(Kernel("k", margin=PerBackend(cuda=(0.02,))), project=0.04) == 0.04
    assert margin(Kernel("k")) == 0.03
    biased = calibrate(store, 3)
    assert margin(Kernel("k")) == pytest.approx(biased)
    assert margin(Kernel("k"), project=0.04) == 0.04
    assert margin(kernel) == 0.02


def test_each_device_has_a_calibration_of_its_own(store: BaselineStore) -> None:
    biased = calibrate(store)
    tolerance = Tolerance(store.calibration_path)
    assert tolerance.margin(Kernel("k"), "host", DEVICE) == pytest.approx(biased)
    assert tolerance.margin(Kernel("k"), "host", "host-b") == 0.03
    assert tolerance.margin(Kernel("k"), "cuda", "gpu") == 0.003


def verdict(store: BaselineStore, ratio: float, *, now: float = 0.0, **given: float) -> Verdict:
    """What is said of a kernel that takes ``ratio`` times as long in a duet, ``now`` seconds."""
    executor = FakeExecutor(ratio=ratio)
    judge = Judge(store, executor, Tolerance(store.calibration_path, **given))  # type: ignore[arg-type]
    return judge.verdict(CHANGED, None, result(now or 0.010 * ratio))


def test_the_margin_of_the_run_decides(store: BaselineStore) -> None:
    assert verdict(store, 1.1).outcome == "slower"
    assert verdict(store, 1.1, run=0.15).outcome == "same"
    assert verdict(store, 1.1, project=0.15).outcome == "same"
    assert verdict(store, 1.1, run=0.01, project=0.15).outcome == "slower"


def test_the_kernels_own_margin_decides(store: BaselineStore) -> None:
    judge = Judge(store, FakeExecutor(ratio=1.1), Tolerance(store.calibration_path))  # type: ignore[arg-type]
    tolerant = replace(CHANGED, kernel=replace(CHANGED.kernel, margin=PerBackend(host=(0.15,))))
    assert judge.verdict(tolerant, None, result(0.011)).outcome == "same"
    other = replace(CHANGED, kernel=replace(CHANGED.kernel, margin=PerBackend(cuda=(0.15,))))
    assert judge.verdict(other, None, result(0.011)).outcome == "slower"


def test_a_calibrations_bias_and_scatter_take_part_in_a_duet(store: BaselineStore) -> None:
    assert verdict(store, 1.1, now=0.0125).outcome == "slower"
    assert calibrate(store, 4) > 0.14
    calibrated = verdict(store, 1.1, now=0.0125)
    assert (calibrated.outcome, calibrated.decided_by) == ("same", "duet")

    found = measured(*MEANS)
    wide = tuple(
        replace(pair, ratios=tuple(200 * ratio for ratio in pair.ratios)) for pair in found.pairs
    )
    write_calibration(store.calibration_path(DEVICE), replace(found, pairs=wide))
    assert verdict(store, 1.1, run=0.03).outcome == "inconclusive"


def test_a_damaged_calibration_withholds_the_verdict(store: BaselineStore) -> None:
    path = store.calibration_path(DEVICE)
    path.write_text("{")
    for given in ({}, {"run": 0.5}):
        found = verdict(store, 1.1, **given)
        assert found.outcome == "withheld"
        assert found.notes[0].startswith(f"{path}: it is not JSON")
        assert found.notes[0].endswith("or measure again: pytest-gemm calibrate")


# From end to end

TOLERANT = KERNELS.replace(
    "deterministic=True)\n    def outer", "deterministic=True, margin=50)\n    def outer"
)


def slow(project: Project, kernels: str, *args: str) -> pytest.RunResult:
    """A run in which outer takes 30 % longer than what is stored."""
    project.script({}, kernels=kernels)
    project.bench("--gemm-baseline=update")
    project.script({"outer": 0.013}, kernels=kernels)
    return project.bench("-k", "outer-16x16", *args)


def test_the_order_of_margins_from_end_to_end(project: Project) -> None:
    assert slow(project, KERNELS).ret == 1
    for kernels, args, code in [
        (KERNELS, ["--gemm-margin=50"], 0),
        (KERNELS, ["-o", "gemm_margin=50"], 0),
        (KERNELS, ["-o", "gemm_margin=50", "--gemm-margin=1"], 1),
        (TOLERANT, [], 0),
        (TOLERANT, ["-o", "gemm_margin=1"], 0),
        (TOLERANT, ["--gemm-margin=1"], 1),
    ]:
        project.script({"outer": 0.013}, kernels=kernels)
        assert project.bench("-k", "outer-16x16", *args).ret == code, (args, code)


def test_the_command_to_repeat_has_the_margin(project: Project) -> None:
    text = slow(project, KERNELS, "--gemm-margin=2.5").stdout.str()
    assert "repeat: pytest --gemm-bench --gemm-margin=2.5 'test_kernels.py::" in text


def test_a_damaged_calibration_is_said_in_a_run(project: Project) -> None:
    project.script({})
    project.bench("--gemm-baseline=update")
    path = project.path / "baselines" / "host-scripted" / "calibration.json"
    path.write_text("{}")
    result = project.bench()
    assert result.ret == 0
    assert result.parseoutcomes() == {"passed": 5, "withheld": 5}
    result.stdout.fnmatch_lines(["*outer on 16x16x16: withheld: *calibration.json: *calibrate"])
    assert project.bench("--gemm-baseline=strict").ret == 1
