"""Temporary folders of processes that may be killed while they write there.

A process with a kernel in it is often ended at once, together with the compiler that it waits for.
What it writes lies in a folder of the process that started it, which removes it. What a killed
parent left is removed by a later run: the system gives up a lock with the process that holds it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

VARIABLE = "PYTEST_GEMM_SCRATCH"
"""In the environment of a process: the folder that its parent removes."""

PREFIX = "pytest-gemm-scratch-"

OLD = 3600.0
"""Seconds after which a folder that nobody holds is left by a process that was killed."""


@contextmanager
def scratch_for_child() -> Iterator[Path]:
    """A folder for a process that is given it as ``VARIABLE``; both end before this does."""
    sweep(Path(tempfile.gettempdir()), PREFIX)
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(held, fcntl.LOCK_SH | fcntl.LOCK_NB)
        yield folder
    finally:
        os.close(held)
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder for as long as it is needed, in that of this process if it was given one."""
    parent = os.environ.get(VARIABLE)
    own = tempfile.TemporaryDirectory(prefix=PREFIX, dir=parent) if parent else scratch_for_child()
    with own as folder:
        yield Path(folder)


def sweep(parent: Path, prefix: str) -> None:
    """Remove the folders of that prefix which are old and held by nobody."""
    for folder in parent.glob(f"{prefix}*"):
        with suppress(OSError):
            if time.time() - folder.lstat().st_mtime > OLD:
                _remove_unheld(folder)


def _remove_unheld(folder: Path) -> None:
    """Raises OSError where it is held, or is no folder of ours."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(descriptor)
