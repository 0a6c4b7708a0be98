"""The scripts that hold the verdicts against unchanged kernels and such with extra work."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from pytest_gemm.backends.base import CudaProgram, Program
from pytest_gemm.backends.host import HostBackend
from pytest_gemm.case import Case
from pytest_gemm.pipeline import run_case
from pytest_gemm.problem import Problem
from pytest_gemm.registry import load_registry
from tests.memory_backend import MemoryBackend

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "benchmarks"))

import plants  # noqa: E402
import verdicts  # noqa: E402

KERNELS = {kernel.id: kernel for kernel in load_registry([ROOT / "kernels"], ROOT).kernels("host")}
PLANTED = [(kind, name) for kind, every in plants.PLANTS.items() for name in every]


def case(name: str, size: str) -> Case:
    kernel = KERNELS[name]
    return Case(kernel, Problem.parse(size, kernel.op))


# Planted work


@pytest.mark.parametrize(("kind", "name"), PLANTED)
def test_a_kernel_is_given_its_steps_on_the_problems_that_are_named_alone(
    kind: str, name: str
) -> None:
    kernel, plant = KERNELS[name], plants.PLANTS[kind][name]
    first, second = (Problem.parse(size, kernel.op) for size in ("48x32x64", "24"))

    source = plants.planted(kernel.source, plant, {first: 7, second: 3})

    (line,) = [line for line in source.splitlines() if "const int extra" in line]
    steps = "M == 48 && N == 32 && K == 64 ? 7 : M == 24 && N == 24 && K == 24 ? 3 : 0"
    assert line.strip() == f"const int extra = {steps};".replace(
        *((" && K == 64", "") if kernel.op == "add" else ("", ""))
    ).replace(*((" && K == 24", "") if kernel.op == "add" else ("", "")))
    assert kernel.source in source.replace(f"{line}\n{plant.code}", "")


def test_a_kernel_that_has_not_the_statement_once_is_refused() -> None:
    source = plants.NAIVE.before
    for text in ("", source * 2):
        with pytest.raises(ValueError, match="not one such statement"):
            plants.planted(text, plants.NAIVE, {})


@pytest.fixture(scope="module")
def host() -> HostBackend:
    return HostBackend()


@pytest.mark.parametrize("name", plants.PLANTS["host"])
def test_extra_work_changes_no_bit(host: HostBackend, name: str) -> None:
    before = case(name, "48x40x32")
    plant = plants.PLANTS["host"][name]
    source = plants.planted(before.kernel.source, plant, {before.problem: 5})

    results = [
        run_case(replace(before, kernel=kernel), host)
        for kernel in (before.kernel, replace(before.kernel, source=source))
    ]

    assert [result.outcome for result in results] == ["passed"] * 2
    assert results[0].digest == results[1].digest != ""


@pytest.mark.parametrize(
    ("before", "last", "wanted"),
    [
        ((0, 0.0), (10, 0.005), 20),
        ((0, 0.0), (10, 0.02), 5),
        ((4, 0.002), (10, 0.008), 12),
        ((20, 0.03), (10, 0.02), 1),
        ((0, 0.0), (10, -0.3), 80),
        ((4, 0.004), (10, 0.003), 33),
        ((0, 0.0), (10, 0.5), 1),
    ],
)
def test_the_next_steps_lie_on_the_line_of_the_last_two(
    before: plants.Point, last: plants.Point, wanted: int
) -> None:
    assert plants.next_steps(before, last, 0.01, 1e9) == wanted


def test_steps_stay_between_one_and_the_most() -> None:
    assert plants.next_steps((0, 0.0), (10, 0.0), 0.01, 32.5) == 32
    assert plants.next_steps((0, 0.0), (1, 1.0), 0.01, 9) == 1


@dataclass
class Scripted(MemoryBackend):
    """A GPU on which a step of extra work costs ``cost`` of the launch, after ``idle`` steps."""

    cost: float = 0.001
    idle: int = 0
    kind: str = "cuda"
    sources: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def compile(self, program: Program) -> Any:
        assert isinstance(program, CudaProgram)
        self.sources.append(program.source)
        return re.findall(r"([MN]) == (\d+).*?\? (\d+) :", program.source)

    def time(self, executable: Any, config: Any, arguments: Any, **how: Any) -> float:
        extra = [int(n) for _, size, n in executable if int(size) == arguments[0].rows]
        steps = max(0, sum(extra) - self.idle)
        return 1e-4 * (1 + self.cost * steps) * float(how["launches"])


@pytest.fixture(autouse=True)
def no_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plants, "WARM_UP", 0.0)
    monkeypatch.setattr(plants, "PAIRS", 2)


@pytest.mark.parametrize(("cost", "idle"), [(0.001, 0), (0.0004, 0), (0.004, 0), (0.001, 4)])
def test_steps_are_tuned_to_a_slowdown(cost: float, idle: int) -> None:
    cases = [case("naive", "64"), case("add", "64"), case("naive", "48")]
    bench = plants.Bench(Scripted(cost, idle), cases)

    steps, ratios = bench.tune(0.02)

    assert steps.keys() == ratios.keys() == {case.id for case in cases}
    for name, n in steps.items():
        true = cost * max(0, n - idle)
        assert true == pytest.approx(0.02, rel=plants.NEAR + 0.1)
        assert ratios[name] == pytest.approx([plants.math.log1p(true)] * plants.PLACES)


def test_what_another_process_tuned_is_measured_again() -> None:
    cases = [case("naive", "64"), case("tiled", "64")]
    bench = plants.Bench(Scripted(0.01), cases)

    found = bench.measure({cases[0].id: 5})

    assert list(found) == [cases[0].id]
    assert found[cases[0].id] == pytest.approx([plants.math.log(1.05)] * plants.PLACES)


# The run


@pytest.fixture
def project(tmp_path: Path) -> verdicts.Project:
    return verdicts.Project(tmp_path / "project", "host", 60)


def test_a_project_has_the_shipped_kernels_and_takes_changes_back(
    project: verdicts.Project,
) -> None:
    shipped = {path.name: path.read_text() for path in (ROOT / "kernels").glob("*.cu")}

    def written() -> dict[str, str]:
        return {path.name: path.read_text() for path in (project.root / "kernels").glob("*.cu")}

    assert written() == shipped
    project.write(lambda name, text: f"{text}// {name}\n")
    assert written() == {name: f"{text}// {name[:-3]}\n" for name, text in shipped.items()}
    project.write()
    assert written() == shipped
    assert {f"{name}-float32" for name in verdicts.PLANTED["host"]} <= project.cases.keys()
    assert len(project.cases) > verdicts.SUBSET


def test_stored_sessions_are_counted_by_the_case_that_has_the_fewest(
    project: verdicts.Project,
) -> None:
    assert project.stored == 0
    sessions: list[Any] = [{"benchmark": name} for name in project.cases for _ in range(3)]
    path = project.root / "baselines" / "device" / "kernel.json"
    path.parent.mkdir(parents=True)

    path.write_text(json.dumps({"sessions": [*sessions, None]}))
    assert project.stored == 3
    path.write_text(json.dumps({"sessions": [*sessions[1:], None]}))
    assert project.stored == 2


class Runs:
    """Stands for pytest: says ``same`` of all, and ``slower`` of what has extra work."""

    def __init__(self, project: verdicts.Project) -> None:
        self.project = project
        self.edited: list[bool] = []

    def __call__(self, mode: str, cases: Any = (), *options: str) -> dict[str, Any]:
        texts = {p.stem: p.read_text() for p in (self.project.root / "kernels").glob("*.cu")}
        self.edited.append(any("Edited" in text for text in texts.values()))
        slow = {name for name, text in texts.items() if "const int extra" in text}
        return {
            **{"exit_code": int(bool(slow)), "wall_s": 2.0, "last_line": "done"},
            "cases": {
                name: {"gate": "slower" if self.project.cases[name].kernel.name in slow else "same"}
                for name in cases or self.project.cases
            },
        }


Made = tuple[verdicts.Proof, Runs]


@pytest.fixture
def proof(
    project: verdicts.Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Made]]:
    def make(**given: Any) -> Made:
        given = {"sessions": 0, "runs": None, "levels": None, "commit": "", "timeout": 60} | given
        options = argparse.Namespace(folder=tmp_path, device="host", **given)
        runs = Runs(project)
        monkeypatch.setattr(project, "bench", runs)
        return verdicts.Proof(options, project), runs

    return make


def test_every_second_unchanged_run_has_its_kernels_edited(
    proof: Callable[..., Made], tmp_path: Path
) -> None:
    made, runs = proof(runs=4)

    made.do("unchanged")

    assert runs.edited == [False, True, False, True]
    found = json.loads((tmp_path / "unchanged.json").read_text())
    assert [run["edited"] for run in found["runs"]] == runs.edited
    assert all(len(run["cases"]) == len(made.project.cases) for run in found["runs"])
    assert (
        "| unchanged | 0 | 4 | 84 | 84 | 0 | 0 |  | 2 |" in verdicts.tables(tmp_path)["Unchanged"]
    )


def test_a_subset_is_the_same_in_every_run(proof: Callable[..., Made], tmp_path: Path) -> None:
    made, _ = proof(runs=2)

    made.do("subset")

    first, second = json.loads((tmp_path / "subset.json").read_text())["runs"]
    assert first["cases"] == second["cases"]
    kernels = Counter(made.project.cases[name].kernel.name for name in first["cases"])
    assert kernels == dict.fromkeys(
        ("add", "block_size", "naive", "register_blocked", "tiled", "tiled32"), verdicts.SUBSET // 6
    )


def test_planted_kernels_are_written_as_they_were_measured(
    proof: Callable[..., Made], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, _ = proof()
    slowed = [f"{name}-float32" for name in verdicts.PLANTED["host"]]
    seen: list[list[str]] = []

    def plant(out: Path, cases: list[str], *options: str) -> None:
        seen.append([*options])
        level = {"steps": dict.fromkeys(cases, 9), "log_ratios": {c: [0.1, 0.2] for c in cases}}
        out.write_text(json.dumps({"0.1": level}))

    monkeypatch.setattr(made, "_plant", plant)
    made.do("planted")

    assert made.parts["planted"]["failure"] == ""
    assert seen[0] == ["--levels", "0.1,0.2"]
    assert len(seen) == 1 + verdicts.TRUTHS
    found = json.loads((tmp_path / "planted.json").read_text())["levels"]["0.1"]
    gates = {name: said["gate"] for name, said in found["run"]["cases"].items()}
    assert {name for name, gate in gates.items() if gate == "slower"} == set(slowed)
    assert len(gates) == len(slowed) + min(
        verdicts.BESIDE, len([c for c in made.project.cases if c.startswith(("block", "tiled32"))])
    )
    assert found["log_ratios"][slowed[0]] == [[0.1, 0.2]] * verdicts.TRUTHS
    # And all are as shipped again.
    assert "extra" not in (made.project.root / "kernels" / "naive.cu").read_text()


def test_a_part_that_fails_is_noted_and_leaves_the_others_alone(
    proof: Callable[..., Made], tmp_path: Path
) -> None:
    made, _ = proof(sessions=3)

    made.do("unchanged")
    made.options.sessions, made.options.runs = 0, 1
    made.do("subset")

    parts = json.loads((tmp_path / "run.json").read_text())["parts"]
    assert parts["unchanged"]["failure"] == "RuntimeError: nothing could be stored"
    assert parts["subset"]["failure"] == ""
    assert (tmp_path / "subset.json").is_file()
    assert not (tmp_path / "unchanged.json").exists()


def test_the_recorded_duets_are_shipped_kernels() -> None:
    for device, names in verdicts.DUETS.items():
        kernels = {kernel.id: kernel for kernel in KERNELS.values()}
        cases = [Case(kernel, Problem.parse("8", kernel.op)) for kernel in kernels.values()]
        found = verdicts._duet_cases(cases, device)
        assert [f"{case.kernel.id} {case.problem.M}" for case in found] == [*names]


def test_a_part_that_is_not_known_is_refused() -> None:
    assert verdicts.parts_of("duets,planted") == ["duets", "planted"]
    with pytest.raises(argparse.ArgumentTypeError, match="dust: not of unchanged"):
        verdicts.parts_of("duets,dust")


# What is kept, and the tables


def record(**verdict: Any) -> Mapping[str, Any]:
    return {
        **{"gate": verdict.pop("gate"), "outcome": "failed", "message": "m" * 1000},
        **{"verdict": verdict, "result": {"estimate": {"median": 1.23456789e-5}}},
    }


def test_a_record_is_kept_short_unless_something_is_said() -> None:
    same = record(gate="same", decided_by="sessions", change=0.0123456789, workers=0, rounds=0)
    slow = record(gate="slower", decided_by="duet", change=0.1, workers=12, rounds=2, notes=["n"])

    assert verdicts.brief(same) == {
        **{"gate": "same", "median_s": 1.23457e-5, "decided_by": "sessions"},
        "change": 0.0123457,
    }
    assert verdicts.brief(slow) == {
        **{"gate": "slower", "median_s": 1.23457e-5, "decided_by": "duet", "change": 0.1},
        **{"workers": 12, "rounds": 2, "outcome": "failed", "notes": ["n"], "message": "m" * 600},
    }


def test_pytest_s_last_line_is_found_before_what_else_is_said() -> None:
    assert verdicts.last_line("1 failed\n2 passed, 2 same in 3.21s\nError: gone\n") == (
        "2 passed, 2 same in 3.21s"
    )
    assert verdicts.last_line("usage: pytest\n") == "usage: pytest"


def test_alarms_duets_and_other_outcomes_are_counted() -> None:
    def run(*gates: str) -> dict[str, Any]:
        said = {str(i): {"gate": gate, "decided_by": "duet"} for i, gate in enumerate(gates)}
        return {"wall_s": 10.4, "cases": {**said, "x": {"gate": "same"}}}

    found = {"stored": 3, "runs": [run("same", "slower"), run("drifted", "inconclusive")]}

    assert verdicts.unchanged_row("unchanged", found) == [
        *("unchanged", "3", "2", "6", "3", "4", "2", "1 inconclusive", "10")
    ]


def test_a_planted_case_stands_beside_what_was_measured_and_others_are_counted() -> None:
    found = {
        "0.05": {
            "log_ratios": {"naive": [[0.04, 0.05, 0.09], [0.06]]},
            "run": {
                "cases": {
                    "naive": {
                        **{"gate": "slower", "change": 0.052, "low": 0.05, "high": 0.054},
                        **{"decided_by": "duet", "stored_change": 0.06, "workers": 12},
                    },
                    **{"a": {"gate": "same"}, "b": {"gate": "same"}, "c": {"gate": "faster"}},
                }
            },
        }
    }

    planted, others = verdicts.planted_rows(found)

    assert planted == [
        *("5%", "naive", "+5.13 % to +6.18 %", "slower", "+5.20 %", "+5.00 % to +5.40 %"),
        "screen (+6.00 %), duet of 12",
    ]
    assert others == ["5%", "3 others", "", "1 faster, 2 same", "", "", ""]


def test_the_deviation_of_recorded_duets_is_that_of_their_processes() -> None:
    def worker(ratio: float) -> list[list[list[float]]]:
        a, b = 1e-5, 1e-5 * plants.math.exp(ratio)
        return [[[a, b, b, a], [b, a, a, b]]] * 2

    found = {"kind": "cuda", "cases": {"add": [worker(0.001), worker(0.003)]}}

    ours, usual = verdicts.duet_rows(found)

    assert ours == ["add", "10.01", "2", "0.14 %", "+0.20 %"]
    assert usual[3] == "0.20 %"
