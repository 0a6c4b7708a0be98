"""Loads per element of C: what ``ncu`` counts on a GPU beside what the sanitizer counts on a CPU.

    python benchmarks/gpu/loads.py [FOLDER]

Needs an NVIDIA GPU, CuPy, ncu with its permission, and a C++ compiler. Prints a Markdown table and
writes ncu's own into the folder. A request is a warp's: 32 words where a kernel loads them singly.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

from tables import read_ncu  # noqa: E402

from pytest_gemm.backends import open_backend  # noqa: E402
from pytest_gemm.backends.host import HostBackend  # noqa: E402
from pytest_gemm.checking import Checker  # noqa: E402
from pytest_gemm.kernelspec import Kernel  # noqa: E402
from pytest_gemm.launching import Launcher, loaded, program_of  # noqa: E402
from pytest_gemm.matrices import operands  # noqa: E402
from pytest_gemm.problem import Problem  # noqa: E402
from pytest_gemm.registry import load_registry  # noqa: E402
from pytest_gemm.traffic import COUNTED, loads_per_element  # noqa: E402

LOADS = "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"
NCU = f"ncu --csv --print-units base --metrics {LOADS} --kernel-name-base function --kernel-name"
LARGE = {"gemm": Problem.parse("1024"), "add": Problem.parse("1024", "add")}
WARP = 32


def main() -> None:
    if sys.argv[1:] == ["--launch"]:
        launch()
        return
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "loads_ncu.csv"
    kernels = shipped()
    names = "regex:^(" + "|".join(sorted({k.entry for k in kernels})) + ")$"
    command = [*NCU.split(), names, "--log-file", str(log), sys.executable, __file__, "--launch"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr + log.read_text())
    order = json.loads(done.stdout.strip().splitlines()[-1])
    counted = [metrics[LOADS] for _, metrics in read_ncu(log.read_text())]
    if len(counted) != len(order):
        raise SystemExit(f"ncu saw {len(counted)} launches of {len(order)}")
    requests = {tuple(key): count for key, count in zip(order, counted, strict=True)}
    checker = Checker(HostBackend(), "auto", 0, 20.0)
    print("| kernel | CPU, words | formula | ncu, 32 x requests | ncu at 1024 |")
    print("| --- | --- | --- | --- | --- |")
    for kernel in kernels:
        traffic = checker.check(kernel).traffic
        small, large = COUNTED[kernel.op], LARGE[kernel.op]
        words = traffic["global_load_words"] / (small.M * small.N)
        cells = [f"{WARP * requests[kernel.id, p.id] / (p.M * p.N):g}" for p in (small, large)]
        formula = loads_per_element(kernel.op, traffic)
        print(f"| {kernel.id} | {words:g} | {formula} | {' | '.join(cells)} |")


def shipped() -> list[Kernel]:
    folder = HERE.parents[1] / "kernels"
    kernels = load_registry([folder], folder.parent).kernels("cuda")
    return [k for k in kernels if k.entry != "block_size" or dict(k.params)["SIDE"] == 16]


def launch() -> None:
    """Each kernel once on each problem, and the order on the last line."""
    backend = open_backend("cuda", lambda _: None)
    order = []
    for kernel in shipped():
        executable = backend.compile(program_of(kernel, None))
        launcher = Launcher(kernel, backend, executable, 20.0)
        for problem in (COUNTED[kernel.op], LARGE[kernel.op]):
            with loaded(backend, problem, operands(problem, 0)) as workspace:
                launcher.once(workspace)
            order.append((kernel.id, problem.id))
    print(json.dumps(order))


if __name__ == "__main__":
    main()
