"""Stored sessions are asked first; where they are not sure, old and new run side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from pytest_gemm.baselines import BaselineStore
from pytest_gemm.case import Case, Settings
from pytest_gemm.dueling import Times
from pytest_gemm.duet import Round, order_of
from pytest_gemm.errors import BackendError, ConfigError
from pytest_gemm.judging import Judge, session_of
from pytest_gemm.kernelspec import Kernel
from pytest_gemm.problem import Problem
from pytest_gemm.result import Result
from pytest_gemm.revival import stored_kernel
from pytest_gemm.stats import summarize

SOURCE = "__global__ void k(const float* A, const float* B, float* C, int M, int N, int K) {}"
KERNEL = Kernel(
    "k", filename="k.cu", source=SOURCE, entry="k", args=("A", "B", "C", "M", "N", "K"),
    block=("16", "16"), grid=("cdiv(N, 16)", "cdiv(M, 16)"),
)  # fmt: skip
CASE = Case(KERNEL, Problem.parse("512"), Settings(timed=True))
CHANGED = replace(CASE, kernel=replace(KERNEL, source=SOURCE.replace("{}", "{ ; }")))


class FakeExecutor:
    """Duets in which the new kernel takes ``ratio`` times as long as the old one."""

    can_duet = True

    def __init__(self, ratio: float = 1.0, error: str = "") -> None:
        self.ratio = ratio
        self.error = error
        self.asked: list[tuple[Case, Case, int]] = []

    def duet(self, old: Any, new: Any, round_: Round) -> Sequence[Times]:
        self.asked.append((old.case, new.case, round_.number))
        if self.error:
            raise BackendError(self.error)
        blocks = [
            [0.01 * (self.ratio if letter == "B" else 1.0) for letter in order_of(block)]
            for block in range(round_.blocks)
        ]
        return [[blocks] * round_.placements] * round_.workers


def result(seconds: float, **conditions: Any) -> Result:
    spread = [seconds * (1 + 0.001 * (i % 5 - 2)) for i in range(40)]
    return Result(
        "passed",
        estimate=summarize(spread),
        samples=tuple(spread),
        launches=1,
        device={"kind": "host", "name": "host-a", "description": "a CPU"},
        environment={"compiler": "g++ 12"},
        conditions={"before": conditions, "after": conditions},
    )


JudgeOf = Callable[..., Judge]


@pytest.fixture
def judge_of(tmp_path: Path) -> JudgeOf:
    """A judge over five stored sessions of 10 ms."""
    store = BaselineStore(tmp_path)
    for day in range(5):
        when = datetime(2026, 1, 1 + day, tzinfo=UTC)
        store.append(session_of(CASE, result(0.010 + day * 1e-6), when, None), KERNEL.code)
    store.flush()
    return lambda executor, **how: Judge(BaselineStore(tmp_path), executor, None, **how)


def test_clearly_fine_needs_no_duet(judge_of: JudgeOf) -> None:
    executor = FakeExecutor()
    verdict = judge_of(executor).verdict(CHANGED, None, result(0.010))
    assert (verdict.outcome, verdict.decided_by) == ("same", "sessions")
    assert executor.asked == []


def test_a_slower_program_is_found_side_by_side(judge_of: JudgeOf) -> None:
    executor = FakeExecutor(ratio=1.2)
    verdict = judge_of(executor).verdict(CHANGED, None, result(0.012))
    assert (verdict.outcome, verdict.decided_by) == ("slower", "duet")
    assert verdict.change == pytest.approx(0.2)
    assert verdict.stored_change == pytest.approx(0.2, abs=1e-3)
    assert [number for *_, number in executor.asked] == [1, 2]
    old, new, _ = executor.asked[0]
    assert (old.kernel.source, new.kernel.source) == (SOURCE, CHANGED.kernel.source)
    assert old.kernel.launch(CASE.problem) == KERNEL.launch(CASE.problem)
    assert "the source changed" in " ".join(verdict.notes)


def test_a_machine_that_became_slower_is_no_regression(judge_of: JudgeOf) -> None:
    verdict = judge_of(FakeExecutor(ratio=1.0)).verdict(CHANGED, None, result(0.013))
    assert (verdict.outcome, verdict.decided_by) == ("same", "duet")
    assert "not side by side" in " ".join(verdict.notes)


def test_the_same_program_needs_no_duet(judge_of: JudgeOf) -> None:
    executor = FakeExecutor()
    verdict = judge_of(executor).verdict(CASE, None, result(0.013))
    assert (verdict.outcome, verdict.decided_by) == ("same", "program")
    assert executor.asked == []
    assert "what changed since is the machine" in verdict.notes[-1]


def test_a_machine_that_became_faster_makes_no_kernel_faster(judge_of: JudgeOf) -> None:
    executor = FakeExecutor()
    unchanged = judge_of(executor).verdict(CASE, None, result(0.006))
    assert (unchanged.outcome, unchanged.decided_by) == ("same", "program")
    assert unchanged.change == pytest.approx(-0.4, abs=1e-3)
    assert executor.asked == []

    edited = judge_of(executor).verdict(CHANGED, None, result(0.006))
    assert (edited.outcome, edited.decided_by) == ("same", "duet")
    assert unchanged.slow_baseline
    assert edited.slow_baseline


def test_a_machine_that_became_faster_hides_no_slowdown(judge_of: JudgeOf) -> None:
    verdict = judge_of(FakeExecutor(ratio=1.2)).verdict(CHANGED, None, result(0.006))
    assert (verdict.outcome, verdict.decided_by) == ("slower", "duet")
    assert verdict.change == pytest.approx(0.2)
    assert verdict.stored_change == pytest.approx(-0.4, abs=1e-3)


def test_without_a_duet_a_gain_is_taken_from_the_sessions(judge_of: JudgeOf) -> None:
    verdict = judge_of(FakeExecutor(error="no worker")).verdict(CHANGED, None, result(0.006))
    assert (verdict.outcome, verdict.decided_by) == ("faster", "sessions")
    assert "no duet: no worker" in verdict.notes[-1]


def test_another_launch_is_another_program(judge_of: JudgeOf) -> None:
    executor = FakeExecutor(ratio=1.3)
    other = replace(CASE, kernel=replace(KERNEL, block=("8", "8")))
    verdict = judge_of(executor).verdict(other, None, result(0.013))
    assert (verdict.outcome, verdict.decided_by) == ("slower", "duet")
    assert executor.asked[0][0].kernel.block == ("16", "16")


def test_without_a_duet_the_sessions_decide_and_say_why(judge_of: JudgeOf) -> None:
    executor = FakeExecutor(error="k on 512x512x512: the stored kernel does not compile\nlog")
    verdict = judge_of(executor).verdict(CHANGED, None, result(0.015))
    assert (verdict.outcome, verdict.decided_by) == ("slower", "sessions")
    assert verdict.notes[-1] == ("no duet: k on 512x512x512: the stored kernel does not compile")


def test_a_duet_that_was_asked_for_and_cannot_be_had_passes_nothing(judge_of: JudgeOf) -> None:
    executor = FakeExecutor(error="k on 512x512x512: the stored kernel does not compile")
    judge = judge_of(executor, forced=True)
    verdict = judge.verdict(CHANGED, None, result(0.010))
    assert (verdict.outcome, verdict.notes[0]) == ("withheld", f"no duet: {executor.error}")
    assert verdict.fails(strict=True)
    assert judge.verdict(CHANGED, None, result(0.015)).outcome == "slower"


@pytest.mark.parametrize("launch", [{}, {"params": 1}, {"params": {"P": "x"}}])
def test_a_damaged_launch_is_not_revived(launch: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"the stored launch is damaged \(.*\): store another"):
        stored_kernel(KERNEL, launch, SOURCE)


def test_a_python_kernel_is_not_revived_from_its_text(judge_of: JudgeOf) -> None:
    python = replace(CHANGED, kernel=replace(CHANGED.kernel, callable="k.py::k"))
    verdict = judge_of(FakeExecutor()).verdict(python, None, result(0.015))
    assert verdict.decided_by == "sessions"
    assert "--gemm-against" in verdict.notes[-1]


def test_a_duet_stands_whatever_the_conditions_were(judge_of: JudgeOf) -> None:
    disturbed = result(0.015, slowdown="hardware thermal slowdown")
    verdict = judge_of(FakeExecutor(ratio=1.2)).verdict(CHANGED, None, disturbed)
    assert (verdict.outcome, verdict.decided_by) == ("slower", "duet")
    fine = result(0.010, slowdown="hardware thermal slowdown")
    assert judge_of(FakeExecutor()).verdict(CHANGED, None, fine).outcome == "withheld"


def test_no_duet_is_spent_where_none_is_wanted(judge_of: JudgeOf) -> None:
    executor = FakeExecutor()
    verdict = judge_of(executor).verdict(CHANGED, None, result(0.015), duets=False)
    assert executor.asked == []
    assert verdict.outcome == "slower"


def test_the_count_is_that_of_what_is_stored_whatever_is_judged(tmp_path: Path) -> None:
    store, when = BaselineStore(tmp_path), datetime(2026, 1, 1, tzinfo=UTC)
    session = session_of(CASE, result(0.010), when, None)
    store.append(session, KERNEL.code)
    store.flush()

    def reach() -> float:
        judged = Judge(BaselineStore(tmp_path), FakeExecutor(), None).verdict(  # type: ignore[arg-type]
            CASE, None, result(0.010)
        )
        assert judged.high is not None
        return judged.high

    alone = reach()
    for size in range(1, 50):
        store.append(session._replace(benchmark=f"k-{size}x8x8-float32"), KERNEL.code)
    store.flush()
    assert reach() > alone


def test_another_device_is_named_and_not_compared_with(judge_of: JudgeOf) -> None:
    executor = FakeExecutor(ratio=1.2)
    other = replace(result(0.015), device={"kind": "host", "name": "host-b", "description": ""})
    verdict = judge_of(executor).verdict(CHANGED, None, other)
    assert (verdict.outcome, verdict.notes) == ("new", ("stored for host-a, this is host-b",))
    assert executor.asked == []


def test_what_cannot_be_read_withholds(judge_of: JudgeOf, tmp_path: Path) -> None:
    (tmp_path / "host-a" / "k.json").write_text("{")
    verdict = judge_of(FakeExecutor()).verdict(CASE, None, result(0.010))
    assert verdict.outcome == "withheld"
    assert "k.json" in verdict.notes[0]
