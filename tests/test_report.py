"""What is printed: numbers, and a table that fits whatever it holds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_gemm.case import Case, Settings
from pytest_gemm.kernelspec import Kernel
from pytest_gemm.problem import Problem
from pytest_gemm.record import Record
from pytest_gemm.report.terminal import WIDTH, table
from pytest_gemm.report.text import percent, rate, seconds
from pytest_gemm.report.verdict import explain, sentence
from pytest_gemm.result import Result
from pytest_gemm.stats import summarize
from pytest_gemm.verdict import Verdict


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.18e-6, "1.18 us"), (0.0165, "16.5 ms"), (2.5, "2.50 s"), (3e-10, "0.30 ns"),
     (0.3, "300 ms"), (9.999e-3, "10.00 ms"), (125e-6, "125 us")],
)  # fmt: skip
def test_seconds(value: float, text: str) -> None:
    assert seconds(value) == text


def test_rates() -> None:
    assert rate(5.02e13, "FLOP/s") == "50.2 TFLOP/s"
    assert rate(3.2e12, "B/s") == "3.20 TB/s"
    assert rate(12.0, "FLOP/s") == "12.0 FLOP/s"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0012, "+0.12 %"), (-0.05, "-5.0 %"), (1.5, "+150 %"), (0, "+0.00 %"), (-4e-5, "+0.00 %")],
)
def test_percent(value: float, text: str) -> None:
    assert percent(value) == text


def record(name: str = "tiled", median: float = 0.002, **fields: object) -> Record:
    kernel = Kernel(name, derived_from=str(fields.pop("derived_from", "")))
    case = Case(kernel, Problem("gemm", 4096, 4096, 4096), Settings(timed=True))
    result = Result("passed", samples=(median,) * 8, estimate=summarize([median] * 8))
    return Record(case, result, "passed", **fields)  # type: ignore[arg-type]


def test_the_table_shows_step_and_change() -> None:
    verdict = Verdict("same", change=0.004)
    rows = table([record("naive", 0.004), record(derived_from="naive", verdict=verdict)])
    assert rows[0].split() == [
        "kernel", "problem", "result", "median", "+-", "rate", "step", "change",
    ]  # fmt: skip
    assert "2.00x" in rows[2]
    assert "+0.40%" in rows[2]
    assert "68.7 TFLOP/s" in rows[2]


def test_the_table_shows_the_part_of_the_vendors_rate() -> None:
    plain = record()
    counted = replace(plain, result=replace(plain.result, counters={"percent_of_cublas": 41.6}))
    heading, row = table([counted])
    assert "of ref" in heading
    assert "42%" in row


def test_the_table_is_by_kernel_whatever_ran_first() -> None:
    def at(path: str, name: str) -> Record:
        plain = record(name)
        kernel = replace(plain.case.kernel, path=path)
        return replace(plain, case=replace(plain.case, kernel=kernel))

    rows = table([at("b.cu", "late"), at("a.cu", "early")])
    assert [row.split()[0] for row in rows] == ["kernel", "early", "late"]


def test_a_row_of_a_gpu_fits_with_its_name_whole() -> None:
    verdict = Verdict("same", change=-0.0012)
    kernel = record("block_size[SIDE:32]", derived_from="naive", verdict=verdict, gate="same")
    counted = replace(kernel, result=replace(kernel.result, counters={"percent_of_cublas": 15.0}))
    rows = table([record("naive", 0.004), counted])
    assert max(map(len, rows)) <= WIDTH
    assert rows[2].startswith("block_size[SIDE:32] ")


def test_the_table_fits_with_long_names() -> None:
    long = "an_extraordinarily_long_kernel_name_that_nobody_should_choose[TILE_M:128+TILE_N:128]"
    rows = table([record(long, gate="inconclusive", verdict=Verdict("same", change=-0.1234))])
    assert max(map(len, rows)) <= WIDTH
    assert rows[1].startswith("an_")
    assert "N:128]" in rows[1]
    assert rows[1].endswith("inconclusive")


def test_a_failed_case_has_a_row_without_times() -> None:
    failed = Record(record().case, Result("failed", "wrong"), "failed", message="wrong")
    assert table([failed])[1].split() == ["tiled", "4096x4096x4096", "FAIL"]


COMMANDS = "pytest -k x", "pytest -k x --gemm-baseline=update"


def test_a_verdict_in_words() -> None:
    verdict = Verdict(
        "slower", change=0.3, low=0.2, high=0.4, threshold=0.1, decided_by="sessions",
        baseline_median=0.002, sessions=4, smallest_slowdown=0.12, notes=("the source changed",),
    )  # fmt: skip
    slower = record(median=0.0026)
    first, *details = explain(slower.case, slower.result, verdict, *COMMANDS).splitlines()
    assert first == (
        "tiled on 4096x4096x4096: slower by 30.0 % (2.60 ms, was 2.00 ms, fails above +10.0 %)"
    )
    text = "\n".join(details)
    assert "decided by 4 stored sessions\n" in text
    assert "smallest slowdown that is found: +12.0 %" in text
    assert "the source changed" in text
    assert "repeat: pytest -k x\n" in text
    assert text.endswith("accept: pytest -k x --gemm-baseline=update")


def test_a_verdict_of_a_duet_in_words() -> None:
    verdict = Verdict(
        "slower", change=0.02, low=0.015, high=0.025, threshold=0.008, decided_by="duet",
        baseline_median=0.002, sessions=1, smallest_slowdown=0.009, stored_change=0.031,
        workers=11, odd_workers=1, rounds=2,
    )  # fmt: skip
    slower = record(median=0.00206)
    text = explain(slower.case, slower.result, verdict, *COMMANDS)
    assert text.splitlines()[:3] == [
        "tiled on 4096x4096x4096: slower by 2.0 % "
        "(2.06 ms, was 2.00 ms, measured side by side, fails above +0.80 %)",
        "  change +2.0 %, between +1.5 % and +2.5 %",
        "  decided by a duet of the stored kernel and this one: 11 processes, 2 rounds; against 1 "
        "stored session: +3.1 %",
    ]


def test_a_duet_with_another_revision_in_words() -> None:
    verdict = Verdict(
        "slower", change=0.02, low=0.015, high=0.025, threshold=0.008, decided_by="duet",
        baseline_median=0.002, smallest_slowdown=0.009, workers=12, rounds=2,
        against="HEAD~1 (abc1234)",
    )  # fmt: skip
    slower = record(median=0.00206)
    first, *details = explain(slower.case, slower.result, verdict, *COMMANDS).splitlines()
    assert first == (
        "tiled on 4096x4096x4096: slower by 2.0 % against HEAD~1 (abc1234) "
        "(2.06 ms, that one 2.00 ms, measured side by side, fails above +0.80 %)"
    )
    assert details[1] == (
        "  decided by a duet of HEAD~1 (abc1234) and this one: 12 processes, 2 rounds"
    )
    # What is not stored is not replaced by storing anything.
    assert details[-1] == "  repeat: pytest -k x"


def test_a_drift_in_words() -> None:
    verdict = Verdict(
        "drifted", change=0.01, low=-0.01, high=0.03, decided_by="anchor", drift=0.12,
        baseline_median=0.0022, sessions=4, notes=("slower than the anchor",),
    )  # fmt: skip
    slow = record(median=0.00222)
    text = explain(slow.case, slow.result, verdict, *COMMANDS)
    assert text.startswith(
        "tiled on 4096x4096x4096: drifted by 12.0 % from the anchor (2.22 ms, was 2.20 ms)\n"
    )
    assert "decided by the distance from the anchor" in text


def test_a_verdict_without_a_baseline_in_words() -> None:
    new = record()
    verdict = Verdict("new", notes=("nothing is stored",))
    assert sentence(new.case, new.result, verdict) == (
        "tiled on 4096x4096x4096: new: nothing is stored"
    )
