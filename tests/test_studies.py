"""Studies on scripted devices: what is run, what is found, what is told, what is kept."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from pytest_gemm.backends.base import Device
from pytest_gemm.backends.choice import Choice
from pytest_gemm.case import Case
from pytest_gemm.cli import main
from pytest_gemm.cli.commands import check_out
from pytest_gemm.errors import ConfigError
from pytest_gemm.result import Result
from pytest_gemm.stats import summarize
from pytest_gemm.studies import NAMES, block_size, cpu_vs_gpu, ladder
from pytest_gemm.studies.catalogue import STUDIES, report
from pytest_gemm.studies.cpu_vs_gpu import transfers_of
from pytest_gemm.studies.document import FORMAT, LeftOut, Measured, Study, read, write

ROOT = Path(__file__).parent.parent

GPU = Device("cuda", "NVIDIA-H200", "NVIDIA H200", {"compute_capability": "9.0"})
CPU = Device("host", "host-cpu", "a CPU", {"compiler_version": "g++ 99", "flags": "-O2"})

LOADS = {"naive": 1, "tiled": 16, "tiled32": 32, "register_blocked": 32}

Seconds = Callable[[Case], float]


def gpu_seconds(case: Case) -> float:
    """1 us and something; a product of 1000 x 1000 takes 8 ms at side 1, and 0.3 ms at best."""
    n = case.problem.N
    if case.problem.op == "add":
        return 1e-6 + 1e-12 * n**2
    factor = {"naive": 1, "tiled": 1.6, "tiled32": 2, "register_blocked": 4}.get(case.kernel.name)
    if factor is None:
        side = dict(case.kernel.params)["SIDE"]
        return (3e-4 + 14e-3 * math.exp(-0.6 * side)) * (1 + 1e-3 * (side % 3))
    return 1e-6 + 4e-13 * n**3 / factor


def c_seconds(case: Case) -> float:
    n = case.problem.N
    if case.problem.op == "add":
        return (1 if "c_" in case.kernel.name else 0.3) * 1e-9 * n**2
    return (1 if "c_" in case.kernel.name else 0.05) * 1e-9 * n**3


@dataclass
class Scripted:
    """An executor whose times are a formula; it keeps what it ran."""

    device: Device
    seconds: Seconds
    ran: list[Case] = field(default_factory=list)
    failing: str = ""
    closed: bool = False

    def devices(self) -> Sequence[Device]:
        return [self.device]

    def run(self, case: Case, function: object) -> Result:
        assert (function is not None) == case.kernel.is_python
        self.ran.append(case)
        if case.kernel.name == self.failing:
            return Result("failed", f"{case.title}: wrong | <b>\nmore")
        n, taken = case.problem.N, self.seconds(case)
        counters: dict[str, float] = {"first_launch_s": 0.5 / len(self.ran)}
        if self.device.kind == "cuda":
            counters |= {"registers": 32, "static_shared_bytes": 0}
        if case.settings.trips and self.device.kind == "cuda":
            for kind, per_byte in (("pageable", 2e-10), ("pinned", 1e-10)):
                way = {"upload": 8 * n * n * per_byte, "launch": taken + 7e-6}
                way["download"] = 4 * n * n * per_byte
                counters |= {f"{kind}_{part}_s": t for part, t in way.items()}
                counters |= {f"{kind}_total_s": sum(way.values()), f"{kind}_total_error": 0.01}
        samples = tuple(taken * (1 + 1e-3 * (k % 5 - 2)) for k in range(20)) * case.settings.timed
        return Result(
            "passed",
            samples=samples,
            launches=3,
            estimate=summarize(samples) if samples else None,
            counters=counters,
            traffic={"global_load_words": 64 * 128 * 2 * 192 // LOADS.get(case.kernel.name, 1)},
        ).on(self.device)

    def close(self) -> None:
        self.closed = True


@dataclass
class Bench:
    """``pytest-gemm study`` on scripted devices, in a project of the shipped kernels."""

    executors: list[Scripted]
    device: Device = GPU
    seconds: Seconds = gpu_seconds
    failing: str = ""

    def open(self, _: object, choice: Choice, progress: object, *, shared: bool) -> Scripted:
        assert shared
        serial = choice.kind == "serial"
        self.executors.append(
            Scripted(CPU, c_seconds)
            if serial
            else Scripted(self.device, self.seconds, failing=self.failing)
        )
        return self.executors[-1]

    @property
    def ran(self) -> list[str]:
        return [case.id for executor in self.executors for case in executor.ran]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    found = Bench([])
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("pytest_gemm.executor.open_executor", found.open)
    monkeypatch.setattr("pytest_gemm.backends.choice._choose", lambda _: Choice(found.device.kind))
    yield found
    assert all(executor.closed for executor in found.executors)


def study(out: Path, *words: str, code: int = 0) -> list[Study]:
    path = out / "study.json"
    assert main(["study", *words, "--out", str(path)]) == code
    return read(path)


def rows(text: str, *starts: str) -> list[list[str]]:
    """The cells of those lines of Markdown tables that start with these cells."""
    tables = [line.strip("| ").split(" | ") for line in text.splitlines() if line[:1] == "|"]
    return [cells for cells in tables if cells[: len(starts)] == list(starts)]


# The ladder


def test_each_step_has_its_own_speed_up(
    bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    [found] = study(tmp_path, "ladder")
    names = [rung["kernel"] for rung in found.findings["rungs"]]
    assert names == ["naive", "tiled", "tiled32", "register_blocked"]
    assert {m.N for m in found.measured} == {128, 256, 512, 1024, 2048, 4096}
    steps = {(s["kernel"], s["N"]): s for s in found.findings["steps"]}
    for kernel, step, overall in (
        ("tiled", 1.6, 1.6),
        ("tiled32", 1.25, 2),
        ("register_blocked", 2, 4),
    ):
        last = steps[kernel, 4096]
        assert last["speedup"] == pytest.approx(step, rel=1e-3)
        assert last["overall"] == pytest.approx(overall, rel=1e-3)
        assert 0 < last["error"] < 0.01 * step
    text = capsys.readouterr().out
    assert rows(text, "`tiled`")[0] == [
        *("`tiled`", "`naive`", "16 x 16 tiles of A and B in shared memory", "2K/16", "512"),
    ]
    [heading] = rows(text, "N", "`naive` to `tiled`")
    assert heading[1:] == [
        "`naive` to `tiled`",
        "`tiled` to `tiled32`",
        "`tiled32` to `register_blocked`",
        "overall: `register_blocked`",
    ]
    speed_ups = ["1.60 +- 0.0022", "1.25 +- 0.0017", "2.00 +- 0.0027", "4.00 +- 0.0054"]
    assert rows(text, "4096")[1][1:] == speed_ups


def test_the_start_is_measured_apart_and_before_any_check(bench: Bench, tmp_path: Path) -> None:
    [found] = study(tmp_path, "ladder", "--size", "64")
    first, again, *others = bench.executors[0].ran
    assert first.id == again.id == "naive-64x64x64-float32"
    assert not first.settings.timed
    assert first.settings.check == "off"
    assert all(case.settings.timed and case.settings.check == "auto" for case in others)
    assert found.start["first_launch_s"] == 0.5
    assert found.start["next_launch_s"] == 0.25
    assert {"ready_s", "first_case_s", "next_case_s"} <= found.start.keys()
    assert "(2 times less)" in "\n".join(report(found))
    busy = replace(found, start={**found.start, "next_launch_s": 0.6})
    assert "the same again later 600 ms. The first case" in "\n".join(report(busy))


def test_kernels_of_one_size_are_timed_after_each_other(bench: Bench, tmp_path: Path) -> None:
    study(tmp_path, "ladder", *("--size", "64", "--size", "32", "--size", "64"))
    assert [case_id.partition("-float")[0] for case_id in bench.ran[2:]] == [
        f"{name}-{n}x{n}x{n}"
        for n in (32, 64)
        for name in ("naive", "tiled", "tiled32", "register_blocked")
    ]


def measured(name: str, derived_from: str = "", n: int = 64, taken: float | None = 1.0) -> Measured:
    estimate = None if taken is None else summarize([taken] * 10)
    return Measured(
        **{"side": "device", "kernel": name, "name": name, "derived_from": derived_from},
        **{"change": "", "source_hash": "", "op": "gemm", "dtype": "float32"},
        **{"problem": f"{n}x{n}x{n}", "N": n, "flops": 2 * n**3, "block": (8, 8, 1)},
        **{"shared_mem": 0, "outcome": "passed", "message": "", "estimate": estimate},
        **{"samples": (), "launches": 1, "counters": {}},
        **{"conditions": {}, "traffic": {}},
    )


def test_a_ladder_may_branch_and_may_have_gaps() -> None:
    found = ladder.findings(
        [
            measured("c", "b", taken=1),
            measured("a", taken=12),
            measured("b", "a", taken=4),
            measured("d", "a", taken=3),
            measured("e", "gone", taken=3),
            measured("b", "a", 128, None),
            measured("c", "b", 128, 2),
            measured("a", "", 128, 6),
        ]
    )
    steps = {(s["kernel"], s["N"]): (s["speedup"], s["overall"]) for s in found["steps"]}
    assert steps == {
        ("b", 64): (3, 3),
        ("c", 64): (4, 12),
        ("d", 64): (4, 4),
        ("c", 128): (None, 3),
    }


def test_a_ladder_without_a_step_has_no_table_of_them() -> None:
    def told(*taken: float | None) -> str:
        found = [measured("a", taken=taken[0]), measured("b", "a", taken=taken[1])]
        steps = ladder.findings(found)
        whole = Study("ladder", "", {}, {}, measured=tuple(found), findings=steps)
        return "\n".join(ladder.report(whole))

    assert "| N | `a` to `b` | overall: `b` |" in told(12, 6)
    assert "| N | `a` | `b` |" in told(12, None)
    assert "| N |\n" not in told(12, None)
    assert told(None, None) == "Nothing was timed.\n"


def test_kernels_in_a_circle_are_no_rungs() -> None:
    case = _cases("ladder")[0]

    def named(name: str, derived_from: str) -> Case:
        return replace(case, kernel=replace(case.kernel, name=name, derived_from=derived_from))

    chain = [named("x", "y"), named("y", "x"), named("b", "a"), named("a", ""), named("z", "")]
    assert [c.kernel.name for c in ladder.rungs(chain)] == ["a", "b"]


# CPU against GPU


def test_crossovers_are_where_the_curves_cross(bench: Bench, tmp_path: Path) -> None:
    [found] = study(tmp_path, "cpu-vs-gpu")
    crossings = {(c["kernel"], c["baseline"], c["way"]): c for c in found.findings["crossovers"]}
    # 1e-9 n^2 = 1e-6 + 1e-12 n^2, and 1e-9 n^3 = 1e-6 + 4e-13 n^3.
    assert crossings["add", "c", "alone"]["size"] == pytest.approx(31.64, rel=0.01)
    assert crossings["naive", "c", "alone"]["size"] == pytest.approx(10, rel=0.01)
    # Two matrices there and one back at 5 GB/s take more than C's addition takes.
    assert crossings["add", "c", "pageable"]["kind"] == "none"
    assert crossings["add", "c", "pinned"]["kind"] == "none"
    # 1e-9 n^3 = 8e-6 + 2.4e-9 n^2 + ...: the launch between events is 7 us longer.
    assert crossings["naive", "c", "pageable"]["size"] == pytest.approx(20.8, rel=0.03)
    assert len(crossings) == 2 * 2 * 4


def test_fits_have_the_leading_coefficients_that_the_times_were_made_of(
    bench: Bench, tmp_path: Path
) -> None:
    [found] = study(tmp_path, "cpu-vs-gpu")
    fits = {(f["kernel"], f["way"]): f for f in found.findings["fits"]}
    for kernel, name, value in (
        ("add", "c2", 1e-12),
        ("naive", "c3", 4e-13),
        ("c_add", "c2", 1e-9),
        ("c_multiply", "c3", 1e-9),
        ("numpy_add", "c2", 0.3e-9),
    ):
        fit = fits[kernel, "alone"]
        assert fit["coefficients"][name] == pytest.approx(value, rel=1e-3)
        assert not fit["reason"]
    ratios = {(r["kernel"], r["way"]): r["value"] for r in found.findings["ratios"]}
    assert ratios["add", "alone"] == pytest.approx(1000, rel=1e-2)
    assert ratios["naive", "alone"] == pytest.approx(2500, rel=1e-2)
    assert ratios["numpy_add", "alone"] == pytest.approx(1 / 0.3, rel=1e-2)
    assert ("c_add", "alone") not in ratios


def test_the_report_has_rates_transfers_and_what_was_left_out(
    bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    [found] = study(tmp_path, "cpu-vs-gpu", "--limit", "5")
    text = capsys.readouterr().out
    heading, *_ = rows(text, "n")
    rates = dict(zip(heading, rows(text, "100")[0], strict=True))
    assert rates["C +"] == "1.00"  # 100^2 / 1e-5 s
    assert rates["C \\*"] == "1.99"  # 2 100^3 - 100^2
    assert rates["`add` +"] == "9.90"
    assert rates["`add`, with transfers, pageable memory +"] == "0.312"
    assert "`naive`, with transfers, pageable memory \\*" in heading
    transfers = rows(text, "1000")[3]
    assert transfers[1] == "4,000,000"
    assert transfers[2:] == [
        *("1.60 ms (5.00 GB/s)", "800 us (5.00 GB/s)"),
        *("800 us (10.0 GB/s)", "400 us (10.0 GB/s)"),
    ]
    assert "Pageable memory is what malloc and NumPy give" in text
    # 25 launches of 1 s each; 0.125 s at 500.
    assert LeftOut("c_multiply", "750x750x750", *_too_long(25 * 0.75**3, 5)) in found.left_out
    assert (
        "- `c_multiply` on 750x750x750 and larger: it would take about 10.5 s, and a case may take "
        "5 s\n"
    ) in text
    assert rows(text, "1000")[0][heading.index("C \\*")] == "-"
    assert "NVIDIA H200, C and NumPy on a CPU; " in text
    assert "C: g++ 99, -O2." in text


def test_transfers_are_the_additions_where_there_are_any(bench: Bench, tmp_path: Path) -> None:
    [found] = study(tmp_path, "cpu-vs-gpu", "--size", "100")
    add, naive = (m for m in found.timed if m.side == "device")
    slow = replace(naive, counters={**naive.counters, "pageable_upload_s": 9.0})
    larger = replace(slow, N=200)
    moved = transfers_of([larger, slow, add])
    assert list(moved) == [100, 200]
    assert moved[100] == add.counters
    assert moved[200] == slow.counters


def _too_long(expected: float, limit: float) -> tuple[str, Any]:
    reason = f"it would take about {expected:.3g} s, and a case may take {limit:g} s"
    return reason, pytest.approx(expected, rel=0.01)


def test_c_and_numpy_are_no_kernels_of_the_project(bench: Bench, tmp_path: Path) -> None:
    [found] = study(tmp_path, "cpu-vs-gpu", "--size", "16")
    sides = {m.kernel: m.side for m in found.measured}
    assert sides == {
        **{"add": "device", "naive": "device"},
        **{"c_add": "c", "c_multiply": "c", "numpy_add": "numpy", "numpy_multiply": "numpy"},
    }
    assert all(not case.settings.trips for e in bench.executors[:1] for case in e.ran)


def test_without_a_gpu_the_cpu_stands_on_the_devices_side(
    bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.device = CPU
    [found] = study(tmp_path, "cpu-vs-gpu")
    text = capsys.readouterr().out
    assert "There is no GPU here" in text
    assert "`add` on the CPU +" in rows(text, "n")[0]
    assert "Transfers" not in text
    assert {c["way"] for c in found.findings["crossovers"]} == {"alone"}
    assert "the kernel alone, run by the CPU" in text


# Block sizes


def test_the_fits_over_the_side_are_found(
    bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    [found] = study(tmp_path, "block-size")
    assert [block_size.side_of(m) for m in found.measured] == list(range(1, 33))
    fit = found.findings["block_size"]["time"]
    assert fit["coefficients"]["rate"] == pytest.approx(0.6, rel=0.02)
    assert fit["coefficients"]["floor"] == pytest.approx(3e-4, rel=0.02)
    assert fit["r_squared"] > 0.999
    assert found.findings["block_size"]["rate"]["r_squared"] > 0.5
    text = capsys.readouterr().out
    # Of 2048 threads: 32 blocks of one warp each, of 64 warps; two blocks of 1024 threads.
    assert rows(text, "1")[0][1:] == ["1", "7.99 ms", "250 GFLOP/s", "50 %"]
    assert rows(text, "32")[0][-1] == "100 %"
    assert "`block_size` on 1000x1000x1000:" in text
    [line] = [line for line in text.splitlines() if "exponential: " in line]
    assert line.startswith("- time over side s, exponential: (0.300 +- ")
    assert float(line.partition("R^2 = ")[2][:6]) > 0.999


def test_a_flat_curve_is_no_fit_and_a_cpu_says_so(
    bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.device = CPU
    bench.seconds = lambda case: 1e-3 * (1 + 1e-3 * (dict(case.kernel.params)["SIDE"] % 3))
    [found] = study(tmp_path, "block-size")
    assert all(fit["reason"] for fit in found.findings["block_size"].values())
    text = capsys.readouterr().out
    assert text.count("no fit: ") == 2
    assert "`block_size` on 128x128x128:" in text
    assert "a smaller problem is enough" in text
    assert "occupancy |" not in text


# A user's kernels join by their front matter


def test_a_users_kernels_join_by_their_front_matter(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "kernels"
    folder.mkdir()
    code = "(const float* A, const float* B, float* C, int M, int N, int K) {}\n"

    def cuda(name: str, *lines: str) -> None:
        matter = ["/// gemm", 'grid = ["N", "M"]', *lines, "///"]
        text = "".join(f"// {line}\n" for line in matter)
        folder.joinpath(f"{name}.cu").write_text(f"{text}\n__global__ void {name}{code}")

    cuda("mine", "block = [16, 16]")
    cuda("faster", "block = [16, 16]", 'derived_from = "mine"', 'change = "it is faster"')
    cuda("shaped", 'block = ["W", "W"]', "[sweep]", "W = [4, 8, 16, 32]")
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    monkeypatch.chdir(tmp_path)
    bench.seconds = lambda case: 1e-12 * case.problem.flops
    found = {s.name: s for s in study(tmp_path, "all", "--size", "64")}
    assert [r["change"] for r in found["ladder"].findings["rungs"]] == ["", "it is faster"]
    devices = [m.kernel for m in found["cpu-vs-gpu"].measured if m.side == "device"]
    assert devices == ["mine"]
    kernels = [m.kernel for m in found["block-size"].measured]
    assert kernels == ["shaped[W:4]", "shaped[W:8]", "shaped[W:16]", "shaped[W:32]"]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("ladder", "no kernel is derived from another"),
        ("cpu-vs-gpu", "no kernel can be compared with C and NumPy"),
        ("block-size", "no kernel sweeps the side of its block"),
    ],
)
def test_a_project_without_such_kernels_is_told_what_to_declare(
    name: str,
    reason: str,
    bench: Bench,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "kernels").mkdir()
    monkeypatch.chdir(tmp_path)
    assert main(["study", name]) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith(f"pytest-gemm: {reason}")


# Mistakes, failures, and what is kept


def test_where_every_kernel_failed_no_table_is_empty() -> None:
    plain = {"kind": "host", "name": "cpu", "description": "a CPU"}
    found = (measured("naive", taken=None), replace(measured("c_multiply"), side="c"))
    whole = Study("cpu-vs-gpu", "2026-01-01", plain, {}, measured=found)
    for kept in (whole, replace(whole, measured=found[:1])):
        lines = list(report(replace(kept, findings=cpu_vs_gpu.findings(kept.measured))))
        headings = [i for i, line in enumerate(lines) if line.startswith("| :---")]
        assert all(lines[i + 1].startswith("| ") for i in headings)
        assert bool(headings) == (kept is whole)
        assert not any("the device is faster" in line for line in lines)


def test_a_kernel_that_fails_is_told_and_the_rest_is_measured(
    bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.failing = "tiled"
    [found] = study(tmp_path, "ladder", "--size", "64", code=1)
    assert found.failures == ("tiled on 64x64x64: wrong | <b>",)
    text = capsys.readouterr().out
    assert "- tiled on 64x64x64: wrong &#124; &#60;b&#62;\n" in text
    times, steps = rows(text, "64")
    assert [cell == "-" for cell in times[1:]] == [False, True, False, False]
    assert [cell == "-" for cell in steps[1:]] == [True, False, False]
    heading = rows(text, "N")[1]
    assert heading[1:] == ["`tiled` to `tiled32`", "`tiled32` to `register_blocked`", heading[3]]


def test_a_document_comes_back_as_it_was(bench: Bench, tmp_path: Path) -> None:
    studies = study(tmp_path, "all", "--size", "32", "-k", "add", "-k", "tiled", "-k", "SIDE:4]")
    path = tmp_path / "again.json"
    path.write_text(write(studies))
    assert read(path) == studies
    plain = json.loads(path.read_text())
    assert (plain["format"], plain["version"]) == (FORMAT, 1)
    assert [s["name"] for s in plain["studies"]] == ["ladder", "cpu-vs-gpu", "block-size"]
    lines = path.read_text().splitlines()
    assert sum(line.startswith('{"side"') for line in lines) == sum(
        len(s.measured) for s in studies
    )


def test_a_report_can_be_printed_again(
    bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study(tmp_path, "ladder", "--size", "32")
    first = capsys.readouterr().out
    ran = len(bench.ran)
    assert main(["study", str(tmp_path / "study.json")]) == 0
    assert capsys.readouterr().out == first
    assert len(bench.ran) == ran


def test_of_all_those_without_a_case_are_left_out(
    bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    [found] = study(tmp_path, "all", "--size", "32", "-k", "SIDE:4]")
    assert found.name == "block-size"
    told = capsys.readouterr()
    assert told.out.startswith("## block-size: ")
    assert "pytest-gemm: ladder: left out: no kernel is derived from another" in told.err
    assert "pytest-gemm: cpu-vs-gpu: left out: no kernel can be compared" in told.err
    # Its parent is not chosen, it is derived and has no sweep.
    assert main(["study", "all", "--size", "32", "-k", "register_blocked"]) == 2
    *_, last = capsys.readouterr().err.splitlines()
    assert last.startswith("pytest-gemm: no kernel sweeps the side of its block")


def test_what_was_measured_is_kept_when_a_later_study_fails(
    bench: Bench,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fails(_: object) -> None:
        raise ConfigError("no")

    from pytest_gemm.studies import catalogue

    kinds = {**catalogue.STUDIES}
    kinds["cpu-vs-gpu"] = replace(kinds["cpu-vs-gpu"], measure=fails)
    monkeypatch.setattr(catalogue, "STUDIES", kinds)
    [kept] = study(tmp_path, "all", "--size", "32", code=2)
    assert kept.name == "ladder"
    assert capsys.readouterr().out.startswith("## ladder: ")


def test_ctrl_c_says_which_studies_are_kept(
    bench: Bench,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def interrupts(_: object) -> None:
        raise KeyboardInterrupt

    from pytest_gemm.studies import catalogue

    kinds = {**catalogue.STUDIES}
    kinds["cpu-vs-gpu"] = replace(kinds["cpu-vs-gpu"], measure=interrupts)
    monkeypatch.setattr(catalogue, "STUDIES", kinds)
    [kept] = study(tmp_path, "all", "--size", "32", code=130)
    assert kept.name == "ladder"
    assert capsys.readouterr().err.splitlines()[-1] == (
        f"pytest-gemm: interrupted; {tmp_path}/study.json has the 1 of 3 studies that were finished"
    )


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["nonsense"], "nonsense: a study is one of ladder, cpu-vs-gpu, block-size or all"),
        (["ladder", "--size", "0"], "--size=0: it is a whole number of at least 1"),
        (["ladder", "--size", "64x64"], "--size=64x64: it is a whole number"),
        (["ladder", "--out", "x.txt"], "--out=x.txt: name a .json file in a folder that exists"),
        (["ladder", "--out", "no/x.json"], "--out=no/x.json: name a .json file"),
        (["ladder", "--limit", "0"], "--limit=0: it is a number of seconds above 0"),
        (["gone.json"], "gone.json: it cannot be read (No such file or directory)"),
    ],
)
def test_a_mistake_is_one_sentence(
    words: list[str], reason: str, bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["study", *words]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"pytest-gemm: {reason}")
    assert bench.executors == []


def test_what_cannot_be_written_is_told_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked of the system, as tests may run as a user who may write anywhere."""
    (tmp_path / "folder.json").mkdir()
    with pytest.raises(ConfigError, match=r"folder.json: name a .json file in a folder"):
        check_out(tmp_path / "folder.json")
    check_out(tmp_path / "x.json")
    monkeypatch.setattr("os.access", lambda path, mode: (path, mode) != (tmp_path, os.W_OK))
    with pytest.raises(ConfigError, match=f"x.json: the folder {tmp_path} cannot be written to"):
        check_out(tmp_path / "x.json")


def test_words_that_choose_nothing_are_told(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["study", "ladder", "-k", "nope"]) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("pytest-gemm: -k nope: no case contains that, such as ")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("nonsense", "it is not JSON (Expecting value in line 1)"),
        ("[]", "it is no result of pytest-gemm study"),
        ('{"format": "other"}', "it is no result of pytest-gemm study"),
        (f'{{"format": "{FORMAT}", "version": 2}}', "its version is 2 and 1 can be read"),
        (f'{{"format": "{FORMAT}", "version": 1}}', "a study in it is damaged (KeyError: "),
        (
            f'{{"format": "{FORMAT}", "version": 1, "studies": [{{"name": "ladder"}}]}}',
            "a study in it is damaged (KeyError: 'date')",
        ),
        (
            f'{{"format": "{FORMAT}", "version": 1, "studies": [{{"name": "other"}}]}}',
            "a study in it is damaged (ValueError: no study is called 'other')",
        ),
    ],
)
def test_a_document_that_cannot_be_used_is_told(content: str, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(content)
    with pytest.raises(ConfigError) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}: {reason}")


def test_what_was_measured_before_is_only_reported(
    bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    [found] = study(tmp_path, "ladder", "--size", "64")
    capsys.readouterr()
    for studies, words, reason in (
        ([replace(found, findings={})], [], "what it holds is damaged (KeyError: 'rungs')"),
        ([], [], "no study is in it"),
        (
            [found],
            ["--out=y.json", "--size=8", "-k=a", "--device=host"],
            "was measured before, and is",
        ),
    ):
        path = tmp_path / "x.json"
        path.write_text(write(studies), encoding="utf-8")
        assert main(["study", str(path), *words]) == 2
        [line] = capsys.readouterr().err.splitlines()
        assert line.startswith(
            "pytest-gemm: " + ("--out, --size, -k, --device: " if words else f"{path}: ")
        )
        assert reason in line


def test_studies_have_their_names() -> None:
    assert tuple(STUDIES) == NAMES


def test_several_devices_are_too_many(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        "pytest_gemm.backends.choice._choose", lambda _: Choice("cuda", gpus=(0, 1))
    )
    assert main(["study", "ladder", "--device", "cuda:0,1"]) == 2
    assert "a study is made on one device" in capsys.readouterr().err


def test_operations_are_counted_as_the_paper_did() -> None:
    assert cpu_vs_gpu.operations("add", 10) == 100
    assert cpu_vs_gpu.operations("gemm", 10) == 1900


def _cases(name: str) -> list[Case]:
    from pytest_gemm.cli.study import _collect

    return list(_collect("host", ("32",)).cases.values())


def test_a_real_run_without_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "kernels").mkdir()
    text = (ROOT / "kernels" / "add.cu").read_text(encoding="utf-8")
    (tmp_path / "kernels" / "add.cu").write_text(text, encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\ngemm_time_cap = 0.01\n")
    monkeypatch.chdir(tmp_path)
    words = ["cpu-vs-gpu", "--device=host", *("--size", "12", "--size", "40")]
    [found] = study(tmp_path, *words)
    assert [(m.side, m.N) for m in found.timed if m.side != "device"] == [
        *(("c", 12), ("numpy", 12), ("c", 40), ("numpy", 40)),
    ]
    assert [(m.kernel, m.N) for m in found.timed if m.side == "device"] == [
        ("add", 12),
        ("add", 40),
    ]
    assert found.cpu["flags"].startswith("-O2")
    assert found.left_out == ()
    assert "There is no GPU here" in capsys.readouterr().out
