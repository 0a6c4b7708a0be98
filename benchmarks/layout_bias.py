"""How much a kernel's time moves when only the place of its code in memory changes.

    python benchmarks/layout_bias.py

builds shipped kernels with functions of different lengths before them, and prints the median CPU
times on 96 x 96 x 96: where the compiler may place functions and loops anywhere, and where they
are aligned, as the host back end has it. No number of sessions of one build shows this shift: the
margin on a host must cover it.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from statistics import median

from pytest_gemm.backends.base import CudaProgram
from pytest_gemm.backends.host import HostBackend
from pytest_gemm.kernelspec import Kernel
from pytest_gemm.launching import Launcher, loaded
from pytest_gemm.matrices import operands
from pytest_gemm.problem import Problem
from pytest_gemm.registry import load_registry

ROOT = Path(__file__).parents[1]
KERNELS = ("naive", "tiled", "register_blocked", "add")
PADDINGS = (0, 1, 2, 3, 5, 7, 9, 12)
ROUNDS, SAMPLES, SAMPLE = 6, 8, 2e-3


class Unaligned(HostBackend):
    """The host back end without the flags that align functions and loops."""

    @property
    def _compiler(self):
        compiler = super()._compiler
        flags = tuple(flag for flag in compiler.flags if not flag.startswith("-falign-"))
        return dataclasses.replace(compiler, flags=flags)


def padded(kernel: Kernel, length: int) -> CudaProgram:
    program = CudaProgram(*kernel.program_fields)
    padding = f"volatile int x; __attribute__((used, noinline)) void p() {{{'x = 1;' * length}}}"
    return dataclasses.replace(program, source=f"{padding}\n#line 1\n{program.source}")


def seconds(backend: HostBackend, kernel: Kernel, length: int) -> float:
    problem = Problem.parse("96", kernel.op)
    data = operands(problem)
    launcher = Launcher(kernel, backend, backend.compile(padded(kernel, length)), 20.0)
    samples = []
    for _ in range(ROUNDS):
        with loaded(backend, problem, data) as workspace:
            launches = max(1, round(SAMPLE / launcher.time(workspace, 1)))
            launcher.time(workspace, launches)
            samples += [launcher.time(workspace, launches) / launches for _ in range(SAMPLES)]
    return median(samples)


def main() -> None:
    kernels = {k.id: k for k in load_registry([ROOT / "kernels"], ROOT).kernels("host")}
    print("| kernel | placed | us, for each padding | most |")
    print("|---|---|---|---|")
    for name in KERNELS:
        for placed, kind in (("anywhere", Unaligned), ("aligned", HostBackend)):
            times = [seconds(kind(), kernels[name], length) for length in PADDINGS]
            shown = " ".join(f"{1e6 * t:.4g}" for t in times)
            print(f"| {name} | {placed} | {shown} | {max(times) / min(times) - 1:.1%} |")


if __name__ == "__main__":
    main()
