"""Gives the variables of a rewritten source what checking needs to know of them.

``__shared__ float As[8][8]; PYTEST_GEMM_SHARED(As)`` becomes a declaration under another name,
whose type ``PYTEST_GEMM_PLACED(As)`` then takes to give it a place with red zones around;
``__device__ float sums[8];`` stays where it is and gets a ``PYTEST_GEMM_DEVICE(sums)``. Both
macros are in ``cpp/include/pytest_gemm/check.h``.
"""

from __future__ import annotations

import re

from pytest_gemm.cuda_source import strip

_SHARED = re.compile(
    r"\b__shared__\b(?P<declarators>[^;{}=#]*);(?P<marks>(?: PYTEST_GEMM_SHARED\(\w+\))+)"
)
_MARK = re.compile(r"PYTEST_GEMM_SHARED\((\w+)\)")
_DEVICE = re.compile(
    r"^(?:static\s+)?__device__\b(?P<declarators>[^;{}()=#\"]*)(?:=\s*(?:\{[^;()]*\}|[^;{}#]*))?;",
    re.MULTILINE,
)
_EXTENT = re.compile(r"\[[^\[\]]*\]")


def with_red_zones(text: str) -> str:
    """The source with its shared variables placed apart; line numbers stay."""
    code = strip(text)
    edits = [*map(_place, _SHARED.finditer(code)), *map(_list, _DEVICE.finditer(code))]
    for start, end, replacement in sorted(edits, reverse=True):
        text = text[:start] + replacement + text[end:]
    return text


def _place(match: re.Match[str]) -> tuple[int, int, str]:
    declarators = match["declarators"]
    names = _MARK.findall(match["marks"])
    for name in names:
        # The last one is the declared name: the type may be called alike.
        *_, last = re.finditer(rf"\b{re.escape(name)}\b(?=\s*(?:[\[,:]|$))", declarators)
        declared = f"PYTEST_GEMM_DECLARED({name})"
        declarators = declarators[: last.start()] + declared + declarators[last.end() :]
    places = "".join(f" PYTEST_GEMM_PLACED({name})" for name in names)
    return match.start(), match.end(), f"__shared__{declarators};{places}"


def _list(match: re.Match[str]) -> tuple[int, int, str]:
    parts = _EXTENT.sub("", match["declarators"]).split(",")
    names = [words[-1] for part in parts if (words := re.findall(r"\w+", part))]
    marks = "".join(f" PYTEST_GEMM_DEVICE({name})" for name in names)
    return match.end(), match.end(), marks
