"""Where operands lie while they are timed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from pytest_gemm import launching
from pytest_gemm.backends.base import PythonProgram
from pytest_gemm.errors import BackendError, KernelFault
from pytest_gemm.kernelspec import Kernel
from pytest_gemm.launching import LEAST_PADDING, MOST_HELD, MOST_PADDING, Launcher, placements
from pytest_gemm.matrices import operands
from pytest_gemm.problem import Problem
from pytest_gemm.timing import Place
from tests.memory_backend import MemoryBackend, MemoryBuffer

PROBLEM = Problem("gemm", 48, 40, 24)
DATA = operands(PROBLEM, 0, "uniform")


class Recording(MemoryBackend):
    """Notes the sizes it was asked for, and the A, B and C that each launch was given."""

    def __init__(self, capacity: int = 2**30) -> None:
        super().__init__(capacity)
        self.sizes: list[int] = []
        self.seen: list[tuple[Any, ...]] = []

    def allocate(self, nbytes: int) -> MemoryBuffer:
        self.sizes.append(nbytes)
        return super().allocate(nbytes)

    def note(self, *matrices: Any) -> None:
        self.seen.append(tuple(matrix.copy() for matrix in matrices))
        matrices[2][:] = 0

    def live(self) -> int:
        return sum(buffer.nbytes for buffer in self.buffers)


@contextmanager
def placing(backend: Recording, seed: int = 0, **options: Any) -> Iterator[Place]:
    kernel = Kernel("k", args=("A", "B", "C"), callable="x.py::k", path="x.py")
    program = PythonProgram(options.get("function", backend.note), ("A", "B", "C"))
    launcher = Launcher(kernel, backend, backend.compile(program), timeout=1.0)
    with placements(launcher, PROBLEM, DATA, seed) as place:
        yield place


def visit(backend: Recording, places: int, **options: Any) -> None:
    """Launch once at so many places."""
    with placing(backend, **options) as place:
        for _ in range(places):
            place()(1)


def test_every_place_holds_the_operands_anew() -> None:
    backend = Recording()
    with placing(backend) as place:
        for _ in range(2):
            place()(2)
    for number, (A, B, C) in enumerate(backend.seen):
        assert np.array_equal(A, DATA.A)
        assert np.array_equal(B, DATA.B)
        assert np.array_equal(C, DATA.C) == (number % 2 == 0)


def test_earlier_places_stay_taken_while_the_next_is_found_and_all_are_freed() -> None:
    backend = Recording()
    with placing(backend) as place:
        taken: list[MemoryBuffer] = []
        for number in range(1, 6):
            place()
            assert len(backend.buffers) == 4 * number  # the padding, A, B and C
            assert backend.buffers[: len(taken)] == taken
            taken = list(backend.buffers)
    assert backend.buffers == []


def test_what_earlier_places_take_is_bounded() -> None:
    backend = Recording()
    with placing(backend) as place:
        most = 0
        for _ in range(100):
            place()
            most = max(most, backend.live())
    assert MOST_HELD - MOST_PADDING < most <= MOST_HELD
    assert backend.buffers == []


def test_operands_beyond_the_bound_are_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launching, "MOST_HELD", 1000)
    backend = Recording()
    with placing(backend) as place:
        for _ in range(3):
            place()
            assert len(backend.buffers) == 4


def test_the_places_are_the_seed_s() -> None:
    def paddings(seed: int) -> list[int]:
        backend = Recording()
        with placing(backend, seed) as place:
            for _ in range(20):
                place()
        return backend.sizes[::4]

    first = paddings(1)
    assert first == paddings(1) != paddings(2)
    assert len(set(first)) > 15
    assert all(LEAST_PADDING <= size <= MOST_PADDING and size % 256 == 0 for size in first)


def test_all_is_freed_after_a_fault() -> None:
    def faulty(*_: Any) -> None:
        raise ValueError("no")

    backend = Recording()
    with pytest.raises(KernelFault):
        visit(backend, 2, function=faulty)
    assert backend.buffers == []


def test_all_is_freed_where_memory_is_lacking() -> None:
    backend = Recording(capacity=2 * MOST_PADDING)
    with pytest.raises(BackendError, match="no memory"):
        visit(backend, 20)
    assert backend.buffers == []


def test_all_is_freed_even_where_freeing_fails() -> None:
    class Stuck(Recording):
        def free(self, buffer: Any) -> None:
            super().free(buffer)
            raise BackendError("stuck")

    backend = Stuck()
    with pytest.raises(BackendError, match="stuck"):
        visit(backend, 2)
    assert backend.buffers == []
