"""A kernel that holds a stream back while launches are queued behind it.

So the time between two events holds no gap in which the device waited for the host. It watches a
flag in the host's memory, and the clock: it ends by itself, whatever the host does.
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
"""Seconds after which it lets the stream go on."""

_SOURCE = r"""
__device__ unsigned long long now()
{
    unsigned long long nanoseconds;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(nanoseconds));
    return nanoseconds;
}

// flags[0] is set by the host to let the stream go on, flags[1] here where it did not in time.
extern "C" __global__ void hold(volatile int* flags, unsigned long long limit)
{
    const unsigned long long start = now();
    while (flags[0] == 0) {
        if (now() - start > limit) {
            flags[1] = 1;
            __threadfence_system();
            return;
        }
    }
}
"""


class Blocker:
    """Holds the queue's stream; launched once with the flag set, so that it is loaded."""

    def __init__(self, api: Api, queue: Queue, compiler: Compiler) -> None:
        self._driver = api.driver
        self._queue = queue
        image = compiler.compile(CudaProgram(_SOURCE, "blocker.cu", "hold"))
        with queue.guarded():
            module = api.driver.moduleLoadData(image.code)
            self._function: int = api.driver.moduleGetFunction(module, image.entry)
            # Mapped memory has one address on both sides wherever addressing is unified.
            address = api.runtime.hostAlloc(8, api.runtime.hostAllocMapped)
            self._flags = (ctypes.c_int * 2).from_address(address)
            self._flag_pointer = ctypes.c_void_p(address)
            self._limit = ctypes.c_ulonglong(int(LIMIT * 1e9))
            self._pointers = (ctypes.c_void_p * 2)(
                ctypes.addressof(self._flag_pointer), ctypes.addressof(self._limit)
            )
            self._flags[0] = 1
            self._launch()
            api.runtime.streamSynchronize(queue.stream)

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Hold the stream while the block queues work. Call only once all before is done."""
        self._flags[0] = self._flags[1] = 0
        self._launch()
        try:
            yield
        finally:
            self._flags[0] = 1

    @property
    def expired(self) -> bool:
        """Whether it gave up during the last hold; known once the work behind it is done."""
        return self._flags[1] != 0

    def _launch(self) -> None:
        one = LaunchConfig((1, 1, 1), (1, 1, 1))
        address = ctypes.addressof(self._pointers)
        self._driver.launchKernel(
            self._function, *one.grid, *one.block, 0, self._queue.stream, address, 0
        )
