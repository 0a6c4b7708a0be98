"""Reports of whole runs, from pytest to the file."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("vl_convert", reason="the extra 'report' is not installed")

from pytest_gemm.report.document import read
from pytest_gemm.report.files import rendered
from tests.conftest import Project


def strict_json(path: Path) -> Any:
    """JSON as other languages read it: without NaN and Infinity."""

    def refuse(name: str) -> None:
        raise ValueError(f"{name} is no JSON")

    return json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)


@pytest.fixture
def slowed(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project with a stored session, and a kernel that has become slower since."""
    monkeypatch.setenv("GITHUB_WORKSPACE", str(project.path))
    project.bench("--gemm-baseline=update")
    project.script({"plus": 0.02})
    return project


def test_a_run_writes_every_report_that_is_asked_for(
    slowed: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    summary = slowed.path / "summary.md"
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    files = ["out.json", "out.md", "out.html"]
    result = slowed.bench(
        *(f"--gemm-report={name}" for name in files),
        f"--benchmark-json={slowed.path / 'benchmarks.json'}",
        f"--junit-xml={slowed.path / 'out.xml'}",
    )
    assert result.ret == 1
    for name in files:
        result.stdout.fnmatch_lines([f"report: *{name}"])
    document = read(slowed.path / "out.json")
    plus = next(name for name in document.history if name.startswith("plus"))
    assert len(document.history) == 5
    assert len(document.history[plus]) == 1
    text = (slowed.path / "out.md").read_text(encoding="utf-8")
    assert text == rendered(document, ".md")
    assert (slowed.path / "out.html").read_text(encoding="utf-8") == rendered(document, ".html")
    assert "1 failed (1 slower); 4 passed (4 same)" in text
    assert summary.read_text(encoding="utf-8") == text + "\n"
    [error] = [line for line in result.outlines if line.startswith("::error")]
    assert error.startswith("::error file=conftest.py,line=")
    assert "plus on 16x16" in error
    check_benchmark_json(slowed.path / "benchmarks.json")
    check_junit(slowed.path / "out.xml")


def check_benchmark_json(path: Path) -> None:
    """What github-action-benchmark's tool ``pytest`` reads (its src/extract.ts), and our own."""
    benchmarks = strict_json(path)["benchmarks"]
    assert len(benchmarks) == 5
    for benchmark in benchmarks:
        name, stats = benchmark["fullname"], benchmark["stats"]
        assert isinstance(name, str)
        assert stats["ops"] == pytest.approx(1 / stats["mean"])
        assert stats["stddev"] >= 0
        assert stats["rounds"] == len(stats["data"])
        seconds = 0.02 if "plus" in name else 0.01
        assert stats["mean"] == pytest.approx(seconds)
        record = benchmark["extra_info"]["gemm"]
        assert record["gate"] == ("slower" if "plus" in name else "same")
        assert record["verdict"]["sessions"] == 1
        assert "samples" not in record["result"]


def check_junit(path: Path) -> None:
    cases = {
        case.get("name", ""): {p.get("name"): p.get("value") for p in case.iter("property")}
        for case in ET.parse(path).getroot().iter("testcase")
    }
    [plus] = [properties for name, properties in cases.items() if "plus" in name]
    assert plus["gemm_verdict"] == "slower"
    assert float(plus["gemm_median_s"] or 0) == pytest.approx(0.02)
    assert float(plus["gemm_change"] or 0) == pytest.approx(1.0)
    assert float(plus["gemm_flops_per_s"] or 0) == pytest.approx(16 * 16 / 0.02)
    assert float(plus["gemm_bytes_per_s"] or 0) == pytest.approx(3 * 4 * 16 * 16 / 0.02)


def test_the_history_does_not_hold_what_this_run_stores(project: Project) -> None:
    project.bench("--gemm-baseline=update")
    project.bench("--gemm-baseline=update", "--gemm-report=out.json")
    assert {len(past) for past in read(project.path / "out.json").history.values()} == {1}


def test_a_run_outside_of_github_tells_it_nothing(slowed: Project) -> None:
    result = slowed.bench("-k", "plus")
    assert result.ret == 1
    assert "::error" not in result.stdout.str()


def test_a_report_that_cannot_be_written_fails_the_run(project: Project) -> None:
    """Something else takes its place after the start, where that would have been refused."""
    module = project.path / "test_kernels.py"
    module.write_text(f"{module.read_text()}\n__import__('os').mkdir('out.md')\n")
    result = project.bench("--gemm-report=out.md", "--gemm-report=out.json")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["ERROR: *out.md: it cannot be written*"])
    assert len(read(project.path / "out.json").records) == 5
