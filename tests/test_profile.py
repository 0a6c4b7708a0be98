"""What follows from counters: read, derived, decided, kept, told. No GPU and no ncu."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from math import inf
from pathlib import Path

import pytest

from benchmarks import profile_tables
from pytest_gemm.baselines import BaselineStore
from pytest_gemm.case import Case
from pytest_gemm.doctor.finding import advice
from pytest_gemm.errors import BackendError, ConfigError
from pytest_gemm.exact import TRAFFIC
from pytest_gemm.kernelspec import Kernel
from pytest_gemm.problem import Problem
from pytest_gemm.profile.counters import Launch, medians, read
from pytest_gemm.profile.document import Profile, Profiled, Sanitized, write
from pytest_gemm.profile.document import read as read_profile
from pytest_gemm.profile.facts import (
    counted_loads,
    derived,
    measured_loads,
    predicted_loads,
    stalls,
)
from pytest_gemm.profile.limiter import Limit, Roof, limit, roof, sentence
from pytest_gemm.profile.metrics import ALTERNATIVES, BY_NCU, COUNTERS, NAMES, STALLS
from pytest_gemm.profile.report import report
from pytest_gemm.registry import load_registry
from pytest_gemm.result import Result

ROOT = Path(__file__).parent.parent
LOADS = ROOT / "benchmarks/gpu/results/2026-11-30-487193c/loads_ncu.csv"
"""One launch of every shipped kernel on 64x128x192 and on 1024x1024x1024, by ncu on an H200."""

TIMES = ROOT / "benchmarks/gpu/results/2026-11-30-4282280/ncu.csv"
CUBE = Problem("gemm", 1024, 1024, 1024)
TRAFFIC_OF_TILED = {"global_load_words": 196608, "global_loads": 196608}
H200 = {"kind": "cuda", "name": "NVIDIA-H200", "description": "NVIDIA H200, 140 GiB, 132 SMs"}


def traffic_of(kernel: str) -> Mapping[str, int]:
    """As the check on the CPU counted it, from the project's stored facts."""
    facts = BaselineStore(ROOT / "baselines").load_exact(kernel)
    counters = next(fact.counters for fact in facts.values() if fact.recipe == TRAFFIC)
    return {name: int(count) for name, count in counters.items()}


def kernel_of(name: str) -> Kernel:
    return next(k for k in load_registry([ROOT / "kernels"], ROOT).kernels("cuda") if k.id == name)


# Reading


def test_the_tables_of_a_real_ncu_are_read() -> None:
    launches = read(LOADS.read_text())
    assert len(launches) == 12
    tiled = launches[9]
    assert tiled == Launch(
        "tiled(const float *, const float *, float *, int, int, int)",
        (64, 64, 1),
        (16, 16, 1),
        {"global_loads": 4194304.0},
    )


def test_times_are_in_seconds_and_other_metrics_are_passed_over() -> None:
    launches = read(TIMES.read_text())
    assert launches[0].kernel == "case_marker(float *)"
    assert launches[0].counters == {"time": pytest.approx(1.504e-6)}


def table(*rows: tuple[str, str, str, str]) -> str:
    """ncu's CSV of rows of a launch's number, a metric, its unit, its value."""
    head = (
        '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream",'
        '"Block Size","Grid Size","Device","CC","Section Name","Metric Name","Metric Unit",'
        '"Metric Value"'
    )
    lines = [
        f'"{number}","1","python","127.0.0.1","tiled(int)","1","7","(16, 16, 1)","(64, 64, 1)",'
        f'"0","9.0","Command line profiler metrics","{metric}","{unit}","{value}"'
        for number, metric, unit, value in rows
    ]
    return "\n".join(["==PROF== Connected to process 1", head, *lines])


def test_what_is_no_number_is_not_known() -> None:
    text = table(
        ("0", COUNTERS["l2"].ncu, "%", "12.5"),
        ("0", COUNTERS["l1"].ncu, "%", "n/a"),
        ("0", COUNTERS["dram"].ncu, "%", "nan"),
        ("0", "sm__of_somebody_else.sum", "", "1"),
    )
    assert read(text)[0].counters == {"l2": 12.5}


def test_a_line_of_ncus_own_behind_the_table_is_none_of_it() -> None:
    text = table(("0", COUNTERS["l2"].ncu, "%", "12.5")) + "\n==PROF== Disconnected\n"
    assert len(read(text)) == 1


def test_without_a_table_there_are_no_launches() -> None:
    assert read("==ERROR== something\n") == []


def test_a_table_that_is_cut_off_is_an_error_with_the_line() -> None:
    whole = table(("0", COUNTERS["l2"].ncu, "%", "12.5"), ("1", COUNTERS["l2"].ncu, "%", "1"))
    with pytest.raises(BackendError, match=r"ncu's table cannot be read at its line 3 \("):
        read(whole[: whole.rindex('"%"')])


def test_the_other_name_of_a_metric_gives_the_same_counter() -> None:
    text = table(("0", "dram__bytes_op_read.sum", "byte", "64"))
    assert read(text)[0].counters == {"dram_read": 64.0}


def test_a_counter_that_one_launch_lacks_has_no_median() -> None:
    launches = [
        Launch("k", (1,), (1,), {"l1": value, **({"l2": 1.0} if value < 3 else {})})
        for value in (1.0, 9.0, 2.0)
    ]
    assert medians(launches) == {"l1": 2.0}
    assert medians([]) == {}


def test_every_metric_has_one_name_and_is_asked_for_once() -> None:
    assert len(set(NAMES.values())) == len(NAMES) == len(COUNTERS) + len(STALLS)
    assert set(ALTERNATIVES) <= set(NAMES)
    assert not set(ALTERNATIVES.values()) & set(NAMES)
    assert {BY_NCU[other] for other in ALTERNATIVES.values()} <= set(COUNTERS)


# Deriving


@pytest.mark.parametrize(
    ("kernel", "row", "formula", "loads"),
    [
        *(("naive", 5, 1, 2048), ("tiled", 9, 16, 128)),
        *(("tiled32", 11, 32, 64), ("register_blocked", 7, 32, 64)),
    ],
)
def test_an_h200_counts_the_loads_that_the_cpu_predicts(
    kernel: str, row: int, formula: int, loads: int
) -> None:
    traffic = traffic_of(kernel)
    launch = read(LOADS.read_text())[row]
    assert launch.kernel.startswith(f"{kernel}(")
    assert predicted_loads(CUBE, traffic) == 2 * 1024 / formula == loads
    assert measured_loads(CUBE, launch.counters, traffic) == loads
    assert counted_loads(CUBE, traffic) == 2 * 192 / formula


def test_an_addition_has_the_same_loads_at_every_size() -> None:
    problem = Problem("add", 1024, 1024, 0)
    assert predicted_loads(problem, {"global_load_words": 2 * 64 * 128}) == 2.0


def test_a_load_of_four_words_counts_as_four() -> None:
    traffic = {"global_load_words": 400, "global_loads": 100}
    counters = {"global_loads": 1024 * 1024 / 32}
    assert measured_loads(CUBE, counters, traffic) == 4.0
    assert measured_loads(CUBE, counters, {}) == 1.0


def test_elements_of_two_bytes_come_two_to_a_word() -> None:
    problem = Problem("gemm", 1024, 1024, 1024, dtype="float16")
    assert counted_loads(problem, {"global_load_words": 64 * 128 * 3}) == 6.0
    assert measured_loads(problem, {"global_loads": 1024 * 1024 / 32}, {}) == 2.0


def test_the_matrices_of_a_batch_are_counted_together() -> None:
    problem = Problem("gemm", 1024, 1024, 1024, batch=2)
    assert measured_loads(problem, {"global_loads": 2 * 1024 * 1024 / 32}, {}) == 1.0
    assert counted_loads(problem, {"global_load_words": 2 * 64 * 128 * 24}) == 24.0


def test_nothing_is_predicted_without_a_count() -> None:
    assert predicted_loads(CUBE, {}) is None
    assert measured_loads(CUBE, {}, TRAFFIC_OF_TILED) is None


def test_what_is_derived() -> None:
    counters = {
        **{"global_loads": 1000.0, "global_load_sectors": 4000.0, "shared_loads": 31000.0},
        **{"dram_read": 3e6, "dram_written": 1e6, "multiply_adds": 32 * 16000.0},
        **{"instructions": 64000.0, "shared_waves": 50000.0},
        **{"load_conflicts": 4000.0, "store_conflicts": 1000.0},
        **{"l1_found": 900.0, "l1_missed": 100.0, "l2_found": 30.0, "l2_missed": 30.0},
        **{"shared": 80.0, "time": 1e-3, "clock": 1e6, "units": 100.0},
    }
    found = derived(CUBE, counters, TRAFFIC_OF_TILED)
    assert found == {
        "loads": 32 * 1000 / 1024**2,
        "sectors_per_load": 4.0,
        "l1_hits": 0.9,
        "l2_hits": 0.5,
        "dram_bytes": 4e6,
        "intensity": 2 * 1024**3 / 4e6,
        "instructions_per_multiply_add": 4.0,
        "loads_per_multiply_add": 2.0,
        "bank_cycles_per_multiply_add": 5.0,
        "conflicts": 0.1,
    }


def test_what_is_missing_derives_nothing() -> None:
    assert set(derived(CUBE, {}, {}).values()) == {None}
    assert derived(CUBE, {"dram_read": 1.0}, {})["dram_bytes"] is None
    assert derived(CUBE, {"instructions": 1.0, "multiply_adds": 0.0}, {})["intensity"] is None


@pytest.mark.parametrize("found", [0.0, 1.0, 1e12])
def test_a_cache_has_no_more_than_what_it_was_asked_for(found: float) -> None:
    hits = derived(CUBE, {"l2_found": found, "l2_missed": 3.0}, {})["l2_hits"]
    assert 0 <= hits <= 1
    assert hits == pytest.approx(found / (found + 3))
    assert derived(CUBE, {"l2_found": 0.0, "l2_missed": 0.0}, {})["l2_hits"] is None
    assert not any("hit_rate" in metric.ncu for metric in COUNTERS.values())


def test_stalls_are_parts_of_a_warps_time_without_its_own_issue() -> None:
    found = stalls({"stall.selected": 1.0, "stall.barrier": 1.0, "stall.wait": 2.0})
    assert found == [("wait", 0.5), ("barrier", 0.25)]
    assert stalls({}) == []


# Deciding

LATENT = {
    **{"units": 132.0, "issue": 40.0, "fma": 20.0, "l1": 59.9, "dram": 5.0, "occupancy": 93.4},
    **{"stall.selected": 1.0, "stall.not_selected": 5.0, "stall.long_scoreboard": 4.0},
}


@pytest.mark.parametrize(
    ("counters", "expected"),
    [
        ({"l1": 80.0, "fma": 20.0}, Limit("l1", "L1 and shared memory at 80 % of the peak")),
        ({"dram": 91.2, "l2": 91.2}, Limit("dram", "DRAM at 91 % of the peak")),
        (
            LATENT,
            Limit(
                "latency",
                "latency, as no unit is busier than L1 and shared memory at 60 % of the peak: "
                "warps wait 40 % of their time for data from global or local memory, with 93 % of "
                "the most warps resident",
            ),
        ),
        (
            {**LATENT, "issue": 79.9},
            Limit(
                "issue",
                "the issue slots at 80 % of the peak, while warps wait 40 % of their time for data "
                "from global or local memory, with 93 % of the most warps resident",
            ),
        ),
        ({"fma": 60.0}, Limit("fma", "the float32 pipe at 60 % of the peak")),
        (
            {"fma": 59.9},
            Limit(
                "latency",
                "latency, as no unit is busier than the float32 pipe at 60 % of the peak",
            ),
        ),
        ({}, Limit("unknown", "not known, as no counter of a unit was read")),
    ],
)
def test_the_first_limiter(counters: Mapping[str, float], expected: Limit) -> None:
    assert limit(counters, 4096) == expected


def test_a_grid_that_leaves_multiprocessors_idle_is_the_limit_whatever_else_is() -> None:
    found = limit({"units": 132.0, "fma": 99.0}, 32)
    assert found.kind == "grid"
    assert "its 32 blocks leave 100 of 132 multiprocessors without work" in found.text
    assert limit({"units": 132.0, "fma": 99.0}, 132).kind == "fma"


def test_the_roof_is_the_lower_of_the_two() -> None:
    assert roof(1000, 1.0, 10.0, 5000.0, 20.0) == Roof(1000.0, 100.0, 2000.0, "memory")
    assert roof(1000, 1.0, 10.0, 1500.0, 20.0) == Roof(1000.0, 100.0, 1500.0, "arithmetic")
    cached = roof(1000, 1.0, 0.0, 2000.0, 20.0)
    assert cached == Roof(1000.0, inf, 2000.0, "arithmetic")
    assert cached.part == 0.5


@pytest.mark.parametrize("lacking", range(4))
def test_without_a_peak_the_traffic_or_a_time_there_is_no_roof(lacking: int) -> None:
    known: list[float | None] = [1.0, 10.0, 1500.0, 20.0]
    known[lacking] = 0.0 if lacking == 0 else None
    assert roof(1000, *known) is None  # type: ignore[arg-type]


def test_the_sentence() -> None:
    text = sentence("tiled on 1024", Roof(6e12, 512.0, 60e12, "arithmetic"), Limit("l1", "L1"))
    assert text == (
        "tiled on 1024: 6.00 TFLOP/s, 10.0 % of the 60.0 TFLOP/s that the arithmetic allows at 512 "
        "FLOP per byte of DRAM; first limiter: L1"
    )
    assert sentence("add on 64x64", None, Limit("l2", "L2")) == "add on 64x64: first limiter: L2"


# Keeping and telling


@pytest.fixture
def profile() -> Profile:
    """Of tiled on an H200, with made-up counters."""
    kernel = kernel_of("tiled")
    case = Profiled.of(
        Case(kernel, kernel.problem("1024")), Result("passed", traffic=traffic_of("tiled"))
    )
    counters = {
        **LATENT,
        **{"time": 4e-4, "global_loads": 4194304.0, "dram_read": 8e6, "dram_written": 4e6},
        **{"l1_bytes": 5e8, "l1_found": 3.0, "l1_missed": 22.0, "instructions": 4.0 * 2**25},
        **{"multiply_adds": float(2**30), "shared_loads": 2.0**26},
    }
    counted = replace(
        case,
        seconds=3.5e-4,
        build={"registers": 32, "occupancy": 1.0},
        static={"loop.instructions": 64, "loop.FFMA": 16},
        counters=counters,
    )
    return Profile(
        "2026-11-30T03:00:00Z", H200, {}, 66.9e12, 4.8e12, (counted,), unknown=("sm__no.sum",)
    )


def test_a_profile_is_the_same_when_it_is_read_again(profile: Profile, tmp_path: Path) -> None:
    whole = replace(
        profile,
        missing=advice("ncu", "no", "do"),
        sanitized=(Sanitized("tiled", "", {"memcheck": "Invalid"}),),
    )
    path = tmp_path / "profile.json"
    path.write_text(write(whole))
    assert read_profile(path) == whole
    found = json.loads(path.read_text())["cases"][0]["found"]
    assert found["derived"]["loads"] == 128.0
    assert found["limiter"] == "latency"
    assert found["sentence"] == whole.sentence(whole.cases[0])
    assert found["stalls"] == {"not_selected": 0.5, "long_scoreboard": 0.4}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, "cannot be read"),
        ("{", "it is not JSON (Expecting property name enclosed in double quotes in line 1)"),
        ("[]", "is no result of pytest-gemm profile"),
        ('{"format": "pytest-gemm study"}', "is no result of pytest-gemm profile"),
        ('{"format": "pytest-gemm profile", "version": 2}', "its version is 2 and 1 can be read"),
        ('{"format": "pytest-gemm profile", "version": 1}', "it is damaged (KeyError"),
    ],
)
def test_a_file_that_is_no_profile_is_named(text: str | None, why: str, tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_profile(path)
    assert str(caught.value).startswith(str(path))
    assert why in str(caught.value)


def test_the_report_says_the_sentence_and_shows_where_it_comes_from(profile: Profile) -> None:
    lines = list(report(profile))
    text = "\n".join(lines)
    assert "NVIDIA H200, 140 GiB, 132 SMs; 2026-11-30." in lines
    assert lines[4].startswith("- tiled on 1024x1024x1024: 6.14 TFLOP/s, 9.2 % of the 66.9 TFLOP/s")
    assert "| `tiled` | 1024x1024x1024 | 2K/16 | 128 | 24.0 | 128 |" in lines
    assert "16 of 64" in text
    assert "93 of 100 %" in text
    assert "500 MB, 12 %" in text
    assert "for data from global or local memory" in text
    assert "Not known to this ncu on this GPU: `sm__no.sum`." in lines
    assert all(
        line.count("|") in (0, lines[i - 1].count("|")) or "---" in lines[i + 1]
        for i, line in enumerate(lines)
        if i
    )


def test_a_case_without_counters_says_why_and_keeps_its_prediction(profile: Profile) -> None:
    bare = replace(
        profile.cases[0],
        counters={},
        message="tiled on 1024: it hung\nmore",
        unchecked="kernels/tiled.cu:9: inline PTX",
    )
    lines = list(report(replace(profile, cases=(bare,), unknown=())))
    assert "| `tiled` | 1024x1024x1024 | 2K/16 | 128 | 24.0 | - |" in lines
    assert "No counters: tiled on 1024: it hung" in lines
    assert "`tiled` is not counted on the CPU: kernels/tiled.cu:9: inline PTX" in lines
    assert not any("first limiter" in line for line in lines)


def test_a_roof_is_that_of_float32_alone(profile: Profile) -> None:
    case = replace(profile.cases[0], problem=replace(profile.cases[0].problem, dtype="float64"))
    assert profile.roof(case) is None
    assert profile.roof(profile.cases[0]) is not None


@pytest.mark.parametrize(
    ("row", "agrees", "cell"),
    [
        (Sanitized("k", "", {"memcheck": ""}), True, "yes"),
        (Sanitized("k", "a race", {"memcheck": "Invalid"}), True, "yes"),
        (Sanitized("k", "a race", {"memcheck": ""}), False, "**no**"),
        (Sanitized("k", "", {"memcheck": "Invalid"}), False, "**no**"),
        (Sanitized("k", "", {"memcheck": "Invalid"}, "inline PTX"), None, "-"),
    ],
)
def test_the_sanitizer_and_the_cpu_agree_or_do_not(
    row: Sanitized, agrees: bool | None, cell: str, profile: Profile
) -> None:
    assert row.agrees is agrees
    lines = list(report(replace(profile, cases=(), sanitized=(row,))))
    assert next(line for line in lines if line.startswith("| `k`")).endswith(f"| {cell} |")


# The page


@pytest.mark.parametrize("page", profile_tables.PAGES, ids=lambda page: page.name)
def test_the_pages_are_what_is_stored(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    places = {"profile.md": 5, "static.md": 2}
    assert text.count("<!-- end -->") == places[page.name]
    assert profile_tables.filled(text) == text, "run: python benchmarks/profile_tables.py"
    if page.name == "profile.md":
        assert all(metric.ncu in text for metric in COUNTERS.values())


STORED = read_profile(ROOT / "benchmarks/results/profile-h200.json")


@pytest.mark.parametrize("case", STORED.cases, ids=lambda case: case.title)
def test_the_stored_counts_of_an_h200_are_those_of_the_model(case: Profiled) -> None:
    formula = {"naive": 1, "tiled": 16, "tiled32": 32, "register_blocked": 32}[case.kernel]
    loads = 2 * case.problem.K / formula
    assert measured_loads(case.problem, case.counters, case.traffic) == loads
    assert predicted_loads(case.problem, case.traffic) == loads


def test_the_answer_says_what_the_stored_counters_do() -> None:
    cases = {case.kernel: case for case in STORED.cases if case.problem.M == 4096}
    assert all(STORED.limit(case).kind == "shared" for case in cases.values())
    cycles = {k: case.derived["bank_cycles_per_multiply_add"] for k, case in cases.items()}
    naive, tiled = cases["naive"], cases["tiled"]
    assert naive.seconds is not None
    for kernel, case in cases.items():
        # Banks that are as busy in all of them: time follows cycles.
        assert case.seconds is not None
        assert case.seconds / naive.seconds == pytest.approx(cycles[kernel] / cycles["naive"], 0.2)
        assert case.counters["issue"] < 60
    assert tiled.seconds is not None
    text = (profile_tables.ROOT / "docs/profile.md").read_text(encoding="utf-8")
    assert f"takes {1e3 * naive.seconds:.1f} ms and tiled {1e3 * tiled.seconds:.1f} ms." in text
    assert tiled.derived["dram_bytes"] > naive.derived["dram_bytes"]
    assert naive.counters["l2_bytes"] < 0.2 * naive.counters["l1_bytes"]


def test_a_stored_profile_fills_its_place(
    profile: Profile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "p.json").write_text(write(profile))
    monkeypatch.setattr(profile_tables, "ROOT", tmp_path)
    page = "before\n<!-- profile p.json -->\nold\n<!-- end -->\nafter\n"
    filled = profile_tables.filled(page)
    assert "old" not in filled
    assert "| `tiled` | 1024x1024x1024 | 2K/16 | 128 | 24.0 | 128 |" in filled
    assert filled.startswith("before\n<!-- profile p.json -->\n")
    assert filled.endswith("\n<!-- end -->\nafter\n")
    assert profile_tables.filled(filled) == filled
    gone = profile_tables.filled(page.replace("p.json", "q.json"))
    assert "Not measured yet: `q.json` is not there." in gone
