"""Our own stream: all work is queued there, timed by events, and waited for with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pytest_gemm.backends.cuda.api import NOT_READY, Api
from pytest_gemm.backends.cuda.faults import LOST, error_name, kernel_fault
from pytest_gemm.errors import BackendError, KernelFault

_SPIN = 1e-3
"""Seconds of polling without a pause: a sleep costs more than most kernels."""


class Queue:
    """A non-blocking stream of one device, so that it never waits for the legacy stream.

    ``lost`` is empty, or why the process' CUDA context cannot be used any more. ``clock`` and
    ``sleep`` are replaced in tests.
    """

    def __init__(
        self,
        api: Api,
        device_index: int,
        clock: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._api = api
        self._runtime = api.runtime
        self._device = device_index
        self._clock = clock
        self._sleep = sleep
        self._events: list[int] = []
        self.lost = ""
        self._runtime.setDevice(device_index)
        self.cupy_stream: Any = api.cupy.cuda.Stream(non_blocking=True)
        self.stream: int = self.cupy_stream.ptr

    def check(self) -> None:
        """Make the device current in this thread. Raises BackendError once it is lost."""
        if self.lost:
            raise BackendError(
                f"the CUDA context of this process was lost earlier ({self.lost}): "
                "run this case in a new process"
            )
        self._runtime.setDevice(self._device)

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Turn the CUDA errors of the block into KernelFaults."""
        self.check()
        try:
            yield
        except self._api.errors as error:
            raise self.fault(error) from error

    def fault(self, error: Exception) -> KernelFault:
        """The fault for a CUDA error; finds out whether the context survived it."""
        try:
            self._runtime.deviceSynchronize()
        except self._api.errors:
            self.lost = error_name(error)
        return kernel_fault(error, lost=bool(self.lost))

    def event(self, index: int) -> int:
        """The event of that number; they are made once and used again."""
        while len(self._events) <= index:
            self._events.append(self._runtime.eventCreateWithFlags(self._runtime.eventDefault))
        return self._events[index]

    def record(self, index: int) -> None:
        """Queue the event of that number."""
        self._runtime.eventRecord(self.event(index), self.stream)

    def elapsed(self, start: int, end: int) -> float:
        """Seconds between two events that were reached."""
        milliseconds: float = self._runtime.eventElapsedTime(self.event(start), self.event(end))
        return milliseconds * 1e-3

    def wait(self, index: int, limit: float, timeout: float) -> None:
        """Wait until the event is reached, ``limit`` seconds at most.

        Raises KernelFault for an error of the work before it, and kind ``timeout``, which names
        the ``timeout`` of one launch: what still runs cannot be stopped, so the context is lost.
        """
        event = self.event(index)
        started = self._clock()
        while (status := self._runtime.eventQuery(event)) == NOT_READY:
            waited = self._clock() - started
            if waited > limit:
                self.lost = f"a launch took longer than {timeout:g} s"
                raise KernelFault(
                    "timeout", f"one launch took longer than {timeout:g} s and still runs; {LOST}"
                )
            if waited > _SPIN:
                self._sleep(50e-6)
        self._runtime.check_status(status)

    def remaining_work(self) -> float:
        """Seconds until the whole device is idle: next to nothing when only this stream worked."""
        started = self._clock()
        self._runtime.deviceSynchronize()
        return self._clock() - started
