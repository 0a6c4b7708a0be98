"""What is printed in a worker, by Python or C++, kept apart from what it says to pytest."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

LIMIT = 2**20
"""Bytes of each stream that are kept of a case."""


class Output:
    """The process' standard output and standard error, each in a file from now on.

    ``paths`` are those of two files, so that another process can read them after a crash; without
    them the files have no name.
    """

    def __init__(self, paths: Sequence[str] = ()) -> None:
        self._files: list[int] = []
        self._streams: list[TextIO] = [sys.stdout, sys.stderr]
        for path in paths or (None, None):
            with Path(path).open("r+b") if path else tempfile.TemporaryFile() as file:
                self._files.append(os.dup(file.fileno()))
        self._direct()

    def take(self) -> tuple[str, str]:
        """What was written since the last time, and forget it.

        Where a kernel closed or replaced a stream, the next one's output is caught again.
        """
        for stream in (sys.stdout, sys.stderr, *self._streams):
            with contextlib.suppress(AttributeError, ValueError, OSError):
                stream.flush()
        ctypes.CDLL(None).fflush(None)
        taken = take(self._files[0]), take(self._files[1])
        self._direct()
        return taken

    def _direct(self) -> None:
        for index, file in enumerate(self._files):
            os.dup2(file, index + 1)
            if self._streams[index].closed:
                self._streams[index] = os.fdopen(
                    index + 1, "w", encoding="utf-8", errors="backslashreplace", closefd=False
                )
        sys.stdout, sys.stderr = self._streams


def take(descriptor: int) -> str:
    """The text in a file, which is empty then."""
    size = os.fstat(descriptor).st_size
    text = os.pread(descriptor, LIMIT, 0).decode(errors="replace")
    os.ftruncate(descriptor, 0)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return text if size <= LIMIT else f"{text}\n[{size - LIMIT} more bytes]\n"
