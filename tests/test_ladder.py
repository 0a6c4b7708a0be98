"""The kernel ladder: every rung right for any sizes, and one change away from the one before."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_gemm.backends.base import PythonProgram
from pytest_gemm.backends.host import HostBackend
from pytest_gemm.checking import Checker
from pytest_gemm.correctness import check_exactly, exact_suite
from pytest_gemm.kernelspec import Kernel
from pytest_gemm.launching import Launcher, program_of
from pytest_gemm.problem import Problem
from pytest_gemm.registry import load_registry

ROOT = Path(__file__).parent.parent
sys.path.append(str(ROOT / "benchmarks" / "gpu"))

import ladder  # noqa: E402

from benchmarks import ladder_tables  # noqa: E402

FOLDER = ROOT / "kernels" / "ladder"
REGISTRY = load_registry([FOLDER], ROOT)
KERNELS = REGISTRY.kernels("host")
RUNGS = [kernel for kernel in KERNELS if kernel.op == "gemm"]

# Whole blocks of 256 x 128 with more tiles than there are stages; rows of float4 that end within
# a block and a tile; rows that are none; a K of one.
SIZES = ["256x128x160", "132x260x68", "129x131x67", "131x133x1", "1x257x36", "257x1x36"]
CHECKED = ["thread_column", "padded_a", "double_buffer", "row_major_a", "three_stages"]
CHECKED += ["serpentine", "stream_k", "two_stages"]
"""One of each kind of copy, so that every access is watched, in several orders of the threads."""


@pytest.fixture(scope="module")
def backend() -> HostBackend:
    return HostBackend()


def test_each_rung_leads_to_the_naive_product() -> None:
    assert REGISTRY.errors == ()
    specs = {name: spec for name, spec in REGISTRY.specs.items() if name != "add_float4"}
    assert {name for name, spec in specs.items() if not spec.derived_from} == {"naive"}
    for spec in specs.values():
        assert bool(spec.change) == bool(spec.derived_from), spec.name


def test_the_default_suite_has_no_rung() -> None:
    shipped = load_registry([ROOT / "kernels"], ROOT).specs
    assert {spec.path for spec in shipped.values()} == {
        f"kernels/{path.name}" for path in (ROOT / "kernels").glob("*.cu")
    }


def test_rungs_of_one_source_differ_in_one_thing() -> None:
    by_name = {kernel.name: kernel for kernel in RUNGS}
    compared = 0
    for kernel in RUNGS:
        parent = by_name.get(kernel.derived_from)
        if parent is None or parent.filename != kernel.filename:
            continue
        own, other = dict(kernel.params), dict(parent.params)
        changed = {name for name, value in own.items() if value != other[name]}
        if kernel.entry.partition("<")[0] != parent.entry.partition("<")[0]:
            changed.add("entry")
        # A warp keeps its 32 lanes when a thread's part of C grows, and a block its warps; of
        # smaller blocks more fit.
        fit = {"BM", "RESIDENT", "SLOTS"}
        whole = ({"TM", "TN", "WM"}, fit, {"TM", "WM"} | fit)
        assert len(changed) == 1 or any(changed <= names for names in whole), kernel.name
        compared += 1
    assert compared >= 9


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.id)
def test_a_rung_is_exact_for_any_sizes(backend: HostBackend, kernel: Kernel) -> None:
    launcher = Launcher(kernel, backend, backend.compile(program_of(kernel, None)), 20.0)
    sizes = SIZES if kernel.op == "gemm" else ["64x64", "1x1025", "33x31"]
    larger = [kernel.of_kind(Problem.parse(size, kernel.op)) for size in sizes]
    for problem in (*exact_suite(kernel), *larger):
        check_exactly(launcher.once, backend, problem, kernel=kernel.id)


@pytest.mark.parametrize(
    ("rung", "slots", "size", "changed"),
    [
        # A round of whole tiles; 7 are shared by 5 blocks, in tiles' midst.
        ("stream_k", 5, "300x391x500", {}),
        ("stream_k", 5, "300x391x500", {"INSIDE": 1, "ANY": 0}),
        ("stream_k", 5, "500x280x40", {}),  # parts would be too short
        ("stream_k", 17, "500x511x40", {}),  # a round that is nearly full
        ("stream_k", 5, "256x640x257", {}),  # nothing is left to share
        # Tiles moved back are shared, in one direction and in both; rows are aligned.
        ("two_stages", 5, "97x391x500", {}),
        ("two_stages", 5, "300x400x500", {}),
    ],
)
def test_tiles_are_shared_by_any_number_of_blocks(
    backend: HostBackend, rung: str, slots: int, size: str, changed: dict[str, int]
) -> None:
    spec = REGISTRY.specs[rung]
    params = tuple((dict(spec.params) | {"SLOTS": slots} | changed).items())
    (kernel,) = replace(spec, params=params).kernels("host")
    launcher = Launcher(kernel, backend, backend.compile(program_of(kernel, None)), 20.0)
    for _ in range(2):  # the second launch finds what the first has left
        check_exactly(launcher.once, backend, Problem.parse(size), kernel=kernel.id)


@pytest.mark.parametrize(
    ("rung", "changed"),
    [
        ("any_rows", {"SPREAD": 1, "BK": 32}),
        ("stream_k", {"COLUMNS": 1, "SPREAD": 1, "BK": 8, "STAGES": 4}),
        ("stream_k", {"BM": 96, "WM": 48, "TM": 12, "RESIDENT": 3, "SLOTS": 396}),
    ],
)
def test_variants_are_exact(backend: HostBackend, rung: str, changed: dict[str, int]) -> None:
    params = tuple((dict(REGISTRY.specs[rung].params) | changed).items())
    (kernel,) = replace(REGISTRY.specs[rung], params=params).kernels("host")
    launcher = Launcher(kernel, backend, backend.compile(program_of(kernel, None)), 20.0)
    for size in [*SIZES, "300x256x324"]:
        check_exactly(launcher.once, backend, Problem.parse(size), kernel=kernel.id)


@pytest.mark.parametrize("name", CHECKED)
def test_no_access_is_wrong(backend: HostBackend, name: str) -> None:
    kernel = next(kernel for kernel in RUNGS if kernel.name == name)
    found = Checker(backend, "auto", 0, 60.0).check(kernel)
    assert (found.failure, found.unchecked) == ("", "")


# The script for GPUs


def test_rungs_stand_in_the_order_of_the_ladder() -> None:
    names = [kernel.name for kernel in ladder.rungs()]
    assert sorted(names) == sorted(kernel.name for kernel in KERNELS)
    assert names.index("naive") + 1 == names.index("uncoalesced") == names.index("tiled") - 1
    assert names[-3:] == ["short_addresses", "turned_rows", "two_stages"]


def test_variants_have_names_and_files_of_their_own() -> None:
    kernels = [*ladder.rungs(), *ladder.variants()]
    assert len({kernel.id for kernel in kernels}) == len(kernels)
    assert len({ladder.file_name(kernel) for kernel in kernels}) == len(kernels)
    assert len({kernel.source_hash for kernel in ladder.variants()}) == sum(
        map(len, ladder.SWEPT.values())
    )


def multiply_add(*places: str) -> tuple[str, tuple[str, ...]]:
    return "FFMA", places


@pytest.mark.parametrize(
    ("body", "cycles", "reuse"),
    [
        ([multiply_add("R0", "R1", "R3")], 2, 0),  # R1 and R3 of one bank
        ([multiply_add("R0", "R2", "R4")], 3, 0),
        ([multiply_add("R0", "R1", "RZ")], 1, 0),
        ([multiply_add("R0.reuse", "R2", "R1"), multiply_add("R0", "R4", "R3")], 1.5, 0.5),
        ([multiply_add("R0.reuse", "R3", "R1"), multiply_add("R0", "R4", "R3")], 1.5, 0.5),
        # Kept in another place, or not kept.
        ([multiply_add("R0.reuse", "R3", "R2"), multiply_add("R3", "R0", "R2")], 2, 0.5),
        ([multiply_add("R0", "R2", "R1"), multiply_add("R0", "R4", "R3")], 2, 0),
        # A load between does not matter, another multiply-add does.
        (
            [multiply_add("R0.reuse", "R3", "R2"), ("LDS", ()), multiply_add("R0", "R4", "R3")],
            1.5,
            0.5,
        ),
        ([("LDS", ("R0", "R2", "R4")), multiply_add("R0", "R1", "-R0")], 2, 0),
    ],
)
def test_what_multiply_adds_read(body: Any, cycles: float, reuse: float) -> None:
    assert ladder.register_reads(body) == {"cycles": cycles, "reuse": reuse}
    assert ladder.register_reads([]) == {}


def test_the_bound_is_that_of_the_notes() -> None:
    facts = {"registers": 64, "blocks_per_sm": 2, "loop.FFMA": 512, "loop.instructions": 640}
    found = {"facts": facts, "reads": {"cycles": 1.25, "reuse": 0.5}, "loads": 2 / 64}
    # 66.9 TFLOP/s / (1.25 cycles + a quarter of an instruction for each multiply-add)
    assert ladder_tables.static_cells(found) == ["64", "2", "80.0%", "1.25", "44.6", "2K/64"]
    addition = {"facts": {"registers": 32}, "reads": {}, "loads": 2}
    assert ladder_tables.static_cells(addition) == ["32", "", "", "", "", "2"]


def test_words_loaded_are_counted() -> None:
    counts = {
        kernel.name: ladder.loads(kernel)
        for kernel in KERNELS
        if kernel.name in ("naive", "tile64")
    }
    assert counts == {"naive": 2, "tile64": 2 / 64}


def multiply(A: Any, B: Any, C: Any) -> None:
    np.matmul(A, B, out=C)


def copy(A: Any, C: Any) -> None:
    C[...] = A


def test_a_rehearsal_without_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {
        "open_backend": lambda *_: HostBackend(),
        "cublas_program": lambda: PythonProgram(multiply, ("A", "B", "C")),
        "copy_program": lambda: PythonProgram(copy, ("A", "C")),
        "PROBLEMS": ("48", "33x65x17"),
        "ADDED": ("64",),
        "LARGE_CHECKS": ("37x5x1",),
        "ROUNDS": 2,
        "DUELS": {"48": (2, 3)},
        "LEAST": 1e-5,
    }.items():
        monkeypatch.setattr(ladder, name, value)
    only = "^(tiled|serpentine|add_float4)$"
    monkeypatch.setattr(sys, "argv", ["ladder.py", str(tmp_path), "--only", only])
    assert ladder.main() == 0
    found = json.loads((tmp_path / "times.json").read_text())
    assert {problem: len(timed["samples"]) for problem, timed in found["times"].items()} == {
        "gemm 48": 3,
        "gemm 33x65x17": 3,
        "add 64": 2,
    }
    assert {name: len(times) for name, times in found["times"]["gemm 48"]["samples"].items()} == {
        "cuBLAS": 2,
        "tiled": 2,
        "serpentine": 2,
    }
    assert set(found["duels"]["48"]["samples"]) == {"cuBLAS", "tiled", "serpentine"}
    printed = capsys.readouterr().out
    assert printed.startswith("3 of 3 kernels are exact")
    assert "| `cuBLAS` |" in printed
    assert "| `cuBLAS` | 48 | 2 |" in printed
    monkeypatch.setattr(sys, "argv", ["ladder.py", str(tmp_path), "--table"])
    assert ladder.main() == 0
    assert capsys.readouterr().out.strip() in printed
    monkeypatch.setattr(sys, "argv", ["ladder.py", str(tmp_path), "--only", only, "--once", "48"])
    assert ladder.main() == 0
    assert capsys.readouterr().out.split() == ["cuBLAS", "tiled", "serpentine"]


def test_a_wrong_rung_is_not_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (wrong,) = (
        load_registry([ROOT / "tests" / "broken"], ROOT).specs["k_residue_skipped"].kernels("host")
    )
    monkeypatch.setattr(ladder, "open_backend", lambda *_: HostBackend())
    monkeypatch.setattr(ladder, "chosen", lambda _: [wrong])
    monkeypatch.setattr(sys, "argv", ["ladder.py", str(tmp_path)])
    assert ladder.main() == 1
    found = json.loads((tmp_path / "times.json").read_text())
    assert set(found["failures"]) == {wrong.id}
    assert found["times"] == {}
    assert f"FAIL {wrong.id}: " in capsys.readouterr().out


# What was measured


TEXTS = [page.read_text(encoding="utf-8") for page in ladder_tables.PAGES]
NEWEST_FIRST = [folder for text in TEXTS for folder in re.findall("<!-- ladder (.*) -->", text)]
RUNS = [ROOT / folder for folder in reversed(NEWEST_FIRST)]
"""Folders of the runs that the pages have, the oldest first: there the newest stands first."""


@cache
def times_of(run: Path) -> dict[str, float]:
    """Seconds at 4096, of a rung also where a variant of the same code and launch was timed."""
    samples = ladder_tables.read(run / "times.json")["times"]["gemm 4096"]["samples"]
    variants = {variant.source_hash: variant.id for variant in ladder.variants()}
    same = {
        rung.id: samples[variants[rung.source_hash]]
        for rung in RUNGS
        if variants.get(rung.source_hash) in samples
    }
    return {name: ladder_tables.median(values) for name, values in (same | samples).items()}


def test_the_pages_are_what_was_measured() -> None:
    assert set(RUNS) == set((ROOT / "benchmarks" / "gpu" / "results").glob("*/ladder"))
    for text in TEXTS:
        assert text.count("<!-- ladder ") == text.count("<!-- end -->") > 0
        assert ladder_tables.filled(text) == text, "run: python benchmarks/ladder_tables.py"
    gone = ladder_tables.filled("<!-- ladder no/where -->\nold\n<!-- end -->\n")
    assert "Not measured yet: `no/where` is not there." in gone
    assert "old" not in gone


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.parent.name)
def test_all_that_was_timed_was_exact(run: Path) -> None:
    assert ladder_tables.read(run / "times.json")["failures"] == {}


def test_those_that_lose_are_labelled_and_no_others() -> None:
    runs = [times_of(run) for run in RUNS]
    for kernel in RUNGS:
        both = [t for t in runs if {kernel.name, kernel.derived_from} <= set(t)]
        lost = bool(both) and both[-1][kernel.name] > 1.02 * both[-1][kernel.derived_from]
        assert lost == kernel.change.startswith("LOSES: "), kernel.name


def test_the_outcomes_of_the_notes_are_the_measured_ones() -> None:
    """By the first run that timed a rung."""
    notes = (FOLDER / "NOTES.md").read_text(encoding="utf-8")
    rows = [re.split(r" *\| *", line)[1:-1] for line in notes.splitlines() if line[:1] == "|"]
    runs = [times_of(run) for run in RUNS]
    for kernel in RUNGS:
        times = [found[kernel.name] for found in runs if kernel.name in found]
        (cells,) = (cells for cells in rows if cells[0] == kernel.name and len(cells) == 5)
        expected = f"{Problem.parse('4096').flops / times[0] / 1e12:.1f}" if times else ""
        assert re.match(r"[\d.]*", cells[-1])[0] == expected, kernel.name  # type: ignore[index]


def test_counters_are_kept_by_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    issue = "sm__issue_active.avg.pct_of_peak_sustained_elapsed"
    head = f'"ID","Kernel Name","{issue}","launch__grid_size","sm__other.sum"\n"","","%","",""\n'
    (tmp_path / "ncu.csv").write_text(
        "==PROF== Connected to process 1\n\ncuBLAS\nring[BK:32]\n==PROF== Disconnected\n"
        f'{head}"0","sgemm","86.41","1,024","7"\n"1","gemm<128, 32>","","512","7"\n'
    )
    options = ["ladder.py", str(tmp_path), "--counted", str(tmp_path / "ncu.csv")]
    monkeypatch.setattr(sys, "argv", options)
    assert ladder.main() == 0
    kept = ladder_tables.read(tmp_path / "counters.json")
    assert kept == {
        "cuBLAS": {issue: 86.41, "launch__grid_size": 1024},
        "ring[BK:32]": {"launch__grid_size": 512},
    }
    assert ladder_tables.limiter(kept["cuBLAS"]) == "the issue slots at 86 % of the peak"
    assert ladder_tables.limiter({}) == "-"


def test_an_interval_is_of_whole_rounds() -> None:
    # The clock halves from the third round on: the ratio of each round is the same.
    library, own = [1.0, 1.0, 2.0, 2.0, 2.0], [2.0, 2.0, 4.0, 4.0, 4.0]
    assert ladder_tables.interval(library, own) == (0.5, 0.5)
    low, high = ladder_tables.interval([1.0, 1.1, 1.2, 1.3], [1.0, 1.0, 1.0, 1.0])
    assert 1.0 <= low < 1.15 < high <= 1.3
