"""What a worker process does: it is told of cases, runs them, and answers with plain data.

Every message is JSON text. To the worker: first ``Start``, then ``[case, function]`` for each
case. From it: ``["progress", text]`` at any time; first ``["ready", device, count]`` or
``["refused", text, busy]``; then, for each case, ``["result", result, output, lost]`` or
``["raised", traceback]``.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import json
import os
import signal
import threading
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from pytest_gemm import __version__, backends
from pytest_gemm.case import Case
from pytest_gemm.errors import BackendError, DeviceBusyError, GemmError
from pytest_gemm.function import FunctionName
from pytest_gemm.result import Result
from pytest_gemm.runner import Runner
from pytest_gemm.workers.turns import Hold, Turns

if TYPE_CHECKING:
    from execnet import Channel


@dataclass(frozen=True)
class Start:
    """What a worker must know before its first case.

    ``gpu`` is the number of a GPU as programs know it; ``hold`` and ``wait``: see ``Turns``.
    """

    version: str
    kind: str
    gpu: int
    hold: Hold
    wait: bool


def serve(channel: Channel) -> None:
    """Run what comes through the channel until it is closed, and end the process then."""
    _lead_own_group()
    threading.Thread(target=_end_with, args=(channel,), daemon=True).start()

    def tell(*message: Any) -> None:
        channel.send(json.dumps(message))

    start = Start(**json.loads(channel.receive()))
    try:
        runner, turns = _ready(start, lambda text: tell("progress", text))
    except GemmError as error:
        tell("refused", str(error), isinstance(error, DeviceBusyError))
        return
    tell("ready", asdict(runner.backend.device), runner.backend.count)
    while True:
        case, function = json.loads(channel.receive())
        output = io.StringIO()
        try:
            with turns.turn(), contextlib.redirect_stdout(output):
                result = _run(runner, Case.from_dict(case), function)
        except BaseException:
            tell("raised", traceback.format_exc())
            continue
        ctypes.CDLL(None).fflush(None)
        tell("result", result.to_dict(), output.getvalue(), runner.backend.lost)


def _ready(start: Start, progress: Callable[[str], None]) -> tuple[Runner, Turns]:
    if start.version != __version__:
        raise BackendError(
            f"pytest-gemm is {start.version} here and {__version__} there: install the same "
            f"version there, with: pip install pytest-gemm=={start.version}"
        )
    if start.gpu:
        _see_only(start.gpu)
    backend = backends.open_backend(start.kind, progress)
    turns = Turns(backend.device, start.hold, progress, wait=start.wait)
    turns.start()
    return Runner(backend), turns


def _run(runner: Runner, case: Case, function: dict[str, str] | None) -> Result:
    try:
        return runner.run(case, FunctionName(**function).load() if function else None)
    except GemmError as error:
        return Result("failed", str(error))


def _see_only(gpu: int) -> None:
    """Hide all other GPUs from this process: libraries that Python kernels use take the first."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = visible.split(",") if visible else None
    if names and gpu >= len(names):
        raise BackendError(f"there is no GPU {gpu} here: CUDA_VISIBLE_DEVICES={visible}")
    os.environ["CUDA_VISIBLE_DEVICES"] = names[gpu] if names else str(gpu)


def _lead_own_group() -> None:
    """Let Ctrl-C reach pytest alone, and whoever ends this process end its children too."""
    with contextlib.suppress(PermissionError):  # it leads a session of its own already
        os.setpgid(0, 0)


def _end_with(channel: Channel) -> None:
    """End the process when pytest's end of the channel is gone, whatever a kernel is doing."""
    with contextlib.suppress(Exception):
        channel.waitclose()
    os.killpg(0, signal.SIGKILL)
