"""Device memory: plain allocations, not CuPy's pool, so that every one is placed afresh."""

from __future__ import annotations

from pytest_gemm.backends.base import Bytes
from pytest_gemm.backends.cuda.api import Api
from pytest_gemm.backends.cuda.faults import error_name
from pytest_gemm.backends.cuda.queue import Queue
from pytest_gemm.errors import BackendError


class DeviceBuffer:
    """Memory on the GPU, its start aligned to 256 bytes; equal only to itself."""

    def __init__(self, address: int, nbytes: int) -> None:
        self._address: int | None = address
        self.nbytes = nbytes

    @property
    def address(self) -> int:
        """Where it starts. Raises BackendError once it is freed."""
        if self._address is None:
            raise BackendError("a buffer was used after it was freed")
        return self._address

    def invalidate(self) -> None:
        """Mark it as freed."""
        self._address = None


class Memory:
    """Allocates, frees and copies on the queue's stream."""

    def __init__(self, api: Api, queue: Queue) -> None:
        self._runtime = api.runtime
        self._errors = api.errors
        self._queue = queue

    def allocate(self, nbytes: int) -> DeviceBuffer:
        """Reserve memory. Raises BackendError, with the sizes, where there is too little."""
        self._queue.check()
        try:
            return DeviceBuffer(self._runtime.malloc(max(nbytes, 1)), nbytes)
        except self._errors as error:
            if "memoryallocation" not in error_name(error).lower():
                raise self._queue.fault(error) from error
            free, total = self._runtime.memGetInfo()
            raise BackendError(
                f"no memory for a buffer of {nbytes / 1e9:.3g} GB: {free / 1e9:.3g} of the GPU's "
                f"{total / 1e9:.3g} GB are free"
            ) from error

    def free(self, buffer: DeviceBuffer) -> None:
        """Give memory back. A lost context keeps it: to free it could wait forever."""
        address = buffer.address
        buffer.invalidate()
        if self._queue.lost:
            return
        with self._queue.guarded():
            self._runtime.free(address)

    def upload(self, buffer: DeviceBuffer, data: Bytes) -> None:
        """Copy ``data`` into the buffer and wait. Raises BackendError where the sizes differ."""
        if data.nbytes != buffer.nbytes:
            raise BackendError(f"{data.nbytes} bytes do not fill a buffer of {buffer.nbytes}")
        source = data if data.flags.c_contiguous else data.copy()
        self._copy(buffer.address, source.ctypes.data, data.nbytes, "memcpyHostToDevice")

    def download(self, buffer: DeviceBuffer, target: Bytes) -> None:
        """Copy the buffer into ``target``, which has its size, and wait."""
        self._copy(target.ctypes.data, buffer.address, buffer.nbytes, "memcpyDeviceToHost")

    def _copy(self, target: int, source: int, nbytes: int, direction: str) -> None:
        with self._queue.guarded():
            kind = getattr(self._runtime, direction)
            self._runtime.memcpyAsync(target, source, nbytes, kind, self._queue.stream)
            self._runtime.streamSynchronize(self._queue.stream)
