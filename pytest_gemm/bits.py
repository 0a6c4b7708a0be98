"""From elements to the bits that are stored, and back.

NumPy has no bfloat16, and is slow with float16: elements of either are float32 numbers here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_gemm.dtypes import TYPES

Elements = npt.NDArray[Any]
Bits = npt.NDArray[Any]

_CARRIERS: dict[str, type[np.generic]] = {
    "float32": np.float32,
    "float64": np.float64,
    "float16": np.float32,
    "bfloat16": np.float32,
    "int8": np.int8,
    "int32": np.int32,
}
_WORDS: dict[int, type[np.generic]] = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def carrier(dtype: str) -> np.dtype[Any]:
    """The NumPy type of arrays that hold elements of a type."""
    return np.dtype(_CARRIERS[dtype])


def word(dtype: str) -> np.dtype[Any]:
    """The NumPy type of an element's bits: an unsigned integer."""
    return np.dtype(_WORDS[TYPES[dtype].itemsize])


def visible(dtype: str) -> np.dtype[Any]:
    """What arrays given to Python are of: the type itself, of bfloat16 the bits."""
    return word(dtype) if dtype == "bfloat16" else np.dtype(dtype)


def encode(values: Elements, dtype: str) -> Bits:
    """The bits of elements; what is no element is rounded to the nearest, ties to even.

    NaNs keep what they can of their payload.
    """
    if dtype == "float16":
        with np.errstate(over="ignore"):
            return np.asarray(values).astype(np.float16).view(np.uint16)
    if dtype == "bfloat16":
        single = rounded(np.asarray(values), dtype).astype(np.float32)
        return (single.view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    return np.asarray(values).astype(carrier(dtype), copy=False).view(word(dtype))


def decode(bits: Bits, dtype: str) -> Elements:
    """The elements that bits stand for, NaNs with their payload."""
    if dtype == "float16":
        return bits.view(np.float16).astype(np.float32)
    if dtype == "bfloat16":
        return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return bits.view(carrier(dtype))


def rounded(values: Elements, dtype: str) -> Elements:
    """Each value rounded once to the nearest element of a type, as float64 or what it was.

    Integers stay as they are. Subnormal numbers of bfloat16 are rounded as if there were more.
    """
    if dtype in ("int8", "int32"):
        return values
    with np.errstate(over="ignore", invalid="ignore"):
        if dtype != "bfloat16":
            return values.astype(np.dtype(dtype)).astype(values.dtype)
        fractions, exponents = np.frexp(values)
        nearest = np.ldexp(np.rint(np.ldexp(fractions, 8)), exponents - 8)
        return np.where(np.isfinite(values), nearest, values).astype(values.dtype)


def raw(values: Elements) -> Bits:
    """The bits of the numbers that hold elements: equal where the elements' own are."""
    values = np.ascontiguousarray(values)
    return values.view(_WORDS[values.dtype.itemsize])
