"""Element types: how each is stored, how exactly it computes, what C++ calls it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ElementType:
    """A type of matrix elements.

    ``itemsize`` is in bytes. ``digits`` are the binary digits of a floating-point significand,
    the leading one included, or of an integer without its sign. ``guards`` surround A, B and C in
    memory: bit patterns that no operand has, for floating-point types NaNs around A and B and a
    finite number around C. ``poisons`` are what C holds before launches that must not read it:
    first a NaN's bits (for integers a number's), then a finite number's. ``cpp`` are the names
    that a pointer to such elements may have, the usual one first.
    """

    name: str
    itemsize: int
    digits: int
    guards: tuple[int, int, int]
    poisons: tuple[int, int]
    cpp: tuple[str, ...]
    is_integer: bool = False
    smallest: float = 0.0

    @property
    def unit_roundoff(self) -> float:
        """The largest relative error of rounding to nearest; 0 for integers."""
        return 0.0 if self.is_integer else 2.0**-self.digits

    @property
    def exact_limit(self) -> int:
        """All integers of a smaller magnitude are elements."""
        return int(2**self.digits)


TYPES = {
    kind.name: kind
    for kind in (
        ElementType(
            *("float32", 4, 24, (0x7FC5A5A1, 0x7FC5A5B2, 0x3F5CA7E1), (0x7FC0DEAD, 0x4A800000)),
            ("float",),
            smallest=2.0**-149,
        ),
        ElementType(
            *("float64", 8, 53),
            (0x7FF8C5A5A1A1A1A1, 0x7FF8C5A5B2B2B2B2, 0x3FEB94FC27B2D1E1),
            (0x7FF8DEADDEADDEAD, 0x4150000000000000),
            ("double",),
            smallest=2.0**-1074,
        ),
        ElementType(
            *("float16", 2, 11, (0x7EA1, 0x7EB2, 0x3AE7), (0x7ED5, 0x7800)),
            ("half", "__half", "nv_half"),
            smallest=2.0**-24,
        ),
        ElementType(
            *("bfloat16", 2, 8, (0x7FE1, 0x7FF2, 0x3F5D), (0x7FD5, 0x4A80)),
            ("__nv_bfloat16", "nv_bfloat16"),
            smallest=2.0**-133,
        ),
        # No integer is a NaN: a stray read changes the sums by a number that is far off.
        ElementType(
            *("int8", 1, 7, (0x5B, 0x6D, 0x00), (0x00, 0x00)),
            ("signed char", "int8_t", "char"),
            is_integer=True,
        ),
        ElementType(
            *("int32", 4, 31, (0x00, 0x00, 0x3F5CA7E1), (0x5EADBEE5, 0x2A5F00D7)),
            ("int", "int32_t"),
            is_integer=True,
        ),
    )
}
"""All element types by name. 0x4A800000 and its like are 2^22, and 2^15 for float16."""

OUTPUTS = {
    "float32": ("float32",),
    "float64": ("float64",),
    "float16": ("float16", "float32"),
    "bfloat16": ("bfloat16", "float32"),
    "int8": ("int32",),
}
"""For each type of A and B the types that C may have; the first one is the default."""

ACCUMULATORS = {
    "float32": ("float32",),
    "float64": ("float64",),
    "float16": ("float32", "float16"),
    "bfloat16": ("float32",),
    "int8": ("int32",),
}
"""For each type of A and B the types that sums may be kept in; the first one is the default."""
