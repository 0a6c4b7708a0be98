"""Which reports can be written: a file's name says what it holds."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

SUFFIXES = (".html", ".md", ".json")

EXTRA = {"jinja2": "jinja2", "vl_convert": "vl-convert-python"}
"""What HTML takes: modules, and the packages that they are of."""


def refused(path: Path) -> str:
    """Why a report cannot have this name here, or an empty text."""
    if path.suffix not in SUFFIXES:
        return f"the file's name must end in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}"
    missing = [package for module, package in EXTRA.items() if find_spec(module) is None]
    if path.suffix == ".html" and missing:
        verb = "is" if len(missing) == 1 else "are"
        return (
            f"HTML takes {' and '.join(missing)}, which {verb} not installed: "
            "pip install 'pytest-gemm[report]'"
        )
    return ""
