"""What the names of parameters and variables suggest: which matrix, which size."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

Scores = Mapping[str, int]
"""How strongly a name speaks for each role; a role that it does not speak for is left out."""

_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_NOISE = frozenset(
    {"d", "h", "g", "p", "dev", "device", "host", "gpu", "cpu", "global", "gmem", "num", "n"}
    | {"mat", "matrix", "ptr", "in", "input", "dim", "size", "arg", "of", "the", "no", "cuda"}
)
_MATRICES = {
    "A": {"a", "lhs", "left", "x", "first", "1", "src", "da", "ha", "ma", "mata", "m", "md"},
    "B": {"b", "rhs", "right", "w", "weight", "weights", "second", "2", "db", "hb", "mb", "matb"}
    | {"n", "nd"},
    "C": {"c", "out", "output", "result", "res", "dst", "y", "prod", "product", "dest", "ans"}
    | {"answer", "sum", "p", "pd", "r", "dc", "hc", "mc", "matc", "o"},
}
_SIDES = {
    "rows": {"row", "rows", "height", "h", "r", "m"},
    "columns": {"col", "cols", "column", "columns", "width", "w", "c", "wd"},
}
_INNER = {"inner", "common", "depth", "shared", "contract", "reduction", "k", "mid", "middle"}
_WHOLE = {"n", "size", "dim", "len", "length", "order", "width", "sz", "num", "side", "count"}
_STRIDES = {"ld", "lead", "leading", "stride", "pitch", "step"}
_TILES = {"tile", "block", "blk", "ts"}
_TILE_COUNTS = {"tiles", "blocks", "chunks"}
_STEPS = {"inc", "stride", "step"}
_COUNTS = {"per", "num", "count", "n", "id", "idx"}


def parts(name: str) -> list[str]:
    """``numAColumns`` as ``["num", "A", "Columns"]``."""
    return _PARTS.findall(name)


def matrix_scores(name: str) -> Scores:
    """Which of A, B and C a pointer's name speaks for."""
    words = [word.lower() for word in parts(name)]
    telling = [word for word in words if word not in _NOISE] or words
    found: dict[str, int] = {}
    for role, known in _MATRICES.items():
        if telling and telling[-1] in known:
            found[role] = 3
        elif any(word in known for word in telling):
            found[role] = 2
    return found


def is_part(name: str) -> bool:
    """Whether an integer's name speaks for the side of a tile, as ``tile_width`` does."""
    words = {word.lower() for word in parts(name)}
    return bool(words & _TILES) and not words & _COUNTS


def is_count(name: str) -> bool:
    """Whether an integer's name speaks for the tiles along K, as ``num_tiles`` does."""
    return any(word.lower() in _TILE_COUNTS for word in parts(name))


def is_offset(name: str) -> bool:
    """Whether an integer's name speaks for the place of a matrix's first element."""
    words = [word.lower() for word in parts(name)]
    return any(word in ("off", "offset") for word in words)


def is_flag(name: str) -> bool:
    """Whether an integer's name speaks for a truth value, as ``transA`` does."""
    return any(word.lower().startswith("trans") for word in parts(name))


def step_of(name: str) -> tuple[str, bool] | None:
    """Of which matrix an integer is the distance from row to row (true), or from column to column.

    ``("a", True)`` for ``incRowA`` and ``stride_am``; None for any other name.
    """
    words = [word.lower() for word in parts(name)]
    if not _STEPS & {*words}:
        return None
    for word in words:
        if re.fullmatch("[abc][mnk]", word):
            return word[0], word in ("am", "bk", "cm")
        if word in ("a", "b", "c") and (sides := {"row", "rows", "col", "cols"} & {*words}):
            return word, "row" in min(sides)
    return None


def is_pitch(name: str) -> bool:
    """Whether an integer's name speaks for the bytes from row to row."""
    return any(word.lower() == "pitch" for word in parts(name))


def scalar_scores(name: str) -> Scores:
    """Which of alpha and beta a floating-point parameter's name speaks for."""
    word = name.lower().strip("_")
    for role, known in (("alpha", ("alpha", "a")), ("beta", ("beta", "b"))):
        if word in known or role in word:
            return {role: 3}
    return {}


def textbook_sizes(names: Sequence[str]) -> Mapping[str, Scores]:
    """What sizes that are called m, n and p speak for: m x n by n x p, or n x m by m x p."""
    if sorted(names) != ["m", "n", "p"]:
        return {}
    outer, inner = (name for name in names if name != "p")
    return {outer: {"M": 4}, inner: {"K": 4}, "p": {"N": 4}}


def size_scores(name: str) -> Scores:
    """Which of M, N, K an integer's name speaks for, or of ``rowsA``, ``columnsB``, ``ldc`` ..."""
    words = [word.lower() for word in parts(name)]
    if len(words) == 1 and words[0] in ("lda", "ldb", "ldc"):
        return {words[0]: 4}
    matrix = next((word.upper() for word in reversed(words) if word in ("a", "b", "c")), "")
    if matrix and any(word in _STRIDES for word in words):
        return {f"ld{matrix.lower()}": 4}
    telling = [word for word in words if word not in _NOISE - {"n", "dim", "size"}] or words
    if matrix:
        for side, known in _SIDES.items():
            if any(word in known for word in words if word != matrix.lower()):
                return {f"{side}{matrix}": 4}
    if len(telling) == 1 and telling[0] in ("m", "n", "k"):
        return {telling[0].upper(): 4}
    last = telling[-1] if telling else ""
    if any(word in _INNER for word in telling):
        return {"K": 3}
    if last in _SIDES["rows"]:
        return {"M": 3}
    if last in _SIDES["columns"]:
        return {"N": 3}
    if last in ("m", "n", "k"):
        return {last.upper(): 3}
    return {"N": 1} if last in _WHOLE else {}
