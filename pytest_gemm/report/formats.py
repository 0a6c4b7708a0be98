"""Which reports can be written: a file's name says what it holds."""

from __future__ import annotations

from pathlib import Path

SUFFIXES = (".md", ".json")


def refused(path: Path) -> str:
    """Why a report cannot have this name, or an empty text."""
    if path.suffix in SUFFIXES:
        return ""
    return f"the file's name must end in {' or '.join(SUFFIXES)}"
