"""Machine code inspected without a GPU, beside what the driver says of the same code on one.

    python benchmarks/gpu/static_facts.py

Needs an NVIDIA GPU, CuPy and ``pytest-gemm[static]``, whose NVRTC compiles for both: CuPy's may be
another. Registers, local and shared bytes, and blocks on a multiprocessor must be equal; a line
says where they differ, and the exit code is 1 then.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from pytest_gemm.backends.base import Backend  # noqa: E402
from pytest_gemm.backends.cuda import CudaBackend  # noqa: E402
from pytest_gemm.kernelspec import Kernel  # noqa: E402
from pytest_gemm.launching import Launcher, loaded, program_of  # noqa: E402
from pytest_gemm.matrices import operands  # noqa: E402
from pytest_gemm.registry import load_registry  # noqa: E402
from pytest_gemm.static.inspection import Inspector  # noqa: E402
from pytest_gemm.static.problems import unlike_problems  # noqa: E402
from pytest_gemm.static.toolchain import find_toolchain  # noqa: E402

PAIRS = {
    "registers": "registers",
    "stack_bytes": "local_bytes",
    "static_shared_bytes": "static_shared_bytes",
    "blocks_per_sm": "blocks_per_sm",
}
"""Our fact, and the driver's."""


def main() -> int:
    backend = CudaBackend(progress=lambda line: print(line, file=sys.stderr))
    environment = backend.device.environment
    architecture = f"sm_{environment['compute_capability'].replace('.', '')}"
    inspector = Inspector(find_toolchain())
    compiler = inspector._compiler(architecture)
    compiler.compile = cache(compiler.compile)  # type: ignore[method-assign]
    backend._compiler = compiler
    kernels = load_registry([ROOT / "kernels", ROOT / "tests" / "correct"], ROOT).kernels("cuda")
    kernels = [k for k in kernels if not (k.is_python or k.skip_reason(unlike_problems(k)[0]))]
    differ = 0
    for kernel in kernels:
        ours = inspector.inspect(kernel, architecture)
        theirs = driver_facts(kernel, backend)
        for name, other in PAIRS.items():
            if name in ours.facts and ours.facts[name] != theirs[other]:
                differ += 1
                said = f"{kernel.id}: {name} {ours.facts[name]}, driver: {theirs[other]}"
                print(said, flush=True)
    print(
        f"{len(kernels)} kernels for {architecture}: {differ} numbers differ "
        f"({ours.toolchain}; {environment['gpu']}, driver {environment['driver']})"
    )
    return bool(differ)


def driver_facts(kernel: Kernel, backend: Backend) -> Mapping[str, int]:
    """What the driver says after a launch."""
    executable = backend.compile(program_of(kernel, None))
    problem = unlike_problems(kernel)[0]
    with loaded(backend, problem, operands(problem, 0)) as workspace:
        Launcher(kernel, backend, executable, 20.0).once(workspace)
    return executable.facts


if __name__ == "__main__":
    sys.exit(main())
