"""The one place where the doctor touches a machine; tests put another one in its place."""

from __future__ import annotations

import glob
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

TIMED_OUT, CANNOT_RUN = 124, 127


class Answer(NamedTuple):
    """A command's exit code (negative: the signal that ended it) and all that it printed."""

    code: int
    output: str

    @property
    def first_line(self) -> str:
        return next((line.strip() for line in self.output.splitlines() if line.strip()), "")


class Machine:
    """Files, commands, packages and the environment of this machine; nothing is ever changed."""

    environ: Mapping[str, str] = os.environ
    python = sys.executable
    platform = f"{platform.system()} {platform.machine()}"

    def text(self, path: str) -> str | None:
        """What a file holds; None where it cannot be read."""
        try:
            return Path(path).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None

    def paths(self, pattern: str) -> list[str]:
        """What there is, files and devices, sorted."""
        return sorted(glob.glob(pattern))  # noqa: PTH207 (the pattern is absolute)

    def find(self, command: str) -> str:
        """Where a command is, or an empty text."""
        return shutil.which(command) or ""

    def run(self, command: Sequence[str], timeout: float) -> Answer:
        """What it answered; one that cannot be started or does not end answers with that."""
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=timeout,
                check=False,
            )
        except OSError as error:
            return Answer(CANNOT_RUN, f"{command[0]}: {error.strerror}")
        except subprocess.TimeoutExpired:
            return Answer(TIMED_OUT, f"no answer for {timeout:g} s")
        return Answer(done.returncode, done.stdout)

    def is_writable(self, folder: Path) -> bool:
        return os.access(folder, os.W_OK | os.X_OK)

    def packages(self) -> Mapping[str, str]:
        """The versions of the installed distributions by their names in lower case."""
        found = ((d.metadata["Name"], d.version) for d in metadata.distributions())
        return {name.lower().replace("_", "-"): version for name, version in found if name}

    def requirements(self) -> Sequence[str]:
        """What pytest-gemm itself requires; nothing where it runs without being installed."""
        try:
            return metadata.requires("pytest-gemm") or []
        except metadata.PackageNotFoundError:
            return []

    def compiler(self) -> str:
        """The C++ compiler that works, with its version. Raises BackendError."""
        from pytest_gemm.backends.host.compiler import find_compiler

        compiler = find_compiler()
        return f"{compiler.name} ({compiler.version})"

    def cpu(self) -> str:
        """The name that baselines of this CPU are stored under."""
        from pytest_gemm.backends.host.machine import device_name

        return device_name()

    def cores(self) -> int:
        """How many this process may use."""
        return len(os.sched_getaffinity(0))
