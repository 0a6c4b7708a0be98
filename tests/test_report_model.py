"""What a report shows, and the document that it is made from."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_gemm.baselines import BaselineStore
from pytest_gemm.errors import ConfigError
from pytest_gemm.judging import session_of
from pytest_gemm.limits import LimitCheck
from pytest_gemm.record import Record
from pytest_gemm.report.document import SESSIONS, Past, history, parsed, read
from pytest_gemm.report.markdown import markdown
from pytest_gemm.report.model import SAMPLES, STATES, report_of, state_of
from pytest_gemm.verdict import Verdict
from tests.reported import HOSTILE, document, past, record, same, slower


def test_a_document_survives_its_json() -> None:
    written = document(slower(), same(), record("wrong", outcome="failed", message="C[0,0]"))
    assert parsed(written.to_json()) == written


@pytest.mark.parametrize("name", HOSTILE)
def test_a_document_survives_any_name(name: str) -> None:
    written = document(slower(name))
    assert parsed(written.to_json()) == written


def test_a_document_has_a_line_for_each_record() -> None:
    text = document(slower(), same()).to_json()
    assert len(text.splitlines()) < 20
    data = json.loads(text)
    assert data["format"] == 1
    assert [r["id"] for r in data["records"]] == ["tiled-256x256x256-float32",
                                                  "naive-256x256x256-float32"]  # fmt: skip


def test_a_document_of_the_first_kind_has_no_history() -> None:
    data = json.loads(document(same()).to_json())
    del data["history"], data["studies"]
    found = parsed(json.dumps(data, indent=1))
    assert found.history == {}
    assert found.records == (same(),)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", r"it is not JSON \(Expecting value in line 1\)"),
        ("[" * 100_000, "it is not JSON"),
        ("[]", "no result of pytest --gemm-report"),
        ('{"format": 1}', "no result of pytest --gemm-report"),
        ('{"format": 9, "records": []}', "its format is 9"),
        ('{"format": 1, "records": [{}]}', "damaged"),
        ('{"format": 1, "records": [7]}', "damaged"),
        (document(same()).to_json().replace("2026-01-01T", "the first of "), "isoformat"),
    ],
)
def test_what_is_no_document_is_refused_in_a_sentence(
    tmp_path: Path, text: str, words: str
) -> None:
    path = tmp_path / "out.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=words) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"out\.json: it cannot be read \(No such file"):
        read(tmp_path / "out.json")


def test_the_history_is_what_is_stored(tmp_path: Path) -> None:
    from datetime import UTC, datetime

    timed = same()
    store = BaselineStore(tmp_path)
    for day in range(1, SESSIONS + 4):
        when = datetime(2026, 1, day, tzinfo=UTC)
        store.append(session_of(timed.case, timed.result, when, "c" * 40))
    store.flush()
    found = history(BaselineStore(tmp_path), [timed, record("new"), record("off", median=None)])
    assert found.keys() == {timed.case.id}
    sessions = found[timed.case.id]
    assert sessions[-1].date == f"2026-01-{SESSIONS + 3}T00:00:00Z"
    assert len(sessions) == SESSIONS
    assert sessions[0].median == pytest.approx(0.004, rel=1e-5)
    assert sessions[0].commit == "c" * 12
    assert not sessions[0].deciles
    decided = replace(timed, gate="slower")
    assert len(history(BaselineStore(tmp_path), [decided])[timed.case.id][0].deciles) == 9


def test_what_is_stored_and_cannot_be_read_is_no_history(tmp_path: Path) -> None:
    (tmp_path / "host-1").mkdir()
    (tmp_path / "host-1" / "naive.json").write_text("{")
    assert history(BaselineStore(tmp_path), [same()]) == {}


def test_the_worst_come_first() -> None:
    cases = [
        same("same"),
        record("faster", verdict=Verdict("faster", change=-0.2)),
        slower("little", 0.2),
        slower("much", 0.9),
        record("wrong", outcome="failed", message="wrong on 256"),
    ]
    report = report_of(document(*cases))
    assert [line.kernel for line in report.lines] == ["wrong", "much", "little", "faster", "same"]
    assert [line.kernel for line in report.failing] == ["wrong", "much", "little"]
    assert [line.kernel for line in report.notable] == ["faster"]
    assert report.counts == {"error": 1, "slower": 2, "faster": 1, "same": 1}
    assert report.summary == "3 failed (1 error, 2 slower); 2 passed (1 faster, 1 same)"


def test_what_is_swept_is_in_the_order_of_its_values() -> None:
    sweep = [
        same("swept", params=(("SIDE", side),), swept=("SIDE",)) for side in (16, 1, 32, 2, 10)
    ]
    report = report_of(document(*sweep, same("tiled"), same("add")))
    sides = [f"swept[SIDE:{side}]" for side in (1, 2, 10, 16, 32)]
    assert [line.kernel for line in report.lines] == ["add", *sides, "tiled"]
    rows = [row for row in markdown(report).splitlines() if row.startswith("| `swept")]
    assert [row.split("`")[1] for row in rows] == sides


def test_states() -> None:
    assert state_of(same()) == "same"
    assert state_of(slower()) == "slower"
    assert state_of(record(outcome="failed", message="wrong")) == "error"
    assert state_of(record(outcome="skipped", message="needs K >= 4")) == "skipped"
    assert state_of(record(median=None)) == "ok"
    withheld = record(verdict=Verdict("withheld", notes=("a load of 3",)))
    assert state_of(withheld) == "withheld"
    strictly = replace(withheld, outcome="failed", message="withheld")
    assert state_of(strictly) == "withheld"
    # Its time is as it was, but a limit is broken, or what must not change did.
    assert state_of(replace(same(), outcome="failed", message="changed")) == "error"
    broken = LimitCheck(broken=("5 us is above max_us = 4",))
    assert state_of(replace(slower(), limits=broken)) == "error"
    assert {"slower", "drifted", "error", "worse"} <= set(STATES)


def test_a_line_says_what_was_measured_and_how_it_was_decided() -> None:
    (line,) = report_of(document(slower(counters={"percent_of_cublas": 40.0}))).lines
    assert line.rate == pytest.approx(2 * 256**3 / 0.0026)
    assert line.ceiling == pytest.approx(2 * 256**3 / 0.0026 / 0.4)
    assert line.reference == "cublas"
    assert line.size == 256
    assert line.place == "kernels/tiled.cu:3"
    assert len(line.samples) == 24
    assert len(line.history) == 4
    facts = dict(line.facts)
    assert facts["change"] == "+30.0 %, between +20.0 % and +40.0 %"
    assert facts["decided by"] == "4 stored sessions"
    assert facts["note"] == "the source changed"
    assert facts["after sampling"] == "load 0.75"
    assert line.message.endswith("accept: pytest --gemm-baseline=update")


def test_conditions_have_their_units() -> None:
    told = {"sm_clock": 1980, "power": 123.4567, "power_cap": False, "canary_s": 3.2e-4}
    case = same()
    environment = {"ecc": True, "l2_bytes": 62914560, "power_limit": 700.0}
    result = replace(case.result, conditions={"before": told}, environment=environment)
    report = report_of(document(replace(case, result=result)))
    before = dict(report.lines[0].facts)["before sampling"]
    assert before == "sm clock 1980 MHz, power 123.5 W, power cap no, canary 320 us"
    facts = dict(report.facts)
    assert (facts["ecc"], facts["l2 bytes"], facts["power limit"]) == ("yes", "62914560", "700 W")


def test_two_cards_of_a_model_are_both_told() -> None:
    def on(name: str, **environment: object) -> Record:
        case = same(name)
        return replace(case, result=replace(case.result, environment=environment))

    cards = [on("a", driver="580", uuid="GPU-1"), on("b", driver="580", uuid="GPU-2")]
    report = report_of(document(*cards, on("c", driver="580", uuid="GPU-1")))
    assert report.device == "2 x a scripted CPU, 2 cores"
    facts = dict(report.facts)
    assert (facts["driver"], facts["uuid"]) == ("580", "GPU-1 and GPU-2")
    assert [dict(line.facts)["card"] for line in report.lines] == ["GPU-1", "GPU-2", "GPU-1"]


def test_the_size_of_a_problem_that_is_not_square() -> None:
    from pytest_gemm.problem import Problem

    wide = same()
    wide = replace(wide, case=replace(wide.case, problem=Problem("gemm", 64, 4096, 64)))
    (line,) = report_of(document(wide)).lines
    assert line.size == 256
    (add,) = report_of(document(record("add", 300, op="add"))).lines
    assert (add.size, add.unit, add.work) == (300, "B/s", 3 * 4 * 300**2)


def test_samples_are_shown_where_old_and_new_differ_and_never_too_many() -> None:
    many = replace(slower().result, samples=tuple(0.001 + 1e-7 * i for i in range(5000)))
    lines = report_of(document(replace(slower(), result=many), same())).lines
    samples = lines[0].samples
    assert len(samples) == SAMPLES
    assert (samples[0], samples[-1]) == (0.001, 0.001 + 1e-7 * 4999)
    assert lines[1].samples == ()


def test_a_run_of_nothing_is_a_report() -> None:
    report = report_of(document())
    assert report.title == "pytest-gemm"
    assert report.summary == ""
    assert dict(report.facts)["baseline"] == "auto"


def test_a_past_is_short() -> None:
    told = past()
    assert isinstance(told, Past)
    assert (told.date, told.commit, len(told.program)) == ("2026-01-01T12:00:00Z", "c" * 12, 8)


def test_what_goes_into_other_tools_json_is_finite() -> None:
    endless = replace(slower().verdict, smallest_slowdown=float("inf"))  # type: ignore[type-var]
    info = replace(slower(counters={"error": float("nan")}), verdict=endless).extra_info()
    json.dumps(info, allow_nan=False)
    assert info["gemm"]["verdict"]["smallest_slowdown"] is None
    assert info["gemm"]["verdict"]["change"] == 0.3
    assert "samples" not in info["gemm"]["result"]
    assert "source" not in info["gemm"]["case"]["kernel"]


def test_nothing_heavy_is_loaded_for_a_document() -> None:
    import sys

    code = "import sys, pytest_gemm.report.formats; print('numpy' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "False\n"
