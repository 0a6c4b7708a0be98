"""Back ends: the ways to run a kernel. ``base`` is the seam, ``choice`` picks one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_gemm.backends.base import Backend


def open_backend(kind: str, progress: Callable[[str], None]) -> Backend:
    """Make the back end of that kind; ``progress`` is told of one-time set-up that takes long."""
    if kind == "cuda":
        from pytest_gemm.backends.cuda import CudaBackend

        return CudaBackend(progress=progress)
    from pytest_gemm.backends.host import HostBackend

    return HostBackend(progress=progress)
