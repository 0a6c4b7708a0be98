"""What pytest-gemm costs a run that does not use it.

    python benchmarks/startup.py [--runs 30]

Times ``pytest --collect-only`` in an empty folder with and without the plugin (pytest-benchmark
loaded in both), interleaved, and prints the medians and the median of the paired differences.
Exit code 1 when that difference exceeds 3 ms.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time

LIMIT = 3e-3


def run(folder: str, *extra: str) -> float:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", *extra]
    # Compiled modules are kept, as on any machine where pytest has run before.
    environment = os.environ | {"PYTHONPYCACHEPREFIX": f"{folder}/.cache"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    start = time.perf_counter()
    subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, check=False)
    return time.perf_counter() - start


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=30)
    runs = parser.parse_args().runs
    with_plugin, without = [], []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(2):
            run(folder)
            run(folder, "-p", "no:gemm")
        for i in range(runs):
            order = (True, False) if i % 2 else (False, True)
            for loaded in order:
                (with_plugin if loaded else without).append(
                    run(folder) if loaded else run(folder, "-p", "no:gemm")
                )
    difference = statistics.median(a - b for a, b in zip(with_plugin, without, strict=True))
    print(f"with    {statistics.median(with_plugin) * 1e3:7.1f} ms")
    print(f"without {statistics.median(without) * 1e3:7.1f} ms")
    print(f"median of {runs} paired differences: {difference * 1e3:.2f} ms (limit 3 ms)")
    return int(difference > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
