"""How fast the host back end runs kernels, against a plain C triple loop on the same CPU.

    python benchmarks/host_speed.py [--compiler g++] [--size 512] [--rounds 7]

All contestants take turns in one process; the medians of their CPU times are compared. Exit code
1 where a kernel misses its bound, so that a change to the back end cannot slow it down unseen.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from pytest_gemm.backends.base import CudaProgram, LaunchConfig, Matrix
from pytest_gemm.backends.host import HostBackend

KERNELS = Path(__file__).parents[1] / "kernels"

# Name, block, side of the tile of C per block, bound on time / time of the C loop at N = 512.
CONTESTANTS = (
    ("naive", (16, 16, 1), 16, 1.7),
    ("tiled", (16, 16, 1), 16, 2.2),
    ("register_blocked", (8, 8, 1), 32, 0.5),
)

TRIPLE_LOOP = """\
void triple_loop(int n, const float *a, const float *b, float *c)
{
    for (int i = 0; i < n; ++i)
        for (int j = 0; j < n; ++j) {
            float s = 0.0f;
            for (int k = 0; k < n; ++k)
                s += a[i * n + k] * b[k * n + j];
            c[i * n + j] = s;
        }
}
"""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--compiler", help="of the kernels; the C loop is always gcc -O3")
    parser.add_argument("--size", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    n = options.size

    backend = HostBackend(compiler=options.compiler, progress=print)
    matrices = [_matrix(backend, n, seed) for seed in range(3)]
    launchers: dict[str, Callable[[], float]] = {"C loop": _triple_loop(n, matrices)}
    for name, block, tile, _ in CONTESTANTS:
        launchers[name] = _kernel(backend, name, block, tile, n, matrices)

    for launch in launchers.values():
        launch()
    times: dict[str, list[float]] = {name: [] for name in launchers}
    for _ in range(options.rounds):
        for name, launch in launchers.items():
            times[name].append(launch())

    loop = statistics.median(times["C loop"])
    print(f"{backend.device.description}, {backend.device.environment['compiler_version']}")
    print(f"N = {n}, median CPU time of {options.rounds} interleaved launches")
    print(f"{'':18}{'ms':>9}{'/ C loop':>10}{'bound':>8}")
    print(f"{'C loop (gcc -O3)':18}{loop * 1e3:9.2f}{1:10.2f}")
    missed = False
    for name, _, _, bound in CONTESTANTS:
        seconds = statistics.median(times[name])
        late = seconds > bound * loop
        missed |= late
        verdict = "  missed" if late else ""
        print(f"{name:18}{seconds * 1e3:9.2f}{seconds / loop:10.2f}{bound:8.2f}{verdict}")
    return int(missed)


def _matrix(backend: HostBackend, n: int, seed: int) -> Matrix:
    buffer = backend.allocate(4 * n * n)
    values = np.random.default_rng(seed).standard_normal(n * n, dtype=np.float32)
    backend.upload(buffer, values.view(np.uint8))
    return Matrix(buffer, 0, n, n, n, "float32")


def _kernel(
    backend: HostBackend,
    name: str,
    block: tuple[int, int, int],
    tile: int,
    n: int,
    matrices: list[Matrix],
) -> Callable[[], float]:
    path = KERNELS / f"{name}.cu"
    executable = backend.compile(CudaProgram(path.read_text(), str(path), name))
    side = -(-n // tile)
    config = LaunchConfig((side, side, 1), block)
    return lambda: backend.time(executable, config, [*matrices, n, n, n])


def _triple_loop(n: int, matrices: list[Matrix]) -> Callable[[], float]:
    with tempfile.TemporaryDirectory() as name:
        source, library = Path(name) / "loop.c", Path(name) / "loop.so"
        source.write_text(TRIPLE_LOOP)
        subprocess.run(
            ["gcc", "-O3", "-shared", "-fPIC", str(source), "-o", str(library)], check=True
        )
        function = ctypes.CDLL(str(library)).triple_loop
    addresses = [ctypes.c_void_p(matrix.buffer.address) for matrix in matrices]  # type: ignore[attr-defined]

    def launch() -> float:
        start = time.thread_time()
        function(n, *addresses)
        return time.thread_time() - start

    return launch


if __name__ == "__main__":
    sys.exit(main())
