"""Run the examples, each in a pytest of its own, and write what they print to two files.

    python examples/run.py --device host
    python examples/run.py --device cuda --out FOLDER [NAME ...]
    python examples/run.py --device cuda --out FOLDER --against [NAME ...]

All of them run, also after one that fails; the exit code is 1 where one did. ``FOLDER/DEVICE.json``
has everything, ``FOLDER/DEVICE.txt`` is to be read. With ``--against`` an example is copied to a
new git repository, its kernel is slowed down after the first commit, and both are measured side by
side.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory

HERE = Path(__file__).parent.resolve()

NEEDS = {
    "numpy_matmul": ("host", ()),
    "ctypes_library": ("host cuda", ()),
    "nanobind_module": ("host cuda", ("nanobind",)),
    "cupy_raw": ("cuda", ("cupy",)),
    "cupy_elementwise": ("cuda", ("cupy",)),
    "cublas": ("cuda", ("cupy",)),
    "torch_op": ("host cuda", ("torch",)),
    "torch_load_inline": ("cuda", ("torch",)),
    "triton_matmul": ("cuda", ("torch", "triton")),
    "numba_cuda": ("cuda", ("numba",)),
    "wrong_stream": ("cuda", ("cupy", "torch", "numba")),
}
"""Where an example runs, and the modules that it imports beside NumPy."""

CUPY = ("cupy-cuda12x", "cupy-cuda13x")
PACKAGES = ("numpy", "nanobind", *CUPY, "torch", "triton", "numba", "numba-cuda")

FAULT = "wrong_stream"
"""The example that must fail, each of its kernels with a sentence on the given stream."""

WORK = {
    "acc += A[row * K + k] * B[k * N + col];": (
        "{ acc += A[row * K + k] * B[k * N + col]; for (volatile int i = 0; i < 8; i = i + 1) {} }"
    ),
    "C[row * N + col] += A[row * K + k] * B[k * N + col];": (
        "{ C[row * N + col] += A[row * K + k] * B[k * N + col]; "
        "for (volatile int i = 0; i < 8; i = i + 1) {} }"
    ),
    "acc += A[row, k] * B[k, col]": (
        "acc += A[row, k] * B[k, col] + np.float32(0) * B[A.shape[1] - 1 - k, col]"
    ),
    'acc = tl.dot(a, b, acc, input_precision="ieee")': (
        'acc = tl.dot(a, b, acc, input_precision="ieee"); '
        'acc = tl.dot(0.0 * a, b, acc, input_precision="ieee")'
    ),
}
"""A line of a kernel, and one that does the same more slowly."""


@dataclass(frozen=True)
class Run:
    """What became of an example; ``output`` is all that pytest printed."""

    name: str
    ok: bool
    command: list[str]
    exit_code: int
    seconds: float
    output: str


def selected(device: str, names: Sequence[str]) -> list[str]:
    """The examples for a device whose modules are there; all that are named."""
    unknown = sorted(set(names) - NEEDS.keys())
    if unknown:
        raise SystemExit(f"no example {', '.join(unknown)}: there are {', '.join(NEEDS)}")
    return list(names) or [
        name
        for name, (devices, modules) in NEEDS.items()
        if device.partition(":")[0] in devices.split()
        and all(map(importlib.util.find_spec, modules))
    ]


def run(name: str, device: str, options: Sequence[str] = (), timeout: float = 300) -> Run:
    """Run an example where it lies."""
    measured = _pytest(HERE / name, device, "--gemm-bench", "--gemm-baseline=off", *options)
    code, seconds, output, command = _finished(measured, timeout)
    ok = code == 0
    if name == FAULT:
        kernels = output.count("given stream")
        ok = code == 1 and kernels >= 3 and " passed" not in output
    return Run(name, ok, command, code, seconds, output)


def run_against(name: str, device: str, timeout: float = 540) -> Run:
    """Measure an example against its first commit, since which it was slowed down."""
    with TemporaryDirectory(prefix="gemm-example-") as temporary:
        folder = Path(temporary) / name
        shutil.copytree(HERE / name, folder, ignore=shutil.ignore_patterns("build", "__pycache__"))
        (folder / ".gitignore").write_text("build/\n__pycache__/\n")
        identity = ("-c", "user.name=example", "-c", "user.email=example@localhost")
        for words in (("init", "-q"), ("add", "."), (*identity, "commit", "-q", "-m", "first")):
            subprocess.run(["git", *words], cwd=folder, check=True)
        changed = slow_down(folder)
        size = 192 if device == "host" else 512
        options = ("--gemm-bench", "--gemm-against=HEAD", f"--gemm-size={size}")
        code, seconds, output, command = _finished(_pytest(folder, device, *options), timeout)
    ok = (code, "slower by" in output) == ((1, True) if changed else (0, False))
    return Run(f"{name} against HEAD", ok, command, code, seconds, output)


def slow_down(folder: Path) -> list[Path]:
    """Put more work into the kernels of a folder; the files that were changed."""
    changed = []
    for path in sorted(folder.iterdir()):
        if path.suffix in (".py", ".cu", ".cpp"):
            text = slower = path.read_text(encoding="utf-8")
            for line, more in WORK.items():
                slower = slower.replace(line, more)
            if slower != text:
                path.write_text(slower, encoding="utf-8")
                changed.append(path)
    return changed


def _pytest(folder: Path, device: str, *options: str) -> list[str]:
    command = [sys.executable, "-m", "pytest", str(folder), f"--gemm-device={device}", *options]
    try:
        metadata.distribution("pytest-gemm")
    except metadata.PackageNotFoundError:
        command += ["-p", "pytest_gemm.plugin"]
    quiet = ("--no-header", "--benchmark-quiet", "--color=no", "-p", "no:cacheprovider")
    return [*command, *quiet]


def _finished(command: list[str], timeout: float) -> tuple[int, float, str, list[str]]:
    """The exit code, seconds and output of a command, and the command itself."""
    paths = filter(None, [str(HERE.parent), os.environ.get("PYTHONPATH")])
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "OPENBLAS_NUM_THREADS": "1",
        "COLUMNS": "100",
    }
    started = time.perf_counter()
    with subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output = process.communicate()[0] + f"\nended after {timeout:g} s\n"
    return process.returncode, time.perf_counter() - started, anonymous(output), command


def anonymous(output: str) -> str:
    """What was printed, without the folders and the GPU's number that are this machine's alone."""
    output = output.replace(f"{HERE.parent}/", "")
    output = re.sub(r"[^\s'\"(]*/(?=(site|dist)-packages/)", "", output)
    output = re.sub(r"[^\s'\"(]*gemm-example-\w+", "FOLDER", output)
    return re.sub(r", uuid GPU-[\w-]+", "", output)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--device", default="host", help="host or cuda (default: %(default)s)")
    parser.add_argument("--out", type=Path, help="folder for DEVICE.json and DEVICE.txt")
    parser.add_argument("--against", action="store_true", help="measure against a git revision")
    given = parser.parse_args()

    names = selected(given.device, given.names)
    if given.against and not given.names:
        names = [name for name in names if name != FAULT]
    runs: list[Run] = []
    for name in names:
        try:
            one = run_against(name, given.device) if given.against else run(name, given.device)
        except (OSError, subprocess.CalledProcessError) as error:
            one = Run(name, False, [], -1, 0.0, f"{type(error).__name__}: {error}")
        runs.append(one)
        print(f"{'ok  ' if one.ok else 'FAIL'} {one.name} [{one.seconds:.1f} s]", flush=True)
        if not one.ok:
            print(one.output[-3000:], flush=True)
        if given.out:
            write(given.out, f"{given.device}{'-against' if given.against else ''}", runs)
    missing = [name for name in NEEDS if name not in names and not given.names]
    print(f"not run here: {', '.join(missing)}" if missing else "all were run")
    return 0 if runs and all(one.ok for one in runs) else 1


def write(folder: Path, stem: str, runs: Sequence[Run]) -> None:
    """Write what is known so far."""
    folder.mkdir(parents=True, exist_ok=True)
    about = {"versions": versions(), "runs": [asdict(one) for one in runs]}
    (folder / f"{stem}.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
    texts = (
        f"##### {one.name}: {'ok' if one.ok else 'FAIL'}, {one.seconds:.1f} s\n\n{one.output}\n"
        for one in runs
    )
    first = ", ".join(f"{name} {version}" for name, version in versions().items())
    (folder / f"{stem}.txt").write_text("".join((first, "\n\n", *texts)), encoding="utf-8")


def versions() -> dict[str, str]:
    """What is installed of the packages that the examples use."""
    found = {"Python": platform.python_version()}
    for name in PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


if __name__ == "__main__":
    sys.exit(main())
