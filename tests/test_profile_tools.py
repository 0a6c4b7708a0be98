"""NVIDIA's tools, played by a script: what they are asked, what they answer, what is missing."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field, replace
from itertools import cycle
from pathlib import Path
from threading import Event
from time import sleep
from typing import Any

import pytest

from pytest_gemm import backends
from pytest_gemm.backends.base import Device
from pytest_gemm.backends.choice import Choice
from pytest_gemm.case import Case
from pytest_gemm.cli import main
from pytest_gemm.doctor.finding import Finding
from pytest_gemm.doctor.machine import TIMED_OUT, Answer, Machine
from pytest_gemm.errors import DeviceBusyError
from pytest_gemm.launching import Launcher, program_of
from pytest_gemm.profile import child
from pytest_gemm.profile.document import read
from pytest_gemm.profile.metrics import ALTERNATIVES, BY_NCU, HOPPERS, NAMES
from pytest_gemm.profile.ncu import ROUNDS, count
from pytest_gemm.profile.profiling import profile, sanitized
from pytest_gemm.profile.report import tables
from pytest_gemm.profile.sanitizer import of_each, sanitize
from pytest_gemm.profile.tools import watched
from pytest_gemm.registry import load_registry
from pytest_gemm.result import Result
from pytest_gemm.stats import summarize
from pytest_gemm.workers.turns import Turns
from tests.fake_cupy import FakeCuda
from tests.fake_cupy import Kernel as FakeKernel
from tests.test_profile import traffic_of

ROOT = Path(__file__).parent.parent
NCU, SANITIZER = "/usr/local/cuda-13.1/bin/ncu", "/usr/local/cuda-13.1/bin/compute-sanitizer"
GPU = Device(
    *("cuda", "NVIDIA-H200", "NVIDIA H200, 140 GiB, 132 SMs", {"compute_capability": "9.0"}),
    *(66.9e12, 4.8e12),
)
FINE = Answer(0, "")
CPU = Device("host", "host-cpu", "a CPU")


def cases(*names: str) -> list[Case]:
    kernels = load_registry([ROOT / "kernels"], ROOT).kernels("cuda")
    found = {kernel.id: kernel for kernel in kernels}
    return [Case(found[name], found[name].problem("1024")) for name in names]


@dataclass
class Toolbox(Machine):
    """A machine with both tools. ``counters`` are of every launch; ``unknown`` are no metrics.

    ``sick`` are what a sanitizer's tool finds, by tool and kernel; ``left`` the kernels that it
    has no time for; ``said`` replaces what a tool writes; ``answer`` what comes of the process.
    """

    counters: Mapping[str, float] = field(default_factory=dict)
    unknown: set[str] = field(default_factory=set)
    errors: dict[str, str] = field(default_factory=dict)
    sick: dict[tuple[str, str], str] = field(default_factory=dict)
    left: dict[str, set[str]] = field(default_factory=dict)
    said: str | None = None
    started: bool = False
    answer: Answer = FINE
    commands: list[Sequence[str]] = field(default_factory=list)
    there: tuple[str, ...] = (NCU, SANITIZER)
    python = "python"
    environ: Mapping[str, str] = field(default_factory=dict)

    def find(self, command: str) -> str:
        return ""

    def paths(self, pattern: str) -> list[str]:
        name = pattern.rpartition("/")[2]
        return [p for p in self.there if p.endswith(f"/{name}") and pattern.startswith("/usr/l")]

    def run(self, command: Sequence[str], timeout: float) -> Answer:
        self.commands.append(command)
        assert timeout == 360 * (1 + self.cases_of(command))
        log = Path(command[command.index("--log-file") + 1])
        way, wanted, answers = command[-3:]
        plan = [Case.from_dict(data) for data in json.loads(Path(wanted).read_text())["cases"]]
        if self.said is not None:
            log.write_text(self.said)
            if self.started:
                Path(answers).write_text("")
            return self.answer
        text = self.counted(command, plan) if way == "counters" else self.checked(command, plan)
        log.write_text(text)
        if "Failed to find" not in text:
            tool = command[command.index("--tool") + 1] if "--tool" in command else ""
            late = self.left.get(tool, set())
            Path(answers).write_text("".join(self.line(case, late) for case in plan))
        return self.answer

    @staticmethod
    def cases_of(command: Sequence[str]) -> int:
        return len(json.loads(Path(command[-2]).read_text())["cases"])

    def line(self, case: Case, late: set[str]) -> str:
        if case.kernel.id in late:
            return json.dumps({"id": case.id, "launches": 0, "left": True}) + "\n"
        if error := self.errors.get(case.id):
            return json.dumps({"id": case.id, "launches": 0, "error": error}) + "\n"
        facts = {"registers": 32, "occupancy": 1.0}
        return json.dumps({"id": case.id, "launches": 2, "facts": facts}) + "\n"

    def counted(self, command: Sequence[str], plan: Sequence[Case]) -> str:
        metrics = metrics_of(command)
        for metric in set(metrics) & self.unknown:
            escaped = metric.replace(".", "\\.")
            return f"==PROF== Connected\n==ERROR== Failed to find metric regex:^{escaped}$\n"
        launched = [case for case in plan if case.id not in self.errors for _ in range(2)]
        rows = [
            f'"{number}","{case.kernel.entry}(int)","(16, 16, 1)","(64, 64, 1)","{metric}","",'
            f'"{self.counters[BY_NCU[metric]]}"'
            for number, case in enumerate(launched)
            for metric in metrics
            if BY_NCU[metric] in self.counters
        ]
        head = "ID", "Kernel Name", "Block Size", "Grid Size", "Metric Name", "Metric Unit"
        return "\n".join([",".join(f'"{name}"' for name in (*head, "Metric Value")), *rows])

    def checked(self, command: Sequence[str], plan: Sequence[Case]) -> str:
        tool = command[command.index("--tool") + 1]
        lines = ["========= COMPUTE-SANITIZER"]
        found = [text for case in plan if (text := self.sick.get((tool, case.kernel.id)))]
        lines += [f"========= {text}" for text in found]
        if tool == "racecheck":
            lines.append(f"========= RACECHECK SUMMARY: {len(found)} hazards displayed (0 errors)")
        else:
            lines.append(f"========= ERROR SUMMARY: {len(found)} errors")
        return "\n".join(lines) + "\n"


def silent(_: str) -> None:
    """No progress."""


def metrics_of(command: Sequence[str]) -> list[str]:
    return command[command.index("--metrics") + 1].split(",")


# ncu


def test_ncu_is_asked_for_every_metric_and_changes_nothing_on_the_gpu() -> None:
    machine = Toolbox(counters={"l2": 12.5})
    counted = count(machine, cases("naive", "tiled"), 1, "9.0", silent)
    [command] = machine.commands
    assert command[0] == NCU
    assert metrics_of(command) == list(NAMES)
    text = " ".join(command)
    for option in ("--clock-control none", "--cache-control none", "--profile-from-start off"):
        assert option in text
    assert command[-7:-2] == ["python", "-P", "-m", "pytest_gemm.profile.child", "counters"]
    assert counted.missing is None
    assert {name: len(found) for name, found in counted.launches.items()} == {
        "naive-1024x1024x1024-float32": 2,
        "tiled-1024x1024x1024-float32": 2,
    }
    assert counted.launches["tiled-1024x1024x1024-float32"][0].kernel == "tiled(int)"


def test_what_hopper_alone_has_is_asked_of_it_alone() -> None:
    machine = Toolbox(counters={"l2": 12.5})
    count(machine, cases("tiled"), 0, "8.9", silent)
    assert set(NAMES) - set(metrics_of(machine.commands[0])) == HOPPERS
    assert len(HOPPERS) == 1


def test_a_metric_that_ncu_does_not_know_is_left_out_or_asked_for_by_its_other_name() -> None:
    gone = {"dram__bytes_read.sum", "gpc__cycles_elapsed.avg.per_second"}
    machine = Toolbox(counters={"dram_read": 64.0}, unknown=gone)
    counted = count(machine, cases("tiled"), 0, "9.0", silent)
    assert set(counted.unknown) == gone
    assert len(machine.commands) == 3
    last = metrics_of(machine.commands[-1])
    assert not gone & set(last)
    assert ALTERNATIVES["dram__bytes_read.sum"] in last
    [launches] = counted.launches.values()
    assert launches[0].counters == {"dram_read": 64.0}


def test_an_ncu_that_knows_next_to_nothing_is_not_asked_forever() -> None:
    machine = Toolbox(unknown={*NAMES, *ALTERNATIVES.values()})
    missing = count(machine, cases("tiled"), 0, "9.0", silent).missing
    assert len(machine.commands) == ROUNDS
    assert missing is not None
    assert "does not know" in missing.text


def test_a_case_that_failed_there_says_why_and_the_others_keep_their_launches() -> None:
    naive, tiled = cases("naive", "tiled")
    machine = Toolbox(counters={"l2": 12.5}, errors={naive.id: "naive on 1024: it hung"})
    counted = count(machine, [naive, tiled], 0, "9.0", silent)
    assert counted.errors == {naive.id: "naive on 1024: it hung"}
    assert counted.launches[naive.id] == []
    assert [launch.kernel for launch in counted.launches[tiled.id]] == ["tiled(int)"] * 2


DENIED = "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission\n"


@pytest.mark.parametrize(
    ("machine", "text", "remedy"),
    [
        (Toolbox(there=()), "ncu is not here", "install Nsight Compute"),
        (
            Toolbox(said=DENIED),
            "may not read the counters (ERR_NVGPUCTRPERM)",
            f"sudo {NCU} ..., or",
        ),
        (
            Toolbox(said=DENIED, environ={"KUBERNETES_SERVICE_HOST": "x"}),
            "may not read the counters",
            "--cap-add=SYS_ADMIN",
        ),
        (
            Toolbox(said="==PROF== Connected\n==ERROR== LibraryNotLoaded\n"),
            "saw 0 launches of 0: LibraryNotLoaded",
            "pytest-gemm doctor",
        ),
        (
            Toolbox(said="", answer=Answer(1, "pytest-gemm: starting\npytest-gemm: no CuPy\n")),
            "saw 0 launches of 0: pytest-gemm: no CuPy",
            "pytest-gemm doctor",
        ),
        (
            Toolbox(said="", answer=Answer(-11, "")),
            "saw 0 launches of 0: exit code -11",
            "pytest-gemm doctor",
        ),
        (
            Toolbox(said="", answer=Answer(TIMED_OUT, "no answer for 960 s")),
            "saw 0 launches of 0: no answer for 960 s",
            "pytest-gemm doctor",
        ),
    ],
)
def test_what_is_missing_and_how_to_get_it(machine: Toolbox, text: str, remedy: str) -> None:
    missing = count(machine, cases("tiled"), 0, "9.0", silent).missing
    assert missing is not None
    assert text in missing.text
    assert remedy in missing.remedy


# compute-sanitizer

CLEAN = (
    "========= COMPUTE-SANITIZER\n========= Target application returned an error\n"
    "========= ERROR SUMMARY: 0 errors\n"
)


def test_a_clean_project_takes_one_process_for_each_tool() -> None:
    machine = Toolbox()
    found = sanitize(machine, cases("naive", "tiled", "naive"), 0, silent)
    assert found == {
        name: {"memcheck": "", "racecheck": "", "synccheck": ""} for name in ("naive", "tiled")
    }
    assert sorted([*command[:5]] for command in machine.commands) == [
        [SANITIZER, "--tool", tool, "--report-api-errors", "no"]
        for tool in ("memcheck", "racecheck", "synccheck")
    ]


def test_what_is_found_is_put_down_to_its_kernel() -> None:
    race = "Error: Race reported between Write access at tiled(int)+0x60"
    machine = Toolbox(sick={("racecheck", "tiled"): race})
    found = sanitize(machine, cases("naive", "tiled"), 0, silent)
    assert not isinstance(found, Finding)
    assert found["tiled"] == {"memcheck": "", "racecheck": race, "synccheck": ""}
    assert not any(found["naive"].values())


def test_a_launch_that_failed_without_a_finding_is_a_finding() -> None:
    (tiled,) = cases("tiled")
    machine = Toolbox(errors={tiled.id: "tiled: misaligned address"})
    found = sanitize(machine, [tiled], 0, silent)
    assert not isinstance(found, Finding)
    assert set(found["tiled"].values()) == {"tiled: misaligned address"}


def test_each_kernel_is_told_as_soon_as_it_was_launched() -> None:
    told: list[str] = []
    sanitize(Toolbox(), cases("naive", "tiled"), 0, told.append)
    assert sorted(told) == [
        f"{tool}: {kernel}: launched"
        for tool in ("memcheck", "racecheck", "synccheck")
        for kernel in ("naive", "tiled")
    ]


def test_nobody_else_times_on_the_gpu_while_a_tool_has_it() -> None:
    busy: list[str] = []

    class Shared(Toolbox):
        def run(self, command: Sequence[str], timeout: float) -> Answer:
            with pytest.raises(DeviceBusyError):
                Turns(GPU, "run", silent, wait=False).start()
            busy.append(command[0])
            return super().run(command, timeout)

    machine = Shared(counters={"l2": 12.5})
    profile(Scripted(GPU), cases("tiled"), machine, 0, silent)  # type: ignore[arg-type]
    sanitized(Scripted(CPU), cases("tiled"), machine, 0, GPU, silent)  # type: ignore[arg-type]
    assert busy == [NCU, SANITIZER, SANITIZER, SANITIZER]
    free = Turns(GPU, "run", silent, wait=False)
    free.start()
    free.stop()


def test_what_a_tool_has_no_time_for_is_not_clean() -> None:
    machine = Toolbox(left={"racecheck": {"tiled"}})
    executor = Scripted(CPU)
    found = sanitized(executor, cases("naive", "tiled"), machine, 0, GPU, silent)  # type: ignore[arg-type]
    assert len(machine.commands) == 3, "and it is not run again"
    naive, tiled = found.sanitized
    assert (naive.agrees, tiled.agrees) == (True, None)
    assert tiled.tools == {"memcheck": "", "racecheck": None, "synccheck": ""}
    assert found.missing is not None
    assert found.missing.text == "1 of 2 kernels were not watched by every tool"
    assert "with -k" in found.missing.remedy
    cells = next(line for line in tables(found) if line.startswith("| `tiled`")).split(" | ")
    assert cells[1:] == ["nothing", "nothing", "-", "nothing", "- |"]


def test_an_interrupt_keeps_what_is_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted(Toolbox):
        """Racecheck is in the middle of its work, and ends with the interrupt."""

        halted = Event()

        def run(self, command: Sequence[str], timeout: float) -> Answer:
            if "racecheck" not in command:
                return super().run(command, timeout)
            assert self.halted.wait(60)
            return Answer(-2, "")

    machine = Interrupted()
    interrupts: list[str] = []

    def interrupt(runs: Sequence[Future[object]]) -> None:
        wait([runs[0], runs[2]] if len(interrupts) < 2 else runs)
        if len(interrupts) < 2:
            raise KeyboardInterrupt

    def say(line: str) -> None:
        if line.startswith("interrupted"):
            interrupts.append(line)
        if len(interrupts) == 2:
            machine.halted.set()

    monkeypatch.setattr("pytest_gemm.profile.sanitizer.wait", interrupt)
    found = sanitize(machine, cases("tiled"), 0, say)
    assert found == {"tiled": {"memcheck": "", "racecheck": None, "synccheck": ""}}
    assert len(interrupts) == 2


def test_of_a_sweep_a_few_are_watched_where_nobody_chose() -> None:
    kernels = load_registry([ROOT / "kernels"], ROOT).kernels("cuda")
    every = [Case(kernel, kernel.problem("64")) for kernel in kernels for _ in range(2)]
    assert len(of_each(every)) == len(kernels)
    few = [case.kernel.id for case in of_each(every, 3)]
    assert [name for name in few if name.startswith("block_size")] == [
        f"block_size[SIDE:{side}]" for side in (1, 16, 32)
    ]
    assert {kernel.name for kernel in kernels} == {name.partition("[")[0] for name in few}


@pytest.mark.parametrize(
    ("machine", "text"),
    [
        (Toolbox(there=()), "compute-sanitizer is not here"),
        (
            Toolbox(said="========= Error: Device not supported\n", started=True),
            "compute-sanitizer does not work here: Error: Device not supported",
        ),
        (
            Toolbox(said=f"{CLEAN}", answer=Answer(1, "pytest-gemm: no CuPy\n")),
            "compute-sanitizer does not work here: pytest-gemm: no CuPy",
        ),
    ],
)
def test_a_sanitizer_that_does_not_work_says_so(machine: Toolbox, text: str) -> None:
    found = sanitize(machine, cases("tiled"), 0, silent)
    assert isinstance(found, Finding)
    assert text in found.text
    assert ("CUDA toolkit" if not machine.there else "doctor") in found.remedy


def test_a_kernel_that_hangs_or_crashes_its_process_is_put_down_to_it() -> None:
    for said, text in ((CLEAN, "its process ended: exit code -14"), ("", "exit code -14")):
        machine = Toolbox(said=said, started=True, answer=Answer(-14, ""))
        found = sanitize(machine, cases("naive", "tiled"), 0, silent)
        assert not isinstance(found, Finding)
        assert set(found["tiled"].values()) == {text}


# The whole


@dataclass
class Scripted:
    """An executor with stored results, ``failures`` by kernel."""

    device: Device
    failures: dict[str, str] = field(default_factory=dict)
    ran: list[Case] = field(default_factory=list)
    closed: bool = False

    def devices(self) -> Sequence[Device]:
        return [self.device]

    def run(self, case: Case, function: object) -> Result:
        assert not self.closed
        self.ran.append(case)
        if failure := self.failures.get(case.kernel.id):
            return Result("failed", failure)
        if case.settings.architecture:
            return Result("passed", counters={"loop.instructions": 64, "loop.FFMA": 16})
        estimate = summarize([4e-4] * 30) if case.settings.timed else None
        return Result("passed", estimate=estimate, traffic=traffic_of(case.kernel.id))

    def close(self) -> None:
        self.closed = True

    expect = can_duet = duet = None


def test_what_passed_is_timed_counted_and_inspected() -> None:
    executor = Scripted(GPU, {"naive": "naive on 1024: wrong\nmore"})
    machine = Toolbox(counters={"l2": 12.5, "global_loads": 4194304.0})
    found = profile(executor, cases("naive", "tiled"), machine, 0, silent)  # type: ignore[arg-type]
    assert executor.closed
    naive, tiled = found.cases
    assert (naive.outcome, naive.message, dict(naive.counters)) == (
        "failed",
        "naive on 1024: wrong\nmore",
        {},
    )
    assert tiled.seconds == pytest.approx(4e-4)
    assert tiled.derived["loads"] == 128.0
    assert tiled.static == {"loop.instructions": 64, "loop.FFMA": 16}
    assert tiled.build == {"registers": 32, "occupancy": 1.0}
    assert executor.ran[-1].settings.architecture == "sm_90"
    assert (found.peak_flops, found.missing) == (66.9e12, None)


def test_without_ncu_the_prediction_is_still_told() -> None:
    executor = Scripted(GPU)
    found = profile(executor, cases("tiled"), Toolbox(there=()), 0, silent)  # type: ignore[arg-type]
    assert found.missing is not None
    assert found.cases[0].traffic == traffic_of("tiled")


def test_on_a_cpu_nothing_is_timed_and_no_tool_is_asked() -> None:
    executor, machine = Scripted(CPU), Toolbox()
    found = profile(executor, cases("tiled"), machine, 0, silent)  # type: ignore[arg-type]
    assert machine.commands == []
    assert [case.settings.timed for case in executor.ran] == [False]
    assert found.missing is not None
    assert "no NVIDIA GPU" in found.missing.text


def test_the_sanitizers_beside_each_other() -> None:
    executor = Scripted(CPU, {"tiled": "tiled on 16: kernels/tiled.cu:9: race"})
    machine = Toolbox(
        sick={("racecheck", "tiled"): "Error: Race", ("memcheck", "naive"): "Invalid"}
    )
    found = sanitized(executor, cases("naive", "tiled"), machine, 0, GPU, silent)  # type: ignore[arg-type]
    naive, tiled = found.sanitized
    assert naive.agrees is False
    assert tiled.agrees is True
    assert tiled.cpu == "tiled on 16: kernels/tiled.cu:9: race"


# The process under the tool


class Watched(FakeCuda):
    """CUDA that knows what is launched while a profiler looks."""

    def __init__(self) -> None:
        super().__init__()
        self.allocated: list[int] = []
        self.alarms: list[int] = []

    def rt_malloc(self, nbytes: int) -> int:
        self.allocated.append(nbytes)
        return super().rt_malloc(nbytes)

    def rt_profilerStart(self) -> None:
        self.calls.append("start")

    def rt_profilerStop(self) -> None:
        self.calls.append("stop")


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Watched:
    fake = Watched()
    fake.kernels["tiled"] = FakeKernel(sizes=(8, 8, 8, 4, 4, 4))
    backend = fake.backend()
    monkeypatch.setattr(backends, "open_backend", lambda *_: backend)
    monkeypatch.setattr(child.signal, "alarm", fake.alarms.append)
    return fake


def answers(
    way: str, tmp_path: Path, chosen: Sequence[Case], seconds: float | None = None
) -> list[Any]:
    wanted, answered = tmp_path / "wanted.json", tmp_path / "answers"
    plan = {"gpu": 0, "cases": [case.to_dict() for case in chosen], "seconds": seconds}
    wanted.write_text(json.dumps(plan))
    assert child.main([way, str(wanted), str(answered)]) == 0
    return [json.loads(line) for line in answered.read_text().splitlines()]


def watched_launches(fake: Watched) -> list[int]:
    """How many launches there are between each start and stop, and none of anything else."""
    found: list[int] = []
    watching = False
    for call in fake.calls:
        if call == "start":
            watching = True
            found.append(0)
        elif call == "stop":
            watching = False
        elif watching and call == "launchKernel":
            found[-1] += 1
        elif watching:
            assert call in ("deviceSynchronize", "setDevice", "profilerStop", "profilerStart")
    return found


def test_the_child_verifies_and_then_shows_its_launches_alone(
    cuda: Watched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tiled,) = cases("tiled")
    small = replace(tiled, problem=tiled.kernel.problem("64"))
    verified: list[str] = []

    def verify(case: Case, backend: Any, function: Any, reuse: Any) -> Launcher:
        verified.append(case.id)
        return Launcher(case.kernel, backend, backend.compile(program_of(case.kernel, None)), 20.0)

    monkeypatch.setattr(child, "verified_launcher", verify)
    [answer] = answers("counters", tmp_path, [small])
    assert verified == [small.id]
    assert answer["id"] == small.id
    assert answer["launches"] == child.LAUNCHES
    assert answer["facts"]["registers"] == 32
    assert watched_launches(cuda) == [child.LAUNCHES]
    assert len(cuda.kernels["tiled"].launches) == child.LAUNCHES + 1


def test_a_kernel_that_computes_nothing_is_not_profiled(cuda: Watched, tmp_path: Path) -> None:
    (tiled,) = cases("tiled")
    [answer] = answers("counters", tmp_path, [replace(tiled, problem=tiled.kernel.problem("64"))])
    assert answer["launches"] == 0
    assert cuda.alarms == [child.SECONDS]
    assert answer["error"].startswith("tiled on ")
    assert watched_launches(cuda) == []


def test_the_sanitizer_sees_each_small_problem_in_memory_without_guards(
    cuda: Watched, tmp_path: Path
) -> None:
    [answer] = answers("sanitizer", tmp_path, cases("tiled"))
    assert answer["launches"] == len(watched_launches(cuda)) == 3
    assert set(watched_launches(cuda)) == {1}
    first = child.exact_suite(cases("tiled")[0].kernel)[0]
    stored = [first.stored(name) for name in "ABC"]
    sizes = [lines * first.ld(name) * 4 for (lines, _), name in zip(stored, "ABC", strict=True)]
    assert cuda.allocated[:3] == sizes


def test_a_case_that_there_is_no_time_to_begin_is_left(cuda: Watched, tmp_path: Path) -> None:
    found = answers("sanitizer", tmp_path, cases("tiled", "naive"), seconds=-1.0)
    assert [answer["left"] for answer in found] == [True, True]
    assert watched_launches(cuda) == []


def test_an_interrupt_ends_the_process_with_an_answer_for_every_case(
    cuda: Watched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []

    def way(case: Case, backend: Any, reuse: Any) -> tuple[int, dict[str, Any]]:
        if done:
            raise KeyboardInterrupt
        done.append(case.id)
        return 1, {}

    monkeypatch.setitem(child.WAYS, "sanitizer", way)
    found = answers("sanitizer", tmp_path, cases("tiled", "naive", "tiled32"))
    assert [answer.get("left", False) for answer in found] == [False, True, True]


def test_answers_are_heard_while_the_tool_runs() -> None:
    heard: list[str] = []

    class Slow(Toolbox):
        """Answers one case after the other, each when the one before was heard."""

        def run(self, command: Sequence[str], timeout: float) -> Answer:
            answers, plan = Path(command[-1]), json.loads(Path(command[-2]).read_text())
            with answers.open("a") as file:
                for number, case in enumerate(map(Case.from_dict, plan["cases"])):
                    file.write(f'{{"id": "{case.id}"')
                    file.flush()
                    assert len(heard) == number
                    file.write("}\n")
                    file.flush()
                    for _ in range(600):
                        if len(heard) > number:
                            break
                        sleep(0.01)
            return FINE

    def hear(answer: Mapping[str, Any]) -> None:
        heard.append(answer["id"])

    chosen = cases("naive", "tiled")
    run = watched(Slow(), ["tool"], "sanitizer", chosen, 0, hear)
    assert heard == [case.id for case in chosen] == [answer["id"] for answer in run.answers]


def test_a_gpu_that_cannot_be_used_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake = Watched()
    fake.failures["getDeviceCount"] = "cudaErrorNoDevice"
    monkeypatch.setattr(backends, "open_backend", lambda *_: fake.backend())
    wanted = tmp_path / "wanted.json"
    wanted.write_text('{"gpu": 0, "cases": [], "seconds": null}')
    assert child.main(["counters", str(wanted), str(tmp_path / "answers")]) == 1
    assert "no GPU can be used here" in capsys.readouterr().err


# The command

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    """Runs in a project with the shipped naive; its exit code, output and errors."""
    kernels = tmp_path / "kernels"
    kernels.mkdir()
    (kernels / "naive.cu").write_text((ROOT / "kernels/naive.cu").read_text())
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> tuple[int, str, str]:
        code = main(["profile", *words])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


def test_without_a_gpu_the_command_tells_the_loads_and_what_is_missing(
    command: Command, tmp_path: Path
) -> None:
    code, out, err = command("--device=host", "--size=64x64x64", "--out=found.json")
    assert code == 1
    assert "| `naive` | 64x64x64 | 2K | 128 | 384 | - |" in out
    assert "Missing: there is no NVIDIA GPU here" in out
    assert "written to found.json" in err
    assert read(tmp_path / "found.json").cases[0].title == "naive on 64x64x64"
    assert command("found.json") == (1, out, "")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--out=x.txt"], "--out=x.txt: name a .json file"),
        (["--out=nowhere/x.json"], "name a .json file in a folder that exists"),
        (["-k", "nonsense"], "no case of a .cu kernel is left"),
        (["none.json"], "none.json: it cannot be read (No such file or directory)"),
        (["--size=x"], "x"),
        (["--device=ssh=far"], "on the machine that it is in"),
        (["--sanitizer"], "compute-sanitizer watches a GPU"),
    ],
)
def test_a_mistake_is_one_sentence(words: list[str], said: str, command: Command) -> None:
    is_free = words[0].startswith(("--device", "none.json"))
    device = [] if is_free else ["--device=host"]
    code, out, err = command(*device, *words)
    assert (code, out) == (2, "")
    assert said in err
    assert err.startswith("pytest-gemm: ")
    assert err.count("\n") == 1


def test_an_earlier_file_is_only_reported(command: Command) -> None:
    words = ["--out=y.json", "--size=8", "-k=a", "--sanitizer", "--device=host"]
    code, out, err = command("x.json", *words)
    assert (code, out) == (2, "")
    assert err == (
        "pytest-gemm: --out, --size, -k, --sanitizer, --device: x.json was measured before, and is "
        "only reported\n"
    )


def test_a_damaged_file_is_told_in_one_sentence(command: Command, tmp_path: Path) -> None:
    whole = json.loads((ROOT / "benchmarks/results/profile-h200.json").read_text())
    whole["cases"] = whole["cases"][:1]
    case = whole["cases"][0]
    codes = []
    for part in (whole, case, case["problem"], case["traffic"], case["counters"], case["static"]):
        # Another type, and a number beyond any float.
        for (key, kept), value in zip(list(part.items()), cycle(({}, 10**400)), strict=False):
            if key.startswith("stall.") and key != "stall.barrier":
                continue
            part[key] = value
            (tmp_path / "x.json").write_text(json.dumps(whole))
            code, out, err = command("x.json")
            part[key] = kept
            codes.append(code)
            if code == 2:
                assert out == ""
                assert err.startswith("pytest-gemm: x.json: ")
                assert err.count("\n") == 1
    assert set(codes) <= {0, 1, 2}
    assert codes.count(2) > len(codes) / 3


def test_two_gpus_are_one_too_many(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "pytest_gemm.backends.choice.choose_backend",
        lambda *_, **__: Choice("cuda", gpus=(0, 1)),
    )
    code, _, err = command("--device=cuda:0,1")
    assert code == 2
    assert "profile one device" in err
