"""The CUDA back end: kernels and Python callables on one NVIDIA GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from pytest_gemm.backends.base import (
    Argument,
    Backend,
    Buffer,
    Bytes,
    Device,
    Executable,
    LaunchConfig,
    Program,
    PythonProgram,
    Trip,
)
from pytest_gemm.backends.cuda.api import Api, load_api
from pytest_gemm.backends.cuda.canary import Canary
from pytest_gemm.backends.cuda.compiler import Compiler
from pytest_gemm.backends.cuda.hardware import describe, l2_bytes, resident_threads
from pytest_gemm.backends.cuda.kernel import CudaExecutable, Limits
from pytest_gemm.backends.cuda.memory import DeviceBuffer, Memory
from pytest_gemm.backends.cuda.nvml import Nvml
from pytest_gemm.backends.cuda.python_program import PythonExecutable
from pytest_gemm.backends.cuda.queue import Queue
from pytest_gemm.backends.cuda.timer import Timer
from pytest_gemm.backends.cuda.transfers import time_trips
from pytest_gemm.errors import BackendError


class CudaBackend(Backend):
    """Runs kernels on one GPU; the time of a launch is the device's, between two events.

    ``device_index`` counts the GPUs that the process sees; ``progress`` is told when set-up
    starts that takes long. Nothing of CUDA is touched until it is needed. ``api`` replaces CuPy
    in tests. All methods belong to one thread at a time.
    """

    kind: ClassVar[str] = "cuda"

    def __init__(
        self,
        device_index: int = 0,
        progress: Callable[[str], None] | None = None,
        *,
        api: Api | None = None,
    ) -> None:
        self._index = device_index
        self._progress = progress or (lambda _: None)
        self._given_api = api

    @cached_property
    def device(self) -> Device:
        """The GPU. Raises BackendError where there is none, or CuPy or NVRTC is missing."""
        return describe(self._api, self._index, self._nvml, self._compiler)

    @property
    def count(self) -> int:
        return int(self._api.runtime.getDeviceCount())

    @property
    def lost(self) -> str:
        return self._queue.lost if "_queue" in vars(self) else ""

    def conditions(self) -> Mapping[str, Any]:
        """Clocks, temperature, power, slowdowns, load: see ``nvml.Nvml.conditions``.

        ``canary_s`` is what ``canary`` returns, taken last: it is load itself.
        """
        return {**self._nvml.conditions(), "canary_s": self.canary()}

    def canary(self) -> float:
        """Seconds of a small fixed kernel: longer when clocks sank or others use the GPU."""
        return self._canary.seconds()

    def compile(self, program: Program) -> CudaExecutable | PythonExecutable:
        """Build a program. Raises CompileError, BackendError."""
        if isinstance(program, PythonProgram):
            return PythonExecutable(self._api, self._queue, program)
        image = self._compiler.compile(program)
        return CudaExecutable(self._api, self._queue, self._limits, program, image)

    def allocate(self, nbytes: int) -> DeviceBuffer:
        """Reserve memory on the GPU. Raises BackendError."""
        return self._memory.allocate(nbytes)

    def free(self, buffer: Buffer) -> None:
        """Give a buffer back; every array that views it becomes invalid."""
        own = _own(buffer)
        self._timer.forget(own)
        self._memory.free(own)

    def upload(self, buffer: Buffer, data: Bytes) -> None:
        """Copy ``data`` into the buffer. Raises BackendError where the sizes differ."""
        self._memory.upload(_own(buffer), data)

    def download(self, buffer: Buffer) -> Bytes:
        """Return a copy of the buffer's bytes."""
        data = np.empty(buffer.nbytes, np.uint8)
        self._memory.download(_own(buffer), data)
        return data

    def time(
        self,
        executable: Executable,
        config: LaunchConfig,
        arguments: Sequence[Argument],
        *,
        launches: int = 1,
        cold: bool = False,
        timeout: float = 60.0,
    ) -> float:
        """Device seconds of ``launches`` launches: see ``timer`` for how they are taken.

        Raises KernelFault, CompileError, and BackendError for a launch over the GPU's limits or
        after the process' CUDA context was lost.
        """
        assert isinstance(executable, CudaExecutable | PythonExecutable)
        return self._timer.time(executable, config, arguments, launches, cold, timeout)

    def trips(
        self,
        executable: Executable,
        config: LaunchConfig,
        arguments: Sequence[Argument],
        inputs: Sequence[tuple[Buffer, Bytes]],
        output: Buffer,
        *,
        pinned: bool,
        count: int,
        timeout: float = 60.0,
    ) -> list[Trip]:
        """Transfers and a launch between events: see ``transfers.time_trips``."""
        assert isinstance(executable, CudaExecutable | PythonExecutable)
        return time_trips(
            self._api,
            self._queue,
            executable.prepare(config, arguments),
            [(_own(buffer), data) for buffer, data in inputs],
            _own(output),
            pinned=pinned,
            count=count,
            timeout=timeout,
        )

    def is_captured(self, executable: Executable) -> bool:
        """Whether hot launches of it are replayed from a graph, not queued one by one."""
        assert isinstance(executable, CudaExecutable | PythonExecutable)
        return self._timer.is_captured(executable)

    @contextmanager
    def profiled(self) -> Iterator[None]:
        """What is launched within is for a profiler that waits for the program's word."""
        with self._queue.guarded():
            self._api.runtime.deviceSynchronize()
            self._api.runtime.profilerStart()
            try:
                yield
                self._api.runtime.deviceSynchronize()
            finally:
                self._api.runtime.profilerStop()

    @cached_property
    def _api(self) -> Api:
        if self._given_api is None:
            self._progress("starting CUDA (once)")
        api = self._given_api or load_api()
        try:
            count = api.runtime.getDeviceCount()
        except api.errors as error:
            raise BackendError(f"no GPU can be used here: {error}") from error
        if self._index >= count:
            raise BackendError(f"there is no GPU {self._index} here: {count} can be seen")
        return api

    @cached_property
    def _queue(self) -> Queue:
        return Queue(self._api, self._index)

    @cached_property
    def _compiler(self) -> Compiler:
        properties = self._api.runtime.getDeviceProperties(self._index)
        return Compiler(self._api, properties["major"], properties["minor"])

    @cached_property
    def _nvml(self) -> Nvml:
        return Nvml(self._api.runtime.deviceGetPCIBusId(self._index))

    @cached_property
    def _limits(self) -> Limits:
        return Limits.of(self._api, self._index)

    @cached_property
    def _memory(self) -> Memory:
        return Memory(self._api, self._queue)

    @cached_property
    def _timer(self) -> Timer:
        size, threads = l2_bytes(self._api, self._index), resident_threads(self._api, self._index)
        return Timer(self._api, self._queue, self._memory, self._compiler, size, threads)

    @cached_property
    def _canary(self) -> Canary:
        return Canary(self)


def _own(buffer: Buffer) -> DeviceBuffer:
    if not isinstance(buffer, DeviceBuffer):
        raise BackendError("a buffer is not this back end's")
    buffer.address  # noqa: B018 - raises once it is freed
    return buffer
