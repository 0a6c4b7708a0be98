"""Where marked elements of a matrix lie, in words: rows, columns, a block, a partial tile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

Mask = npt.NDArray[np.bool_]

DENSE = 0.75
"""The part of a row, column or block that makes it count as marked: a wrong sum can be right by
chance, and one right element must not hide a wrong row."""

PARTIAL_TILES = (8, 16, 32, 64, 128)
"""Tile sides whose residue is recognised."""


@dataclass(frozen=True)
class Region:
    """A set of elements of an M x N matrix: whole ``rows``, whole ``columns``, or neither.

    ``rows_hit`` and ``columns_hit`` hold everything that the set touches.
    """

    M: int
    N: int
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    rows_hit: tuple[int, ...]
    columns_hit: tuple[int, ...]
    block: bool

    @classmethod
    def of(cls, mask: Mask) -> Self:
        """Describe the true elements of a mask, of which there is at least one."""
        M, N = mask.shape
        in_row, in_column = mask.mean(axis=1) >= DENSE, mask.mean(axis=0) >= DENSE
        if (mask & ~in_row[:, None] & ~in_column[None, :]).any():
            in_row[:], in_column[:] = False, False
        # Columns that hold everything say more than that every row is hit, and the reverse.
        if in_row.all() and not (in_column.all() or mask[:, ~in_column].any()):
            in_row[:] = False
        elif in_column.all() and not (in_row.all() or mask[~in_row].any()):
            in_column[:] = False
        rows_hit, columns_hit = _indices(mask.any(axis=1)), _indices(mask.any(axis=0))
        block = bool(mask[np.ix_(rows_hit, columns_hit)].mean() >= DENSE)
        return cls(M, N, _indices(in_row), _indices(in_column), rows_hit, columns_hit, block)

    @property
    def last_rows(self) -> int:
        """How many rows at the bottom the region consists of; 0 if it is anything else."""
        return 0 if self.columns else _tail(self.rows, self.M)

    @property
    def last_columns(self) -> int:
        """How many columns at the right the region consists of; 0 if it is anything else."""
        return 0 if self.rows else _tail(self.columns, self.N)

    @property
    def is_residue(self) -> bool:
        """Whether the region is nothing but the last partial tile of rows, columns or both."""
        rows = not self.rows or _is_partial(_tail(self.rows, self.M), self.M)
        columns = not self.columns or _is_partial(_tail(self.columns, self.N), self.N)
        return bool(self.rows or self.columns) and rows and columns

    def __str__(self) -> str:
        if len(self.rows) == self.M or len(self.columns) == self.N:
            return "all of C"
        whole = [
            _named(kind, indices) + _remark(indices, size)
            for kind, indices, size in (
                ("row", self.rows, self.M),
                ("column", self.columns, self.N),
            )
            if indices
        ]
        if whole:
            return " and ".join(whole)
        inside = f"{_named('row', self.rows_hit)}, {_named('column', self.columns_hit)}"
        return inside if self.block else f"scattered over {inside}"


def ranges(indices: Sequence[int], most: int = 4) -> str:
    """``0..15, 32, 40..47``: ascending numbers as at most ``most`` ranges, then ``...``."""
    found: list[list[int]] = []
    for index in indices:
        if found and index == found[-1][1] + 1:
            found[-1][1] = index
        else:
            found.append([index, index])
    texts = [str(a) if a == b else f"{a}..{b}" for a, b in found]
    return ", ".join(texts[:most] + ["..."] * (len(texts) > most))


def _indices(marked: npt.ArrayLike) -> tuple[int, ...]:
    return tuple(np.flatnonzero(marked).tolist())


def _tail(indices: tuple[int, ...], size: int) -> int:
    """The length of ``indices`` if they are the last ones below ``size``, else 0."""
    return len(indices) if indices == tuple(range(size - len(indices), size)) else 0


def _is_partial(length: int, size: int) -> bool:
    return any(0 < size % tile == length < size for tile in PARTIAL_TILES)


def _named(kind: str, indices: tuple[int, ...]) -> str:
    return f"{kind}{'s' * (len(indices) > 1)} {ranges(indices)}"


def _remark(indices: tuple[int, ...], size: int) -> str:
    tail = _tail(indices, size)
    if _is_partial(tail, size):
        return " (the last partial tile)"
    return f" (the last {tail})" if tail > 1 else ""
