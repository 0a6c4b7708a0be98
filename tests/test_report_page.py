"""The page, and its figures, without a browser: see tests/browser for what one makes of them."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from pytest_gemm.cli import main
from pytest_gemm.report import formats
from pytest_gemm.report.document import Document, read
from pytest_gemm.report.figures import figures, notes, of_a_case
from pytest_gemm.report.files import rendered
from pytest_gemm.report.formats import refused
from pytest_gemm.report.marks import SERIES, Figure, decades
from pytest_gemm.report.model import report_of
from pytest_gemm.report.study import study_figures, study_notes
from tests.reported import HOSTILE, document, everything, past, record, same, slower

pytest.importorskip("jinja2", reason="the extra 'report' is not installed")
vl_convert = pytest.importorskip("vl_convert", reason="the extra 'report' is not installed")


class Page(HTMLParser):
    """The texts of a page, and the attributes and elements that could load or run something."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.tags: list[str] = []
        self.loads: list[str | None] = []
        self._script: dict[str, str | None] | None = None
        self.policy = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        own = dict(attrs)
        self.tags.append(tag)
        self.loads += [own[key] for key in ("src", "href", "srcset", "action") if key in own]
        assert not [key for key in own if key.startswith("on")], "a handler in the markup"
        if own.get("http-equiv") == "Content-Security-Policy":
            self.policy = own["content"] or ""
        if tag == "script":
            self._script = own

    def handle_endtag(self, tag: str) -> None:
        if tag == "script":
            self._script = None

    def handle_data(self, data: str) -> None:
        if self._script is None:
            self.texts.append(data)
        else:
            self.scripts.append((self._script, data))

    @property
    def data(self) -> dict[str, Any]:
        [text] = [s for own, s in self.scripts if own.get("type") == "application/json"]
        found: dict[str, Any] = json.loads(text)
        return found


@pytest.fixture(scope="module")
def whole() -> str:
    return rendered(everything(), ".html")


def test_the_page_tells_verdicts_first(whole: str) -> None:
    page = Page(whole)
    text = " ".join(" ".join(page.texts).split())
    assert "2 failed (1 error, 1 slower); 21 passed (1 faster, 20 same)" in text
    assert text.index("C[0, 3] is 7, not 8") < text.index("Search") < text.index("Rate of ")
    assert "decided by 4 stored sessions" in text
    assert "vanished: old is stored, but is no case" in text
    assert page.tags.count("tr") == 1 + 23


def test_a_reason_has_one_card_and_each_of_its_cases_a_row() -> None:
    cases = [
        record("tiled", n, None, outcome="failed", message=f"tiled on {n}: x") for n in (64, 96)
    ]
    page = Page(rendered(document(*cases, slower()), ".html"))
    assert page.tags.count("details") == 2
    assert page.tags.count("tr") == 1 + 3
    assert "(2 cases)" in page.texts


def test_the_page_loads_nothing_and_runs_its_two_scripts_alone(whole: str) -> None:
    page = Page(whole)
    assert all((link or "").startswith(("#", "data:")) for link in page.loads)
    assert "default-src 'none'" in page.policy
    assert "unsafe-eval" not in page.policy
    run = [text for own, text in page.scripts if not own]
    hashes = re.findall(r"'sha256-([^']+)'", page.policy)
    digests = [base64.b64encode(hashlib.sha256(t.encode()).digest()).decode() for t in run]
    assert digests == hashes
    assert len(run) == 2


def test_the_page_holds_samples_of_changed_cases_and_every_history(whole: str) -> None:
    data = Page(whole).data
    cases = data["cases"]
    [changed] = [c for c in cases if c["state"] == "slower"]
    assert changed["title"] == "tiled32 on 1024x1024x1024"
    assert len(changed["samples"]) == 24
    assert len(changed["history"]) == 4
    told = past(0.00202)
    numbers = [1767268800, told.median, told.low, told.high, 0, told.deciles[0], told.deciles[-1]]
    assert changed["history"][0] == pytest.approx(numbers, rel=1e-4)
    assert data["origins"] == [[told.program, told.epoch, told.commit, ""]]
    assert all(not c["samples"] for c in cases if c["state"] == "same")


@pytest.mark.parametrize("name", HOSTILE)
def test_any_name_is_text(name: str) -> None:
    plain = Page(rendered(document(slower(), same()), ".html"))
    found = Page(rendered(document(slower(name), same(name)), ".html"))
    # Not one element more, and the name where a name belongs.
    assert found.tags == plain.tags
    assert found.texts.count(name) == 2
    assert len(found.scripts) == len(plain.scripts)
    assert {case["title"] for case in found.data["cases"]} == {f"{name} on 256x256x256"}


def test_a_page_made_from_the_json_is_the_same(tmp_path: Path, whole: str) -> None:
    results = tmp_path / "results.json"
    results.write_text(rendered(everything(), ".json"), encoding="utf-8")
    for suffix, text in ((".html", whole), (".md", rendered(everything(), ".md"))):
        out = tmp_path / f"out{suffix}"
        assert main(["report", str(results), str(out)]) == 0
        assert out.read_text(encoding="utf-8") == text


def test_a_page_of_nothing_is_a_page() -> None:
    assert "nothing ran" in " ".join(Page(rendered(document(), ".html")).texts)


# Figures


def drawn(of: Document) -> dict[str, Figure]:
    return {figure.id: figure for figure in figures(report_of(of))}


def test_which_figures_there_are() -> None:
    assert list(drawn(everything())) == [
        "rate-gemm-float32", "rate-add-float32", "roofline-float32", "ladder-gemm-float32",
        "sweep-10-block_size-SIDE-float32",
    ]  # fmt: skip
    assert list(drawn(document(record("odd", outcome="failed", median=None, message="x")))) == []


def test_rates_have_intervals() -> None:
    figure = drawn(everything())["rate-gemm-float32"]
    assert set(figure.series) == {"naive", "tiled", "tiled32", "blocked"}
    assert len(figure.rows) == 16
    colour, shape = figure.spec["encoding"]["color"], figure.spec["layer"][-1]["encoding"]["shape"]
    assert colour["scale"]["domain"] == shape["scale"]["domain"] == list(figure.series)
    row = next(r for r in figure.rows if (r["kernel"], r["size"]) == ("naive", 1024))
    assert row["rate"] == pytest.approx(1000, rel=1e-3)
    assert row["rate_low"] < row["rate"] < row["rate_high"]


def test_the_roofline_is_below_what_was_measured() -> None:
    figure = drawn(everything())["roofline-float32"]
    [ceiling] = [x["data"]["values"] for x in figure.spec["layer"] if "data" in x]
    # 2e13 FLOP/s of cuBLAS; 2e12 B/s are 80 % of the copy's rate.
    assert max(point["rate"] for point in ceiling) == pytest.approx(2e4)
    row = next(r for r in figure.rows if (r["kernel"], r["size"]) == ("naive", 1024))
    assert row["intensity"] == pytest.approx(2 * 1024**3 / (3 * 4 * 1024**2))
    # An addition's 2e12 B/s, at one operation for 12 bytes: the slope of the memory is in sight.
    row = next(r for r in figure.rows if r["kernel"] == "add")
    assert row["rate"] == pytest.approx(2e12 / 12 / 1e9, rel=1e-3)
    assert ceiling[0]["intensity"] < row["intensity"] < ceiling[1]["intensity"] < 1024 / 6
    assert figure.series[-1] == "add"
    assert figure.notes == ("Measured ceilings: cublas: 20.0 TFLOP/s; copy: 2.50 TB/s.",)


def test_the_roof_has_its_ridge_where_the_ceilings_meet() -> None:
    small = everything(same("thin", 1e-3, size=16, counters={"percent_of_cublas": 0.01}))
    figure = drawn(small)["roofline-float32"]
    [ceiling] = [x["data"]["values"] for x in figure.spec["layer"] if "data" in x]
    first, ridge, last = ceiling
    assert ridge == pytest.approx({"intensity": 2e13 / 2.5e12, "rate": 2e4})
    assert last["rate"] == pytest.approx(2e4)
    assert first["rate"] == pytest.approx(first["intensity"] * 2.5e12 / 1e9)


def test_without_a_reference_there_is_no_roofline_and_it_is_said() -> None:
    assert not [name for name in drawn(document(same())) if "roofline" in name]
    assert "No roofline" in notes(report_of(document(same())))[0]
    assert notes(report_of(everything())) == []


def test_a_ladder_is_in_order_on_the_largest_problem_of_all_rungs() -> None:
    figure = drawn(everything())["ladder-gemm-float32"]
    assert "2048x2048x2048" in figure.title
    assert [row["kernel"] for row in figure.rows] == ["naive", "tiled", "tiled32", "blocked"]
    assert [row["step"] for row in figure.rows] == ["", "2.00x", "1.50x", "1.33x"]


def test_kernels_that_run_in_a_circle_end() -> None:
    circle = [same("a", derived_from="b"), same("b", derived_from="a")]
    assert len(drawn(document(*circle))["ladder-gemm-float32"].rows) == 2


def test_a_sweep_is_a_curve_over_its_parameter() -> None:
    figure = drawn(everything())["sweep-10-block_size-SIDE-float32"]
    assert [row["value"] for row in figure.rows] == [4, 8, 16, 32]


def swept_sides(rate: Callable[[int], float]) -> Document:
    sides = {"swept": ("SIDE",), "block": ("SIDE", "SIDE")}
    return document(
        *(
            same("sides", 2 * 512**3 / rate(side), size=512, params=(("SIDE", side),), **sides)
            for side in (1, 2, 4, 8, 16, 32)
        )
    )


def test_a_sweep_of_the_side_of_a_block_has_its_fit() -> None:
    [figure] = drawn(swept_sides(lambda side: 1e11 + 2e11 * math.log(side))).values()
    [fit] = [x["data"]["values"] for x in figure.spec["layer"] if "data" in x]
    assert fit[0] == pytest.approx({"value": 1, "rate": 100}, rel=1e-3)
    assert fit[-1] == pytest.approx({"value": 32, "rate": 100 + 200 * math.log(32)}, rel=1e-3)
    assert figure.notes[0].startswith("The logarithmic fit: R^2 = 1.0000")
    [flat] = drawn(swept_sides(lambda side: 1e11)).values()
    assert not [x for x in flat.spec["layer"] if "data" in x]
    assert flat.notes[0].startswith("No logarithmic fit: ")


def test_of_many_kernels_those_that_failed_are_shown_first() -> None:
    many = [same(f"k{i:02}", 0.001 * (i + 1), size=256) for i in range(20)]
    figure = drawn(document(*many, slower("bad", 9.0)))["rate-gemm-float32"]
    assert figure.series[:3] == ("bad", "k00", "k01")
    assert len(figure.series) == 21
    assert len(figure.spec["encoding"]["color"]["scale"]["domain"]) == SERIES


def test_ticks_of_a_logarithmic_axis() -> None:
    assert decades([10, 1e6])["values"] == [10, 100, 1000, 1e4, 1e5, 1e6]
    assert decades([15, 300])["values"] == [20, 50, 100, 200]
    assert decades([7])["values"] == [7, 7]


def estimate(median: float) -> dict[str, Any]:
    return {"n": 9, "median": median, "low": median * 0.99, "high": median * 1.01}


def measured(side: str, kernel: str, n: int, median: float, **fields: Any) -> dict[str, Any]:
    plain = {
        "side": side, "kernel": kernel, "name": kernel.partition("[")[0], "op": "gemm", "N": n,
        "problem": f"{n}x{n}x{n}", "flops": 2 * n**3, "block": [16, 16, 1], "counters": {},
        "estimate": estimate(median),
    }  # fmt: skip
    return plain | fields


def study(name: str, rows: list[dict[str, Any]], findings: Any) -> dict[str, Any]:
    device = {"kind": "cuda", "name": "gpu-1", "description": "a made-up GPU"}
    return {
        "name": name, "date": "2026-01-01T00:00:00Z", "device": device, "measured": rows,
        "findings": findings,
    }  # fmt: skip


CROSSED = {
    "op": "gemm", "kernel": "naive", "way": "alone", "baseline": "c", "kind": "found",
    "text": "91 (85 ... 97)", "size": 91.0, "low": 85.0, "high": 97.0,
}  # fmt: skip

FIT = {"r_squared": 0.99, "residual": 0.01, "reason": ""}

STUDIES = [
    study(
        "cpu-vs-gpu",
        [*(measured("c", "c_multiply", n, 1e-9 * n**3) for n in (10, 100, 1000)),
         *(measured("device", "naive", n, 1e-3, counters={"pageable_total_s": 2e-3})
           for n in (10, 100, 1000))],
        {"crossovers": [CROSSED, {**CROSSED, "kind": "none", "size": None, "low": None,
                                  "high": None, "text": "none in range (10 ... 1000)"}]},
    ),
    study(
        "block-size",
        [measured("device", f"swept[SIDE:{s}]", 1000, 0.001 + 0.01 * 0.5**s, block=[s, s, 1])
         for s in (1, 2, 4, 8, 16, 32)],
        {"swept": {
            "time": {**FIT, "model": "exponential",
                     "coefficients": {"floor": 0.001, "height": 0.01, "rate": 0.693}},
            "rate": {**FIT, "model": "logarithmic", "coefficients": {},
                     "reason": "no better than a constant (p = 0.2)"},
        }},
    ),
    study(
        "ladder",
        [],
        {"rungs": [{"kernel": "naive", "derived_from": "", "change": "", "loads": "2K"},
                   {"kernel": "tiled", "derived_from": "naive", "change": "tiles", "loads": ""}],
         "steps": [{"kernel": "tiled", "derived_from": "naive", "first": "naive", "N": n,
                    "speedup": 1.6, "error": 0.01} for n in (128, 256)]},
    ),
]  # fmt: skip


def test_studies_are_drawn() -> None:
    found = {figure.id: figure for figure in study_figures(STUDIES)}
    assert list(found) == [
        "study-0-crossover-gemm", "study-1-block-0-rate", "study-1-block-0-time", "study-2-ladder",
    ]  # fmt: skip
    crossed = found["study-0-crossover-gemm"]
    assert set(crossed.series) == {
        "plain C", "naive, kernel alone", "naive, with transfers, pageable",
    }  # fmt: skip
    assert crossed.notes[0] == "naive (kernel alone) faster than plain C from N = 91 (85 ... 97)"
    [[ring], [whisker]] = [x["data"]["values"] for x in crossed.spec["layer"] if "data" in x]
    assert ring == whisker
    # On the curve of the kernel alone, which takes 1 ms at every N.
    assert (ring["N"], ring["low"], ring["high"]) == (91, 85, 97)
    assert ring["time"] == pytest.approx(1)
    assert ring["text"] == crossed.notes[0]
    time, rate = found["study-1-block-0-time"], found["study-1-block-0-rate"]
    [curve] = [x["data"]["values"] for x in time.spec["layer"] if "data" in x]
    assert curve[0] == pytest.approx({"side": 1, "time": 1 + 10 * 2.718281828**-0.693})
    assert "R^2 = 0.9900" in time.notes[0]
    assert not [x for x in rate.spec["layer"] if "data" in x]
    assert rate.notes == ("No logarithmic fit: no better than a constant (p = 0.2).",)
    assert found["study-2-ladder"].notes == ("tiled: tiles; loads not counted",)


def test_what_a_study_left_out_is_told() -> None:
    left = [
        {"kernel": "c", "problem": f"{n}x{n}", "reason": f"it would take {n} s", "seconds": n}
        for n in (8, 16)
    ]
    studies = ({**study("ladder", [], {"steps": []}), "left_out": left},)
    told = "Study ladder left out c from 8x8 on: it would take 8 s."
    assert study_notes(studies) == [told]
    assert told in rendered(document(studies=studies), ".html")


def test_what_failed_in_a_study_is_told_at_the_top() -> None:
    failed = measured("device", "<i>naive</i>", 10, 1.0, outcome="failed", estimate=None)
    failed["message"] = "<i>naive</i> on 10x10x10: wrong\nmore"
    studies = (study("cpu-vs-gpu", [failed], {"crossovers": []}),)
    text = rendered(document(studies=studies), ".html")
    assert '<p class="summary bad">' in text
    assert "Study cpu-vs-gpu: &lt;i&gt;naive&lt;/i&gt; on 10x10x10: wrong</p>" in text


def test_a_crossover_lies_on_the_devices_curve() -> None:
    rising = [measured("device", "naive", n, 1e-6 * n) for n in (10, 100, 1000)]
    plain = [measured("c", "c_multiply", n, 1e-8 * n**2) for n in (10, 100, 1000)]
    launch = {**CROSSED, "way": "launch"}
    open_ended = {**CROSSED, "low": None, "high": None}
    found = {"crossovers": [CROSSED, launch, open_ended]}
    [figure] = study_figures([study("cpu-vs-gpu", [*plain, *rising], found)])
    rings, _ = [x["data"]["values"] for x in figure.spec["layer"] if "data" in x]
    # One launch between events has no curve here, and a sentence all the same.
    assert [ring["time"] for ring in rings] == pytest.approx([0.091, 0.091])
    assert (rings[1]["low"], rings[1]["high"]) == (10, 1000)
    assert figure.notes[1].startswith("naive (one launch between events) faster than plain C")


def test_vega_lite_takes_every_figure() -> None:
    """Compiled by the very library that the page holds."""
    whole = [*figures(report_of(everything())), *study_figures(STUDIES)]
    specs = [{**figure.spec, "data": {"values": list(figure.rows)}} for figure in whole]
    specs += [{**spec, "data": {"values": []}} for spec in of_a_case().values()]
    for spec in specs:
        assert vl_convert.vegalite_to_vega(spec)["marks"]


# The command


@pytest.fixture
def results(tmp_path: Path) -> Path:
    path = tmp_path / "results.json"
    path.write_text(document(slower()).to_json(), encoding="utf-8")
    return path


@pytest.fixture
def studied() -> Path:
    return Path(__file__).parent.parent / "benchmarks" / "results" / "studies-host.json"


def test_studies_join_a_run(tmp_path: Path, results: Path, studied: Path) -> None:
    out = tmp_path / "out.json"
    assert main(["report", str(results), str(studied), str(out)]) == 0
    html = tmp_path / "out.html"
    assert main(["report", str(out), str(html)]) == 0
    page = Page(html.read_text(encoding="utf-8"))
    ids = [figure["id"] for figure in page.data["figures"]]
    assert {"rate-gemm-float32", "study-0-ladder", "study-1-crossover-gemm"} <= set(ids)


def test_a_report_of_studies_alone(tmp_path: Path, studied: Path) -> None:
    for name in ("out.html", "out.md"):
        assert main(["report", str(studied), str(tmp_path / name)]) == 0
    assert (tmp_path / "out.md").read_text(encoding="utf-8").startswith("## ladder: ")
    assert "studies only" in " ".join(Page((tmp_path / "out.html").read_text("utf-8")).texts)


def test_the_machines_of_studies_are_told(results: Path, studied: Path, tmp_path: Path) -> None:
    alone, joined = tmp_path / "alone.json", tmp_path / "joined.json"
    assert main(["report", str(studied), str(alone)]) == 0
    assert main(["report", str(results), str(studied), str(joined)]) == 0
    report = report_of(read(alone))
    assert (report.device, report.kind) == ("AMD EPYC (x86-64-v3), 2 cores", "host")
    facts = dict(report.facts)
    assert facts["compiler"] == "g++"
    assert facts["C and NumPy on"] == report.device
    assert facts["C compiled by"].endswith(", -O2 -std=gnu11 -fPIC -x c")
    assert "baseline" not in facts
    both = report_of(read(joined))
    assert both.device == "a scripted CPU, 2 cores"
    told = [text for label, text in both.facts if label == "device"]
    assert [text.partition(" (")[0] for text in told] == ["a scripted CPU, 2 cores", "AMD EPYC"]


@pytest.mark.parametrize(
    ("files", "words"),
    [
        (["results.json", "out.txt"], "out.txt: the file's name must end in .html, .md or .json"),
        (["nowhere.json", "out.md"], "nowhere.json: it cannot be read"),
        (["results.json", "results.json", "out.md"], "a report is of one run"),
        (["empty.json", "out.md"], "no study is in it"),
        (
            ["damaged.json", "out.html"],
            "damaged.json: what it holds is damaged (KeyError: 'steps')",
        ),
        (["endless.json", "out.html"], "endless.json: what it holds is damaged (ValueError"),
        (["results.json", "folder.md"], "folder.md: it cannot be written"),
        # The report's name was forgotten.
        (["results.json", "empty.json"], "empty.json: it is there already"),
    ],
)
def test_mistakes_are_told_in_a_sentence(
    results: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    files: list[str],
    words: str,
) -> None:
    monkeypatch.chdir(results.parent)
    Path("folder.md").mkdir()
    Path("empty.json").write_text('{"format": "pytest-gemm study", "version": 1, "studies": []}')
    damaged = STUDIES[2] | {
        "findings": {},
        "environment": {},
        "cpu": {},
        "start": {},
        "left_out": [],
    }
    for name, studied in (("damaged", damaged), ("endless", damaged | {"start": {"x": math.inf}})):
        Path(f"{name}.json").write_text(
            json.dumps({"format": "pytest-gemm study", "version": 1, "studies": [studied]})
        )
    assert main(["report", *files]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1


def test_a_missing_extra_is_said_before_anything_runs(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(formats, "find_spec", lambda name: None)
    assert refused(Path("out.md")) == ""
    result = pytester.runpytest_inprocess("--gemm-report=out.html")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([
        "ERROR: --gemm-report=out.html: HTML takes jinja2 and vl-convert-python, which are not "
        "installed: pip install 'pytest-gemm[[]report]'"
    ])  # fmt: skip
    monkeypatch.setattr(formats, "find_spec", lambda name: None if name == "vl_convert" else name)
    assert "HTML takes vl-convert-python, which is not installed" in refused(Path("out.html"))
