"""What pytest-gemm costs a run that does not use it.

    python benchmarks/startup.py [--runs 30]

Runs ``pytest --collect-only`` in an empty folder with and without the plugin (pytest-benchmark
loaded in both), interleaved, and prints the medians of wall and CPU time and their difference. Exit
code 1 when both exceed 3 ms. On a machine that does anything else the difference drowns.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

LIMIT = 3e-3


class Cost(NamedTuple):
    wall: float
    cpu: float


def run(folder: str, *extra: str) -> Cost:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", *extra]
    # Compiled modules are kept, as on any machine where pytest has run before.
    environment = os.environ | {"PYTHONPYCACHEPREFIX": f"{folder}/.cache"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    start = time.perf_counter()
    process = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL)
    _, _, used = os.wait4(process.pid, 0)
    process.returncode = 0
    return Cost(time.perf_counter() - start, used.ru_utime + used.ru_stime)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=30)
    runs = parser.parse_args().runs
    costs: dict[bool, list[Cost]] = {True: [], False: []}
    with tempfile.TemporaryDirectory() as folder:
        for i in range(-2, runs):
            for loaded in (True, False) if i % 2 else (False, True):
                cost = run(folder) if loaded else run(folder, "-p", "no:gemm")
                if i >= 0:
                    costs[loaded].append(cost)
    difference = {}
    for field in Cost._fields:
        with_plugin, without = (
            statistics.median(getattr(cost, field) for cost in costs[loaded])
            for loaded in (True, False)
        )
        difference[field] = with_plugin - without
        print(
            f"{field:4}: with {with_plugin * 1e3:6.1f} ms, without {without * 1e3:6.1f} ms "
            f"(medians of {runs}), difference {difference[field] * 1e3:+.2f} ms"
        )
    return int(min(difference.values()) > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
