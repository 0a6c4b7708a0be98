"""A kernel that holds the device while launches are queued behind it.

So the time between two events holds no gap in which the device waited for the host. It occupies
every multiprocessor, so that work on other streams waits as well and is seen to be left when our
stream is done. It watches a number in the host's memory, and the clock: it ends by itself,
whatever the host does.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

from pytest_gemm.backends.base import CudaProgram, LaunchConfig
from pytest_gemm.backends.cuda.api import Api
from pytest_gemm.backends.cuda.compiler import Compiler
from pytest_gemm.backends.cuda.queue import Queue

LIMIT = 1.0
"""Seconds after which it lets the device go on."""

THREADS = 512
"""A block; the threads that a multiprocessor can hold are a multiple of it."""

_SOURCE = r"""
__device__ unsigned long long now()
{
    unsigned long long nanoseconds;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(nanoseconds));
    return nanoseconds;
}

__device__ volatile int released;

// turns[0] is the last turn that the host let go on, turns[1] the last that it did not in time.
// One block alone reads the host's memory: reads by all would queue up there, for half a
// millisecond on an H200.
extern "C" __global__ void hold(volatile int* turns, int turn, unsigned long long limit)
{
    if (threadIdx.x == 0 && blockIdx.x == 0) {
        const unsigned long long start = now();
        while (turns[0] < turn) {
            if (now() - start > limit) {
                turns[1] = turn;
                __threadfence_system();
                break;
            }
        }
        released = turn;
    } else if (threadIdx.x == 0) {
        while (released < turn) {}
    }
    __syncthreads();
}
"""


class Blocker:
    """Holds the device from the queue's stream; launched once at the start, to be loaded."""

    def __init__(self, api: Api, queue: Queue, compiler: Compiler, blocks: int) -> None:
        self._driver = api.driver
        self._queue = queue
        self.size = LaunchConfig((blocks, 1, 1), (THREADS, 1, 1))
        image = compiler.compile(CudaProgram(_SOURCE, "blocker.cu", "hold"))
        with queue.guarded():
            module = api.driver.moduleLoadData(image.code)
            self._function: int = api.driver.moduleGetFunction(module, image.entry)
            # Mapped memory has one address on both sides wherever addressing is unified.
            address = api.runtime.hostAlloc(8, api.runtime.hostAllocMapped)
            self._turns = (ctypes.c_int * 2).from_address(address)
            self._turns[0] = self._turns[1] = 0
            self._parameters = (
                ctypes.c_void_p(address),
                ctypes.c_int(0),
                ctypes.c_ulonglong(int(LIMIT * 1e9)),
            )
            self._pointers = (ctypes.c_void_p * 3)(*map(ctypes.addressof, self._parameters))
            self._launch()
            api.runtime.streamSynchronize(queue.stream)

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Hold the device while the block queues work."""
        self._parameters[1].value += 1
        self._launch()
        try:
            yield
        finally:
            self._turns[0] = self._parameters[1].value

    @property
    def expired(self) -> bool:
        """Whether it gave up during the last hold; known once the work behind it is done."""
        return self._turns[1] == self._parameters[1].value

    def _launch(self) -> None:
        address = ctypes.addressof(self._pointers)
        self._driver.launchKernel(
            self._function, *self.size.grid, *self.size.block, 0, self._queue.stream, address, 0
        )
