"""A kernel that leaves the multiprocessors in another state before each sample.

A kernel with more blocks than fit at once leaves something behind, presumably the order in which
blocks are dealt to the multiprocessors, that lasts until the next such kernel. A replay keeps to
what it found: on an H200 cuBLAS took anything from 6.05 to 6.33 us for N = 256, and then always the
same. A process would report what chance had left to it. So chance decides for each sample, and the
median over many of them is the same in all processes.
"""

from __future__ import annotations

import ctypes

from pytest_gemm.backends.base import CudaProgram, LaunchConfig
from pytest_gemm.backends.cuda.api import Api
from pytest_gemm.backends.cuda.blocker import THREADS
from pytest_gemm.backends.cuda.compiler import Compiler
from pytest_gemm.backends.cuda.queue import Queue

WAVES = 4
"""How many times more blocks there are than fit."""

_SOURCE = r"""
// A block lasts up to a microsecond, by a hash of its number and the turn: those that wait for a
// place get it in an order of chance.
extern "C" __global__ void shuffle(unsigned turn)
{
    unsigned hash = (blockIdx.x + 1) * 2654435761u ^ turn * 40503u;
    hash ^= hash >> 15;
    hash *= 2246822519u;
    hash ^= hash >> 13;
    const long long end = clock64() + (hash & 2047);
    while (clock64() < end) {}
}
"""


class Shuffle:
    """Queued by each call of ``launch``; ``resident`` blocks of ``THREADS`` fill the device."""

    def __init__(self, api: Api, queue: Queue, compiler: Compiler, resident: int) -> None:
        self._driver = api.driver
        self._queue = queue
        self.size = LaunchConfig((WAVES * resident, 1, 1), (THREADS, 1, 1))
        image = compiler.compile(CudaProgram(_SOURCE, "shuffle.cu", "shuffle"))
        with queue.guarded():
            module = api.driver.moduleLoadData(image.code)
            self._function: int = api.driver.moduleGetFunction(module, image.entry)
        self._turn = ctypes.c_uint(0)
        self._pointers = (ctypes.c_void_p * 1)(ctypes.addressof(self._turn))

    def launch(self) -> None:
        """Queue it once, with another turn than before."""
        self._turn.value += 1
        address = ctypes.addressof(self._pointers)
        self._driver.launchKernel(
            self._function, *self.size.grid, *self.size.block, 0, self._queue.stream, address, 0
        )
