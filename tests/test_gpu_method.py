"""The measurement script for GPUs: its parsing, statistics and tables, and its ways of timing on
a scripted device."""

from __future__ import annotations

import argparse
import json
import math
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.fake_cupy import FakeCuda, Kernel, Lane

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "benchmarks" / "gpu"
sys.path.append(str(FOLDER))

import cases  # noqa: E402
import child  # noqa: E402
import tables  # noqa: E402

CSV = """==PROF== Connected to process 7
==PROF== Profiling "case_marker" - 0: 0%....50%....100% - 1 pass
"ID","Process ID","Kernel Name","Metric Name","Metric Unit","Metric Value"
"0","7","case_marker(float *)","gpu__time_duration.sum","ns","900"
"1","7","add(const float *)","gpc__cycles_elapsed.max","cycle","3,960"
"1","7","add(const float *)","gpu__time_duration.sum","ns","2,000"
"2","7","add(const float *)","gpu__time_duration.sum","usecond","2.5"
"3","7","case_marker(float *)","gpu__time_duration.sum","ns","900"
"4","7","sgemm","gpu__time_duration.sum","ns","4000"
"5","7","reduce","gpu__time_duration.sum","ns","1000"
"""


def session(
    hot: dict[str, list[float]], cold: dict[str, list[float]] | None = None, wall: float = 1.0
) -> dict[str, Any]:
    def timed(samples: dict[str, list[float]]) -> list[dict[str, Any]]:
        return [{"case": c, "samples": s, "wall_s": wall / 9} for c, s in samples.items()]

    return {
        **{"hot": timed(hot), "cold": timed(cold or {}), "wall_s": {"hot": wall}},
        **{"start_s": 2.0, "compile_s": 0.5, "operands_s": 0.25, "first_launches_s": 0.125},
        "process_s": 4.0,
    }


# Statistics


def test_a_session_counts_by_its_median_and_a_failed_case_not_at_all() -> None:
    broken = session({})
    broken["hot"] = [{"case": "add 256", "error": "a fault", "wall_s": 0.1}]
    sessions = [session({"add 256": [1.0, 9.0, 2.0]}), session({"add 256": [4.0]}), broken]
    assert tables.medians(sessions, "hot", "add 256") == [2.0, 4.0]
    assert tables.medians(sessions, "cold", "add 256") == []


def test_the_spread_is_that_of_a_sample() -> None:
    assert tables.relative_sd([1.0, 2.0, 3.0]) == pytest.approx(0.5)
    assert math.isnan(tables.relative_sd([1.0]))


def test_the_goals_change_at_their_limits() -> None:
    assert [tables.sd_goal(s) for s in (5e-6, 4.99e-6, 1e-6, 0.9e-6)] == [0.003, 0.005, 0.005, None]
    assert [tables.agreement_goal(s) for s in (50e-6, 49e-6, 4e-6)] == [0.02, 0.10, None]
    assert [tables.cold_goal(s) for s in (50e-6, 49e-6)] == [0.03, None]


# Parsing


def test_ncu_s_csv_is_read_in_its_units_and_by_launch() -> None:
    kernels = tables.read_ncu(CSV)
    assert len(kernels) == 6
    assert kernels[1] == (
        "add(const float *)",
        {"gpc__cycles_elapsed.max": 3960.0, "gpu__time_duration.sum": pytest.approx(2e-6)},
    )
    assert kernels[2][1]["gpu__time_duration.sum"] == pytest.approx(2.5e-6)


def test_no_table_is_an_error() -> None:
    with pytest.raises(ValueError, match="no table"):
        tables.read_ncu("==ERROR== no permission")


def test_the_kernels_of_one_launch_are_added_up() -> None:
    found = tables.by_case(tables.read_ncu(CSV), ["add 256", "cublas 256"])
    metric = "gpu__time_duration.sum"
    twice = tables.by_launch(found["add 256"], 2)
    assert tables.launch_seconds(twice, metric) == pytest.approx(2.25e-6)
    once = tables.by_launch(found["cublas 256"], 1)
    assert tables.launch_seconds(once, metric) == pytest.approx(5e-6)
    with pytest.raises(ValueError, match="2 kernels in 3 launches"):
        tables.by_launch(found["add 256"], 3)


def test_launches_of_another_number_of_cases_are_refused() -> None:
    with pytest.raises(ValueError, match="2 markers for 1 cases"):
        tables.by_case(tables.read_ncu(CSV), ["add 256"])


def test_the_period_is_from_start_to_start_whatever_stands_between() -> None:
    trace = [[0, 1, "case_marker(float*)"], [5, 900, "hold"]]
    trace += [[1000 + 3 * i, 2, "add(float const*)"] for i in range(4)]
    trace += [[5000, 2, "add(float const*)"]]
    found = tables.by_case(tables.read_trace(trace), ["add 256"])["add 256"]
    assert [name for name, _ in found] == ["add(float const*)"] * 5
    launches = tables.by_launch(found, 5)
    assert tables.period(launches) == pytest.approx(3e-6)
    assert tables.launch_seconds(launches, "duration") == pytest.approx(2e-6)


def state(case: str, seconds: float) -> dict[str, Any]:
    return {
        "axis_values": [{"name": "case", "type": "string", "value": case}],
        "summaries": [
            {
                "tag": "nv/cold/time/gpu/mean",
                "data": [{"name": "value", "type": "float64", "value": str(seconds)}],
            },
            {"tag": "note", "data": [{"name": "value", "type": "string", "value": "words"}]},
        ],
    }


def test_nvbench_s_numbers_are_read_by_case_and_a_skipped_one_has_none() -> None:
    skipped = {**state("tiled 256", 1.0), "summaries": None}
    found = tables.read_nvbench([state("add 256", 4e-6), skipped])
    assert found == {"add 256": {"nv/cold/time/gpu/mean": 4e-6}, "tiled 256": {}}


# Tables


def test_a_missed_goal_is_said() -> None:
    close = [session({"add 256": [m * 1e-6]}) for m in (1.0, 1.001, 1.002)]
    far = [session({"add 256": [m * 1e-6]}) for m in (1.0, 1.01, 1.02)]
    assert tables.session_table(close, ["add 256"])[0]["goal"] == "met (0.5 %)"
    assert tables.session_table(far, ["add 256"])[0]["goal"] == "MISSED (0.5 %)"
    assert tables.session_table(far, ["tiled 256"])[0]["goal"] == ""


def test_cold_times_are_held_against_nvbench_s() -> None:
    sessions = [session({}, {"add 4096": [102e-6], "add 256": [5e-6]})]
    nvbench = {
        "states": [state("add 4096", 100e-6), state("add 256", 4e-6)],
        "case_wall_s": {"add 4096": 1.5},
    }
    rows = tables.cold_table(sessions, nvbench, ["add 4096", "add 256"])
    assert rows[0]["difference"] == "+2.0 %"
    assert rows[0]["goal"] == "met (3.0 %)"
    assert (rows[1]["difference"], rows[1]["goal"]) == ("+25.0 %", "")


def test_hot_times_are_held_against_a_profiler_s_with_its_clock() -> None:
    sessions = [session({"tiled 256": [8e-6]})]
    seen = ("tiled", {"gpu__time_duration.sum": 1e-5, "gpc__cycles_elapsed.max": 19800.0})
    ncu = {"tiled 256": [seen] * tables.LAUNCHES}
    [row] = tables.hot_table(sessions, ncu, {}, ["tiled 256"])
    assert (row["ncu, more, us"], row["hot / ncu"]) == ("+2.00", "-20.0 %")
    assert row["goal, ncu"] == "MISSED (10.0 %)"
    assert row["ncu, MHz"] == "1980"
    assert row["CUPTI, us"] == row["goal, CUPTI"] == row["period, us"] == ""
    many = 1 + tables.REPLAYS * tables.REPLAYED
    traced = [("tiled", {"start": 9e-6 * i, "duration": 8.1e-6}) for i in range(many)]
    [row] = tables.hot_table(sessions, ncu, {"tiled 256": traced}, ["tiled 256"])
    assert (row["hot / CUPTI"], row["goal, CUPTI"]) == ("-1.2 %", "met (10.0 %)")
    assert row["period, us"] == "9.000"


def test_a_case_alone_is_compared_in_standard_deviations() -> None:
    among = [session({"add 256": [m]}) for m in (1.0, 2.0, 3.0)]
    [row] = tables.alone_table(among, [session({"add 256": [4.0]})], ["add 256", "tiled 256"])
    assert (row["difference"], row["in sd"]) == ("+100.0 %", "+2.0")


def test_the_wall_times_have_a_median_and_a_worst() -> None:
    rows = tables.wall_table([session({}, wall=w) for w in (1.0, 2.0, 6.0)], None)
    [hot] = [row for row in rows if row["part"] == "nine cases, hot"]
    assert (hot["median, s"], hot["most, s"]) == ("2.00", "6.00")


def report(digest: str) -> dict[str, Any]:
    problem = {"op": "gemm", "M": 100, "N": 100, "K": 50}
    return {
        "records": [
            {
                "id": "tiled-100x100x50-float32",
                "case": {"problem": problem},
                "outcome": "passed",
                "message": "",
                "result": {
                    "digest": digest,
                    "estimate": {"median": 1e-5, "low": 1e-5, "high": 1e-5, "n": 64},
                    "counters": {"percent_of_cublas": 12.34, "compile_s": 0.5},
                    "conditions": {},
                },
            }
        ]
    }


def levels(left: list[float], shuffled: list[float], after: float) -> dict[str, Any]:
    return {
        "levels": {"add 256": {"left": left, "shuffled": shuffled}},
        "copies": {"case": "add 256", "before": [1e-6], "default stream": [after]},
    }


def test_levels_are_those_between_processes_and_within_one() -> None:
    processes = [
        levels([1e-6, 1e-6, 1.01e-6], [1e-6, 2e-6, 3e-6], 1.2e-6),
        levels([2e-6, 2e-6, 2.02e-6], [1e-6, 2e-6, 3e-6], 1.4e-6),
    ]
    [row] = tables.level_table(processes)
    assert row == {
        "case": "add 256",
        **{"left, us": "1.000 to 2.000", "sd, left": "47.14 %", "within, left": "1.00 %"},
        **{"shuffled, us": "2.000 to 2.000", "sd, shuffled": "0.00 %"},
        "within, shuffled": "100.00 %",
    }
    [row] = tables.copy_table(processes)
    assert row == {"case": "add 256", "before, us": "1.000", "default stream, us": "1.300"}


@pytest.mark.parametrize(("digest", "said"), [("sha256:1", "equal"), ("sha256:2", "OTHER")])
def test_bits_are_compared_with_the_cpu_s_of_the_same_problem(digest: str, said: str) -> None:
    [row] = tables.kernel_table(
        tables.shorten(report(digest)), {"gemm 100x100x50": "sha256:1", "add 100x100": "sha256:2"}
    )
    assert row["case"] == "tiled-100x100x50"
    assert row["rate"] == "100 GFLOP/s"
    assert row["of the vendor's"] == "12 %"
    assert row["bits"] == said


def test_markdown_is_aligned() -> None:
    text = tables.markdown([{"case": "a", "us": "10"}, {"case": "longer", "us": "1"}])
    assert text.splitlines() == [
        "| case   | us |",
        "| ------ | -: |",
        "| a      | 10 |",
        "| longer |  1 |",
    ]


# Ways of timing, on a scripted device


class Gpu:
    """A back end on a scripted device, with durations for the kernels."""

    def __init__(self) -> None:
        self.fake = FakeCuda()
        for name, seconds, integers in (("add", 2e-6, 2), ("tiled", 9e-6, 3)):
            self.fake.kernels[name] = Kernel(seconds, sizes=(8, 8, 8, *[4] * integers))
        self.fake.kernels[tables.MARKER] = Kernel(1e-6, sizes=(8,))
        self.fake.kernels["canary"] = Kernel(2.5e-4, sizes=(8, 8, 4))
        self.backend: Any = self.fake.backend()

    def launches(self, name: str) -> int:
        return len(self.fake.kernels[name].launches)


@pytest.fixture
def gpu() -> Gpu:
    return Gpu()


def options(tmp_path: Path, **values: Any) -> argparse.Namespace:
    return argparse.Namespace(seed=1, most=32, ways="hot,cold", out=tmp_path / "x.json", **values)


def test_a_session_times_every_case_hot_and_cold(
    gpu: Gpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    brief = replace(child.PLANS["cuda"], rounds=1, warmup=0.001)
    monkeypatch.setattr(child, "PLANS", {"cuda": brief})
    names = ["add 256", "tiled 256", "add 1024"]
    found = json.loads(json.dumps(child.session(gpu.backend, names, options(tmp_path))))
    for way in ("hot", "cold"):
        assert {timed["case"] for timed in found[way]} == set(names)
        for timed in found[way]:
            assert "error" not in timed
            seconds = 9e-6 if timed["case"].startswith("tiled") else 2e-6
            assert timed["samples"] == pytest.approx([seconds] * len(timed["samples"]), rel=0.02)
            assert timed["rounds"] >= 1
    assert [timed["case"] for timed in found["hot"]] == [timed["case"] for timed in found["cold"]]
    assert set(found["wall_s"]) == {"hot", "cold"}


def test_a_case_that_fails_is_told_and_the_process_goes_on(gpu: Gpu) -> None:
    prepared = cases.prepare(gpu.backend, ["tiled 256", "add 256"], most=32)
    impatient = replace(prepared[0], launcher=replace(prepared[0].launcher, timeout=-1.0))
    wrong, right = (child._timed(c, cold=False, seed=0) for c in (impatient, prepared[1]))
    assert "samples" not in wrong
    assert "longer than" in wrong["error"]
    assert "samples" not in right
    assert "lost" in right["error"]


def test_levels_are_taken_without_the_shuffle_and_with_it(gpu: Gpu, tmp_path: Path) -> None:
    gpu.fake.lanes[0] = Lane()  # the default stream
    names = ["add 256", "tiled 256"]
    shuffled: list[bool] = []
    launch = gpu.fake.rt_graphLaunch

    def count(executable: int, stream: int) -> None:
        shuffled.append(any(o.kind == "kernel" for o in gpu.fake.lanes[stream].operations))
        launch(executable, stream)

    gpu.backend._api.runtime.graphLaunch = count
    found = json.loads(json.dumps(child.levels(gpu.backend, names, options(tmp_path))))
    assert list(found["levels"]) == names
    for name, seconds in zip(names, (2e-6, 9e-6), strict=True):
        for state in ("left", "shuffled"):
            samples = found["levels"][name][state]
            assert samples == pytest.approx([seconds] * child.SAMPLES, rel=0.02)
    assert shuffled.count(False) == len(names) * child.SAMPLES
    assert shuffled[: 4 * child.SAMPLES].count(True) == 4 * child.SAMPLES
    assert list(found["copies"]) == ["case", "before", "own stream", "default stream"]
    assert gpu.fake.calls.count("memcpyAsync") >= 2 * child.COPIES


def test_a_watched_process_launches_each_case_behind_a_marker(gpu: Gpu, tmp_path: Path) -> None:
    child.launches(gpu.backend, ["add 256", "tiled 256"], options(tmp_path))
    assert gpu.launches(tables.MARKER) == 2
    assert gpu.launches("add") == gpu.launches("tiled") == tables.LAUNCHES
    assert gpu.fake.calls.count("streamBeginCapture") == 0


class Bench(ModuleType):
    """``cuda.bench``, as far as it is used: five launches for each value of the axis."""

    def __init__(self, fake: FakeCuda) -> None:
        super().__init__("cuda.bench")
        self.fake = fake
        self.stream = fake.cupy().cuda.Stream(non_blocking=True)
        self.stream.addressof = lambda: self.stream.ptr

    def register(self, function: Any) -> Any:
        self.function = function
        return self

    def add_string_axis(self, name: str, values: list[str]) -> None:
        assert name == "case"
        self.values = values

    def run_all_benchmarks(self, argv: list[str]) -> None:
        states = []
        for value in self.values:
            self.function(
                SimpleNamespace(
                    get_stream=lambda: self.stream,
                    get_string=lambda _, value=value: value,
                    exec=lambda launch: [launch(None) for _ in range(5)],
                )
            )
            states.append(state(value, 3e-6))
        Path(argv[argv.index("--json") + 1]).write_text(
            json.dumps({"benchmarks": [{"states": states}]}), encoding="utf-8"
        )


@pytest.fixture
def bench(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> Bench:
    module = Bench(gpu.fake)
    package = ModuleType("cuda")
    package.__path__ = []  # a package
    monkeypatch.setitem(sys.modules, "cuda", package)
    monkeypatch.setitem(sys.modules, "cuda.bench", module)
    return module


def test_nvbench_times_the_same_launches_on_its_own_stream(
    gpu: Gpu, bench: Bench, tmp_path: Path
) -> None:
    gpu.backend._api.cupy.cuda.Stream.from_external = staticmethod(lambda stream: stream)
    names = ["add 256", "tiled 256"]
    found = child.nvbench(gpu.backend, names, options(tmp_path))
    assert tables.read_nvbench(found["states"])["tiled 256"] == {"nv/cold/time/gpu/mean": 3e-6}
    assert set(found["case_wall_s"]) == set(names)
    assert gpu.launches("add") == gpu.launches("tiled") == 6
    assert gpu.backend._queue.stream == bench.stream.ptr
    assert not (tmp_path / "x.raw.json").exists()


def test_a_trace_is_read_from_the_profiler_s_events(
    gpu: Gpu, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Profiler:
        def __init__(self, activities: list[str]) -> None: ...
        def __enter__(self) -> Profiler:
            return self

        def __exit__(self, *_: object) -> None: ...
        def export_chrome_trace(self, path: str) -> None:
            events: list[dict[str, Any]] = [
                {"cat": "kernel", "ts": 107.5, "dur": 2.0, "name": "add(float const*)"},
                {"cat": "kernel", "ts": 100.0, "dur": 1.0, "name": "case_marker(float*)"},
                {"cat": "cpu_op", "ts": 1.0, "dur": 1.0, "name": "noise"},
                {"ph": "M"},
            ]
            Path(path).write_text(json.dumps({"traceEvents": events}), encoding="utf-8")

    torch = ModuleType("torch")
    torch.cuda = SimpleNamespace(init=lambda: None)  # type: ignore[attr-defined]
    torch.profiler = SimpleNamespace(  # type: ignore[attr-defined]
        profile=Profiler, ProfilerActivity=SimpleNamespace(CUDA="cuda")
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    found = child.trace(gpu.backend, ["add 256"], options(tmp_path))
    assert found == {
        "kernels": [[0.0, 1.0, "case_marker(float*)"], [7.5, 2.0, "add(float const*)"]]
    }


def test_the_nine_are_the_shipped_kernels_and_cublas() -> None:
    shipped = {path.stem for path in (ROOT / "kernels").glob("*.cu")}
    assert {name.split()[0] for name in cases.NINE} <= shipped | {"cublas"}
    assert len(set(cases.NINE)) == 9


# The docs

RESULTS = FOLDER / "results" / "2026-11-30-4282280"

TITLES = {
    *("Hot and cold", "Wall time", "Cold beside NVBench", "Hot beside a profiler"),
    *("Alone and after others", "As left and shuffled", "After copies"),
    *("Squares", "The default suite", "The swept kernel"),
}


def test_the_tables_of_the_docs_are_those_of_the_raw_results() -> None:
    docs = (ROOT / "docs" / "gpu.md").read_text(encoding="utf-8")
    found = tables.tables(RESULTS, cases.NINE)
    assert set(found) == TITLES
    for title, table in found.items():
        assert title == "The swept kernel" or table in docs, title


def test_every_shipped_kernel_passed_and_has_the_bits_of_the_cpu() -> None:
    records = json.loads((RESULTS / "kernels.json").read_text())
    host = json.loads((RESULTS.parent / "host.json").read_text())
    measured = [record for group in records.values() for record in group]
    assert len(measured) == 30 + 47
    for record in measured:
        assert record["outcome"] == "passed", record["id"]
        assert record["digest"] == host[record["group"]], record["id"]
