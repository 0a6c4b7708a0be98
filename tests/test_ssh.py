"""Workers on another machine: here this one again, behind a real sshd on the loopback interface."""

from __future__ import annotations

import getpass
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from pytest_gemm import __version__
from pytest_gemm.baselines import BaselineStore
from pytest_gemm.errors import BackendError
from pytest_gemm.pipeline import TIMED_RECIPE
from pytest_gemm.workers.worker import Worker
from tests.test_worker import MISSING, START, Kernels, write_project

ROOT = Path(__file__).parent.parent
SSHD = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/sbin:" + os.environ.get("PATH", ""))
TOOLS = {"sshd": SSHD, "ssh": shutil.which("ssh"), "ssh-keygen": shutil.which("ssh-keygen")}
ABSENT = [name for name, path in TOOLS.items() if path is None]

pytestmark = pytest.mark.skipif(
    bool(ABSENT), reason=f"not installed here: {', '.join(ABSENT)} (openssh-server)"
)

SSHD_CONFIG = """
    Port {port}
    ListenAddress 127.0.0.1
    HostKey {folder}/host_key
    AuthorizedKeysFile {folder}/client_key.pub
    PidFile none
    StrictModes no
    UsePAM no
    PasswordAuthentication no
    PermitRootLogin prohibit-password
"""
SSH_CONFIG = """
    Host lab
        HostName 127.0.0.1
        Port {port}
        User {user}
        IdentityFile {folder}/client_key
        IdentitiesOnly yes
        StrictHostKeyChecking no
        UserKnownHostsFile {folder}/known_hosts
        LogLevel ERROR
        ControlPath none
"""


@dataclass(frozen=True)
class Lab:
    """A machine to log in to."""

    folder: Path
    python: Path

    @property
    def keys(self) -> dict[str, str]:
        return {"ssh": "lab", "ssh_config": f"{self.folder}/ssh_config", "python": str(self.python)}

    @property
    def device(self) -> str:
        pairs = (f"{key}={value}" for key, value in self.keys.items())
        return "//".join([*pairs, "device=host"])

    def command(self, name: str, **variables: str) -> Path:
        """A Python there that starts with these variables: what a log-in there would set."""
        path = self.folder / name
        exports = "".join(f"export {key}='{value}'\n" for key, value in variables.items())
        path.write_text(f'#!/bin/sh\n{exports}exec {sys.executable} "$@"\n')
        path.chmod(0o755)
        return path


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("lab")
    for name in ("host_key", "client_key"):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
        subprocess.run(command, check=True)
    places = {"folder": folder, "user": getpass.getuser(), "port": free_port()}
    for name, text in (("sshd_config", SSHD_CONFIG), ("ssh_config", SSH_CONFIG)):
        (folder / name).write_text(dedent(text).format(**places))
    assert SSHD is not None
    with ExitStack() as stack:
        if os.getuid() == 0 and not Path("/run/sshd").exists():
            Path("/run/sshd").mkdir(mode=0o755)  # sshd of root wants it, and is given it at boot
            stack.callback(Path("/run/sshd").rmdir)
        log = stack.enter_context((folder / "log").open("w"))
        server = subprocess.Popen(
            [SSHD, "-D", "-e", "-f", str(folder / "sshd_config")],
            stdin=subprocess.DEVNULL,
            stderr=log,
        )
        stack.enter_context(server)
        stack.callback(server.terminate)
        wait_for(lambda: answers(places["port"]) or server.poll() is not None)
        assert server.poll() is None, (folder / "log").read_text()
        here = {key: os.environ[key] for key in ("PYTEST_GEMM_CACHE", "PYTEST_GEMM_LOCKS")}
        yield Lab(folder, Lab(folder, Path()).command("python", **here))


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def answers(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5):
        return True
    return False


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def is_gone(pid: int) -> bool:
    """Whether the process has ended, also if nobody has asked for its exit code."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state in "ZX"


# The shipped kernels


def digests(report: Path) -> dict[str, str]:
    records = json.loads(report.read_text())["records"]
    assert {record["outcome"] for record in records} == {"passed"}
    return {record["id"]: record["result"]["digest"] for record in records}


@pytest.fixture(scope="module")
def runs(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The shipped kernels verified on this machine and, at the same time, on the other one."""
    folder = tmp_path_factory.mktemp("shipped")
    write_project(
        folder,
        {
            "test_kernels.py": "def test_gemm(gemm): gemm.check()",
            "pytest.ini": f"[pytest]\ngemm_kernels = {ROOT}/kernels\n"
            f"gemm_baselines = {ROOT}/baselines\n",
        },
    )
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-W", "error"]
    command += ["--gemm-baseline=strict"]
    started = {
        name: subprocess.Popen(
            [*command, f"--gemm-device={device}", f"--gemm-report={name}.json"],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for name, device in (("here", "host"), ("there", lab.device))
    }
    texts = {name: run.communicate(timeout=120)[0] for name, run in started.items()}
    print(*texts.values())
    return {
        name: (run.returncode, texts[name], digests(folder / f"{name}.json"))
        for name, run in started.items()
    }


def test_the_shipped_kernels_pass_there_with_the_bits_of_here_and_of_the_repository(
    runs: dict[str, Any],
) -> None:
    (here, _, ours), (there, _, theirs) = runs["here"], runs["there"]
    assert (here, there) == (0, 0)
    assert len(ours) >= 18
    assert ours == theirs
    store = BaselineStore(ROOT / "baselines")
    stored = {
        fact.benchmark: fact.digest
        for path in (ROOT / "baselines" / "exact").glob("*.json")
        for fact in store.load_exact(path.stem).values()
        if fact.recipe == TIMED_RECIPE and fact.seed == 0
    }
    assert theirs.items() <= stored.items()


# What is said where it cannot be used


@pytest.fixture
def kernels(write: Callable[[str, str], Path]) -> Kernels:
    return Kernels(write("some_kernels.py", KERNELS))


KERNELS = """
import ctypes, os, signal, sys
import numpy as np
import pytest_gemm

@pytest_gemm.kernel(sizes=[16])
def prints(A, B, C):
    print("pid", os.getpid())
    np.matmul(A, B, out=C)

@pytest_gemm.kernel(sizes=[16])
def is_killed(A, B, C):
    os.kill(os.getpid(), signal.SIGKILL)

@pytest_gemm.kernel(sizes=[16])
def keeps_the_lock_of_python(A, B, C):
    ctypes.PyDLL(None).sleep(1000)
"""


@pytest.fixture
def start() -> Iterator[Callable[..., Worker]]:
    with ExitStack() as stack:

        def start_one(keys: dict[str, str], timeout: float = 60.0) -> Worker:
            return stack.enter_context(closing(Worker(START, timeout, print, keys)))

        yield start_one


def test_a_python_kernel_runs_there_if_its_file_is_there(
    lab: Lab, start: Callable[..., Worker], kernels: Kernels
) -> None:
    worker = start(lab.keys)
    ran = worker.run(kernels.case("prints"))
    assert ran.result.outcome == "passed", ran.result.message
    pids = set(re.findall(r"^pid (\d+)$", ran.stdout, re.MULTILINE))
    assert len(pids) == 1
    worker.close()
    (pid,) = map(int, pids)
    wait_for(lambda: is_gone(pid))


def test_a_python_kernel_whose_file_is_not_there(
    lab: Lab, start: Callable[..., Worker], kernels: Kernels
) -> None:
    kernel = kernels.case("prints")
    kernels.path.unlink()
    assert start(lab.keys).run(kernel).result.message == (
        f"prints on 16x16x16: {kernels.path} is not on this machine: Python kernels run only "
        "where the project is"
    )


def test_a_python_kernel_whose_file_is_another_there(
    lab: Lab, start: Callable[..., Worker], kernels: Kernels
) -> None:
    kernel = kernels.case("prints")
    kernels.path.write_text(KERNELS.replace("pid", "number"))
    assert "prints is another function in the file" in (start(lab.keys).run(kernel).result.message)


def test_a_worker_that_is_lost_there_is_replaced(
    lab: Lab, start: Callable[..., Worker], kernels: Kernels
) -> None:
    worker = start(lab.keys)
    assert worker.run(kernels.case("is_killed")).result.message == (
        "is_killed on 16x16x16: the connection to its worker was lost"
    )
    assert worker.run(kernels.case("prints")).result.outcome == "passed"


def test_a_kernel_that_hangs_there_ends_when_its_time_is_over(
    lab: Lab, start: Callable[..., Worker], kernels: Kernels
) -> None:
    worker = start(lab.keys, timeout=3.0)
    pid = int(worker.run(kernels.case("prints")).stdout.split()[1])
    assert worker.run(kernels.case("keeps_the_lock_of_python")).result.message == (
        "keeps_the_lock_of_python on 16x16x16: no answer for 3 s: its worker was ended"
    )
    wait_for(lambda: is_gone(pid))


@pytest.mark.parametrize(
    ("files", "text"),
    [
        (
            {"pytest_gemm/__init__.py": "__version__ = '0.0.7'"},
            f"on lab: pytest-gemm is 0.0.7 there and {__version__} here: install the same version "
            f"there, with: pip install pytest-gemm=={__version__}",
        ),
        (
            {"pytest_gemm/__init__.py": MISSING.format("pytest_gemm")},
            f"on lab: pytest-gemm is missing: pip install pytest-gemm=={__version__} there",
        ),
        (
            {"numpy/__init__.py": MISSING.format("numpy")},
            "on lab: numpy is missing: pip install numpy there",
        ),
    ],
)
def test_an_installation_there_that_does_not_fit_is_one_sentence(
    files: dict[str, str], text: str, lab: Lab, start: Callable[..., Worker], tmp_path: Path
) -> None:
    write_project(tmp_path / "stubs", files)
    python = lab.command("python-with-stubs", PYTHONPATH=str(tmp_path / "stubs"))
    with pytest.raises(BackendError) as error:
        start({**lab.keys, "python": str(python)}).ready()
    assert str(error.value).removeprefix("a worker could not be started: ") == text


def test_a_python_that_is_not_there(lab: Lab, start: Callable[..., Worker]) -> None:
    with pytest.raises(BackendError) as error:
        start({**lab.keys, "python": "/opt/no/python"}).ready()
    assert str(error.value) == (
        "on lab: no Python could be started: "
        f"try 'ssh -F {lab.folder}/ssh_config lab /opt/no/python -V'"
    )


def test_a_run_on_a_machine_that_cannot_be_used_fails_with_one_sentence(
    lab: Lab, pytester: pytest.Pytester
) -> None:
    """Above the tests, and for each case; nothing passes, and nothing is tried again."""
    pytester.makepyfile(test_kernels="def test_gemm(gemm): gemm.check()")
    pytester.mkdir("kernels")
    shutil.copy(ROOT / "kernels" / "naive.cu", pytester.path / "kernels")
    config = (lab.folder / "ssh_config").read_text()
    closed = pytester.path / "ssh_config"
    closed.write_text(re.sub(r"Port \d+", f"Port {free_port()}", config))
    device = f"ssh=lab//ssh_config={closed}//device=host"
    run = pytester.runpytest_subprocess("-W", "error", f"--gemm-device={device}")
    assert run.ret == pytest.ExitCode.TESTS_FAILED
    run.assert_outcomes(failed=3)
    sentence = f"on lab: no Python could be started: try 'ssh -F {closed} lab python3 -V'"
    lines = [line for line in run.outlines if sentence in line]
    assert lines[0] == f"gemm: {sentence}"
    assert lines[1:4] == [sentence] * 3
    assert "Traceback" not in run.stdout.str() + run.stderr.str()
    assert run.stderr.str().count("Connection refused") == 1
