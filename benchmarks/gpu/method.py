"""How good the times of the CUDA back end are: one command, raw results, tables.

    python benchmarks/gpu/method.py FOLDER [--parts sessions,alone,ncu,...]

needs an NVIDIA GPU that nobody else uses, CuPy, ncu, and for two of the parts PyTorch and the
package ``cuda-bench``. What a part finds is written into the folder as soon as it is there, and a
part that fails leaves the others alone. On any machine

    python benchmarks/gpu/method.py FOLDER --host       the digests that a CPU gives
    python benchmarks/gpu/method.py FOLDER --tables     the tables of the results that are there
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT)]

from cases import NINE  # noqa: E402
from tables import shorten, tables  # noqa: E402

SQUARES = ("128", "256", "512", "1024", "2048", "4096")
LARGE = ("2048", "4096")
RECTANGLE, RESIDUES = "1536x1024x512", "509x427x333"
"""In the default suite of a GPU, beside 1024."""

SMALL = ("add 256", "tiled 256", "cublas 256")
"""Cases whose time depends on what ran before."""

NCU = (
    "ncu --clock-control none --cache-control none --print-units base --csv "
    "--metrics gpu__time_duration.sum,gpc__cycles_elapsed.max"
)
PYTEST = "-m pytest tests/test_kernels.py -q -p no:cacheprovider"


class Run:
    """Runs child processes, and writes what they find into one folder."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.folder: Path = options.folder
        self.folder.mkdir(parents=True, exist_ok=True)
        self.facts: dict[str, Any] = {
            "command": " ".join(["python", *sys.argv]),
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "commit": options.commit,
            "python": platform.python_version(),
            "parts": {},
        }

    def do(self, name: str, part: Callable[[], None]) -> None:
        """Run one part; note its wall time, and why it failed."""
        print(f"== {name}", flush=True)
        started = time.perf_counter()
        failure = ""
        try:
            part()
        except Exception as error:  # the other parts are still worth their time
            failure = f"{type(error).__name__}: {error}"
            print(f"   {failure[-1500:]}", flush=True)
        seconds = round(time.perf_counter() - started, 2)
        self.facts["parts"][name] = {"wall_s": seconds, "failure": failure[-3000:]}
        self.write("run.json", self.facts, indent=1)
        print(f"   {seconds:.1f} s", flush=True)

    def sessions(self) -> None:
        found: dict[str, list[Any]] = {"sessions": [], "alone": []}
        for seed in range(1, self.options.processes + 1):
            how = ("--seed", str(seed), "--ways", self.options.ways)
            found["sessions"].append(self.child("session", *how))
            self.write("sessions.json", found)
            walls = found["sessions"][-1]["wall_s"]
            print("  ", seed, {way: round(s, 2) for way, s in walls.items()}, flush=True)
        if "alone" in self.options.parts:
            for name in random.Random(0).sample(NINE, len(NINE)):
                found["alone"].append(self.child("session", "--ways", "hot", "--cases", name))
                self.write("sessions.json", found)

    def levels(self) -> None:
        found: list[Any] = []
        for _ in range(self.options.processes):
            found.append(self.child("levels", "--cases", ",".join(SMALL)))
            self.write("levels.json", found)

    def ncu(self) -> None:
        log = self.folder / "ncu.csv"
        # Through its own script: what stands before and after the child is ncu's.
        self.child("launches", prefix=[*NCU.split(), "--log-file", str(log)])
        text = log.read_text()
        passes = {line.rsplit("- ")[-1] for line in text.splitlines() if "==PROF== Prof" in line}
        print("   ", passes or text[:300], flush=True)

    def trace(self) -> None:
        self.write("trace.json", self.child("trace"))

    def nvbench(self) -> None:
        self.write("nvbench.json", self.child("nvbench"))

    def kernels(self) -> None:
        found: dict[str, Any] = {}
        sizes = ["-k", "not block_size", *_sizes(*SQUARES)]
        for title, selection in (("Squares", sizes), ("The default suite", [])):
            started = time.perf_counter()
            report = self.pytest("--gemm-bench", "--gemm-device=cuda", *selection)
            seconds = time.perf_counter() - started
            found[title] = report
            self.facts.setdefault("pytest_wall_s", {})[title] = round(seconds, 2)
            self.write("kernels.json", found)

    def host(self) -> None:
        """Digests by the CPU, by problem; the large products by one kernel only."""
        path = self.folder / "host.json"
        digests: dict[str, str] = json.loads(path.read_text()) if path.is_file() else {}
        large = LARGE if self.options.large else ()
        for kernels, sizes in (
            ("not block_size", (*SQUARES[:3], RESIDUES)),
            ("naive or add", (RECTANGLE, "1000", "1024", *large)),
        ):
            for size in sizes:
                for record in self.pytest("--gemm-device=host", "-k", kernels, *_sizes(size)):
                    assert record["outcome"] == "passed", record["message"]
                    known = digests.setdefault(record["group"], record["digest"])
                    assert known == record["digest"], f"{record['id']}: kernels differ"
                self.write("host.json", digests, indent=1)

    def child(self, way: str, *options: str, prefix: Sequence[str] = ()) -> Any:
        """What ``child.py`` found in a fresh process. Raises RuntimeError with its last words."""
        rehearsal = ["--device", self.options.device]
        if self.options.most:
            rehearsal += ["--most", str(self.options.most)]
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "found.json"
            script = [sys.executable, str(HERE / "child.py"), way, "--out", str(out)]
            _run([*prefix, *script, *rehearsal, *options], self.options.timeout)
            return json.loads(out.read_text())

    def pytest(self, *options: str) -> list[dict[str, Any]]:
        """The records of a run of pytest over the shipped kernels; its last lines are printed."""
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder) / "report.json"
            command = [sys.executable, *PYTEST.split(), *options, f"--gemm-report={report}"]
            if not _is_installed("pytest-gemm"):
                command += ["-p", "pytest_gemm.plugin"]
            print("  ", *command[1:], flush=True)
            said = _run(command, self.options.timeout * 3, accepted=(0, 1))
            print("\n".join(said.splitlines()[-12:]), flush=True)
            return shorten(json.loads(report.read_text()))

    def write(self, name: str, found: Any, indent: int | None = None) -> None:
        text = json.dumps(found, indent=indent, separators=None if indent else (",", ":"))
        (self.folder / name).write_text(text + "\n", encoding="utf-8")


def _sizes(*sizes: str) -> list[str]:
    return [f"--gemm-size={size}" for size in sizes]


def _is_installed(name: str) -> bool:
    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def _run(command: Sequence[str], timeout: float, accepted: Sequence[int] = (0,)) -> str:
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    finished = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
        check=False,
    )
    if finished.returncode not in accepted:
        raise RuntimeError(f"exit code {finished.returncode}: {finished.stdout[-1500:]}")
    return finished.stdout


PARTS = ("sessions", "alone", "levels", "ncu", "trace", "nvbench", "kernels")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--processes", type=int, default=12)
    parser.add_argument("--parts", type=lambda text: text.split(","), default=PARTS)
    parser.add_argument("--ways", default="hot,cold", help="of the sessions")
    parser.add_argument("--timeout", type=float, default=60, help="seconds of one child process")
    parser.add_argument("--commit", default="", help="what is measured, for the record")
    parser.add_argument("--host", action="store_true", help="only the digests that a CPU gives")
    parser.add_argument("--large", action="store_true", help="with --host: an hour more, to 4096")
    parser.add_argument("--tables", action="store_true", help="only print the tables")
    parser.add_argument("--device", default="cuda", choices=("cuda", "host"))
    parser.add_argument("--most", type=int, help="cut sizes to this, for a rehearsal")
    options = parser.parse_args()
    if options.host:
        Run(options).host()
    elif not options.tables:
        run = Run(options)
        for part in (part for part in options.parts if part != "alone"):
            run.do(part, getattr(run, part))
    for title, table in tables(options.folder, NINE).items():
        print(f"\n{title}\n\n{table}")


if __name__ == "__main__":
    main()
