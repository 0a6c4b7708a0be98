"""What each parameter of a kernel may get, the likeliest first."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import nlargest
from itertools import permutations, product
from operator import itemgetter
from typing import Any, NamedTuple

from pytest_gemm.adopt.kinds import Kind, kinds, type_keys
from pytest_gemm.adopt.launches import LaunchCode
from pytest_gemm.adopt.names import (
    Scores,
    matrix_scores,
    parts,
    scalar_scores,
    size_scores,
    textbook_sizes,
)
from pytest_gemm.adopt.numbers import Numbers, numbers
from pytest_gemm.adopt.signature import Signature
from pytest_gemm.kernelspec import BUFFERS, SCALARS
from pytest_gemm.problem import BATCH, DIMENSIONS

THREE_SIZES = ("MKN", "MNK", "KMN", "NMK", "NKM", "KNM")
"""Orders of three sizes, the most frequent in published kernels first."""

MATRIX_WEIGHT = 2
"""How much more a matrix's name counts than a size's: n x k by k x m is a row-major product too."""

NO_NUMBERS = Numbers((), alone=False)

MOST_SIZES = 1000
"""How many readings of the integers are ranked for each layout: more cannot be tried."""


class Arguments(NamedTuple):
    """``args`` of a declaration, and the keys that say of which kind and types matrices are."""

    args: tuple[str, ...]
    kind: Kind
    keys: tuple[tuple[str, Any], ...]


def arguments(
    signature: Signature,
    op: str,
    launch: LaunchCode | None,
    types: Mapping[str, str],
    *,
    batched: bool = False,
) -> list[Arguments]:
    """Every reading of a kernel's parameters, each launch once.

    ``types`` are what the template parameters stand for that are types; ``batched`` says whether
    integers may be a batch's, which names alone can say. Where two readings make
    the same launch, as a row-major product and a column-major one do, names decide.
    """
    hints = launch.names() if launch else []
    hints += [""] * (len(signature.names) - len(hints))
    matrices = list(_matrix_choices(signature, hints))
    scalars = list(_scalar_choices(signature, op))
    elements = signature.elements(types)
    others = numbers(signature, launch, elements)
    ranked: list[tuple[float, tuple[str, ...], Kind]] = []
    for order, kind in enumerate(kinds(op)):
        batch = _batch_roles(signature) if batched and op == "gemm" else {}
        every = _size_choices(signature, hints, kind, batch, others)
        sizes = nlargest(MOST_SIZES, every, key=itemgetter(0))
        for (a, buffers), (b, integers), (c, floats) in product(matrices, sizes, scalars):
            given = {**buffers, **integers, **floats}
            args = tuple(given[position] for position in range(len(signature.names)))
            ranked.append((a + b + c - order / 1000, args, kind))
    ranked.sort(key=lambda item: -item[0])
    found: dict[object, Arguments] = {}
    for _, args, kind in ranked:
        key = kind.in_memory(args)
        if key not in found:
            for keys in _type_keys(args, elements):
                found.setdefault((key, keys) if keys else key, Arguments(args, kind, keys))
    return list(found.values())


def _type_keys(
    args: Sequence[str], elements: Mapping[int, str]
) -> Iterator[tuple[tuple[str, Any], ...]]:
    dtypes = {arg: elements[i] for i, arg in enumerate(args) if i in elements}
    if dtypes["A"] == dtypes["B"]:
        yield from type_keys(dtypes["A"], dtypes["C"])


Choice = tuple[float, dict[int, str]]


def _score(scores: Scores, hint: Scores, *roles: str) -> float:
    return max(2 * scores.get(role, 0) + hint.get(role, 0) for role in roles)


def _matrix_choices(signature: Signature, hints: Sequence[str]) -> Iterator[Choice]:
    written = [i for i in signature.pointers if i not in signature.constant]
    for order, roles in enumerate(permutations(BUFFERS)):
        given = dict(zip(signature.pointers, roles, strict=True))
        output = next(i for i, role in given.items() if role == "C")
        if output not in (written or signature.pointers):
            continue
        score = -order / 100
        for i, role in given.items():
            own = _score(matrix_scores(signature.names[i]), matrix_scores(hints[i]), role)
            score += MATRIX_WEIGHT * own
        yield score, given


def _batch_roles(signature: Signature) -> dict[int, str]:
    """Integers that are called a batch's, or the distance between its matrices."""
    found = {}
    for position in signature.integers:
        words = "".join(parts(signature.names[position])).lower()
        if words in ("batch", "batches", "batchcount", "batchsize", "numbatches"):
            found[position] = BATCH[0]
        elif stride := re.fullmatch(r"(?:batch)?(?:stride|offset)([abc])|([abc])stride", words):
            found[position] = f"stride{(stride[1] or stride[2]).upper()}"
    return found


def _size_choices(
    signature: Signature,
    hints: Sequence[str],
    kind: Kind,
    batch: Mapping[int, str],
    others: Mapping[int, Numbers],
) -> Iterator[Choice]:
    positions = [position for position in signature.integers if position not in batch]
    sizes = (*DIMENSIONS[kind.op], *(("M * N",) if kind.op == "add" else ()))
    roles: list[tuple[str, ...]] = []
    scores: dict[tuple[int, str], float] = {}
    textbook = textbook_sizes([signature.names[i] for i in positions])
    for i in positions:
        name = textbook.get(signature.names[i]) or size_scores(signature.names[i])
        hint = size_scores(hints[i])
        own = others.get(i, NO_NUMBERS)
        texts = [text for text in own.texts if kind.op == "gemm" or "K" not in text]
        roles.append((*texts, *(() if own.alone and texts else sizes)))
        scores |= {(i, role): _role_score(name, hint, role, kind) for role in sizes}
        scores |= {(i, text): 1 - order / 10 for order, text in enumerate(texts)}
        for text in texts:
            _, times, ld = text.partition(" * ")
            if times:  # a pitch
                scores[i, text] += 2 * name.get(ld, 0)
    for chosen in product(*roles):
        order = "".join(chosen)
        score = -THREE_SIZES.index(order) / 100 if order in THREE_SIZES else -0.1
        score += len({*chosen}) / 10
        given = dict(zip(positions, chosen, strict=True))
        yield score + sum(scores[item] for item in given.items()), {**given, **batch}


def _role_score(scores: Scores, hint: Scores, role: str, kind: Kind) -> float:
    """How strongly names speak for a size, also as that of a side or a leading dimension."""
    same = (name for name, size in kind.meanings.items() if size == role)
    return _score(scores, hint, role, *same)


def _scalar_choices(signature: Signature, op: str) -> Iterable[Choice]:
    if op != "gemm" and signature.scalars:
        return
    for roles in permutations(SCALARS, len(signature.scalars)):
        given = dict(zip(signature.scalars, roles, strict=True))
        score = sum(scalar_scores(signature.names[i]).get(role, 0) for i, role in given.items())
        yield score, given
