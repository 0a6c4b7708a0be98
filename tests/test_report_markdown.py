"""A run in Markdown, and what GitHub Actions is told."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_gemm.record import Record
from pytest_gemm.report.github import ANNOTATIONS, add_summary, errors, is_actions
from pytest_gemm.report.markdown import LOOKED_AT, ROWS, markdown
from pytest_gemm.report.model import report_of
from pytest_gemm.verdict import Verdict
from tests.reported import HOSTILE, document, record, same, slower


def told(*records: object, **fields: object) -> str:
    return markdown(report_of(document(*records, **fields)))  # type: ignore[arg-type]


def test_verdicts_come_first() -> None:
    text = told(same(), slower(), record("wrong", outcome="failed", message="wrong on 256: C"))
    heading, _, summary, *rest = text.splitlines()
    assert heading == "## ❌ pytest-gemm on a scripted CPU, 2 cores"
    assert summary == "2 failed (1 error, 1 slower); 1 passed (1 same)."
    assert rest[1] == "### Failed"
    row = next(line for line in rest if line.startswith("| `tiled`"))
    assert row == (
        "| `tiled` | `256x256x256` | 2.60 ms | 2.00 ms | **+30.0 %** | +20.0 % and +40.0 % | "
        "12.9 GFLOP/s | slower |"
    )
    assert "- `wrong on 256: C`" in rest
    assert "  accept: pytest --gemm-baseline=update" in rest
    assert text.index("### Failed") < text.index("<details><summary>All 3 times")


def test_a_message_keeps_its_bars() -> None:
    message = "tiled on 256: tiled.cu:9: error: expected ';' before '|' token"
    assert f"- `{message}`\n" in told(record(outcome="failed", message=message))


def test_a_run_without_failures_is_short() -> None:
    text = told(same(), record("quick", verdict=Verdict("faster", change=-0.2)))
    assert text.startswith("## ✅ ")
    assert "### Failed" not in text
    assert "### Worth a look" in text


def test_what_was_not_judged_and_what_was_cut_short_is_said() -> None:
    text = told(same(), partial=True, missing=("vanished: old is stored, but is no case",))
    assert text.startswith("## ⚠️ ")
    assert "**Interrupted: these results are partial.**" in text
    assert "- `vanished: old is stored, but is no case`" in text


def test_a_run_of_nothing() -> None:
    assert "nothing ran." in told()


@pytest.mark.parametrize("name", HOSTILE)
def test_names_are_text_and_stay_in_their_cell(name: str) -> None:
    lines = told(slower(name), same(name)).splitlines()
    assert all(not line or line.isprintable() for line in lines)
    inside = False
    for line in lines:
        if line.startswith("```"):
            inside = not inside
        if line.startswith("|") and not inside:
            assert line.count("|") == 9
            # Between the code's backticks is everything that an author wrote.
            assert not re.search(r"[<@*\[{]", re.sub(r"`[^`]*`", "", line).replace("**", ""))
        elif not inside:
            outside = re.sub(r"`[^`]*`", "", line)
            assert set(re.findall(r"<[^>]*>", outside)) <= {
                "<details>", "</details>", "<summary>", "</summary>",
            }  # fmt: skip
            assert "@" not in outside


def test_a_message_cannot_close_its_fence() -> None:
    text = told(slower(message="x\n````\n# not a heading\n`````"))
    lines = text.splitlines()
    fences = [i for i, line in enumerate(lines) if line.startswith("``````")]
    assert len(fences) == 2
    assert fences[0] < lines.index("# not a heading") < fences[1]


def test_many_cases_stay_below_a_comments_length() -> None:
    records = [slower(f"kernel_{i:04}", 0.1 + i / 1e4, message="why\n" * 3) for i in range(1000)]
    text = told(*records)
    assert f"and {1000 - LOOKED_AT} more" in text
    assert f"and {1000 - ROWS} more" in text
    assert len(text) < 65_536


def github(*records: object, **environment: str) -> list[str]:
    report = report_of(document(*records))  # type: ignore[arg-type]
    return list(errors(report, Path("/checkout/project"), environment))


def test_an_error_is_at_the_kernels_line() -> None:
    (line,) = github(slower(), same(), GITHUB_WORKSPACE="/checkout")
    assert line == (
        "::error file=project/kernels/tiled.cu,line=3,title=tiled on 256x256x256%3A slower::"
        "tiled on 256: slower%0A  change%0A  accept: pytest --gemm-baseline=update"
    )


@pytest.mark.parametrize(
    ("message", "line"),
    [
        ("tiled on 37: kernels/tiled.cu:22: race in block", 22),
        ("tiled on 37: tiled.cu:22: race in block", 22),
        ("tiled on 37: kernels/part.cuh:5: error: x", 3),
        ("tiled on 37: 9 elements wrong\n  tiled.cu:22: race", 3),
        ("tiled on 37: untiled.cu:22: race", 3),
        (f"tiled on 37: {'x' * 300}:22: race", 3),
    ],
)
def test_an_error_is_at_the_line_that_its_message_names(message: str, line: int) -> None:
    (told,) = github(record("tiled", outcome="failed", message=message))
    assert told.startswith(f"::error file=kernels/tiled.cu,line={line},")


def test_an_error_may_be_in_a_file_that_the_kernel_includes(tmp_path: Path) -> None:
    (tmp_path / "part.cuh").touch()
    case = record("tiled", outcome="failed", message="tiled on 37: part.cuh:5: error: x")
    (told,) = errors(report_of(document(case)), tmp_path, {})
    assert told.startswith("::error file=part.cuh,line=5,")


def test_machine_code_is_for_an_architecture() -> None:
    found = record("tiled", 256, None, outcome="failed", gate="worse", message="worse")
    case = replace(found.case, settings=replace(found.case.settings, architecture="sm_90"))
    (told,) = github(replace(found, case=case))
    assert "title=tiled for sm_90%3A worse::" in told


def broken(name: str, sizes: Iterable[int]) -> list[Record]:
    return [
        record(
            name, n, None, outcome="failed", message=f"{name} on {n}: {name}.cu:9: error: x\n  y\n"
        )
        for n in sizes
    ]


def test_one_reason_is_told_once_whatever_number_of_cases_it_has() -> None:
    cases = [*broken("tiled", (64, 128)), *broken("naive", (64,)), slower("tiled"), slower("naive")]
    text = told(*cases)
    # Each kernel has its own, and a time is no reason.
    assert text.count("error: x") == 2
    assert "- `tiled on 64: tiled.cu:9: error: x` (2 cases: `64x64x64`, `128x128x128`)\n" in text
    assert "- `naive on 64: naive.cu:9: error: x`\n" in text
    assert text.startswith("## ❌ ")
    assert "5 failed (3 error, 2 slower)" in text
    lines = github(*cases)
    assert len(lines) == 4
    assert lines[1] == (
        "::error file=kernels/tiled.cu,line=9,title=tiled on 64x64x64 and 1 more%3A error::"
        "tiled on 64: tiled.cu:9: error: x%0A  y%0A  the same on: 128x128x128"
    )
    many = told(*broken("tiled", range(1, 50)))
    assert "(49 cases: `1x1x1`, " in many
    assert "`6x6x6`, ...)" in many
    assert "more, which are in" not in many
    # Those beyond what GitHub shows are counted as cases.
    lines = github(*(case for i in range(ANNOTATIONS + 1) for case in broken(f"k{i}", (64, 128))))
    assert "4 more failed" in lines[-1]


def test_a_slower_time_that_passed_says_why() -> None:
    note = "what changed is the machine"
    verdict = Verdict(
        "same", change=0.3, low=0.2, high=0.4, threshold=0.1, decided_by="program",
        baseline_median=0.002, sessions=3, notes=(note,),
    )  # fmt: skip
    report = report_of(document(record(verdict=verdict), same()))
    assert [line.excuse for line in report.notable] == [note]
    assert dict(report.notable[0].facts)["decided by"] == (
        "the program, which is the stored one, and not by its time against 3 stored sessions"
    )
    text = markdown(report)
    assert text.startswith("## ✅ ")
    (told_why,) = [line for line in text.splitlines() if line.startswith("- `tiled")]
    assert told_why.endswith(f"fails above +10.0 %)`: {note}")
    as_fast = replace(verdict, change=0.05)
    assert not report_of(document(record(verdict=as_fast))).notable


def test_hostile_text_cannot_leave_its_annotation() -> None:
    name = "a:b,c%\r\n::error::x"
    (line,) = github(record(name, outcome="failed", message="100 %\r\n::set-output::\n"))
    assert "\n" not in line
    assert "\r" not in line
    command, properties, message = re.fullmatch(r"::(\w+) (.*?)::(.*)", line).groups()  # type: ignore[union-attr]
    assert command == "error"
    assert message == "100 %25%0D%0A::set-output::%0A"
    assert "title=a%3Ab%2Cc%25%0D%0A%3A%3Aerror%3A%3Ax on 256x256x256%3A error" in properties
    assert [part.partition("=")[0] for part in properties.split(",")] == ["file", "line", "title"]


def test_a_kernel_without_a_file_has_an_error_all_the_same() -> None:
    (line,) = github(slower(path="", line=0))
    assert line.startswith("::error title=tiled on")


def test_no_more_errors_than_are_shown() -> None:
    assert len(github(*(slower(f"k{i}") for i in range(ANNOTATIONS)))) == ANNOTATIONS
    lines = github(*(slower(f"k{i}") for i in range(ANNOTATIONS + 5)))
    assert len(lines) == ANNOTATIONS
    assert "6 more failed" in lines[-1]


def test_faults_of_the_run_are_errors_too() -> None:
    report = report_of(document(slower()))
    lines = list(errors(report, Path("/checkout"), {}, ["vanished: a, b is stored"]))
    assert lines[1] == "::error title=pytest-gemm::vanished: a, b is stored"


def test_the_summary_is_added_to_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "summary.md"
    path.write_text("before\n")
    assert add_summary("## now", {"GITHUB_STEP_SUMMARY": str(path)}) == ""
    assert path.read_text() == "before\n## now\n"
    assert add_summary("## now", {}) == ""
    assert "cannot be written" in add_summary("x", {"GITHUB_STEP_SUMMARY": str(tmp_path)})
    path.write_text("x" * (1024 * 1024 - 2))
    assert "left out" in add_summary("## now", {"GITHUB_STEP_SUMMARY": str(path)})


def test_only_githubs_own_runs_are_told() -> None:
    assert is_actions({"GITHUB_ACTIONS": "true"})
    assert not is_actions({})
