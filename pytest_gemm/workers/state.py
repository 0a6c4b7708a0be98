"""What a kernel can change of its process, and the next kernel would meet."""

from __future__ import annotations

import os
import resource
import signal
import sys
from pathlib import Path

import numpy as np

_LIMITS = [getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")]
_ONE, _THREE, _TEN, _SUBNORMAL = 1.0, 3.0, 10.0, 5e-324


class State:
    """The process as it is now.

    The working directory, environment, signal handlers as Python knows them, limits, trace
    functions, NumPy's handling of errors, and how floating-point numbers are rounded, subnormal
    ones too: a library that was built with ``-ffast-math`` changes that when it is loaded.
    """

    def __init__(self) -> None:
        self._environment = dict(os.environ)
        self._rest = _rest()

    def is_kept(self) -> bool:
        """Whether nothing has changed; variables that are new do not count: imports set some."""
        return self._environment.items() <= os.environ.items() and self._rest == _rest()


def _rest() -> tuple[object, ...]:
    return (
        Path("/proc/self/cwd").readlink(),
        [signal.getsignal(number) for number in signal.valid_signals()],
        [resource.getrlimit(limit) for limit in _LIMITS],
        (sys.gettrace(), sys.getprofile()),
        np.geterr(),
        (_ONE / _TEN, -_ONE / _TEN, _ONE / _THREE, -_ONE / _THREE, _SUBNORMAL * _THREE),
    )
