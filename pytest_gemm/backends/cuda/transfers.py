"""The way to the device and back, timed by events on the stream."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

import numpy as np

from pytest_gemm.backends.base import Bytes, Trip
from pytest_gemm.backends.cuda.api import Api
from pytest_gemm.backends.cuda.memory import DeviceBuffer
from pytest_gemm.backends.cuda.queue import Queue

PATIENCE = 60.0
"""Seconds that the copies of one trip may take."""

Launch = Callable[[], None]
Input = tuple[DeviceBuffer, Bytes]


def time_trips(
    api: Api,
    queue: Queue,
    launch: Launch,
    inputs: Sequence[Input],
    output: DeviceBuffer,
    *,
    pinned: bool,
    count: int,
    timeout: float,
) -> list[Trip]:
    """Copy the inputs to the device, launch once, copy the output back; ``count`` times.

    The host's memory is pageable, as what NumPy allocates, or pinned: allocated by CUDA so that the
    device reads it itself. Its pages are there, and one trip is made, before the first that counts.
    Raises KernelFault.
    """
    with queue.guarded(), ExitStack() as memory:

        def host(nbytes: int) -> Bytes:
            if pinned:
                return memory.enter_context(_pinned(api, nbytes))
            return np.ones(nbytes, np.uint8)

        sources = [(buffer, _filled(host(data.nbytes), data)) for buffer, data in inputs]
        target = host(output.nbytes)
        trips = [
            _trip(api, queue, launch, sources, (output, target), timeout) for _ in range(count + 1)
        ]
        return trips[1:]


def _trip(
    api: Api,
    queue: Queue,
    launch: Launch,
    sources: Sequence[Input],
    back: Input,
    timeout: float,
) -> Trip:
    runtime, stream = api.runtime, queue.stream
    queue.record(0)
    for buffer, data in sources:
        address = data.ctypes.data
        runtime.memcpyAsync(
            buffer.address, address, data.nbytes, runtime.memcpyHostToDevice, stream
        )
    queue.record(1)
    launch()
    queue.record(2)
    buffer, data = back
    runtime.memcpyAsync(
        data.ctypes.data, buffer.address, data.nbytes, runtime.memcpyDeviceToHost, stream
    )
    queue.record(3)
    queue.wait(3, PATIENCE + timeout, timeout)
    return Trip(*(queue.elapsed(*events) for events in ((0, 1), (1, 2), (2, 3), (0, 3))))


def _filled(memory: Bytes, data: Bytes) -> Bytes:
    memory[:] = data
    return memory


@contextmanager
def _pinned(api: Api, nbytes: int) -> Iterator[Bytes]:
    address: int = api.runtime.hostAlloc(nbytes, 0)
    try:
        yield np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(address))
    finally:
        api.runtime.freeHost(address)
