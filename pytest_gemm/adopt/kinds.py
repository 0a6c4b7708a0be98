"""What is computed: the operation, how matrices are stored, of which types they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

from pytest_gemm.dtypes import ACCUMULATORS, OUTPUTS, TYPES
from pytest_gemm.kernelspec import LEADING_DIMENSIONS
from pytest_gemm.problem import LAYOUTS, TRANSPOSITIONS, Problem

_EXCHANGED = {
    **{"A": "B", "B": "A", "M": "N", "N": "M"},
    **{"strideA": "strideB", "strideB": "strideA"},
}
_VECTORS = {
    **{"float2": "float32", "float3": "float32", "float4": "float32", "double2": "float64"},
    **{"char2": "int8", "char4": "int8"},
    **{"half2": "float16", "__half2": "float16"},
    **{"nv_bfloat162": "bfloat16", "__nv_bfloat162": "bfloat16"},
}
ELEMENTS = {cpp: name for name, kind in TYPES.items() for cpp in kind.cpp} | _VECTORS
"""The element type of what a pointer points to, by the words of C++."""


@dataclass(frozen=True)
class Kind:
    """An operation and a layout; the fields are keys of a declaration."""

    op: str = "gemm"
    layout: str = LAYOUTS[0]
    transa: str = "N"
    transb: str = "N"

    @cached_property
    def keys(self) -> tuple[tuple[str, Any], ...]:
        """Those that differ from what a declaration need not say."""
        plain = Kind()
        names = ("op", "layout", "transa", "transb")
        return tuple((n, getattr(self, n)) for n in names if getattr(self, n) != getattr(plain, n))

    @cached_property
    def meanings(self) -> Mapping[str, str]:
        """Which size ``rowsA``, ``columnsB``, ``ldc`` and so on are."""
        sizes = {"M": 3, "N": 5, "K": 0 if self.op == "add" else 7}
        problem = Problem(
            *(self.op, sizes["M"], sizes["N"], sizes["K"]),
            layout=self.layout,
            transa=self.transa,
            transb=self.transb,
        )
        names = {value: name for name, value in sizes.items()}
        found: dict[str, str] = {}
        for matrix, (rows, columns) in problem.shapes.items():
            if {"A": self.transa, "B": self.transb}.get(matrix) == "T":
                rows, columns = columns, rows
            found |= {f"rows{matrix}": names[rows], f"columns{matrix}": names[columns]}
        found |= {ld: names[problem.ld(ld[-1].upper())] for ld in LEADING_DIMENSIONS}
        return found

    def in_memory(self, args: tuple[str, ...]) -> tuple[str, str, str, tuple[str, ...]]:
        """Operation, transpositions and arguments as a row-major launch.

        The same for every reading that makes the same launch: column-major matrices are row-major
        ones that are transposed, and the product of two is that of the other two in the reverse
        order, transposed.
        """
        if self.layout == LAYOUTS[0]:
            return (self.op, self.transa, self.transb, args)
        exchanged = tuple(_EXCHANGED.get(arg, arg) for arg in args)
        return (self.op, self.transb, self.transa, exchanged)


def kinds(op: str) -> Iterator[Kind]:
    """All there are of an operation, the most frequent first."""
    if op == "add":
        yield Kind("add")  # a column-major sum is a row-major one
        return
    for layout, (transb, transa) in product(LAYOUTS, product(TRANSPOSITIONS, repeat=2)):
        yield Kind(op, layout, transa, transb)


def type_keys(dtype: str, out_dtype: str) -> Iterator[tuple[tuple[str, str], ...]]:
    """The keys for matrices of these types, once for each type that sums may be kept in.

    None where there is no such product.
    """
    for acc_dtype in ACCUMULATORS.get(dtype, ()) if out_dtype in OUTPUTS.get(dtype, ()) else ():
        keys = []
        if dtype != "float32":
            keys.append(("dtype", dtype))
        if out_dtype != OUTPUTS[dtype][0]:
            keys.append(("out_dtype", out_dtype))
        if acc_dtype != ACCUMULATORS[dtype][0]:
            keys.append(("acc_dtype", acc_dtype))
        yield tuple(keys)
