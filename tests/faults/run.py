"""Runs every broken kernel of this folder among healthy cases; as a script, prints a table.

python tests/faults/run.py host
python tests/faults/run.py cuda
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent

CASE_TIMEOUT = 20

Records = dict[str, dict[str, Any]]


def run(folder: Path, device: str) -> tuple[subprocess.CompletedProcess[str], Records]:
    """One run in an empty folder, and its records by benchmark."""
    (folder / "test_kernels.py").write_text("def test_gemm(gemm):\n    gemm.check()\n")
    (folder / "pytest.ini").write_text(
        f"[pytest]\ngemm_kernels = {FOLDER}\ngemm_modules = python_faults\n"
        f"pythonpath = {FOLDER}\ngemm_launch_timeout = 1\ngemm_case_timeout = {CASE_TIMEOUT}\n"
    )
    command = [sys.executable, "-m", "pytest", "--gemm-bench", f"--gemm-device={device}"]
    command += ["--gemm-report=out.json", "-p", "no:cacheprovider", "--benchmark-quiet"]
    command += ["--gemm-check=off"]  # what the sanitizer finds would not be launched
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, timeout=500
    )
    if not (folder / "out.json").exists():
        raise RuntimeError(done.stdout + done.stderr)
    report = json.loads((folder / "out.json").read_text())
    return done, {record["id"]: record for record in report["records"]}


def processes_in(folder: Path) -> list[str]:
    """The command lines of processes that work in the folder of a run."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (path / "cwd").readlink() == folder.resolve():
                found.append((path / "cmdline").read_bytes().decode(errors="replace"))
    return found


def described() -> dict[str, str]:
    """What each broken kernel does, by its name: from the first line of its file or docstring."""
    found = {}
    for path in sorted(FOLDER.glob("*.cu")):
        found[path.stem] = path.read_text().splitlines()[0].partition("Broken: ")[2]
    tree = ast.parse((FOLDER / "python_faults.py").read_text())
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            found[node.name] = ast.get_docstring(node) or ""
    return {name: text for name, text in found.items() if text}


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        _, records = run(Path(name), sys.argv[1])
    print("| the kernel ... | what its case says |\n| --- | --- |")
    for kernel, text in described().items():
        (record,) = (r for r in records.values() if r["case"]["kernel"]["name"] == kernel)
        message = record["message"].splitlines()[0].partition(": ")[2]
        message = message.replace(f"{FOLDER}/", "")
        print(f"| {text.rstrip('.')} | {message} |")


if __name__ == "__main__":
    main()
