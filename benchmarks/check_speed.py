"""How long checking takes: each access, and the whole set of shipped kernels at an odd size.

    python benchmarks/check_speed.py [--compiler g++] [--size 128]

CPU time, the least of several launches, for the accesses; wall time from an empty cache, with the
runtime built already, for the set. Exit code 1 where the set takes longer than 20 s.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pytest_gemm.backends.base import Argument, CudaProgram, LaunchConfig
from pytest_gemm.backends.host import HostBackend
from pytest_gemm.backends.host.check import CheckReport
from pytest_gemm.device import DeviceMemory
from pytest_gemm.kernelspec import Kernel
from pytest_gemm.problem import Problem
from pytest_gemm.registry import load_registry

ROOT = Path(__file__).parents[1]
LONGEST = 20.0
ROUNDS = 5


class Check:
    """One kernel on one problem, ready to be checked again and again."""

    def __init__(self, backend: HostBackend, kernel: Kernel, problem: Problem) -> None:
        self._backend = backend
        self._program = CudaProgram(*kernel.program_fields)
        self._config = LaunchConfig(*kernel.launch(problem))
        self._kernel, self._problem = kernel, problem

    def __call__(self, memory: DeviceMemory) -> tuple[CheckReport, float]:
        """The report, and the CPU seconds."""
        matrices = {
            name: memory.upload(np.ones(shape, np.float32))
            for name, shape in self._problem.shapes.items()
        }
        given = self._kernel.arguments(self._problem)
        arguments: Sequence[Argument] = [matrices[v] if isinstance(v, str) else v for v in given]
        started = time.thread_time()
        report = self._backend.check(self._program, self._config, arguments)
        return report, time.thread_time() - started


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--compiler")
    parser.add_argument("--size", type=int, default=128)
    options = parser.parse_args()

    kernels = load_registry([ROOT / "kernels"], ROOT).kernels("host")
    with tempfile.TemporaryDirectory() as cache:
        backend = HostBackend(Path(cache), options.compiler)
        print(f"{backend.device.description}, {backend.device.environment['compiler_version']}")
        with DeviceMemory(backend) as memory:
            backend.compile(CudaProgram("__global__ void k() {}", "k.cu", "k"))
            started = time.perf_counter()
            for kernel in kernels:
                size = "37x35" if kernel.op == "add" else "37x35x41"
                Check(backend, kernel, Problem.parse(size, kernel.op))(memory)
            whole = time.perf_counter() - started
            for kernel in kernels:
                size = Problem.parse(str(options.size), kernel.op)
                check = Check(backend, kernel, size)
                report, seconds = min((check(memory) for _ in range(ROUNDS)), key=lambda r: r[1])
                used = report.traffic.matrices + report.traffic.shared
                accesses = used.loads + used.stores + used.atomics
                print(
                    f"{kernel.id:20} {1e3 * seconds:8.1f} ms {accesses:9} accesses "
                    f"{1e9 * seconds / accesses:6.1f} ns each"
                )
    print(
        f"all {len(kernels)} at 37 x 35 x 41, built and checked: {whole:.1f} s, at most {LONGEST}"
    )
    return whole > LONGEST


if __name__ == "__main__":
    sys.exit(main())
