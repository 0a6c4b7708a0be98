"""Asks a process to launch readings; it is replaced where one of them ended or stopped it."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

from pytest_gemm.adopt.attempt import ENDED, Attempt
from pytest_gemm.adopt.reading import Reading
from pytest_gemm.errors import BackendError
from pytest_gemm.problem import Problem
from pytest_gemm.scratch import VARIABLE, scratch_for_child

BLOCK_TIMEOUT, LAUNCH_TIMEOUT = 0.5, 3.0
"""Most seconds of a launch of one or two blocks, which takes milliseconds where it ends, and of
any other."""

ANSWER_TIMEOUT = 180.0
"""Most seconds for an answer, the first build of a slow compiler included."""


class Prober:
    """Launches readings of one source in a process of its own; a context manager that ends it.

    ``path`` is what errors call the source, ``text`` is complete with its includes, ``name`` what
    the kernel is called. ``deadline`` is when (of ``time.monotonic``) answers stop being waited
    for.
    """

    def __init__(self, path: str, text: str, name: str, deadline: float) -> None:
        self._source = ("source", path, text, name)
        self._deadline = deadline
        self._process: subprocess.Popen[bytes] | None = None
        self._scratch: Path | None = None
        self._files = contextlib.ExitStack()
        self._known: dict[tuple[Reading, Problem], Attempt] = {}
        self.launches = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        with self._files:
            self._end()

    @property
    def seconds_left(self) -> float:
        return self._deadline - time.monotonic()

    def attempt(self, reading: Reading, problem: Problem) -> Attempt:
        """Launch a reading once, watched. Raises BackendError where nothing can be launched."""
        key = (reading, problem)
        if key not in self._known:
            self.launches += 1
            try:
                few = all(size.isdecimal() for size in reading.grid)
                timeout = BLOCK_TIMEOUT if few or self.seconds_left < 0 else LAUNCH_TIMEOUT
                answer = self._ask("try", reading.table(), asdict(problem), timeout)
                self._known[key] = Attempt.from_dict(answer)
            except _Lost as lost:
                self._known[key] = Attempt(fault=str(lost))
        return self._known[key]

    def check(self, reading: Reading) -> str:
        """What pytest would say of a reading: nothing, or what is wrong. Raises BackendError."""
        try:
            return str(self._ask("check", reading.table(), 20.0))
        except _Lost as lost:
            return str(lost)

    def _ask(self, *request: Any) -> Any:
        process = self._started()
        try:
            self._send(process, request)
            answer = json.loads(self._line(process))
        except (OSError, ValueError) as error:
            self._end()
            raise _Lost(ENDED) from error
        if isinstance(answer, dict) and "refused" in answer:
            raise BackendError(answer["refused"])
        return answer

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            if self._scratch is None:
                self._scratch = self._files.enter_context(scratch_for_child())
            # The same modules as here, wherever they came from.
            path = os.pathsep.join(filter(None, sys.path))
            environment = os.environ | {"PYTHONPATH": path, VARIABLE: str(self._scratch)}
            self._process = subprocess.Popen(
                [sys.executable, "-m", "pytest_gemm.adopt.trial"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=environment,
                start_new_session=True,
            )
            try:
                self._send(self._process, self._source)
                self._line(self._process)
            except OSError as error:
                self._end()
                raise BackendError(
                    f"no process to try the kernel in: {sys.executable} ended; see: "
                    "pytest-gemm doctor"
                ) from error
        return self._process

    def _send(self, process: subprocess.Popen[bytes], message: Any) -> None:
        assert process.stdin is not None
        process.stdin.write(json.dumps(message).encode() + b"\n")
        process.stdin.flush()

    def _line(self, process: subprocess.Popen[bytes]) -> bytes:
        """A line of the process'. Raises OSError where it has ended, or goes on for too long."""
        assert process.stdout is not None
        until = time.monotonic() + ANSWER_TIMEOUT
        parts: list[bytes] = []
        while not parts or not parts[-1].endswith(b"\n"):
            left = until - time.monotonic()
            if left <= 0 or not select.select([process.stdout], [], [], left)[0]:
                raise TimeoutError
            part = os.read(process.stdout.fileno(), 1 << 16)
            if not part:
                raise BrokenPipeError
            parts.append(part)
        return b"".join(parts)

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # with what the kernel forked
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            with contextlib.suppress(OSError):
                stream.close()
        process.wait()


class _Lost(Exception):
    """The process ended, or was ended because it did not answer."""
