"""One worker process, seen from pytest's: started when it is needed, replaced when it is lost."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import execnet
from execnet.gateway_io import Popen2IOMaster

from pytest_gemm import __version__
from pytest_gemm.backends.base import Device
from pytest_gemm.case import Case
from pytest_gemm.dueling import Times
from pytest_gemm.duet import Round
from pytest_gemm.errors import BackendError, DeviceBusyError
from pytest_gemm.function import Runnable
from pytest_gemm.result import Result
from pytest_gemm.scratch import VARIABLE, scratch_for_child
from pytest_gemm.workers.output import take
from pytest_gemm.workers.serve import Start

START_TIMEOUT = 300.0
"""Seconds in which a worker must say that it is ready, or what it is waiting for."""

MOST_PRINTED = 2**30
"""Bytes that a process may have printed in one case; it is ended when it prints on."""

WATCH = 1.0
"""Seconds between two looks at a process that works."""

BOOTSTRAP = """
import os, signal, sys
if os.getpgrp() != os.getpid():
    os.setpgid(0, 0)  # Ctrl-C reaches pytest alone, and who ends this process ends its children
signal.signal(signal.SIGINT, signal.SIG_IGN)  # forgets one that came before
signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
channel.send(os.getpid())
path, outputs, variables = channel.receive()
sys.path[:] = path or sys.path
os.environ.update(variables)
import pytest_gemm
channel.send(pytest_gemm.__version__)
from pytest_gemm.workers.serve import serve
serve(channel, outputs)
"""

_MISSING = re.compile(r"No module named '(?P<name>[\w.]+)'")


class Lost(Exception):
    """The process is gone, or was ended because it did not answer; the text says how."""


@dataclass(frozen=True)
class Ran:
    """A case's result, and what it printed."""

    result: Result
    stdout: str = ""
    stderr: str = ""


class Worker:
    """Runs cases in a process of its own. Only ``stop`` may be called from another thread.

    ``ssh`` are the keys of ``Choice.ssh``; ``timeout`` is how many seconds a case may go on
    without a word.
    """

    def __init__(
        self,
        start: Start,
        timeout: float,
        progress: Callable[[str], None],
        ssh: Mapping[str, str] | None = None,
    ) -> None:
        self._start = start
        self._timeout = timeout
        self._progress = progress
        self._ssh = dict(ssh or {})
        self._group: execnet.Group | None = None
        self._channel: Any = None
        self._pid: int | None = None
        self._files = contextlib.ExitStack()
        self._outputs: list[int] = []
        self._scratch: Path | None = None
        self._refusal: BackendError | DeviceBusyError | None = None
        self._is_starting = False
        self.device: Device | None = None
        self.count = 1  # of the devices that the process could have used

    def begin(self) -> None:
        """Start the process, if it does not run, without waiting until it is ready.

        It ends with the thread that calls this, at the latest. Raises BackendError, in a
        sentence; what kept a process from starting is not tried again.
        """
        if self._channel is not None:
            return
        with self._refusing():
            self._connect()
            self._send(asdict(self._start))
            self._is_starting = True

    def ready(self) -> Device:
        """Wait until a process can be given work; see ``begin``."""
        self.begin()
        if self._is_starting:
            self._is_starting = False
            with self._refusing():
                kind, *found = self._answer(START_TIMEOUT)
                if kind == "refused":
                    text, busy = found
                    raise (DeviceBusyError if busy else BackendError)(f"{self._place}{text}")
                self.device, self.count = Device(**found[0]), found[1]
        assert self.device is not None
        return self.device

    @contextlib.contextmanager
    def _refusing(self) -> Iterator[None]:
        """Remember why a process could not be started. Raises BackendError."""
        if self._refusal is not None:
            raise self._refusal
        try:
            yield
        except (BackendError, DeviceBusyError) as error:
            self._end()
            self._refusal = error
            raise
        except Lost as lost:
            self._end()
            self._refusal = BackendError(f"a worker could not be started: {lost}")
            raise self._refusal from lost

    def run(self, kernel: Runnable) -> Ran:
        """Run a case; what it did to the process is in the result. Raises BackendError."""
        try:
            kind, answer, *printed = self._ask("run", kernel.to_dict())
        except Lost as lost:
            return Ran(self._failed(kernel.case, str(lost)), *self._printed())
        result = self._failed(kernel.case, answer) if kind == "failed" else Result.from_dict(answer)
        return Ran(result, *printed)

    def duet(self, old: Runnable, new: Runnable, round_: Round, number: int) -> Times:
        """This process' part of a duet, as worker ``number`` of the round.

        Raises Lost, and BackendError where one of the two kernels failed its checks.
        """
        kind, answer, *_ = self._ask("duet", old.to_dict(), new.to_dict(), asdict(round_), number)
        if kind == "failed":
            raise BackendError(answer)
        times: Times = answer
        return times

    def _ask(self, *message: Any) -> list[Any]:
        """Hand work to the process: to a new one, where that of the last case is gone.

        Raises BackendError, and Lost where the process ended meanwhile.
        """
        self.ready()
        try:
            self._send(message)
        except Lost as lost:
            self._progress(f"between two cases, a worker was lost: {lost}; it is replaced")
            self.ready()
            self._send(message)
        answer = self._answer(self._timeout)
        if answer[0] == "raised":
            self._end()
            raise RuntimeError(f"pytest-gemm failed in its worker:\n{answer[1]}")
        broken = answer.pop()
        if broken:
            self._end()
        return answer

    def stop(self) -> None:
        """End the process, for good and from any thread, whatever it is doing."""
        self._refusal = BackendError("this run has ended")
        self._end()

    def close(self) -> None:
        """End the process, and give up the files of what it printed and wrote."""
        self.stop()
        self._files.close()

    def _end(self) -> None:
        """End the process and its children at once; the next case starts a new one."""
        group, self._group, self._channel = self._group, None, None
        if group is None:
            return
        if self._pid is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._pid, signal.SIGKILL)
        with contextlib.suppress(OSError):
            group.terminate(timeout=1.0)

    def _connect(self) -> None:
        """Start a Python that has this version of pytest-gemm. Raises BackendError and Lost."""
        group = self._group = execnet.Group(execmodel="thread")
        self._pid = None
        try:
            with contextlib.nullcontext() if self._ssh else _deaf_to_ctrl_c():
                gateway = group.makegateway(self._spec())
            if self._refusal is not None:  # stopped meanwhile
                group.terminate(timeout=1.0)
                raise self._refusal
            channel = self._channel = gateway.remote_exec(BOOTSTRAP)
            pid = channel.receive(START_TIMEOUT)
            if self._ssh:
                channel.send(([], [], {}))
            else:
                self._pid = pid  # the number of a process on another machine means nothing here
                outputs = self._empty_outputs()
                channel.send((sys.path, outputs, {VARIABLE: str(self._scratch)}))
            version = channel.receive(START_TIMEOUT)
        except execnet.RemoteError as error:
            raise BackendError(self._explained(str(error))) from error
        except execnet.DumpError as error:
            why = "a path has characters that this locale does not have: set PYTHONUTF8=1"
            raise BackendError(f"{self._place}no worker can be started: {why}") from error
        except (OSError, EOFError, AssertionError, execnet.HostNotFound) as error:
            _end_unanswering(error)
            raise BackendError(self._unreachable(error)) from error
        if version != __version__:
            raise BackendError(
                f"{self._place}pytest-gemm is {version} there and {__version__} here: install the "
                f"same version there, with: pip install pytest-gemm=={__version__}"
            )

    def _spec(self) -> str:
        keys = {"execmodel": "main_thread_only", "id": "gemm"}
        if not self._ssh:
            return "//".join(["popen", *(f"{key}={value}" for key, value in keys.items())])
        keys |= {"python": "python3", **self._ssh}
        keys["ssh"] = f"-oConnectTimeout=30 {keys['ssh']}"
        return "//".join(f"{key}={value}" for key, value in keys.items())

    def _unreachable(self, error: BaseException) -> str:
        if not self._ssh:
            return f"a worker could not be started with {sys.executable}"
        if isinstance(error, FileNotFoundError):
            return f"{self._place}there is no program 'ssh' here to log in with"
        config = f"-F {self._ssh['ssh_config']} " if "ssh_config" in self._ssh else ""
        python = self._ssh.get("python", "python3")
        try_it = f"ssh {config}{self._ssh['ssh']} {python} -V"
        return f"{self._place}no Python could be started: try '{try_it}'"

    @property
    def _place(self) -> str:
        return f"on {self._ssh['ssh']}: " if self._ssh else ""

    def _send(self, message: Any) -> None:
        try:
            if self._channel is None:
                raise OSError("stopped from another thread")
            self._channel.send(json.dumps(message))
        except OSError:  # it ended between two cases
            ended = self._ending()
            self._end()
            raise Lost(ended) from None

    def _answer(self, timeout: float) -> list[Any]:
        """The next message that ends the wait. Raises Lost, and has closed the worker then."""
        channel = self._channel
        if channel is None:
            raise Lost("it was stopped")
        patience: float | None = timeout
        while True:
            try:
                message: list[Any] = json.loads(self._receive(channel, patience))
            except Lost:
                self._end()
                raise
            except channel.TimeoutError:
                self._end()
                raise Lost(f"no answer for {timeout:g} s: its worker was ended") from None
            except EOFError:
                ended = self._ending()
                self._end()
                raise Lost(ended) from None
            except ValueError:
                self._end()
                raise Lost("its process sent what is no answer, and was ended") from None
            except execnet.RemoteError as error:
                self._end()
                raise Lost(self._explained(str(error))) from error
            kind = message[0]
            if kind not in ("progress", "waiting", "started"):
                return message
            # Another run may have the device for as long as it likes.
            patience = None if kind == "waiting" else timeout
            if kind != "started":
                self._progress(message[1])

    def _receive(self, channel: Any, timeout: float | None) -> str:
        """The next message. Raises what ``channel.receive`` does, and Lost."""
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        while True:
            try:
                return str(channel.receive(min(WATCH, max(0.0, deadline - time.monotonic()))))
            except channel.TimeoutError:
                if time.monotonic() >= deadline:
                    raise
            if sum(os.fstat(file).st_size for file in self._outputs) > MOST_PRINTED:
                raise Lost(f"it printed more than {MOST_PRINTED >> 20} MiB: its worker was ended")
            if self._has_ended():
                # What it forked keeps the connection open. An answer may still be on its way.
                try:
                    return str(channel.receive(WATCH))
                except channel.TimeoutError:
                    raise Lost(self._ending()) from None

    def _has_ended(self) -> bool:
        if self._pid is None:
            return False
        try:
            return os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None
        except ChildProcessError:
            return True

    def _empty_outputs(self) -> list[str]:
        """Files for what the process prints, which are there when it is not any more.

        So is the folder of what it writes itself.
        """
        if not self._outputs:
            with contextlib.ExitStack() as stack:
                files = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(2)]
                self._scratch = stack.enter_context(scratch_for_child())
                self._files = stack.pop_all()
            self._outputs = [file.fileno() for file in files]
        self._printed()  # by the process before this one
        return [f"/proc/{os.getpid()}/fd/{descriptor}" for descriptor in self._outputs]

    def _printed(self) -> list[str]:
        """What a process printed before it was lost, if it was on this machine."""
        return [take(descriptor) for descriptor in self._outputs]

    def _ending(self) -> str:
        """How the process ended, from what the system keeps of it until it is waited for."""
        if self._pid is None:
            return "the connection to its worker was lost"
        deadline = time.monotonic() + 5
        options = os.WEXITED | os.WNOWAIT | os.WNOHANG
        while time.monotonic() < deadline:
            try:
                ended = os.waitid(os.P_PID, self._pid, options)
            except ChildProcessError:
                break  # it was ended, and waited for, from this side
            if ended:
                return _ended(ended.si_code, ended.si_status)
            time.sleep(0.01)
        return "its worker closed the connection"

    def _explained(self, error: str) -> str:
        """A sentence for what was raised before the worker could say anything itself."""
        if missing := _MISSING.search(error):
            name = missing["name"].replace("_", "-")
            version = f"=={__version__}" if name.startswith("pytest-gemm") else ""
            package = "pytest-gemm" if version else name
            return f"{self._place}{package} is missing: pip install {package}{version} there"
        return f"{self._place}{error.strip().splitlines()[-1]}"

    def _failed(self, case: Case, reason: str) -> Result:
        assert self.device is not None
        return Result("failed", f"{case.title}: {reason}").on(self.device)


@contextlib.contextmanager
def _deaf_to_ctrl_c() -> Iterator[None]:
    """A process that is started here does not hear it until it unblocks it itself."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _ended(code: int, status: int) -> str:
    if code == os.CLD_EXITED:
        return f"its process ended itself with exit code {status}"
    name = signal.Signals(status).name
    meaning = signal.strsignal(status)
    by = ", by hand or by the system for lack of memory" if name == "SIGKILL" else ""
    return f"its process was killed by {name} ({meaning}{by})"


def _end_unanswering(error: BaseException) -> None:
    """End a process that did not answer as a Python does: execnet leaves it, and its pipes."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        io = frame.f_locals.get("io")
        if isinstance(io, Popen2IOMaster):
            io.kill()
            io.wait()
            with contextlib.suppress(OSError):  # what could not be written
                io.close_write()
            io.close_read()
