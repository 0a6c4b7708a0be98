"""Gives every static shared variable of a rewritten source a place with red zones around it.

``__shared__ float As[8][8]; PYTEST_GEMM_SHARED(As)`` becomes a declaration under another name,
whose type ``PYTEST_GEMM_PLACED(As)`` then takes: see ``cpp/include/pytest_gemm/check.h``.
"""

from __future__ import annotations

import re

_MARKED = re.compile(
    r"\b__shared__\b(?P<declarators>[^;{}=#]*);(?P<marks>(?: PYTEST_GEMM_SHARED\(\w+\))+)"
)
_NAME = re.compile(r"PYTEST_GEMM_SHARED\((\w+)\)")


def with_red_zones(text: str) -> str:
    """The source with its shared variables placed apart; line numbers stay."""
    return _MARKED.sub(_place, text)


def _place(match: re.Match[str]) -> str:
    declarators = match["declarators"]
    names = _NAME.findall(match["marks"])
    for name in names:
        # The last one is the declared name: the type may be called alike.
        *_, last = re.finditer(rf"\b{re.escape(name)}\b(?=\s*(?:[\[,:]|$))", declarators)
        declared = f"PYTEST_GEMM_DECLARED({name})"
        declarators = declarators[: last.start()] + declared + declarators[last.end() :]
    places = "".join(f" PYTEST_GEMM_PLACED({name})" for name in names)
    return f"__shared__{declarators};{places}"
