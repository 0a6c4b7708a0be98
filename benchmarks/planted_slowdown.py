"""A kernel that is really slower, found on this machine: the gate from end to end.

    python benchmarks/planted_slowdown.py [--percent 30] [--sessions 3] [--unchanged 3]

In a temporary project with four of the shipped kernels: stores sessions, runs unchanged kernels
(nobody may fail), then gives naive.cu that many percent of extra work (exactly its cases must
fail), accepts that by an update, and runs once more (nobody may fail). Real times, so not a test:
run it on an otherwise idle machine. Exit code 1 when anything else happens.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

KERNELS = Path(__file__).parent.parent / "kernels"
STORE = "    C[(size_t)row * N + col] = acc;"
PLANTED = """\
    float spare = 0.0f;
    for (int k = 0; k < K * {percent} / 100; ++k)
        spare += A[(size_t)row * K + k] * B[(size_t)k * N + col];
    C[(size_t)row * N + col] = spare == 1.0e30f ? spare : acc;"""


def bench(project: Path, mode: str) -> dict[str, str]:
    """Run the suite once; the outcome of every case by its id."""
    report = project / "report.json"
    command = [sys.executable, "-m", "pytest", "-q", "--gemm-bench", f"--gemm-baseline={mode}"]
    subprocess.run(
        [*command, f"--gemm-report={report}", "--benchmark-quiet"],
        cwd=project,
        stdout=subprocess.DEVNULL,
        check=False,
    )
    records = json.loads(report.read_text(encoding="utf-8"))["records"]
    for record in records:
        verdict = record["verdict"] or {}
        if verdict.get("change") is not None:
            print(f"    {record['id']:36} {record['gate']:9} {verdict['change']:+8.2%}")
    return {record["id"]: record["outcome"] for record in records}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--percent", type=int, default=30)
    parser.add_argument("--sessions", type=int, default=3)
    parser.add_argument("--unchanged", type=int, default=3)
    args = parser.parse_args()
    faults = 0
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder)
        (project / "kernels").mkdir()
        (project / "test_kernels.py").write_text("def test_gemm(gemm):\n    gemm.check()\n")
        for name in ("add", "naive", "tiled", "register_blocked"):
            text = (KERNELS / f"{name}.cu").read_text(encoding="utf-8")
            (project / "kernels" / f"{name}.cu").write_text(text.replace("tiled32", "tiled"))

        def expect(title: str, mode: str, failing: str) -> None:
            nonlocal faults
            print(f"{title}:")
            outcomes = bench(project, mode)
            wrong = [
                case
                for case, outcome in outcomes.items()
                if (outcome == "failed") != (bool(failing) and case.startswith(failing))
            ]
            faults += bool(wrong) or not outcomes
            print(f"  {'as expected' if not wrong else 'NOT as expected: ' + ', '.join(wrong)}")

        for _ in range(args.sessions):
            expect("stored", "update", "")
        for _ in range(args.unchanged):
            expect("unchanged", "auto", "")
        naive = project / "kernels" / "naive.cu"
        text = naive.read_text(encoding="utf-8")
        assert STORE in text
        naive.write_text(text.replace(STORE, PLANTED.format(percent=args.percent)))
        expect(f"naive with {args.percent} % more work", "auto", "naive")
        expect("accepted", "update", "")
        expect("after the update", "auto", "")
    print("all as expected" if not faults else f"{faults} runs were not as expected")
    return int(faults > 0)


if __name__ == "__main__":
    sys.exit(main())
