"""What is computed: an operation, its sizes, and how its matrices are stored."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from pytest_gemm.dtypes import ACCUMULATORS, OUTPUTS, TYPES, ElementType
from pytest_gemm.errors import ConfigError

ITEMSIZE = {name: kind.itemsize for name, kind in TYPES.items()}
"""Bytes of one element, by dtype name."""

DIMENSIONS = {"gemm": ("M", "N", "K"), "add": ("M", "N")}
"""The sizes that each operation has, in the order of a problem's id."""

STRIDES = ("strideA", "strideB", "strideC")
BATCH = ("batch", *STRIDES)
"""What a kernel for several products at once may be told: cuBLAS' batchCount and strides."""

LAYOUTS = ("row-major", "column-major")
TRANSPOSITIONS = ("N", "T")

_SIZE = re.compile(r"[1-9][0-9]{0,11}(?:x[1-9][0-9]{0,11})*")


@dataclass(frozen=True, order=True)
class Problem:
    """One problem: ``C = alpha op(A) op(B) + beta C`` (gemm) or ``C = A + B`` (add).

    ``op(A)`` is M x K, ``op(B)`` is K x N, ``C`` is M x N for gemm; all three are M x N for add,
    whose ``K`` is 0. As in BLAS, ``transa = "T"`` says that A is stored as K x M, and ``transb``
    that B is as N x K. ``layout`` is ``row-major`` or ``column-major``; ``lda``, ``ldb`` and
    ``ldc`` are the distances between the rows (columns) of what is stored, in elements; 0 stands
    for the least. There are ``batch`` such products, ``strideA`` and so on the distances between
    their matrices in elements; 0 stands for the least.

    ``dtype`` is the type of A and B, ``out_dtype`` that of C and ``acc_dtype`` the one in which
    sums are kept; empty texts stand for the first of ``dtypes.OUTPUTS`` and ``ACCUMULATORS``.

    ``reference`` names a function of A, B and C that says what C should be instead, as
    ``file:name``; it is given the old C where ``reference_reads_c``.
    ``finite_c``: C holds finite numbers before, also where the result does not depend on them.
    """

    op: str
    M: int
    N: int
    K: int
    alpha: float = 1.0
    beta: float = 0.0
    dtype: str = "float32"
    lda: int = 0
    ldb: int = 0
    ldc: int = 0
    out_dtype: str = ""
    acc_dtype: str = ""
    layout: str = "row-major"
    transa: str = "N"
    transb: str = "N"
    batch: int = 1
    strideA: int = 0
    strideB: int = 0
    strideC: int = 0
    reference: str = ""
    reference_reads_c: bool = False
    finite_c: bool = False

    def __post_init__(self) -> None:
        for field, choices in (("out_dtype", OUTPUTS), ("acc_dtype", ACCUMULATORS)):
            if not getattr(self, field):
                object.__setattr__(self, field, choices[self.dtype][0])

    @classmethod
    def parse(cls, text: str, op: str = "gemm", dtype: str = "float32") -> Problem:
        """Read ``"512"`` (square), ``"512x256x128"`` (gemm) or ``"512x256"`` (add).

        An add kernel takes M and N from a text with three sizes. Raises ConfigError.
        """
        sizes = [int(s) for s in text.split("x")] if _SIZE.fullmatch(text) else []
        if len(sizes) == 1:
            sizes *= 3
        if op == "add" and len(sizes) == 2:
            sizes.append(0)
        if len(sizes) != 3:
            form = "M or MxN or MxNxK" if op == "add" else "N or MxNxK"
            raise ConfigError(f"{text!r} is not a size: write {form}, each from 1 to 10^12 - 1")
        M, N, K = sizes
        return cls(op, M, N, 0 if op == "add" else K, dtype=dtype)

    @property
    def id(self) -> str:
        """``MxNxK`` for gemm, ``MxN`` for add."""
        return "x".join(str(getattr(self, d)) for d in DIMENSIONS[self.op])

    @property
    def label(self) -> str:
        """What tells a kernel's benchmarks apart: ``64x48x32-float16``, ``...-float16+NT+beta:1``.

        The type of sums and the reference say what is asked of a result, not what is computed:
        they are not in it.
        """
        words = [f"out:{self.out_dtype}"] * (self.out_dtype != OUTPUTS[self.dtype][0])
        words += [self.transa + self.transb] * ((self.transa, self.transb) != ("N", "N"))
        words += ["column"] * (self.layout == "column-major")
        for name in ("alpha", "beta", "lda", "ldb", "ldc", *BATCH):
            # The class keeps the defaults.
            if (value := getattr(self, name)) != getattr(Problem, name):
                words.append(f"{name}:{str(value).removesuffix('.0')}")
        return "+".join([f"{self.id}-{self.dtype}", *words])

    @property
    def types(self) -> dict[str, ElementType]:
        """The element type of each buffer."""
        read = TYPES[self.dtype]
        return {"A": read, "B": read, "C": TYPES[self.out_dtype]}

    @property
    def accumulator(self) -> ElementType:
        """The type in which sums are kept."""
        return TYPES[self.acc_dtype]

    @property
    def reads_c(self) -> bool:
        """Whether the result depends on what C held before."""
        return bool(self.beta) or self.reference_reads_c

    @property
    def single(self) -> Problem:
        """One of the products of a batch."""
        return replace(self, batch=1, strideA=0, strideB=0, strideC=0)

    @property
    def shapes(self) -> dict[str, tuple[int, int]]:
        """Rows and columns of op(A), op(B) and C."""
        if self.op == "add":
            return dict.fromkeys("ABC", (self.M, self.N))
        return {"A": (self.M, self.K), "B": (self.K, self.N), "C": (self.M, self.N)}

    def is_flipped(self, buffer: str) -> bool:
        """Whether memory holds the columns of op(A), op(B) or C one after another."""
        transposed = {"A": self.transa, "B": self.transb, "C": "N"}[buffer] == "T"
        return transposed != (self.layout == "column-major")

    def stored(self, buffer: str) -> tuple[int, int]:
        """How many runs of adjacent elements a matrix has in memory, and how long each is.

        They are its rows where it is row-major and not transposed.
        """
        rows, columns = self.shapes[buffer]
        return (columns, rows) if self.is_flipped(buffer) else (rows, columns)

    @property
    def sizes(self) -> dict[str, int]:
        """The integers that a kernel's expressions may use: M, N, K, lda, ldb, ldc, batch's."""
        dims = {d: int(getattr(self, d)) for d in DIMENSIONS[self.op]}
        dims |= {f"ld{name.lower()}": self.ld(name) for name in self.shapes}
        if self.op == "gemm":
            dims |= {"batch": self.batch, **{f"stride{name}": self.stride(name) for name in "ABC"}}
        return dims

    def ld(self, buffer: str) -> int:
        """The leading dimension of A, B or C in elements."""
        return int(getattr(self, f"ld{buffer.lower()}")) or self.stored(buffer)[1]

    def stride(self, buffer: str) -> int:
        """The distance between the starts of two matrices of a batch, in elements."""
        dense = self.stored(buffer)[0] * self.ld(buffer)
        return int(getattr(self, f"stride{buffer}")) or dense

    @property
    def has_gaps(self) -> bool:
        """Whether there is memory between the rows of a matrix, or the matrices of a batch."""
        return any(
            self.ld(name) > self.stored(name)[1]
            or self.stride(name) > self.stored(name)[0] * self.ld(name)
            for name in self.shapes
        )

    @property
    def flops(self) -> int:
        """Operations counted for GFLOP/s: 2 M N K of each product (gemm), M N (add)."""
        return self.M * self.N if self.op == "add" else 2 * self.M * self.N * self.K * self.batch

    @property
    def bytes(self) -> int:
        """Least traffic with memory: each input read once, the output written once.

        C is an input where ``reads_c``.
        """
        accesses, types = {"A": 1, "B": 1, "C": 2 if self.reads_c else 1}, self.types
        return self.batch * sum(
            accesses[name] * rows * columns * types[name].itemsize
            for name, (rows, columns) in self.shapes.items()
        )
