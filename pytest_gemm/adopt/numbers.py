"""What an integer may be given that is no size of the problem: a flag, a tile's side, a stride."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pytest_gemm.adopt.launches import LaunchCode
from pytest_gemm.adopt.names import is_count, is_flag, is_offset, is_part, is_pitch, step_of
from pytest_gemm.adopt.signature import Signature
from pytest_gemm.dtypes import TYPES
from pytest_gemm.kernelspec import LEADING_DIMENSIONS, MAX_THREADS, SCALARS

PARTS = ("16", "32", "8")
"""What is tried for the side of a tile that is not told."""


class Numbers(NamedTuple):
    """``texts`` are expressions, the likeliest first; ``alone`` says that it is nothing else."""

    texts: tuple[str, ...]
    alone: bool = True


def numbers(
    signature: Signature, launch: LaunchCode | None, elements: Mapping[int, str]
) -> dict[int, Numbers]:
    """By position, of the integers that may be something else than a size.

    ``elements`` are the types of the elements that pointers point to, ``launch`` may pass numbers:
    where all of them are, they are sizes.
    """
    literal = {i for i in signature.integers if launch and launch.is_literal(i)}
    found: dict[int, Numbers] = {}
    for position in signature.integers:
        name, words = signature.names[position], signature.types[position].split()
        number = launch.number(position) if launch else None
        told = (str(number),) if number is not None and number <= MAX_THREADS else ()
        if "bool" in words or (is_flag(name) and "char" not in words):
            found[position] = Numbers(("0", "1"))
        elif name.lower() in SCALARS and "int8" in elements.values():
            found[position] = Numbers((name.lower(),))
        elif "char" in words:  # as BLAS takes them
            found[position] = Numbers((str(ord("N")), str(ord("T"))))
        elif is_pitch(name):
            sizes = [TYPES[dtype].itemsize for dtype in elements.values() if dtype in TYPES]
            item = max(sizes, default=4)
            found[position] = Numbers(tuple(f"{item} * {ld}" for ld in LEADING_DIMENSIONS), False)
        elif step := step_of(name):
            matrix, is_row = step
            ld = f"ld{matrix}"
            found[position] = Numbers((ld, "1") if is_row else ("1", ld))
        elif is_offset(name):
            found[position] = Numbers(("0",))
        elif is_part(name):
            found[position] = Numbers(told or PARTS)
        elif is_count(name):
            found[position] = Numbers(tuple(f"cdiv(K, {part})" for part in PARTS))
        elif told and position in literal and len(literal) < len(signature.integers):
            found[position] = Numbers(told, False)
    return found
