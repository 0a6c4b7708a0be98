"""Slowdowns planted in a kernel, and what their failures say that changed in its machine code.

    python benchmarks/gpu/changed_facts.py --device cuda --out FILE.txt

Needs git, and on an NVIDIA GPU CuPy and ``pytest-gemm[static]``. Each plant is measured against the
commit without it, as ``pytest --gemm-against=HEAD`` does. The exit code is 1 where a plant does not
fail, or fails without the fact that it changed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KERNEL = "register_blocked"
LOOP = "for (int k = 0; k < TILE; ++k) {"
BOUNDS = "__launch_bounds__(ROWS * COLS)"

PLANTS = {
    "32 blocks are to fit on a multiprocessor, so registers are spilled": (
        (BOUNDS, "__launch_bounds__(ROWS * COLS, 32)"),
        "bytes of spill stores 0 -> ",
    ),
    "a barrier stands in the loop over the tile": (
        (LOOP, f"{LOOP}\n            __syncthreads();"),
        "BAR of the inner loop 2 -> ",
    ),
}
"""What is replaced by what, and what the failure must say."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--size", default="1024")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    text, missed = "", 0
    with tempfile.TemporaryDirectory(prefix="pytest-gemm-") as folder:
        project = Path(folder)
        (project / "kernels").mkdir()
        for file in sorted((ROOT / "kernels").glob("*.cu")):
            (project / "kernels" / file.name).write_bytes(file.read_bytes())
        (project / "pytest.ini").write_text("[pytest]\n")
        _git(project, "init", "--quiet")
        _git(project, "add", ".")
        _git(project, "commit", "--quiet", "--message", "as shipped")
        path = project / "kernels" / f"{KERNEL}.cu"
        shipped = path.read_text(encoding="utf-8")
        for plant, (change, fact) in PLANTS.items():
            assert shipped.count(change[0]) == 1
            path.write_text(shipped.replace(*change), encoding="utf-8")
            failure = _failure(project, path, arguments.device, arguments.size)
            missed += fact not in failure
            text += f"{plant}:\n\n{failure}\n\n"
            print(f"{plant}:\n\n{failure}\n", flush=True)
    if arguments.out:
        arguments.out.write_text(text, encoding="utf-8")
    print(f"{len(PLANTS) - missed} of {len(PLANTS)} failures name what was changed")
    return bool(missed)


def _failure(project: Path, path: Path, device: str, size: str) -> str:
    """What pytest says of the kernel, without the rest of its output; all of it if it passes."""
    options = ["--gemm-bench", f"--gemm-device={device}", f"--gemm-size={size}"]
    options += ["--gemm-against=HEAD", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *options, str(path.relative_to(project))]
    run = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    lines = run.stdout.splitlines()
    first = next((i for i, line in enumerate(lines) if line.startswith(f"{KERNEL} on ")), None)
    if run.returncode != 1 or first is None:
        return run.stdout + run.stderr
    rest = (i for i, line in enumerate(lines) if i > first and line.startswith(("=", "_", "---")))
    return "\n".join(lines[first : next(rest, len(lines))]).strip()


def _git(project: Path, *words: str) -> None:
    name = ("-c", "user.name=plants", "-c", "user.email=plants@example.invalid")
    subprocess.run(["git", *name, *words], cwd=project, check=True)


if __name__ == "__main__":
    sys.exit(main())
