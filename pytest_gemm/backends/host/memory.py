"""Memory with guard pages: a kernel that runs past a buffer faults instead of reading on."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator

import numpy as np

from pytest_gemm.backends.base import Bytes
from pytest_gemm.errors import BackendError

ALIGNMENT = 256
"""Bytes to which a buffer's start is aligned, as cudaMalloc does."""

GUARD = 1 << 20
"""Bytes on each side that may not be touched. A whole row past the end is still caught."""

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_PROT_NONE = 0
_MAP_NORESERVE = 0x4000
_FAILED = ctypes.c_void_p(-1).value


class HostBuffer:
    """``nbytes`` of memory whose end lies as close to a guard page as the alignment allows."""

    def __init__(self, nbytes: int) -> None:
        if nbytes < 0:
            raise BackendError(f"a buffer of {nbytes} bytes cannot be allocated")
        self.nbytes = nbytes
        page = mmap.PAGESIZE
        aligned = -(-nbytes // ALIGNMENT) * ALIGNMENT
        inside = max(-(-aligned // page), 1) * page
        self._size = inside + 2 * GUARD
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
        base = _libc.mmap(None, self._size, _PROT_NONE, flags, -1, 0)
        if base in (None, _FAILED):
            raise BackendError(f"no memory for a buffer of {nbytes} bytes")
        self._base: int | None = base
        if _libc.mprotect(base + GUARD, inside, mmap.PROT_READ | mmap.PROT_WRITE) != 0:
            self.release()
            raise BackendError(f"no memory for a buffer of {nbytes} bytes")
        self._start: int = base + GUARD + inside - aligned

    @property
    def address(self) -> int:
        """Where the buffer starts. Raises BackendError once it is freed."""
        if self._base is None:
            raise BackendError("a buffer was used after it was freed")
        return self._start

    @property
    def span(self) -> tuple[int, int]:
        """The addresses from the guard before it to the end of the one behind it."""
        start = self.address
        base = self._base or start
        return base, base + self._size

    @property
    def bytes(self) -> Bytes:
        """The memory itself, not a copy."""
        memory = (ctypes.c_uint8 * self.nbytes).from_address(self.address)
        return np.ctypeslib.as_array(memory)

    def contains(self, address: int) -> bool:
        """Whether the address lies inside the buffer or its guard pages."""
        return self._base is not None and self._base <= address < self._base + self._size

    def describe(self, address: int) -> str:
        """``4 bytes past its end``, for a message."""
        if address < self._start:
            return f"{self._start - address} bytes before its start"
        if address >= self._start + self.nbytes:
            return f"{address - self._start - self.nbytes} bytes past its end"
        return f"at byte {address - self._start}"

    def release(self) -> None:
        """Give the memory back; a second call does nothing."""
        if self._base is not None:
            _libc.munmap(self._base, self._size)
            self._base = None

    def __del__(self) -> None:
        if getattr(self, "_base", None) is not None:
            self.release()


def find_buffer(buffers: Iterator[HostBuffer], address: int) -> HostBuffer | None:
    """The buffer that the address belongs to, guard pages included."""
    return next((buffer for buffer in buffers if buffer.contains(address)), None)
