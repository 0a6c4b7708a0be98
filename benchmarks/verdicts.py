"""Are the verdicts right on this machine? Unchanged kernels, and such with extra work.

    python benchmarks/verdicts.py FOLDER [--device cuda|host] [--parts unchanged,planted,...]

copies the shipped kernels into a project of its own, stores three sessions of all of them (or
takes ``--baselines FOLDER``), and then

unchanged   runs the whole suite strictly: 10 times on a GPU, 20 on a CPU. Every second run has a
            comment added to each kernel, so that the programs are not known to be the same
subset      runs 12 of the cases 15 times, alike
forced      lets every kernel of one run duel with the stored one
planted     gives kernels work that makes them slower by about 1, 2 and 5 % (CPU: 10 and 20 %),
            measures in processes of its own how much slower they are, and asks for verdicts
calibrate   keeps what ``pytest-gemm calibrate`` finds
duets       records duets of two builds of one kernel in 12 processes each

Each part writes a JSON file into FOLDER as soon as it has something, and one that fails leaves the
others alone. ``--project FOLDER`` keeps the project for the next call. On any machine

    python benchmarks/verdicts.py FOLDER --tables

prints the tables of what is there. pytest-gemm must be importable, as in ``PYTHONPATH=site``.
Run it on an otherwise idle machine: these are real times.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, chdir
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from importlib.metadata import entry_points
from itertools import zip_longest
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parent
sys.path.insert(0, str(HERE))

import plants  # noqa: E402

from pytest_gemm.backends.choice import choose_backend  # noqa: E402
from pytest_gemm.calibrating import padded  # noqa: E402
from pytest_gemm.case import Case  # noqa: E402
from pytest_gemm.duet import USUAL, worker_ratio  # noqa: E402
from pytest_gemm.errors import GemmError  # noqa: E402
from pytest_gemm.executor import open_executor  # noqa: E402
from pytest_gemm.function import Runnable  # noqa: E402
from pytest_gemm.margin import EXPECTED  # noqa: E402
from pytest_gemm.options import project_options  # noqa: E402
from pytest_gemm.problem import Problem  # noqa: E402

STORED = 3
RUNS: Mapping[str, Mapping[str, int]] = {
    "cuda": {"unchanged": 10, "subset": 15, "forced": 1},
    "host": {"unchanged": 20, "subset": 0, "forced": 1},
}
LEVELS = {"cuda": (0.01, 0.02, 0.05), "host": (0.1, 0.2)}
SUBSET = 12

PLANTED: Mapping[str, tuple[str, ...]] = {
    "cuda": (
        *("naive-1024x1024x1024", "tiled-1024x1024x1024", "tiled-509x427x333"),
        *("register_blocked-1024x1024x1024", "add-1024x1024", "add-509x427"),
    ),
    "host": (
        *("naive-256x256x256", "naive-192x320x96", "tiled-192x320x96", "tiled-131x67x203"),
        *("register_blocked-256x256x256", "register_blocked-192x320x96", "add-256x256"),
    ),
}
"""Cases that are given more work; others of the same kernels are not run with them."""

BESIDE = 10
"""Cases of other kernels that run along with planted ones, to be flagged by nobody."""

TRUTHS = 2
"""Processes that measure how much slower planted kernels are."""

DUETS: Mapping[str, tuple[str, ...]] = {
    "cuda": (
        *("add 256", "add 1024", "add 2048", "tiled 256", "tiled 1024", "tiled32 1024"),
        *("naive 512", "register_blocked 512", "register_blocked 1024"),
    ),
    "host": (
        *("add 128", "add 256", "tiled 96", "tiled 256", "tiled32 96", "naive 96", "naive 256"),
        *("register_blocked 96", "register_blocked 256"),
    ),
}
"""A kernel and the size of a square problem."""

WORKERS = 12
_PLUGIN = () if entry_points(group="pytest11", name="gemm") else ("-p", "pytest_gemm.plugin")
"""Where only the folder is importable, pytest does not find the plugin by itself."""

CALIBRATE = "import sys; from pytest_gemm.cli import main; sys.exit(main(sys.argv[1:]))"

Verdicts = Mapping[str, Mapping[str, Any]]
"""What a run of pytest said, by case id."""


class Project:
    """A copy of the shipped kernels, their test and their settings, with baselines of its own."""

    def __init__(self, root: Path, device: str, timeout: float) -> None:
        self.root = root
        self.device = device
        self._timeout = timeout
        root.mkdir(parents=True, exist_ok=True)
        (root / "tests").mkdir(exist_ok=True)
        for name in ("pyproject.toml", "tests/test_kernels.py"):
            shutil.copy(ROOT / name, root / name)
        self.write()

    def write(self, change: Callable[[str, str], str] = lambda name, text: text) -> None:
        """Write the kernels, each as ``change`` makes it of its name and text."""
        shutil.rmtree(self.root / "kernels", ignore_errors=True)
        shutil.copytree(ROOT / "kernels", self.root / "kernels")
        for path in (self.root / "kernels").glob("*.cu"):
            path.write_text(change(path.stem, path.read_text()))

    @cached_property
    def cases(self) -> Mapping[str, Case]:
        return plants.project_cases(self.root, self.device)

    @property
    def stored(self) -> int:
        """How many sessions there are of the case that has the fewest."""
        counts = Counter(
            session["benchmark"]
            for path in (self.root / "baselines").glob("*/*.json")
            for session in filter(None, json.loads(path.read_text()).get("sessions", ()))
        )
        return min(counts[name] for name in self.cases)

    def bench(self, mode: str, cases: Iterable[str] = (), *options: str) -> dict[str, Any]:
        """What a run of pytest says of these cases, or of all. Raises RuntimeError."""
        names = [f"tests/test_kernels.py::test_gemm[{name}]" for name in cases]
        started = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder) / "report.json"
            command = [
                *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *_PLUGIN),
                "--gemm-bench",
                *(f"--gemm-device={self.device}", f"--gemm-baseline={mode}", *options),
                *(f"--gemm-report={report}", *(names or ["tests/test_kernels.py"])),
            ]
            code, said = run(command, self.root, self._timeout, accepted=(0, 1))
            if not report.is_file():
                raise RuntimeError(said[-1500:])
            records = json.loads(report.read_text())["records"]
        if not records:
            raise RuntimeError(f"no case was run: {said[-1500:]}")
        return {
            "exit_code": code,
            "wall_s": round(time.perf_counter() - started, 1),
            "last_line": last_line(said),
            "device": records[0]["result"]["device"].get("description"),
            "uuid": records[0]["result"]["environment"].get("uuid"),
            "cases": {record["id"]: brief(record) for record in records},
        }


def last_line(said: str) -> str:
    """pytest's last line: processes that are ended after it may say more."""
    lines = said.strip().splitlines()
    return next((line for line in reversed(lines) if re.search(r" in [\d.]+s\b", line)), lines[-1])


def brief(record: Mapping[str, Any]) -> dict[str, Any]:
    """What is kept of a record, without what is usual."""
    verdict = record["verdict"] or {}
    result = record["result"]
    found = {
        "gate": record["gate"],
        "median_s": (result["estimate"] or {}).get("median"),
        **{key: verdict.get(key) for key in ("decided_by", "change", "low", "high")},
        **{key: verdict.get(key) for key in ("stored_change", "workers", "rounds")},
    }
    if record["gate"] != "same":
        found |= {"outcome": record["outcome"], "notes": verdict.get("notes", [])}
        found["message"] = record["message"][:600]
    return {key: rounded(value) for key, value in found.items() if value not in (None, 0, "")}


def rounded(value: Any) -> Any:
    """Floats with six digits, also those in lists."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    return [*map(rounded, value)] if isinstance(value, (list, tuple)) else value


def run(
    command: Sequence[str], folder: Path, timeout: float, accepted: Sequence[int] = (0,)
) -> tuple[int, str]:
    """Exit code and output of a program. Raises RuntimeError for another exit code."""
    finished = subprocess.run(
        command,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
        check=False,
    )
    if finished.returncode not in accepted:
        raise RuntimeError(f"exit code {finished.returncode}: {finished.stdout[-1500:]}")
    return finished.returncode, finished.stdout


class Proof:
    """Runs the parts, and writes what they find into one folder."""

    def __init__(self, options: argparse.Namespace, project: Project) -> None:
        self.options = options
        self.folder: Path = options.folder
        self.project = project
        self.device: str = options.device
        self.facts: dict[str, Any] = {
            "command": " ".join(["python", *sys.argv]),
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "commit": options.commit,
            "python": platform.python_version(),
        }
        self.parts: dict[str, Any] = {}

    def do(self, name: str) -> None:
        """Run one part; note its wall time, and why it failed."""
        print(f"== {name}", flush=True)
        started = time.perf_counter()
        failure = ""
        try:
            getattr(self, name)()
        except Exception as error:  # the other parts are still worth their time
            failure = f"{type(error).__name__}: {error}"
            print(f"   {failure[-2000:]}", flush=True)
        seconds = round(time.perf_counter() - started, 1)
        self.parts[name] = {"wall_s": seconds, "failure": failure[-3000:]}
        self.write("run.json", {"parts": self.parts}, indent=1)
        print(f"   {seconds:.1f} s", flush=True)

    def store(self) -> None:
        """Store sessions of the whole suite until there are enough, or one run more has not helped.

        Raises RuntimeError where nothing is stored.
        """
        for _ in range(self.options.sessions + 1):
            if self.project.stored >= self.options.sessions:
                return
            self.project.write()
            found = self.project.bench("update")
            print(f"   to be stored: {found['wall_s']} s, {found['last_line']}", flush=True)
        if not list((self.project.root / "baselines").glob("*/*.json")):
            raise RuntimeError("nothing could be stored")

    def unchanged(self) -> None:
        self._unchanged("unchanged", [])

    def subset(self) -> None:
        self._unchanged("subset", spread_over_kernels(self.project.cases.values(), SUBSET))

    def forced(self) -> None:
        self._unchanged("forced", [], "--gemm-against=baseline")

    def _unchanged(self, part: str, cases: Sequence[str], *options: str) -> None:
        self.store()
        count = self.options.runs or RUNS[self.device][part]
        found: dict[str, Any] = {"stored": self.project.stored, "runs": []}
        for number in range(count):
            comment = f"\n// Edited {number} times.\n" if number % 2 else ""
            self.project.write(lambda name, text, comment=comment: text + comment)  # type: ignore[misc]
            ran = self.project.bench("strict", cases, *options)
            found["runs"].append({"edited": bool(comment), **ran})
            self.write(f"{part}.json", found)
            print(f"   {number + 1}: {ran['wall_s']} s, {ran['last_line']}", flush=True)

    def planted(self) -> None:
        self.store()
        cases = self.project.cases
        slowed = [f"{name}-float32" for name in PLANTED[self.device]]
        others = [n for n, c in cases.items() if c.kernel.name not in plants.PLANTS[self.device]]
        beside = random.Random(0).sample(others, min(BESIDE, len(others)))
        self.project.write()
        levels = self.options.levels or LEVELS[self.device]
        with tempfile.TemporaryDirectory() as folder:
            tuned = Path(folder) / "tuned.json"
            self._plant(tuned, slowed, "--levels", ",".join(map(str, levels)))
            found: dict[str, Any] = json.loads(tuned.read_text())
            truths = []
            for seed in range(1, TRUTHS + 1):
                path = Path(folder) / f"{seed}.json"
                self._plant(path, slowed, "--steps", str(tuned), "--seed", str(seed))
                truths.append(json.loads(path.read_text()))
        for level, what in found.items():
            what["log_ratios"] = {
                name: [rounded(truth[level]["log_ratios"][name]) for truth in truths]
                for name in slowed
            }
        self.write("planted.json", {"levels": found})
        for what in found.values():
            steps = what["steps"]
            self.project.write(lambda name, text, steps=steps: self._with(name, text, steps))  # type: ignore[misc]
            ran = self.project.bench("strict", [*slowed, *beside])
            what["run"] = ran
            self.write("planted.json", {"levels": found})
            print(f"   {ran['wall_s']} s, {ran['last_line']}", flush=True)
        self.project.write()

    def _plant(self, out: Path, cases: Iterable[str], *options: str) -> None:
        script = [sys.executable, str(HERE / "plants.py"), str(self.project.root)]
        which = ["--device", self.device, "--cases", ",".join(cases), "--out", str(out)]
        run([*script, *which, *options], self.project.root, self.options.timeout)

    def _with(self, name: str, text: str, steps: plants.Steps) -> str:
        cases = self.project.cases
        chosen = {cases[c].problem: n for c, n in steps.items() if cases[c].kernel.name == name}
        return plants.planted(text, plants.PLANTS[self.device][name], chosen) if chosen else text

    def calibrate(self) -> None:
        """Stored apart, so that it changes no margin of the other parts."""
        self.project.write()
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-c", CALIBRATE, "calibrate", f"--device={self.device}"]
            options = [f"--pairs={self.options.pairs}", f"--baselines={folder}"]
            _, said = run([*command, *options], self.project.root, self.options.timeout)
            print(said, flush=True)
            (path,) = Path(folder).rglob("*.json")
            self.write(
                "calibration.json", {"said": said.splitlines(), **json.loads(path.read_text())}
            )

    def duets(self) -> None:
        """Raw times: processes x places x blocks x 4, in the order of ``duet.order_of``."""
        self.project.write()
        round_ = replace(USUAL, workers=self.options.workers)
        with chdir(self.project.root), ExitStack() as stack:
            options = project_options([f"--gemm-device={self.device}", "--gemm-bench"])
            cases = _duet_cases(self.project.cases.values(), self.device)
            executor = open_executor(options, choose_backend(options.device), print, shared=False)
            stack.callback(executor.close)
            (device,) = executor.devices()
            found: dict[str, Any] = {
                **{"kind": device.kind, "device": device.name},
                **{"environment": dict(device.environment), "cases": {}},
            }
            for case in cases:
                builds = [replace(case, kernel=padded(case.kernel, n)) for n in (0, 11)]
                try:
                    times = executor.duet(Runnable(builds[0]), Runnable(builds[1]), round_)
                except GemmError as error:
                    print(f"   {case.id} is left out: {error}", flush=True)
                    continue
                found["cases"][case.id] = rounded(times)
                self.write("duet_pairs.json", found)
                print(f"   {case.id}: {len(times)} processes", flush=True)

    def write(self, name: str, found: Mapping[str, Any], indent: int | None = None) -> None:
        """Write a file of the folder, with what it was made by."""
        separators = None if indent else (",", ":")
        text = json.dumps({"about": self.facts, **found}, indent=indent, separators=separators)
        (self.folder / name).write_text(text + "\n", encoding="utf-8")


def spread_over_kernels(cases: Iterable[Case], count: int) -> list[str]:
    """Ids of so many cases, as many of each kernel as can be, always the same."""
    by_kernel: dict[str, list[str]] = {}
    for case in cases:
        by_kernel.setdefault(case.kernel.name, []).append(case.id)
    shuffled = [random.Random(0).sample(names, len(names)) for names in by_kernel.values()]
    turns = zip_longest(*shuffled)
    return [name for turn in turns for name in turn if name][:count]


def _duet_cases(cases: Iterable[Case], device: str) -> list[Case]:
    kernels = {case.kernel.id: case for case in cases}
    found = []
    for name in DUETS[device]:
        kernel, size = name.split()
        case = kernels[kernel]
        found.append(replace(case, problem=Problem.parse(size, case.problem.op)))
    return found


# Tables


def tables(folder: Path) -> dict[str, str]:
    """Every table that the results in a folder give, by title."""
    found = {}
    unchanged = [name for name in ("unchanged", "subset", "forced") if _is_there(folder, name)]
    if unchanged:
        rows = [unchanged_row(name, _read(folder, name)) for name in unchanged]
        found["Unchanged"] = markdown(UNCHANGED, rows)
    if _is_there(folder, "planted"):
        found["Planted"] = markdown(WITH_WORK, planted_rows(_read(folder, "planted")["levels"]))
    if _is_there(folder, "calibration"):
        known = _read(folder, "calibration")
        row = [str(known["duets"]), share(known["bias"]), share(known["sd"])]
        found["Calibration"] = markdown(("pairs of builds", "bias", "scatter of a process"), [row])
    if _is_there(folder, "duet_pairs"):
        found["Duets"] = markdown(PAIRS, duet_rows(_read(folder, "duet_pairs")))
    return found


UNCHANGED = (
    *("part", "stored sessions", "runs", "verdicts", "same", "duets", "alarms"),
    *("other outcomes", "seconds a run"),
)


def unchanged_row(part: str, found: Mapping[str, Any]) -> list[str]:
    runs = found["runs"]
    verdicts = [case for run in runs for case in run["cases"].values()]
    gates = Counter(case["gate"] for case in verdicts)
    alarms = gates["slower"] + gates["drifted"]
    others = sorted(gates.keys() - {"same", "slower", "drifted"})
    duets = sum(case.get("decided_by") == "duet" for case in verdicts)
    return [
        *(part, str(found["stored"]), str(len(runs)), str(len(verdicts)), str(gates["same"])),
        *(str(duets), str(alarms), ", ".join(f"{gates[gate]} {gate}" for gate in others)),
        f"{median(run['wall_s'] for run in runs):.0f}",
    ]


WITH_WORK = ("level", "case", "measured", "verdict", "change", "interval", "found by")


def planted_rows(found: Mapping[str, Any]) -> list[list[str]]:
    """A row for each planted case, and one for all others of a run."""
    rows = []
    for level, what in found.items():
        said: Verdicts = what.get("run", {}).get("cases", {})
        for name, processes in what["log_ratios"].items():
            truths = [math.expm1(median(logs)) for logs in processes]
            case = said.get(name, {})
            rows.append(
                [
                    *(
                        f"{float(level):.0%}",
                        name,
                        f"{signed(min(truths))} to {signed(max(truths))}",
                    ),
                    *(case.get("gate", ""), signed(case.get("change"))),
                    *(f"{signed(case.get('low'))} to {signed(case.get('high'))}", how(case)),
                ]
            )
        beside = [case["gate"] for name, case in said.items() if name not in what["log_ratios"]]
        counts = ", ".join(f"{n} {gate}" for gate, n in sorted(Counter(beside).items()))
        rows.append([f"{float(level):.0%}", f"{len(beside)} others", "", counts, "", "", ""])
    return rows


def how(case: Mapping[str, Any]) -> str:
    """On what grounds, in words."""
    if case.get("decided_by") != "duet":
        return str(case.get("decided_by", ""))
    stored = f"screen ({signed(case.get('stored_change'))})" if "stored_change" in case else "?"
    return f"{stored}, duet of {case.get('workers', 0)}"


PAIRS = ("case", "median us", "processes", "sd of d", "mean of d")


def duet_rows(found: Mapping[str, Any]) -> list[list[str]]:
    rows = []
    for name, workers in found["cases"].items():
        ratios = [worker_ratio(times) for times in workers]
        seconds = median(t for times in workers for p in times for block in p for t in block)
        sd = share(stdev(ratios)) if len(ratios) > 1 else ""
        us = f"{1e6 * seconds:.4g}"
        rows.append([name, us, str(len(ratios)), sd, signed(math.expm1(fmean(ratios)))])
    usual = EXPECTED[found["kind"]].duet.sd
    return [*rows, ["expected of such a device", "", "", share(usual), ""]]


def markdown(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    rule = "|".join(["---"] * len(heads))
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, *rows)).replace(
        "\n", f"\n|{rule}|\n", 1
    )


def share(fraction: float) -> str:
    return f"{100 * fraction:.2f} %"


def signed(fraction: float | None) -> str:
    return "" if fraction is None else f"{100 * fraction:+.2f} %"


def _is_there(folder: Path, name: str) -> bool:
    return (folder / f"{name}.json").is_file()


def _read(folder: Path, name: str) -> Any:
    return json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))


PARTS = ("unchanged", "subset", "forced", "planted", "calibrate", "duets")


def parts_of(text: str) -> list[str]:
    """Names of parts. Raises ArgumentTypeError for one that is not known."""
    names = text.split(",")
    if unknown := [name for name in names if name not in PARTS]:
        raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: not of {', '.join(PARTS)}")
    return names


def levels_of(text: str) -> list[float]:
    return [float(level) for level in text.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", default="cuda", choices=("cuda", "host"))
    parser.add_argument("--parts", type=parts_of, help="default: all that the device has runs for")
    parser.add_argument("--project", type=Path, help="made here, kept, and used again")
    parser.add_argument("--baselines", type=Path, help="stored sessions to begin with")
    parser.add_argument("--sessions", type=int, default=STORED, help="to have stored, at least")
    parser.add_argument("--runs", type=int, help="of each unchanged part")
    parser.add_argument("--levels", type=levels_of, help="of planted work, as fractions")
    parser.add_argument("--workers", type=int, default=WORKERS, help="of each recorded duet")
    parser.add_argument("--pairs", type=int, default=12, help="of the calibration")
    parser.add_argument("--timeout", type=float, default=300, help="seconds of one program")
    parser.add_argument("--commit", default="", help="what is measured, for the record")
    parser.add_argument("--tables", action="store_true", help="only print the tables")
    options = parser.parse_args()
    options.folder = options.folder.resolve()
    if not options.tables:
        options.folder.mkdir(parents=True, exist_ok=True)
        usual = [part for part in PARTS if RUNS[options.device].get(part, 1)]
        with tempfile.TemporaryDirectory() as scratch:
            root = (options.project or Path(scratch) / "project").resolve()
            project = Project(root, options.device, options.timeout)
            if options.baselines:
                shutil.copytree(options.baselines, root / "baselines", dirs_exist_ok=True)
            proof = Proof(options, project)
            for part in options.parts or usual:
                proof.do(part)
    for title, table in tables(options.folder).items():
        print(f"\n{title}\n\n{table}")


if __name__ == "__main__":
    main()
