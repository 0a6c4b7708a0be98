"""One run at a time on a device: a lock that every user of the machine sees."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Literal

from filelock import FileLock, Timeout

from pytest_gemm.backends.base import Device
from pytest_gemm.errors import BackendError, DeviceBusyError

Hold = Literal["run", "case", "never"]
"""How long a device is kept: by a whole run, by each case, or not at all."""

VARIABLE = "PYTEST_GEMM_LOCKS"
FOLDER = Path("/tmp/pytest-gemm-locks")
"""The same for every user, and not below ``$TMPDIR``, which is each user's own."""


class Turns:
    """Keeps one device for this process; what the process holds is free when it ends.

    ``hold``: from ``start`` to ``stop``, in each ``turn``, or never. Where another run has the
    device, ``progress`` is told and this one waits, or raises DeviceBusyError if it must not
    ``wait``.
    """

    def __init__(
        self, device: Device, hold: Hold, progress: Callable[[str], None], *, wait: bool = True
    ) -> None:
        self._lock = None if hold == "never" else FileLock(lock_file(device), mode=0o666)
        self._hold = hold
        self._wait = wait
        self._progress = progress
        self._name = device.description

    def start(self) -> None:
        """Take the device for the whole run, if it is held for that long."""
        if self._hold == "run":
            self._take()

    def stop(self) -> None:
        """Let others have the device."""
        if self._lock is not None:
            self._lock.release()

    def turn(self) -> AbstractContextManager[None]:
        """Around one case."""
        return self._one_turn() if self._hold == "case" else nullcontext()

    @contextmanager
    def _one_turn(self) -> Iterator[None]:
        self._take()
        try:
            yield
        finally:
            assert self._lock is not None
            self._lock.release()

    def _take(self) -> None:
        assert self._lock is not None
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            busy = f"{self._name} is in use by another run, which holds {self._lock.lock_file}"
            if not self._wait:
                raise DeviceBusyError(f"{busy} (gemm_busy = stop)") from None
            self._progress(f"{busy}: waiting for it")
            self._lock.acquire()
        except OSError as error:
            raise BackendError(
                f"{self._lock.lock_file} cannot be locked ({error.strerror}): "
                f"set {VARIABLE} to a folder that every user can write to"
            ) from error


def lock_file(device: Device) -> Path:
    """The file that stands for a device: a GPU's UUID, and one for all CPUs of a machine.

    Makes the folder, open to all users. Raises BackendError.
    """
    key = str(device.environment.get("uuid") or device.name)
    name = "host" if device.kind == "host" else re.sub(r"[^\w.-]+", "-", key)
    return _folder() / f"{name}.lock"


def _folder() -> Path:
    folder = Path(os.environ.get(VARIABLE) or FOLDER)
    with suppress(OSError):
        folder.mkdir(parents=True)
        # Not sticky: a file that one user's killed run left behind is then another's to lock.
        folder.chmod(0o777)
    try:
        usable = stat.S_ISDIR(folder.lstat().st_mode) and os.access(folder, os.W_OK | os.X_OK)
    except OSError:
        usable = False
    if not usable:
        raise BackendError(
            f"{folder} is no folder that can be written to: set {VARIABLE} to one that is shared "
            "by all users of this machine"
        )
    return folder
