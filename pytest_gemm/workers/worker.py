"""One worker process, seen from pytest's: started when it is needed, replaced when it is lost."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Any

import execnet

from pytest_gemm import __version__
from pytest_gemm.backends.base import Device
from pytest_gemm.case import Case
from pytest_gemm.errors import BackendError, DeviceBusyError
from pytest_gemm.function import FunctionName
from pytest_gemm.result import Result
from pytest_gemm.workers.serve import Start

START_TIMEOUT = 300.0
"""Seconds in which a worker must say that it is ready, or what it is waiting for."""

BOOTSTRAP = """
import os, sys
channel.send(os.getpid())
sys.path[:] = channel.receive() or sys.path
from pytest_gemm.workers.serve import serve
serve(channel)
"""

_MISSING = re.compile(r"No module named '(?P<name>[\w.]+)'")


class Lost(Exception):
    """The process is gone, or was ended because it did not answer; the text says how."""


class Worker:
    """Runs cases in a process of its own. All calls come from one thread at a time.

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
        self._refusal: BackendError | None = None
        self.device: Device | None = None
        self.count = 1  # of the devices that the process could have used

    def ready(self) -> Device:
        """Start the process, if it does not run; what kept it from starting is not tried again.

        Raises BackendError, in a sentence.
        """
        if self._refusal is not None:
            raise self._refusal
        if self._channel is None:
            try:
                self._start_process()
            except BackendError as error:
                self.close()
                self._refusal = error
                raise
        assert self.device is not None
        return self.device

    def _start_process(self) -> None:
        self._connect()
        try:
            self._send(asdict(self._start))
            kind, *found = self._answer(START_TIMEOUT)
        except Lost as error:
            raise BackendError(f"a worker could not be started: {error}") from error
        if kind == "refused":
            text, busy = found
            raise (DeviceBusyError if busy else BackendError)(f"{self._place}{text}")
        self.device, self.count = Device(**found[0]), found[1]

    def run(self, case: Case, function: FunctionName | None) -> Result:
        """Run a case; what it did to the process is in the result. Raises BackendError."""
        self.ready()
        message = [case.to_dict(), asdict(function) if function else None]
        try:
            self._send(message)
            kind, *found = self._answer(self._timeout)
        except Lost as lost:
            return self._failed(case, str(lost))
        if kind == "raised":
            self.close()
            raise RuntimeError(f"pytest-gemm failed in its worker:\n{found[0]}")
        result, output, broken = found
        sys.stdout.write(output)
        if broken:
            self.close()
        return Result.from_dict(result)

    def close(self) -> None:
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
        self._group = execnet.Group(execmodel="thread")
        try:
            self._channel = self._group.makegateway(self._spec()).remote_exec(BOOTSTRAP)
            pid = self._channel.receive(START_TIMEOUT)
            # The number of a process on another machine means nothing here.
            self._pid = None if self._ssh else pid
            self._channel.send([] if self._ssh else sys.path)
        except (OSError, EOFError, AssertionError, execnet.HostNotFound) as error:
            raise BackendError(self._unreachable()) from error

    def _spec(self) -> str:
        keys = {"execmodel": "main_thread_only", "id": "gemm"}
        if not self._ssh:
            return "//".join(["popen", *(f"{key}={value}" for key, value in keys.items())])
        keys |= {"python": "python3", **self._ssh}
        keys["ssh"] = f"-oConnectTimeout=30 {keys['ssh']}"
        return "//".join(f"{key}={value}" for key, value in keys.items())

    def _unreachable(self) -> str:
        if not self._ssh:
            return f"a worker could not be started with {sys.executable}"
        python = self._ssh.get("python", "python3")
        return f"{self._place}no Python could be started: try 'ssh {self._ssh['ssh']} {python} -V'"

    @property
    def _place(self) -> str:
        return f"on {self._ssh['ssh']}: " if self._ssh else ""

    def _send(self, message: Any) -> None:
        try:
            self._channel.send(json.dumps(message))
        except OSError:  # it ended between two cases
            ended = self._ending()
            self.close()
            raise Lost(ended) from None

    def _answer(self, timeout: float) -> list[Any]:
        """The next message that is no progress. Raises Lost, and has closed the worker then."""
        while True:
            try:
                message: list[Any] = json.loads(self._channel.receive(timeout))
            except self._channel.TimeoutError:
                self.close()
                raise Lost(f"no answer for {timeout:g} s: its worker was ended") from None
            except EOFError:
                ended = self._ending()
                self.close()
                raise Lost(ended) from None
            except execnet.RemoteError as error:
                self.close()
                raise Lost(self._explained(str(error))) from error
            if message[0] != "progress":
                return message
            self._progress(message[1])

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
        title = f"{case.kernel.id} on {case.problem.id}"
        result = Result("failed", f"{title}: {reason}")
        assert self.device is not None
        about = {key: getattr(self.device, key) for key in ("kind", "name", "description")}
        return replace(result, device=about, environment=dict(self.device.environment))


def _ended(code: int, status: int) -> str:
    if code == os.CLD_EXITED:
        return f"its process ended itself with exit code {status}"
    name = signal.Signals(status).name
    meaning = signal.strsignal(status)
    by = ", by hand or by the system for lack of memory" if name == "SIGKILL" else ""
    return f"its process was killed by {name} ({meaning}{by})"
