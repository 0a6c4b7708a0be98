"""What a worker costs beside running in pytest's own process: seconds per case, after the start.

    python benchmarks/worker_overhead.py [--cases 400]

One pytest run each way, repeated in turns, of a trivial Python kernel on many small problems; the
medians over the runs are compared.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

KERNEL = """
import pytest_gemm

@pytest_gemm.kernel(sizes=[f"8x8x{{k}}" for k in range(1, {cases} + 1)], deterministic=False)
def product(A, B, C):
    C[:] = A @ B
"""
RECORDER = """
def pytest_runtest_logreport(report):
    if report.when == "call":
        with open("durations", "a") as file:
            print(report.duration, file=file)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=400)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--device", default="host")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "conftest.py").write_text(KERNEL.format(cases=options.cases) + RECORDER)
        (folder / "test_kernels.py").write_text("def test_gemm(gemm):\n    gemm.check()\n")
        seconds: dict[str, list[float]] = {"true": [], "false": []}
        for _ in range(options.runs):
            for in_process, taken in seconds.items():
                taken.append(run(folder, options.device, in_process))
    own, worker = (statistics.median(seconds[key]) for key in ("true", "false"))
    print(f"in process {1e3 * own:.2f} ms, in a worker {1e3 * worker:.2f} ms a case")
    print(f"a worker costs {1e3 * (worker - own):.2f} ms a case (bound: 5 ms)")


def run(folder: Path, device: str, in_process: str) -> float:
    """The median seconds of a test call: the first one, which starts everything, does not count."""
    durations = folder / "durations"
    durations.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", f"--gemm-device={device}"]
    command += ["-p", "no:cacheprovider", "-o", f"gemm_in_process={in_process}"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    return statistics.median(map(float, durations.read_text().split()))


if __name__ == "__main__":
    main()
