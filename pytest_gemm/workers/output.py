"""What is printed in a worker, by Python or C++, kept apart from what it says to pytest."""

from __future__ import annotations

import ctypes
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

LIMIT = 2**20
"""Bytes of each stream that are kept of a case."""


class Output:
    """The process' standard output and standard error, each in a file from now on.

    ``paths`` are those of two files, so that another process can read them after a crash; without
    them the files have no name.
    """

    def __init__(self, paths: Sequence[str] = ()) -> None:
        for stream, path in zip((1, 2), paths or (None, None), strict=True):
            with Path(path).open("r+b") if path else tempfile.TemporaryFile() as file:
                os.dup2(file.fileno(), stream)

    def take(self) -> tuple[str, str]:
        """What was written since the last time, and forget it."""
        sys.stdout.flush()
        sys.stderr.flush()
        ctypes.CDLL(None).fflush(None)
        return take(1), take(2)


def take(descriptor: int) -> str:
    """The text in a file, which is empty then."""
    size = os.fstat(descriptor).st_size
    text = os.pread(descriptor, LIMIT, 0).decode(errors="replace")
    os.ftruncate(descriptor, 0)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return text if size <= LIMIT else f"{text}\n[{size - LIMIT} more bytes]\n"
