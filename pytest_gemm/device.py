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
from typing import Self

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import as_strided

from pytest_gemm.backends.base import Backend, Matrix
from pytest_gemm.bits import Bits, Elements, decode, encode, word
from pytest_gemm.dtypes import TYPES
from pytest_gemm.matrices import Float32, Operands
from pytest_gemm.problem import Problem

ALIGNMENT = 256
"""Bytes to which every matrix is aligned, as a CUDA allocation is."""

Indices = npt.NDArray[np.intp]


def guard_bits(name: str, dtype: str) -> int:
    """What surrounds A, B or C: quiet NaNs; about 0.862, which any addition visibly changes."""
    return TYPES[dtype].guards["ABC".index(name)]


def poisons(dtype: str) -> tuple[Elements, Elements]:
    """What C holds before launches that must not read it, two scalars.

    A NaN of its own; then a finite number far above any result, to which whole numbers still add
    exactly, 2^22 (2^15 for float16). An integer cannot be NaN: two large ones.
    """
    first, second = decode(np.array(TYPES[dtype].poisons, word(dtype)), dtype)
    return first, second


@dataclass(frozen=True)
class Violation:
    """Elements that a kernel changed and must not change.

    ``place`` is ``before`` or ``after`` the matrix, ``padding`` between its rows (columns, where
    those are stored one after another: ``by_columns``), ``between`` the matrices of a batch, or
    ``contents`` (of A or B). ``first`` counts elements: behind the end (0 is the first), before
    the start (-1 is the nearest), else from the matrix's start, where it is also
    ``[row, column]`` of what is stored, and of which ``matrix`` of a batch.
    """

    buffer: str
    place: str
    count: int
    first: int
    row: int = 0
    column: int = 0
    matrix: int | None = None
    by_columns: bool = False

    def __str__(self) -> str:
        elements = "1 element" if self.count == 1 else f"{self.count} elements"
        if self.place == "contents":
            index = [i for i in (self.matrix, self.row, self.column) if i is not None]
            return f"{elements} of {self.buffer} overwritten, first {self.buffer}{index}"
        if self.place == "between":
            at = f"behind matrix {self.matrix}"
            return f"{elements} written between the matrices of {self.buffer}, first {at}"
        if self.place == "padding":
            lines = ("row", self.row), ("column", self.column)
            (line, number), (other, last) = lines[::-1] if self.by_columns else lines
            at = f"behind {other} {last - 1} of {line} {number}"
            at += "" if self.matrix is None else f" of matrix {self.matrix}"
            return f"{elements} written between the {line}s of {self.buffer}, first {at}"
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
        self._regions = {name: _Region(problem, name, guard) for name in problem.shapes}
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

    def fill(self, value: float | Elements) -> None:
        """Set every element of C, and renew its guards; NaN becomes the first of ``poisons``."""
        region = self._regions["C"]
        if np.isscalar(value) and np.isnan(value):
            value, _ = poisons(region.dtype)
        region.put(np.asarray(value))
        self._upload("C")

    def matrix(self, name: str) -> Matrix:
        """A, B or C as a launch argument."""
        return self._matrices[name]

    def read(self, name: str = "C") -> Elements:
        """Download op(A), op(B) or C: a contiguous copy."""
        region = self._regions[name]
        return region.values(self._bits(name))

    def violations(self) -> tuple[Violation, ...]:
        """Every change outside C since the last upload, NaNs compared bit by bit."""
        found: list[Violation] = []
        for name, region in self._regions.items():
            now = self._bits(name)
            if name == "C":
                region.contents[...] = region.inside(now)
            found += region.changes(now)
        return tuple(found)

    def _bits(self, name: str) -> Bits:
        bits: Bits = self.backend.download(self._matrices[name].buffer)
        return bits.view(word(self._regions[name].dtype))

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
        values = self.backend.download(matrix.buffer).view(np.float32)
        return values.reshape(matrix.rows, matrix.columns)

    def close(self) -> None:
        """Free everything."""
        self._memory.close()


class _Region:
    """A matrix's place in its buffer, and the bits that the whole buffer should hold."""

    def __init__(self, problem: Problem, name: str, guard: int | None) -> None:
        self.name = name
        self.dtype = problem.types[name].name
        size = problem.types[name].itemsize
        self.lines, self.length = problem.stored(name)
        self.ld, self.batch, self.stride = problem.ld(name), problem.batch, problem.stride(name)
        self.by_columns = problem.layout == "column-major"
        self._is_flipped = problem.is_flipped(name)
        if guard is None:
            guard = min(max(128 * self.ld * size, 2**12), 2**22)
        self.offset = -(-guard // ALIGNMENT) * ALIGNMENT
        self._start = self.offset // size
        self._used = (self.lines - 1) * self.ld + self.length
        span = (self.batch - 1) * self.stride + self.lines * self.ld
        self.image: Bits = np.full(
            2 * self._start + span, guard_bits(name, self.dtype), word(self.dtype)
        )
        self.contents = self.inside(self.image)

    def inside(self, bits: Bits) -> Bits:
        """op(A), op(B) or C within the buffer's bits: a view."""
        item = bits.itemsize
        lines = as_strided(
            bits[self._start :],
            (self.batch, self.lines, self.length),
            (self.stride * item, self.ld * item, item),
        )
        lines = lines if self.batch > 1 else lines[0]
        return lines.swapaxes(-1, -2) if self._is_flipped else lines

    def put(self, values: Elements) -> None:
        self.contents[...] = encode(values, self.dtype)

    def values(self, bits: Bits) -> Elements:
        """The elements in the buffer's bits: a contiguous copy."""
        return decode(self.inside(bits).copy(), self.dtype)

    def changes(self, now: Bits) -> Iterator[Violation]:
        """Where ``now`` differs from the image, by place."""
        if np.array_equal(now, self.image):
            return
        at = np.flatnonzero(now != self.image) - self._start
        end = (self.batch - 1) * self.stride + self._used
        before, after, within = at[at < 0], at[at >= end], at[(at >= 0) & (at < end)]
        inner = within % self.stride
        is_between = inner >= self._used
        is_contents = ~is_between & (inner % self.ld < self.length)
        if after.size:
            yield Violation(self.name, "after", after.size, int(after[0]) - end)
        if before.size:
            yield Violation(self.name, "before", before.size, int(before[-1]))
        for place, chosen in (
            ("padding", ~is_between & ~is_contents),
            ("between", is_between),
            ("contents", is_contents),
        ):
            if chosen.any():
                yield self._violation(place, within[chosen])

    def _violation(self, place: str, at: Indices) -> Violation:
        first = int(at[0])
        matrix, inner = divmod(first, self.stride)
        row, column = divmod(inner, self.ld)
        if self.by_columns:
            row, column = column, row
        index = matrix if self.batch > 1 else None
        return Violation(self.name, place, at.size, first, row, column, index, self.by_columns)


@contextmanager
def _allocated(backend: Backend, region: _Region) -> Iterator[Matrix]:
    buffer = backend.allocate(region.image.nbytes)
    try:
        yield Matrix(
            *(buffer, region.offset, region.lines, region.length, region.ld, region.dtype),
            batch=region.batch,
            stride=region.stride,
            by_columns=region.by_columns,
        )
    finally:
        backend.free(buffer)
