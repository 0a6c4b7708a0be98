"""A small fixed kernel whose time shows what the device's own counters do not: a changed GPU.

It reads and writes memory that fits in the L2 cache and multiplies in between, so that a lower
clock, and a neighbour who takes multiprocessors or bandwidth, all lengthen it.
"""

from __future__ import annotations

from statistics import median

from pytest_gemm.backends.base import Backend, CudaProgram, LaunchConfig, Matrix

BLOCKS, THREADS, LAUNCHES, SAMPLES = 2048, 256, 20, 5

_SOURCE = """
__global__ void canary(float* A)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    float x = A[i];
    for (int k = 0; k < 128; ++k)
        x = x * 0.5f + 1.0f;
    A[i] = x;
}
"""


class Canary:
    """Compiled once for a back end. ``seconds`` can be compared before and after."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._executable = backend.compile(CudaProgram(_SOURCE, "canary.cu", "canary"))

    def seconds(self) -> float:
        """Seconds of one launch: the median of a few samples on memory allocated anew."""
        elements = BLOCKS * THREADS
        buffer = self._backend.allocate(4 * elements)
        try:
            matrix = Matrix(buffer, 0, BLOCKS, THREADS, THREADS, "float32")
            config = LaunchConfig((BLOCKS, 1, 1), (THREADS, 1, 1))
            times = [
                self._backend.time(self._executable, config, [matrix], launches=LAUNCHES)
                for _ in range(SAMPLES + 1)
            ]
        finally:
            self._backend.free(buffer)
        return median(times[1:]) / LAUNCHES
