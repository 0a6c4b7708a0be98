"""Matrices in a back end's memory, surrounded by guards that show stray reads and writes.

Each matrix is one buffer::

    guard | row 0, padding | row 1, padding | ... | guard

Around and between the rows of A and B lie NaNs of a payload of their own: a stray read that is
used turns C into NaN. Around C lies a finite pattern instead, because a NaN there could hide a
store: arithmetic on a NaN can write the same NaN back.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from copy import copy
from dataclasses import dataclass
from typing import Self, TypeVar

import numpy as np
import numpy.typing as npt

from pytest_gemm.backends.base import Backend, Matrix
from pytest_gemm.matrices import Float32, Operands
from pytest_gemm.problem import ITEMSIZE, Problem

GUARD_BITS = {"A": 0x7FC5A5A1, "B": 0x7FC5A5B2, "C": 0x3F5CA7E1}
"""What surrounds each matrix: quiet NaNs, and about 0.862, which any addition visibly changes."""

NAN_BITS = 0x7FC0DEAD
"""The NaN that C holds before a launch that must not read it."""

NAN = np.uint32(NAN_BITS).view(np.float32)

ALIGNMENT = 256
"""Bytes to which every matrix is aligned, as a CUDA allocation is."""

Bits = npt.NDArray[np.uint32]
Element = TypeVar("Element", np.uint32, np.float32)


@dataclass(frozen=True)
class Violation:
    """Elements that a kernel changed and must not change.

    ``place`` is ``before`` or ``after`` the matrix, ``padding`` between its rows, or
    ``contents`` (of A or B). ``first`` counts elements: behind the end (0 is the first), before
    the start (-1 is the nearest), else from the matrix's start, where it is also
    ``[row, column]``.
    """

    buffer: str
    place: str
    count: int
    first: int
    row: int = 0
    column: int = 0

    def __str__(self) -> str:
        elements = "1 element" if self.count == 1 else f"{self.count} elements"
        if self.place == "contents":
            at = f"{self.buffer}[{self.row}, {self.column}]"
            return f"{elements} of {self.buffer} overwritten, first {at}"
        if self.place == "padding":
            at = f"behind column {self.column - 1} of row {self.row}"
            return f"{elements} written between the rows of {self.buffer}, first {at}"
        side = "past the end" if self.place == "after" else "before the start"
        distance = self.first if self.place == "after" else -self.first - 1
        near = f"first {distance} elements away" if distance else "first right next to it"
        return f"{elements} written {side} of {self.buffer}, {near}"


class Workspace:
    """A, B and C of one problem in a back end's memory; a context manager that frees them.

    ``guard`` is the size in bytes of each guard zone; by default 128 rows of the matrix, within
    4 KiB and 4 MiB. Raises BackendError where memory is lacking.
    """

    def __init__(self, backend: Backend, problem: Problem, *, guard: int | None = None) -> None:
        self.backend = backend
        self.problem = problem
        self._regions = {
            name: _Region(name, rows, columns, problem.ld(name), guard)
            for name, (rows, columns) in problem.shapes.items()
        }
        self._matrices: dict[str, Matrix] = {}
        self._memory = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as memory:
            for name, region in self._regions.items():
                self._matrices[name] = memory.enter_context(_allocated(self.backend, region))
            self._memory = memory.pop_all()
        return self

    def __exit__(self, *exc: object) -> None:
        self._memory.close()

    @property
    def nbytes(self) -> int:
        """What the matrices take, with their guards."""
        return sum(region.image.nbytes for region in self._regions.values())

    def elsewhere(self) -> Workspace:
        """Another workspace that shares what was put, and has no memory yet."""
        other = copy(self)
        other._matrices, other._memory = {}, ExitStack()
        return other

    def load(self, operands: Operands) -> None:
        """Upload A, B and C, and renew every guard."""
        self.put(operands)
        self.upload()

    def put(self, operands: Operands) -> None:
        """Set what the next ``upload`` will bring; needs no memory on the device."""
        for name, region in self._regions.items():
            region.put(getattr(operands, name))

    def upload(self) -> None:
        """Upload what was put, and renew every guard."""
        for name in self._regions:
            self._upload(name)

    def fill(self, value: float | Float32) -> None:
        """Set every element of C, and renew its guards; NaN is stored as ``NAN_BITS``."""
        self._regions["C"].put(NAN if np.isscalar(value) and np.isnan(value) else value)
        self._upload("C")

    def matrix(self, name: str) -> Matrix:
        """A, B or C as a launch argument."""
        return self._matrices[name]

    def read(self, name: str = "C") -> Float32:
        """Download a matrix: a contiguous copy."""
        return read_matrix(self.backend, self.matrix(name))

    def violations(self) -> tuple[Violation, ...]:
        """Every change outside C since the last upload, NaNs compared bit by bit."""
        found: list[Violation] = []
        for name, region in self._regions.items():
            now = self.backend.download(self._matrices[name].buffer).view(np.uint32)
            if name == "C":
                region.contents[...] = region.inside(now)
            found += region.changes(now)
        return tuple(found)

    def _upload(self, name: str) -> None:
        image = self._regions[name].image.view(np.uint8)
        self.backend.upload(self._matrices[name].buffer, image)


class DeviceMemory:
    """Plain matrices in a back end's memory, for tests that launch kernels themselves.

    >>> with DeviceMemory(backend) as memory:  # doctest: +SKIP
    ...     A = memory.upload(np.eye(4, dtype=np.float32))
    ...     C = memory.allocate(4, 4)
    ...     backend.time(executable, config, [A, C])
    ...     result = memory.download(C)

    Everything is freed at the end of the ``with`` block, or by ``close``.
    """

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self._memory = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def allocate(self, rows: int, columns: int) -> Matrix:
        """Reserve a float32 matrix, filled with NaN. Raises BackendError."""
        return self.upload(np.full((rows, columns), np.nan, np.float32))

    def upload(self, array: Float32) -> Matrix:
        """Copy a two-dimensional array into new memory, as float32. Raises BackendError."""
        data = np.ascontiguousarray(array, dtype=np.float32)
        rows, columns = data.shape
        buffer = self.backend.allocate(data.nbytes)
        self._memory.callback(self.backend.free, buffer)
        self.backend.upload(buffer, data.reshape(-1).view(np.uint8))
        return Matrix(buffer, 0, rows, columns, columns, "float32")

    def download(self, matrix: Matrix) -> Float32:
        """Copy a matrix back: a contiguous array."""
        return read_matrix(self.backend, matrix)

    def close(self) -> None:
        """Free everything."""
        self._memory.close()


def read_matrix(backend: Backend, matrix: Matrix) -> Float32:
    """Download a matrix: a contiguous float32 copy of its rows, without their padding."""
    values = backend.download(matrix.buffer).view(np.float32)
    return _rows(values, matrix.offset, matrix.rows, matrix.columns, matrix.ld).copy()


class _Region:
    """A matrix's place in its buffer, and the bits that the whole buffer should hold."""

    def __init__(self, name: str, rows: int, columns: int, ld: int, guard: int | None) -> None:
        if guard is None:
            guard = min(max(128 * ld * ITEMSIZE["float32"], 2**12), 2**22)
        self.name = name
        self.shape = (rows, columns, ld)
        self.offset = -(-guard // ALIGNMENT) * ALIGNMENT
        nbytes = 2 * self.offset + rows * ld * ITEMSIZE["float32"]
        self.image: Bits = np.full(nbytes // 4, GUARD_BITS[name], np.uint32)
        self.contents = self.inside(self.image)

    def inside(self, bits: Bits) -> Bits:
        """The matrix itself within the buffer's bits: a view."""
        return _rows(bits, self.offset, *self.shape)

    def put(self, value: float | np.float32 | Float32) -> None:
        self.contents.view(np.float32)[...] = value

    def changes(self, now: Bits) -> Iterator[Violation]:
        """Where ``now`` differs from the image, by place."""
        if np.array_equal(now, self.image):
            return
        rows, columns, ld = self.shape
        at = np.flatnonzero(now != self.image) - self.offset // 4
        end = (rows - 1) * ld + columns
        before, after, within = at[at < 0], at[at >= end], at[(at >= 0) & (at < end)]
        contents, padding = within[within % ld < columns], within[within % ld >= columns]
        if after.size:
            yield Violation(self.name, "after", after.size, int(after[0]) - end)
        if before.size:
            yield Violation(self.name, "before", before.size, int(before[-1]))
        for place, offsets in (("padding", padding), ("contents", contents)):
            if offsets.size:
                first = int(offsets[0])
                yield Violation(self.name, place, offsets.size, first, *divmod(first, ld))


def _rows(
    values: npt.NDArray[Element], offset: int, rows: int, columns: int, ld: int
) -> npt.NDArray[Element]:
    start = offset // ITEMSIZE["float32"]
    return values[start : start + rows * ld].reshape(rows, ld)[:, :columns]


@contextmanager
def _allocated(backend: Backend, region: _Region) -> Iterator[Matrix]:
    buffer = backend.allocate(region.image.nbytes)
    try:
        yield Matrix(buffer, region.offset, *region.shape, "float32")
    finally:
        backend.free(buffer)
