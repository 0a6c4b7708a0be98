"""How long it takes from an empty folder to the first verdict, and whether the wheel suffices.

    python benchmarks/first_verdict.py

builds the wheel and, in a new folder, makes a virtual environment, installs the wheel with its
extra ``host``, starts a project with ``pytest-gemm init`` and times its kernels; then it runs what
CI would run on the first push. Nothing compiled before is used. Exit code 1 where a step fails, or
where the verdict took over two minutes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
MOST_SECONDS = 120
PIP = ("-m", "pip")


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="pytest-gemm-") as name:
        folder = Path(name)
        timed("build the wheel", folder, sys.executable, *PIP, "wheel", "-q", "--no-deps", ROOT)
        [wheel] = folder.glob("*.whl")
        environment, project = folder / "environment", folder / "project"
        scripts = environment / "bin"
        total = timed("make an environment", folder, sys.executable, "-m", "venv", environment)
        total += timed(
            "install", folder, scripts / "python", *PIP, "install", "-q", f"{wheel}[host]"
        )
        total += timed("pytest-gemm init", folder, scripts / "pytest-gemm", "init", project)
        total += timed("pytest --gemm-bench", project, scripts / "pytest", "--gemm-bench")
        print(f"{total:6.1f} s  to the first verdict (goal: {MOST_SECONDS} s)")
        timed("CI's first run", project, scripts / "pytest", "--gemm-baseline=strict")
    return int(total > MOST_SECONDS)


def timed(what: str, folder: Path, *command: str | Path) -> float:
    started = time.monotonic()
    done = subprocess.run(
        command,
        cwd=folder,
        env=os.environ | {"PYTEST_GEMM_CACHE": str(folder / "builds")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    seconds = time.monotonic() - started
    print(f"{seconds:6.1f} s  {what}", flush=True)
    if done.returncode != 0:
        raise SystemExit(f"{done.stdout}\n{what} failed")
    return seconds


if __name__ == "__main__":
    sys.exit(main())
