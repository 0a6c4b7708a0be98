"""Reads the keys that say what is computed: types, layouts, scalars, batches, a reference."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_gemm.dtypes import ACCUMULATORS, OUTPUTS, TYPES
from pytest_gemm.kernelspec import LEADING_DIMENSIONS
from pytest_gemm.problem import BATCH, DIMENSIONS, LAYOUTS, TRANSPOSITIONS
from pytest_gemm.schema import KEYS, Reader, short

_GEMM_ONLY = ("acc_dtype", "transa", "transb", "alpha", "beta", "batch", "reference", "finite_c")
_REFERENCE = re.compile(r"[^:]+\.py:[A-Za-z_]\w*")


@dataclass(frozen=True)
class Operation:
    """Fields of ``KernelSpec``, see there."""

    dtype: str
    out_dtype: str
    acc_dtype: str
    layout: str
    transa: str
    transb: str
    leading: tuple[tuple[str, str], ...]
    alpha: float
    beta: float
    batch: int
    reference: str
    finite_c: bool

    @property
    def types(self) -> dict[str, str]:
        """The element types of A, B and C."""
        return {"A": self.dtype, "B": self.dtype, "C": self.out_dtype}


def integers(op: str) -> tuple[str, ...]:
    """The problem's integers that an expression may use."""
    return (*DIMENSIONS[op], *LEADING_DIMENSIONS, *(BATCH if op == "gemm" else ()))


def read_operation(reader: Reader, op: str, params: Sequence[str]) -> Operation:
    """What the keys say; ``params`` are the names that the leading dimensions may use too.

    Raises SpecError.
    """
    for key in _GEMM_ONLY:
        if op != "gemm" and key in reader.data:
            reader.fail(f"{key} is for op = 'gemm': op is {op!r}", key)
    dtype = reader.choice("dtype", "float32", tuple(OUTPUTS))
    operation = Operation(
        dtype=dtype,
        out_dtype=_type_beside(reader, "out_dtype", dtype, OUTPUTS),
        acc_dtype=_type_beside(reader, "acc_dtype", dtype, ACCUMULATORS),
        layout=reader.choice("layout", LAYOUTS[0], LAYOUTS),
        transa=reader.choice("transa", "N", TRANSPOSITIONS),
        transb=reader.choice("transb", "N", TRANSPOSITIONS),
        leading=tuple(
            (name, reader.expression(name, "0", (*DIMENSIONS[op], *params)))
            for name in LEADING_DIMENSIONS
            if name in reader.data
        ),
        alpha=reader.scalar("alpha", 1.0),
        beta=reader.scalar("beta", 0.0),
        batch=reader.count("batch", 1),
        reference=_reference(reader),
        finite_c=reader.boolean("finite_c", False),
    )
    if operation.alpha == 0:
        reader.fail("alpha = 0 cannot be: nothing would be multiplied", "alpha")
    for key, value in (("alpha", operation.alpha), ("beta", operation.beta)):
        if TYPES[operation.acc_dtype].is_integer and value != int(value):
            reader.fail(f"{key} = {value:g} cannot be with int32 sums: it is a whole number", key)
    return operation


def _type_beside(reader: Reader, key: str, dtype: str, choices: Mapping[str, Sequence[str]]) -> str:
    """The type of C or of sums, where that of A and B leaves a choice."""
    value = reader.text(key, choices[dtype][0])
    if value not in choices[dtype]:
        those = " or ".join(choices[dtype])
        reader.fail(f"{key} = {short(value)} is not supported: with {dtype} it is {those}", key)
    return value


def _reference(reader: Reader) -> str:
    text = reader.text("reference")
    if text and not _REFERENCE.fullmatch(text):
        reader.fail(f"reference = {short(text)} is not {KEYS['reference']}", "reference")
    return text
