"""What a user pays beside the kernel: seconds of transfers, and of the way there and back.

Taken with the host's clock around operations that end when the device has ended: what a program
would wait for. Never part of a kernel's time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from statistics import median

import numpy as np

from pytest_gemm.backends.base import Backend, Buffer, Bytes, LaunchConfig, Trip
from pytest_gemm.device import Workspace
from pytest_gemm.launching import Launcher, arguments_of
from pytest_gemm.matrices import Operands
from pytest_gemm.stats import summarize

REPEATS = 5
"""Each figure is the median of so many."""

TRIPS = 20
"""Ways to the device and back whose medians are given."""

Clock = Callable[[], float]


def seconds_of(action: Callable[[], object], clock: Clock = time.perf_counter) -> float:
    """Seconds that an action takes once."""
    start = clock()
    action()
    return clock() - start


def measure(
    backend: Backend,
    workspace: Workspace,
    launch: Callable[[Workspace], object],
    data: Operands,
    clock: Clock = time.perf_counter,
) -> dict[str, float]:
    """``upload_s`` (A and B), ``download_s`` (C) and ``end_to_end_s`` (both, and a launch).

    The launch works on the workspace, the transfers on buffers without guards: exactly the bytes
    of the matrices.
    """
    with _buffers(backend, data) as (inputs, output):

        def upload() -> None:
            for buffer, content in inputs:
                backend.upload(buffer, content)

        def download() -> None:
            backend.download(output)

        def all_of_it() -> None:
            upload()
            launch(workspace)
            download()

        actions = {"upload_s": upload, "download_s": download, "end_to_end_s": all_of_it}
        return {
            name: median(seconds_of(action, clock) for _ in range(REPEATS))
            for name, action in actions.items()
        }


def trips(launcher: Launcher, workspace: Workspace, data: Operands) -> dict[str, float]:
    """``pageable_upload_s``, ``_launch_s``, ``_download_s`` and ``_total_s``, and ``pinned_...``.

    A and B to the device, one launch, C back: the device's own seconds, without the guards.
    ``_launch_error`` and ``_total_error`` are the standard errors of these times' logarithms.
    Nothing where the device works on the host's memory.
    """
    found: dict[str, float] = {}
    arguments = arguments_of(launcher.kernel, workspace)
    config = LaunchConfig(*launcher.kernel.launch(workspace.problem))
    with _buffers(launcher.backend, data) as (inputs, output):
        for name, pinned in (("pageable", False), ("pinned", True)):
            taken = launcher.backend.trips(
                launcher.executable,
                config,
                arguments,
                inputs,
                output,
                pinned=pinned,
                count=TRIPS,
                timeout=launcher.timeout,
            )
            if taken:
                for part, seconds in zip(Trip._fields, zip(*taken, strict=True), strict=True):
                    found[f"{name}_{part}_s"] = median(seconds)
                    if part in ("launch", "total"):
                        found[f"{name}_{part}_error"] = summarize(seconds).log_error
    return found


@contextmanager
def _buffers(
    backend: Backend, data: Operands
) -> Iterator[tuple[list[tuple[Buffer, Bytes]], Buffer]]:
    with ExitStack() as memory:

        def allocate(nbytes: int) -> Buffer:
            buffer = backend.allocate(nbytes)
            memory.callback(backend.free, buffer)
            return buffer

        contents = [X.reshape(-1).view(np.uint8) for X in (data.A, data.B)]
        yield [(allocate(x.nbytes), x) for x in contents], allocate(data.C.nbytes)
