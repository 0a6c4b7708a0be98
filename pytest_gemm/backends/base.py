"""The seam between a case and the hardware: what every back end can do.

A back end compiles a program, keeps buffers of bytes, and times launches. It knows nothing of
matrices, correctness or baselines.
"""

from __future__ import annotations

import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from pytest_gemm.bits import encode
from pytest_gemm.errors import KernelFault, raised

Dim3 = tuple[int, int, int]
"""(x, y, z), as CUDA orders them."""

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Device:
    """What the hardware is.

    ``name`` is the stable key under which its baselines are stored (safe as a folder's name);
    ``description`` is for people; ``environment`` holds what may change on the same device
    (compiler, driver, versions): plain strings, numbers or None. ``peak_flops`` (per second,
    float32), ``peak_bandwidth`` (bytes per second) and ``memory`` (bytes) are the hardware's
    limits, where they are known.
    """

    kind: str
    name: str
    description: str
    environment: Mapping[str, Any] = field(default_factory=dict)
    peak_flops: float | None = None
    peak_bandwidth: float | None = None
    memory: int | None = None

    @property
    def about(self) -> dict[str, str]:
        """Its kind, name and description."""
        return {"kind": self.kind, "name": self.name, "description": self.description}


@dataclass(frozen=True)
class CudaProgram:
    """A CUDA C++ source and the one kernel in it that is wanted.

    ``entry`` is a function's name or a name expression such as ``gemm<32, 16>``; ``defines``
    become ``-D`` macros; ``filename`` is what diagnostics call the source, and its folder is
    searched for local includes.
    """

    source: str
    filename: str
    entry: str
    defines: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class PythonProgram:
    """A callable that launches the work itself; ``parameters`` are its names in order."""

    function: Callable[..., object]
    parameters: tuple[str, ...]


Program = CudaProgram | PythonProgram


@dataclass(frozen=True)
class LaunchConfig:
    """Grid and block in CUDA's (x, y, z) order, dynamic shared memory in bytes.

    ``different_barriers``: threads of a block may pass one barrier at different lines, as a GPU
    allows; where a back end can tell, it is a fault otherwise.
    """

    grid: Dim3
    block: Dim3
    shared_mem: int = 0
    different_barriers: bool = False


class Buffer(Protocol):
    """Device memory that a back end allocated."""

    @property
    def nbytes(self) -> int: ...


@dataclass(frozen=True)
class Matrix:
    """A matrix inside a buffer: ``rows`` runs of ``columns`` adjacent elements, ``ld`` apart.

    ``offset`` is in bytes, ``ld`` and ``stride`` in elements: the distance between the first of
    ``batch`` matrices and the next. A CUDA program receives its address, a Python program an array
    (NumPy on the host), transposed where the runs are columns (``by_columns``).
    """

    buffer: Buffer
    offset: int
    rows: int
    columns: int
    ld: int
    dtype: str
    batch: int = 1
    stride: int = 0
    by_columns: bool = False

    @property
    def view(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Shape and strides, in elements, of the array that a Python program receives."""
        shape, strides = (self.rows, self.columns), (self.ld, 1)
        if self.by_columns:
            shape, strides = shape[::-1], strides[::-1]
        if self.batch == 1:
            return shape, strides
        return (self.batch, *shape), (self.stride, *strides)

    @property
    def elements(self) -> int:
        """From the first element to behind the last row's padding."""
        return (self.batch - 1) * self.stride + self.rows * self.ld


Argument = Matrix | int | float | None
"""What a program is launched with; None stands for the stream of the back end, where it has one."""


def bits_beside(value: float, arguments: Sequence[Argument]) -> int | None:
    """A number's bits in the 16-bit type that the matrices beside it have; None for no or two."""
    types = {a.dtype for a in arguments if isinstance(a, Matrix)} & {"float16", "bfloat16"}
    if len(types) != 1:
        return None
    return int(encode(np.array(value), types.pop()))


class Executable(Protocol):
    """A compiled program; ``facts`` are what the build says of it (registers, seconds)."""

    @property
    def facts(self) -> Mapping[str, Any]: ...


class Trip(NamedTuple):
    """Device seconds of the way there, of one launch, of the way back, and of all of it."""

    upload: float
    launch: float
    download: float
    total: float


class Backend(ABC):
    """One way to run kernels. Errors: see each method; all are GemmErrors."""

    kind: ClassVar[str]
    """``host`` or ``cuda``: the word after ``--gemm-device``."""

    @property
    @abstractmethod
    def device(self) -> Device:
        """The hardware. Raises BackendError where it cannot be used."""

    @property
    def count(self) -> int:
        """How many devices of this kind the process sees. Raises BackendError."""
        return 1

    @property
    def lost(self) -> str:
        """Why nothing can be run in this process any more, or an empty text."""
        return ""

    @abstractmethod
    def compile(self, program: Program) -> Executable:
        """Build a program. Raises CompileError, with the kernel file's line where known."""

    @abstractmethod
    def allocate(self, nbytes: int) -> Buffer:
        """Reserve memory, its start aligned to 256 bytes. Raises BackendError."""

    @abstractmethod
    def free(self, buffer: Buffer) -> None:
        """Give a buffer back; its contents are gone."""

    @abstractmethod
    def upload(self, buffer: Buffer, data: Bytes) -> None:
        """Copy ``data`` (exactly ``buffer.nbytes`` bytes) into the buffer."""

    @abstractmethod
    def download(self, buffer: Buffer) -> Bytes:
        """Return a copy of the buffer's bytes."""

    @abstractmethod
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
        """Launch ``launches`` times one after another, wait, and return the seconds of them all.

        ``cold`` evicts the caches before each launch, outside of the time that is returned.
        Raises KernelFault for what the kernel did wrong (a launch longer than ``timeout``
        seconds too), CompileError where the arguments do not fit the program's parameters.
        """

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
    ) -> Sequence[Trip]:
        """Time ``count`` times: the inputs to the device, one launch, the output back.

        ``pinned``: from and to memory of the host that cannot be paged out. The buffers need not
        be those of the arguments. Nothing where the device works on the host's own memory. Raises
        as ``time``.
        """
        return ()

    @abstractmethod
    def conditions(self) -> Mapping[str, Any]:
        """What may change from minute to minute (clocks, temperature, load): plain values."""


def exception_fault(error: BaseException, function: Callable[..., object]) -> KernelFault:
    """What a Python kernel raised, with the line of its file that led to it."""
    frames = traceback.extract_tb(error.__traceback__)
    file = getattr(getattr(function, "__code__", None), "co_filename", None)
    frame = next((f for f in reversed(frames) if f.filename == file), frames[-1])
    where = f"{frame.filename}:{frame.lineno}"
    return KernelFault("exception", f"{where}: {name_of(function)} raised {raised(error)}")


def name_of(function: object) -> str:
    """The name of a callable, or what stands for it."""
    return getattr(function, "__name__", None) or repr(function)
