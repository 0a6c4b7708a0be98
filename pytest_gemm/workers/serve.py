"""What a worker process does: it is told of cases, runs them, and answers with plain data.

Every message is JSON text. To the worker: first ``Start``, then ``["run", runnable]`` for each case
and ``["duet", old, new, round, worker]`` for each part in a duet, of two runnables
(``function.Runnable``). From it: ``["progress", text]`` at any time, and ``["waiting", text]``
while another run has the device; first ``["ready", device, count]`` or ``["refused", text,
busy]``; then, each time, ``["started"]`` when it has the device, and ``["result", result or times,
stdout, stderr, lost]``, ``["failed", text, stdout, stderr, lost]`` or ``["raised", traceback]``.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import json
import os
import signal
import threading
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_gemm import backends
from pytest_gemm.duet import Round
from pytest_gemm.errors import BackendError, DeviceBusyError, GemmError
from pytest_gemm.function import Runnable
from pytest_gemm.runner import Runner
from pytest_gemm.workers.output import Output
from pytest_gemm.workers.state import State
from pytest_gemm.workers.turns import Hold, Turns

if TYPE_CHECKING:
    from execnet import Channel


PR_SET_PDEATHSIG = 1
"""Of ``prctl``, which Python does not know."""


@dataclass(frozen=True)
class Start:
    """What a worker must know before its first case.

    ``gpu`` is the number of a GPU as programs know it; ``hold`` and ``wait``: see ``Turns``;
    ``run`` is the name of all processes that belong to one run.
    """

    kind: str
    gpu: int
    hold: Hold
    wait: bool
    run: str


def serve(channel: Channel, outputs: Sequence[str]) -> None:
    """Run what comes through the channel until it is closed, and end the process then.

    ``outputs``: see ``Output``.
    """
    _end_with(channel)
    output = Output(outputs)
    faulthandler.enable(2, all_threads=False)
    # Ignored in what pytest-xdist starts, and so in what that starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    process = os.getpid()

    def tell(*message: Any) -> None:
        if os.getpid() != process:  # a kernel forked, and its child came back
            os._exit(1)
        channel.send(json.dumps(message))

    try:
        runner, turns = _ready(Start(**json.loads(channel.receive())), tell)
    except (GemmError, DeviceBusyError) as error:
        tell("refused", str(error), isinstance(error, DeviceBusyError))
        return
    tell("ready", asdict(runner.backend.device), runner.backend.count)
    answer: tuple[Any, ...]
    before: State | None = None
    while True:
        wanted = json.loads(channel.receive())
        spoiled = False
        try:
            with turns.turn():
                tell("started")
                if before is None:
                    runner.backend.conditions()  # what it loads itself is no kernel's doing
                    before = State()
                answer = ("result", _work(runner, *wanted))
        except (GemmError, DeviceBusyError, OSError) as error:  # the last as of a full disk
            answer = ("failed", str(error))
        except KeyboardInterrupt:
            answer, spoiled = ("failed", "its process was interrupted (SIGINT)"), True
        except MemoryError as error:
            answer, spoiled = ("failed", f"its process has no memory left: {error}"), True
        except BaseException:
            tell("raised", traceback.format_exc())
            continue
        printed = output.take()
        spoiled |= bool(runner.backend.lost) or before is None or not before.is_kept()
        tell(*answer, *printed, spoiled)


def _ready(start: Start, tell: Callable[..., None]) -> tuple[Runner, Turns]:
    Path("/proc/self/comm").write_text(start.run, encoding="utf-8")
    if start.gpu:
        _see_only(start.gpu)
    progress = partial(tell, "progress")
    backend = backends.open_backend(start.kind, progress)
    turns = Turns(backend.device, start.hold, partial(tell, "waiting"), wait=start.wait)
    turns.start()
    return Runner(backend, progress), turns


def _work(runner: Runner, what: str, *wanted: Any) -> Any:
    """Run a case, or this worker's part of a duet; plain data."""
    if what == "run":
        kernel = Runnable.from_dict(wanted[0])
        return runner.run(kernel.case, kernel.load()).to_dict()
    old, new, round_, worker = wanted
    return runner.duet(Runnable.from_dict(old), Runnable.from_dict(new), Round(**round_), worker)


def _see_only(gpu: int) -> None:
    """Hide all other GPUs from this process: libraries that Python kernels use take the first."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = visible.split(",") if visible else None
    if names and gpu >= len(names):
        raise BackendError(f"there is no GPU {gpu} here: CUDA_VISIBLE_DEVICES={visible}")
    os.environ["CUDA_VISIBLE_DEVICES"] = names[gpu] if names else str(gpu)


def _end_with(channel: Channel) -> None:
    """End the process and its children when pytest's end of the channel is gone.

    The thread cannot run while a kernel keeps Python's lock; the system ends the process then, as
    soon as the thread that started it ends: pytest's, or that of the server one logged in to.
    """
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

    def end() -> None:
        with contextlib.suppress(Exception):
            channel.waitclose()
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=end, daemon=True).start()
