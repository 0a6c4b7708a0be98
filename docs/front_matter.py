"""Writes ``front-matter.md``, the reference of a declaration, from the code that reads one.

    python docs/front_matter.py

Tests hold that the page is what this writes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from pytest_gemm.dtypes import ACCUMULATORS, OUTPUTS, TYPES
from pytest_gemm.expressions import MAX_LENGTH, RESERVED
from pytest_gemm.kernelspec import (
    BUFFERS,
    LEADING_DIMENSIONS,
    MAX_BLOCK,
    MAX_COMBINATIONS,
    MAX_GRID,
    MAX_SHARED_MEM,
    MAX_THREADS,
    SCALARS,
    STREAM,
)
from pytest_gemm.problem import BATCH, DIMENSIONS
from pytest_gemm.schema import KEYS, PYTHON_KEYS, SIDECAR_KEYS

_QUOTED = re.compile(r"(?<!\w)'([^']*)'")

PAGE = Path(__file__).with_name("front-matter.md")


def page() -> str:
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    yield "<!-- Written by `python docs/front_matter.py` from the code: change that instead. -->"
    yield "# Front matter: every key"
    yield ""
    yield "What each key takes, as the error of a mistake tells it. Meanings, defaults and examples"
    yield "are in [declaring a kernel](kernels.md#keys), the decorator's in"
    yield "[kernels in Python](python-kernels.md)."
    yield ""
    keys = {**SIDECAR_KEYS, **PYTHON_KEYS}
    places = (KEYS, SIDECAR_KEYS, PYTHON_KEYS)
    yield from _table(
        ("key", "takes", "in a `.cu`", "in a sidecar", "in `@kernel`"),
        (
            (f"`{key}`", _QUOTED.sub(r"`\1`", takes), *("yes" if key in p else "" for p in places))
            for key, takes in keys.items()
        ),
    )
    yield ""
    yield "## Element types"
    yield ""
    yield "Where several are given, the first one is the default."
    yield ""
    yield from _table(
        ("`dtype`", "`out_dtype`", "`acc_dtype`", "bytes", "a pointer's type in C++"),
        (
            (
                *map(_code, ([name], OUTPUTS[name], ACCUMULATORS[name])),
                str(TYPES[name].itemsize),
                _code(TYPES[name].cpp),
            )
            for name in OUTPUTS
        ),
    )
    yield ""
    yield "## Names"
    yield ""
    yield from _table(
        ("what", "names"),
        (
            ("dimensions of a gemm", _code(DIMENSIONS["gemm"])),
            ("dimensions of an add", _code(DIMENSIONS["add"])),
            ("matrices, as arguments", _code(BUFFERS)),
            ("scalars, as arguments", _code(SCALARS)),
            ("leading dimensions", _code(LEADING_DIMENSIONS)),
            ("of a batch", _code(BATCH)),
            ("in Python, on a GPU", _code([STREAM])),
            ("of the language of expressions", _code(sorted(RESERVED))),
        ),
    )
    yield ""
    yield "## Limits"
    yield ""
    yield from _table(
        ("of", "at most"),
        (
            ("threads in a block", f"{MAX_THREADS}"),
            ("`block`: x, y, z", ", ".join(map(str, MAX_BLOCK))),
            ("`grid`: x, y, z", ", ".join(map(str, MAX_GRID))),
            ("`shared_mem`, bytes", f"{MAX_SHARED_MEM}"),
            ("kernels that one `sweep` makes", f"{MAX_COMBINATIONS}"),
            ("characters of an expression", f"{MAX_LENGTH}"),
        ),
    )
    yield ""


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def _code(words: Iterable[str]) -> str:
    return ", ".join(f"`{word}`" for word in words)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
