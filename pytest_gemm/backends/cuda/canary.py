"""A fixed kernel whose time shows what the device's own counters may not: a changed GPU.

It reads memory that fits in the L2 cache and multiplies in between, so that a lower clock
lengthens it, and a neighbour who takes multiprocessors or bandwidth. Contexts of different
processes take turns on the whole GPU, for some milliseconds each: one sample lasts longer than a
turn, so that it holds the turns of others.
"""

from __future__ import annotations

from pytest_gemm.backends.base import Backend, CudaProgram, LaunchConfig, Matrix

BLOCKS, THREADS, LAUNCHES = 2048, 256, 20

_SOURCE = """
__global__ void canary(const float* A, float* C, int size)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    float x = 0;
    for (int pass = 0; pass < 128; ++pass) {
        x += A[(i + pass * 4099) & (size - 1)];
        for (int k = 0; k < 128; ++k)
            x = x * 0.5f + 1.0f;
    }
    C[i] = x;
}
"""


class Canary:
    """Compiled once for a back end. ``seconds`` can be compared between processes."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._executable = backend.compile(CudaProgram(_SOURCE, "canary.cu", "canary"))

    def seconds(self) -> float:
        """Seconds of one launch, the mean over some milliseconds after as long a warm-up."""
        size = BLOCKS * THREADS
        buffer = self._backend.allocate(2 * 4 * size)
        try:
            A, C = (
                Matrix(buffer, 4 * k * size, BLOCKS, THREADS, THREADS, "float32") for k in (0, 1)
            )
            config = LaunchConfig((BLOCKS, 1, 1), (THREADS, 1, 1))
            for _ in range(2):
                total = self._backend.time(
                    self._executable, config, [A, C, size], launches=LAUNCHES
                )
        finally:
            self._backend.free(buffer)
        return total / LAUNCHES
