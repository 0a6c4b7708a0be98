"""What checking a launch finds: mistakes with their lines, and how much memory was moved.

Plain data, without a reference to the launch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from pytest_gemm.backends.base import Dim3
from pytest_gemm.errors import KernelFault


@dataclass(frozen=True)
class ThreadOrder:
    """In which order threads run, and blocks: ``random`` is the same for the same seed."""

    kind: Literal["ascending", "descending", "random"] = "ascending"
    seed: int = 0


ASCENDING = ThreadOrder("ascending")
DESCENDING = ThreadOrder("descending")


@dataclass(frozen=True)
class Place:
    """A line of a source file; line 0 where it is not known."""

    file: str = ""
    line: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


@dataclass(frozen=True)
class Finding:
    """One mistake of a kernel.

    ``kind`` is ``out-of-bounds``, ``race``, ``uninitialized``, ``misaligned``, ``array-index``,
    ``overflow``, ``truncation`` (seen by clang alone), ``shift``, ``division-by-zero``,
    ``block-wait`` (a block waits for another one) or a kind of KernelFault; ``message`` is a
    sentence without the place.
    ``place`` is the line at fault, ``other_place`` the one that it collides with.
    ``argument`` counts from 1; ``row`` and ``column`` are those of its matrix and may lie outside
    of it. ``shared`` is the shared array's name (``dynamic shared memory`` has no other),
    ``variable`` that of a ``__device__`` one, and ``index`` the element's in it. ``count`` is how
    often this happened.
    """

    kind: str
    message: str
    place: Place = Place()
    other_place: Place = Place()
    block: Dim3 | None = None
    thread: Dim3 | None = None
    other_block: Dim3 | None = None
    other_thread: Dim3 | None = None
    argument: int | None = None
    row: int | None = None
    column: int | None = None
    shared: str | None = None
    variable: str | None = None
    index: tuple[int, ...] = ()
    count: int = 1

    @property
    def line(self) -> int:
        return self.place.line

    def __str__(self) -> str:
        where = str(self.place)
        return f"{where}: {self.message}" if where else self.message


@dataclass(frozen=True)
class Accesses:
    """How often memory was accessed, and how many bytes in all; a word has four.

    A ``float4`` is one access of four words.
    """

    loads: int = 0
    load_bytes: int = 0
    stores: int = 0
    store_bytes: int = 0
    atomics: int = 0
    atomic_bytes: int = 0

    @property
    def load_words(self) -> int:
        return self.load_bytes // 4

    @property
    def store_words(self) -> int:
        return self.store_bytes // 4

    def __add__(self, other: Accesses) -> Accesses:
        return Accesses(
            self.loads + other.loads,
            self.load_bytes + other.load_bytes,
            self.stores + other.stores,
            self.store_bytes + other.store_bytes,
            self.atomics + other.atomics,
            self.atomic_bytes + other.atomic_bytes,
        )


@dataclass(frozen=True)
class Traffic:
    """Exact counts of one launch, the same in every run.

    ``arguments`` maps the number of an argument, from 1, to what was done to its matrix;
    ``variables`` are those that the source declares with ``__device__``, outside of functions.
    ``barriers`` counts each barrier of a block once, whatever the number of threads.
    """

    arguments: dict[int, Accesses] = field(default_factory=dict)
    shared: Accesses = Accesses()
    variables: Accesses = Accesses()
    barriers: int = 0

    @property
    def matrices(self) -> Accesses:
        """Of all arguments together: the traffic with global memory that was given."""
        return sum(self.arguments.values(), Accesses())


@dataclass(frozen=True)
class CheckReport:
    """What one checked launch did.

    ``findings`` has the first of each kind and line, in the order in which they were met;
    ``more`` counts those that were left out beyond the bound. ``fault`` is what ended the launch
    before its end: also a finding, the last one.
    """

    findings: tuple[Finding, ...]
    traffic: Traffic
    fault: KernelFault | None = None
    more: int = 0
