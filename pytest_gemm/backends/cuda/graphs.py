"""Launches captured in a CUDA graph, so that the device starts them without the host."""

from __future__ import annotations

from collections.abc import Callable

from pytest_gemm.backends.cuda.api import Api
from pytest_gemm.backends.cuda.queue import Queue
from pytest_gemm.errors import KernelFault


class CaptureRefused(Exception):
    """The work cannot be captured: a library refuses, or waits for the device."""


class Graph:
    """Launches that can be replayed; ``work`` is how many operations they are.

    To capture needs nothing of the device, not even while it is held; ``upload`` does, and comes
    before the first replay.
    """

    def __init__(self, api: Api, queue: Queue, launch: Callable[[], None], launches: int) -> None:
        """Capture. Raises CaptureRefused; the stream is left as it was."""
        self._runtime = api.runtime
        self._queue = queue
        self._executable = 0
        self._captured = _capture(api, queue, launch, launches)
        self.work = api.libcuda.count_work(self._captured)

    def upload(self) -> None:
        """Make it ready on the device."""
        self._executable = self._runtime.graphInstantiate(self._captured)
        self._forget_captured()
        self._runtime.graphUpload(self._executable, self._queue.stream)

    def replay(self) -> None:
        """Queue it once."""
        self._runtime.graphLaunch(self._executable, self._queue.stream)

    def release(self) -> None:
        """Free it, unless the context is lost; a second call does nothing."""
        self._forget_captured()
        executable, self._executable = self._executable, 0
        if executable and not self._queue.lost:
            self._runtime.graphExecDestroy(executable)

    def _forget_captured(self) -> None:
        graph, self._captured = self._captured, 0
        if graph and not self._queue.lost:
            self._runtime.graphDestroy(graph)


def _capture(api: Api, queue: Queue, launch: Callable[[], None], launches: int) -> int:
    runtime = api.runtime
    try:
        # Relaxed, as CuPy's default: its memory pool may have to grow meanwhile.
        runtime.streamBeginCapture(queue.stream, runtime.streamCaptureModeRelaxed)
    except api.errors as error:
        raise CaptureRefused(str(error)) from error
    graph = 0
    problem: Exception | None = None
    refusals: tuple[type[Exception], ...] = (KernelFault, *api.errors)
    try:
        for _ in range(launches):
            launch()
    except refusals as error:
        problem = error
    finally:
        try:
            graph = runtime.streamEndCapture(queue.stream)
        except api.errors as error:
            problem = problem or error
    if problem is not None:
        if graph:
            runtime.graphDestroy(graph)
        raise CaptureRefused(str(problem)) from problem
    return graph
