"""Absolute limits from end to end, with a scripted clock: 10 ms for 16x16x16 are 0.0008 GFLOP/s."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET

import pytest

from tests.conftest import Project

KERNELS = """
    import pytest_gemm

    @pytest_gemm.kernel(sizes=["16", "32"], {limits})
    def blas(A, B, C):
        C[:] = A @ B
"""
CUBLAS = """
    from pytest_gemm.runner import References
    References.fraction = lambda self, case, seconds: {"percent_of_cublas": 0.5 / seconds}
"""
IN_PERCENT = "min_percent_of_cublas=60"
CASES = ("blas-16x16x16-float32", "blas-32x32x32-float32")


def kernels(limits: str, more: str = "") -> str:
    return KERNELS.format(limits=limits) + more


def reported(project: Project, *args: str) -> dict[str, dict[str, object]]:
    project.bench("--gemm-report=out.json", *args)
    records = json.loads((project.path / "out.json").read_text(encoding="utf-8"))["records"]
    return {record["id"]: record for record in records}


@pytest.mark.parametrize("mode", ["auto", "strict", "off", "update"])
def test_a_broken_limit_fails_its_item_whatever_is_compared(project: Project, mode: str) -> None:
    project.script({}, kernels=kernels("max_us={'16': 9999, '32': 10001}"))
    project.bench("--gemm-baseline=update")
    result = project.bench(f"--gemm-baseline={mode}")
    assert result.ret == 1
    failures = [line for line in result.outlines if line.startswith("FAILED")]
    if mode != "strict":  # of the other size nothing is stored
        assert len(failures) == 1
    result.stdout.fnmatch_lines(
        ["FAILED *blas-16x16x16-float32* blas on 16x16x16: 10000 us is above max_us = 9999"]
    )


def test_each_limit_is_checked(project: Project) -> None:
    limits = "max_us=9000, min_gflops={'16': 0.001}, min_percent_of_cublas=60"
    project.script({}, kernels=kernels(limits, CUBLAS))
    result = project.bench()
    assert result.parseoutcomes() == {"failed": 2, "new": 2}
    result.stdout.fnmatch_lines_random(
        [
            "*blas on 16x16x16: 10000 us is above max_us = 9000; 0.0008192 GFLOP/s is below "
            "min_gflops = 0.001; 50 % of cuBLAS is below min_percent_of_cublas = 60",
            "*blas on 32x32x32: 10000 us is above max_us = 9000; 50 % of cuBLAS is below *",
        ]
    )


def test_what_breaks_a_limit_is_not_stored(project: Project) -> None:
    project.script({}, kernels=kernels("max_us={'16': 9999, '32': 10001}"))
    result = project.bench("--gemm-baseline=update")
    assert result.parseoutcomes() == {"failed": 1, "withheld": 1, "passed": 1, "stored": 1}
    [text] = [text for name, text in project.files().items() if "host-scripted" in name]
    assert "blas-32x32x32" in text
    assert "blas-16x16x16" not in text


def test_a_limit_of_the_other_kind_of_device_does_not_hold(project: Project) -> None:
    project.script({}, kernels=kernels("max_us={'cuda': 1}, min_percent_of_cublas={'cuda': 60}"))
    result = project.bench()
    assert result.parseoutcomes() == {"passed": 2, "new": 2}
    result.stdout.no_fnmatch_line("*limit not checked*")


def test_an_unchecked_limit_is_said_and_fails_under_strict(project: Project) -> None:
    project.script({}, kernels=kernels(IN_PERCENT))
    stored = project.bench("--gemm-baseline=update")
    assert stored.parseoutcomes() == {"passed": 2, "stored": 2}
    said = (
        "limit not checked: blas on 32x32x32 and 1 more: min_percent_of_cublas = 60: cuBLAS was "
        "not timed here"
    )
    stored.stdout.fnmatch_lines([said])
    relaxed = project.bench()
    assert relaxed.parseoutcomes() == {"passed": 2}
    relaxed.stdout.fnmatch_lines([said])

    strict = project.bench("--gemm-baseline=strict")
    assert strict.parseoutcomes() == {"failed": 2}
    strict.stdout.fnmatch_lines(
        ["FAILED *blas on 16x16x16: min_percent_of_cublas = 60: cuBLAS was not timed here"]
    )


def test_a_disturbed_time_breaks_no_limit(project: Project) -> None:
    project.script({}, kernels=kernels("max_us=9"), conditions={"slowdown": "thermal"})
    result = project.bench("--gemm-baseline=off")
    assert result.parseoutcomes() == {"passed": 2, "ungated": 2}
    result.stdout.fnmatch_lines(
        ["limit not checked: blas on *: 10000 us is above max_us = 9, but the GPU slowed itself *"]
    )
    assert project.bench("--gemm-baseline=strict").parseoutcomes()["failed"] == 2


def test_a_regression_that_breaks_a_limit_says_both(project: Project) -> None:
    project.script({}, kernels=kernels("max_us=12000"))
    project.bench("--gemm-baseline=update")
    project.script({"blas": 0.02}, kernels=kernels("max_us=12000"))
    text = project.bench("-k", "16x16").stdout.str()
    assert "blas on 16x16x16: 20000 us is above max_us = 12000" in text
    assert "blas on 16x16x16: slower by 100" in text


def test_the_report_and_the_properties_have_them(project: Project) -> None:
    limits = "max_us={'16': 10001, '32': 9}, min_percent_of_cublas=60"
    project.script({}, kernels=kernels(limits))
    junit = project.path / "out.xml"
    records = reported(project, f"--junit-xml={junit}")
    unchecked = "min_percent_of_cublas = 60: cuBLAS was not timed here"
    assert [records[case]["limits"] for case in CASES] == [
        {"kept": ["max_us = 10001"], "broken": [], "unchecked": [unchecked]},
        {"kept": [], "broken": ["10000 us is above max_us = 9"], "unchecked": [unchecked]},
    ]
    assert [records[case]["outcome"] for case in CASES] == ["passed", "failed"]
    properties = [
        (case.get("name", ""), p.get("value"))
        for case in ET.parse(junit).getroot().iter("testcase")
        for p in case.iter("property")
        if p.get("name") == "gemm_limits"
    ]
    assert sorted(properties) == [
        ("test_gemm[blas-16x16x16-float32]", f"not checked: {unchecked}"),
        (
            "test_gemm[blas-32x32x32-float32]",
            f"broken: 10000 us is above max_us = 9, not checked: {unchecked}",
        ),
    ]


def test_nothing_is_checked_where_nothing_is_timed(project: Project) -> None:
    project.script({}, kernels=kernels("max_us=9"))
    assert project.run().parseoutcomes() == {"passed": 2}


def test_nothing_asked_is_nothing_reported(project: Project) -> None:
    project.script({}, kernels=kernels(""))
    junit = project.path / "out.xml"
    records = reported(project, f"--junit-xml={junit}")
    assert {str(record["limits"]) for record in records.values()} == {
        str({"kept": [], "broken": [], "unchecked": []})
    }
    assert "gemm_limits" not in junit.read_text(encoding="utf-8")
