"""Files that are never half-written, and names that cannot leave their folder."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
import secrets
import shlex
import stat
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pytest_gemm.errors import ConfigError

_SAFE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,119}")
_UNSAFE = re.compile(r"[^A-Za-z0-9_.+-]+")


def safe_name(name: str, reserved: Collection[str] = ()) -> str:
    """The name itself if it can name a file anywhere, else a readable part of it and a hash."""
    if _SAFE.fullmatch(name) and not name.endswith(".") and name not in reserved:
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    readable = _UNSAFE.sub("_", name)[:80].strip("._-")
    return f"{readable or 'unnamed'}-{digest}"


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file's content so that every reader sees the old or the new one, whole.

    Its permissions stay. Raises OSError; what was there is then still there.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name[:100]}.{secrets.token_hex(8)}.tmp")
    try:
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileNotFoundError):
            temporary.chmod(stat.S_IMODE(path.stat().st_mode))
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


def write_text(path: Path, text: str) -> None:
    """``write_atomically`` of what a user asked for. Raises ConfigError where it cannot be."""
    try:
        write_atomically(path, text.encode("utf-8", "replace"))
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ConfigError(f"{path}: it cannot be written ({reason})") from None


def restoring(path: Path) -> str:
    """The way out where a file that git may know is damaged: the beginning of a sentence."""
    return f"restore it with: git checkout -- {shlex.quote(str(path))}"


def read_regular(path: Path) -> bytes:
    """A file's bytes. Raises OSError, also for what may never end, such as a pipe."""
    with open(path, "rb", opener=_without_waiting) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
        return file.read()


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Let one process at a time write into a folder, which must exist.

    The folder itself is locked: a lock file would have to be ignored by git. Where the file
    system has no such locks, writes stay atomic, but one of two simultaneous ones may be lost.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
