"""How long a large store takes: load it, judge every benchmark, report.

    python benchmarks/scale.py [--benchmarks 10000] [--sessions 20]

Makes a store as of a GPU in a temporary folder, then measures in a fresh process what a run does
with it, less the timing: the first verdict, which takes names and medians of all that is stored
(``load``), a verdict on each benchmark (``judge``), the table (``report``); and, not in the sum,
what ``--gemm-report`` writes. Exit code 1 above 5 s of CPU time or 400 MB.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

from pytest_gemm.backends.choice import choose_backend
from pytest_gemm.baselines import BaselineStore, Session
from pytest_gemm.case import Case
from pytest_gemm.executor import InProcess
from pytest_gemm.judging import Judge, session_of
from pytest_gemm.problem import Problem
from pytest_gemm.record import Record
from pytest_gemm.registry import load_registry
from pytest_gemm.report.terminal import table
from pytest_gemm.result import Result
from pytest_gemm.stats import summarize

DEVICE = "NVIDIA-H200"
PER_KERNEL = 100
MOST_SECONDS, MOST_BYTES = 5.0, 400e6

STEADY = {
    "compute_capability": "9.0",
    "cuda": "13.2",
    "cupy": "14.2.0",
    "driver": "580.159.04",
    "ecc": True,
    "flags": "3da4cab7",
    "gpu": "NVIDIA H200",
    "l2_bytes": 62914560,
    "mig": False,
    "nvrtc": "13.0",
    "power_limit": 700.0,
    "uuid": "GPU-00000000-0000-0000-0000-000000000000",
}


def cases(count: int) -> Iterator[Case]:
    """Benchmarks of kernels that differ in name alone."""
    root = Path(__file__).parent.parent
    tiled = load_registry([root / "kernels"], root).specs["tiled"].kernels("cuda")[0]
    for first in range(0, count, PER_KERNEL):
        kernel = replace(tiled, name=f"kernel{first // PER_KERNEL:04}")
        for i in range(min(PER_KERNEL, count - first)):
            yield Case(kernel, Problem.parse(f"{256 + i}x512x512"))


def measured(case: Case, rng: random.Random) -> Result:
    """A result that scatters by 0.2 % from process to process."""
    centre = case.problem.flops / 1e13 * math.exp(rng.gauss(0, 0.002))
    samples = [centre * math.exp(rng.gauss(0, 0.001)) for _ in range(64)]
    varying = {
        "canary_s": 3.2e-4 * math.exp(rng.gauss(0, 0.01)),
        "foreign_processes": 0,
        "foreign_utilisation": 0,
        "limited_by": "",
        "memory_clock": 3201,
        "power": round(rng.uniform(200, 600), 3),
        "power_cap": False,
        "slowdown": "",
        "sm_clock": 1980,
        "temperature": rng.randrange(40, 60),
        "utilisation": rng.randrange(100),
    }
    return Result(
        "passed",
        launches=44,
        estimate=summarize(samples),
        device={"kind": "cuda", "name": DEVICE},
        environment=STEADY,
        conditions={"before": {}, "after": varying},
    )


def session(case: Case, day: int, rng: random.Random) -> Session:
    when = datetime(2025, 1, day + 1, 12, microsecond=123456, tzinfo=UTC)
    return session_of(case, measured(case, rng), when, "0" * 40)


def make(folder: Path, count: int, sessions: int) -> None:
    rng = random.Random(1)
    store = BaselineStore(folder)
    for case in cases(count):
        for day in range(sessions):
            store.append(session(case, day, rng), case.kernel.code)
    refused = store.flush().refused
    assert not refused, refused


def most_bytes() -> int:
    """The most memory that this process held; ``getrusage`` counts what its parent had, too."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def measure(folder: Path, count: int) -> dict[str, object]:
    """Do what a run does with its baselines. CPU seconds of each part, and the most memory."""
    rng = random.Random(2)
    new = [(case, measured(case, rng)) for case in cases(count)]
    before = most_bytes()
    clock = [time.process_time()]

    store = BaselineStore(folder)
    # No duet can be had, and no case is run.
    executor = InProcess(choose_backend("host"), "never", print, wait=False)
    judge = Judge(store, executor, None)
    judge.verdict(new[0][0], None, new[0][1])
    clock.append(time.process_time())

    records = []
    for case, result in new:
        verdict = judge.verdict(case, None, result)
        records.append(Record(case, result, "passed", verdict.outcome, verdict=verdict))
    clock.append(time.process_time())

    text = "\n".join(table(records))
    clock.append(time.process_time())
    total = clock[-1] - clock[0]
    most = most_bytes()
    written = len(json.dumps([record.to_dict() for record in records]))
    clock.append(time.process_time())
    load, judged, report, as_json = (b - a for a, b in pairwise(clock))
    return {
        "stored": len(store.benchmarks(DEVICE)),
        "outcomes": Counter(record.gate for record in records),
        "sessions": sum(record.verdict.sessions for record in records if record.verdict),
        "load_s": load,
        "judge_s": judged,
        "report_s": report,
        "report_lines": text.count("\n"),
        "total_s": total,
        "json_s": as_json,
        "json_bytes": written,
        "before_bytes": before,
        "most_bytes": most,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--benchmarks", type=int, default=10_000)
    parser.add_argument("--sessions", type=int, default=20)
    parser.add_argument("--folder", type=Path, help="keep the store here, or use the one here")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.folder, options.benchmarks)))
        return 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        if not (folder / DEVICE).exists():
            start = time.process_time()
            make(folder, options.benchmarks, options.sessions)
            print(f"made in {time.process_time() - start:.0f} s of CPU time")
        size = sum(path.stat().st_size for path in folder.rglob("*.json"))
        print(f"{size / 1e6:.0f} MB")
        command = [sys.executable, __file__, "--measure", "--folder", str(folder)]
        command += ["--benchmarks", str(options.benchmarks)]
        run = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(run.stdout)
    for key, value in found.items():
        print(f"{key:13} {value}")
    return int(found["total_s"] > MOST_SECONDS or found["most_bytes"] > MOST_BYTES)


if __name__ == "__main__":
    sys.exit(main())
