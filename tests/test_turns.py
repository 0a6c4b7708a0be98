"""One run at a time on a device: a lock that real processes hold, wait for, and leave."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytest_gemm.backends.base import Device
from pytest_gemm.errors import BackendError, DeviceBusyError
from pytest_gemm.workers import turns
from pytest_gemm.workers.turns import Turns, lock_file

GPU = Device("cuda", "a-gpu", "GPU 0 (a GPU)", {"uuid": "GPU-1234"})
CPU = Device("host", "host-a-cpu", "a CPU, 8 cores")

HOLDER = """
import sys
from pytest_gemm.backends.base import Device
from pytest_gemm.workers.turns import Turns
kind, uuid, hold = sys.argv[1:]
turns = Turns(Device(kind, "any", "any", {"uuid": uuid} if uuid else {}), hold, print)
turns.start()
with turns.turn():
    print("held", flush=True)
    sys.stdin.readline()
print("turn over", flush=True)
sys.stdin.readline()
turns.stop()
print("let go", flush=True)
sys.stdin.readline()
"""


class Holder:
    """Another process, which has a device until it is told to go on."""

    def __init__(self, device: Device, hold: str) -> None:
        words = (device.kind, str(device.environment.get("uuid", "")), hold)
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOLDER, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.says() == "held"

    def says(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def go_on(self) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self.says()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture(autouse=True)
def locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "locks"
    monkeypatch.setenv(turns.VARIABLE, str(folder))
    return folder


@pytest.fixture
def hold() -> Iterator[Callable[..., Holder]]:
    holders: list[Holder] = []

    def start(device: Device, how: str = "run") -> Holder:
        holders.append(Holder(device, how))
        return holders[-1]

    yield start
    for holder in holders:
        with holder.process:
            holder.process.kill()


def never(text: str) -> None:
    raise AssertionError(f"it need not wait, and says: {text}")


def test_a_second_run_stops_with_a_sentence(hold: Callable[..., Holder], locks: Path) -> None:
    hold(GPU)
    with pytest.raises(DeviceBusyError) as error:
        Turns(GPU, "run", never, wait=False).start()
    assert str(error.value) == (
        "GPU 0 (a GPU) is in use by another run, which holds "
        f"{locks / 'GPU-1234.lock'} (gemm_busy = stop)"
    )


@pytest.mark.parametrize("end", ["go_on", "kill"])
def test_a_second_run_waits_and_says_so(end: str, hold: Callable[..., Holder]) -> None:
    """Until the first one ends its turn, or is killed."""
    holder = hold(GPU, "case")
    said: list[str] = []

    def progress(text: str) -> None:
        said.append(text)
        # It is told before it waits: only now is the device let go of.
        getattr(holder, end)()

    second = Turns(GPU, "run", progress)
    second.start()
    (text,) = said
    assert text.startswith("GPU 0 (a GPU) is in use by another run, which holds ")
    assert text.endswith("GPU-1234.lock: waiting for it")
    second.stop()


def test_a_run_keeps_the_device_between_its_cases(hold: Callable[..., Holder]) -> None:
    holder = hold(CPU, "run")
    assert holder.go_on() == "turn over"
    with pytest.raises(DeviceBusyError):
        Turns(CPU, "run", never, wait=False).start()
    assert holder.go_on() == "let go"
    Turns(CPU, "run", never).start()


def test_cases_take_turns_where_a_device_is_shared(hold: Callable[..., Holder]) -> None:
    holder = hold(CPU, "case")
    second = Turns(CPU, "case", never, wait=False)
    second.start()
    with pytest.raises(DeviceBusyError), second.turn():
        raise AssertionError("the device is the other's")
    assert holder.go_on() == "turn over"
    with second.turn(), pytest.raises(DeviceBusyError):
        Turns(CPU, "run", never, wait=False).start()
    with second.turn():
        pass


def test_other_devices_are_free(hold: Callable[..., Holder]) -> None:
    hold(GPU)
    other = Device("cuda", "a-gpu", "GPU 1", {"uuid": "GPU-5678"})
    for device in (other, CPU):
        Turns(device, "run", never, wait=False).start()


def test_who_times_nothing_holds_nothing(hold: Callable[..., Holder]) -> None:
    hold(CPU)
    turn = Turns(CPU, "never", never, wait=False)
    turn.start()
    with turn.turn():
        pass
    turn.stop()


def test_a_turn_that_ends_with_an_error_is_over() -> None:
    first, second = (Turns(GPU, "case", never, wait=False) for _ in range(2))
    with pytest.raises(ZeroDivisionError), first.turn():
        raise ZeroDivisionError
    with second.turn():
        pass


def test_a_folder_that_another_user_just_made_is_taken_as_it_is(
    locks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(folder: Path, *args: object, exist_ok: bool = False, **kwargs: object) -> None:
        os.mkdir(folder)  # noqa: PTH102
        if not exist_ok:
            raise FileExistsError

    def refused(*args: object) -> None:
        raise PermissionError

    monkeypatch.setattr(Path, "mkdir", late)
    monkeypatch.setattr(Path, "chmod", refused)
    assert lock_file(CPU) == locks / "host.lock"


def test_the_folder_is_open_to_all_users_and_each_file_too(locks: Path) -> None:
    previous = os.umask(0o077)
    try:
        turn = Turns(GPU, "run", never)
        turn.start()
    finally:
        os.umask(previous)
    assert stat.S_IMODE(locks.stat().st_mode) == 0o777
    assert stat.S_IMODE((locks / "GPU-1234.lock").stat().st_mode) == 0o666
    turn.stop()


def test_the_name_of_a_lock_is_a_safe_file_name(locks: Path) -> None:
    odd = Device("cuda", "n", "d", {"uuid": "../../GPU 1/x"})
    assert lock_file(odd).parent == locks
    assert lock_file(CPU) == lock_file(Device("host", "another name", "same machine"))


AS_USER = """
import os, signal, sys
import encodings.ascii  # found now: a new user may not look into the folder of Python
from pytest_gemm.backends.base import Device
from pytest_gemm.workers.turns import Turns, lock_file
os.setuid(int(sys.argv[1]))
device = Device("host", "any", "any")
if sys.argv[2] == "make the folder":
    lock_file(device)
else:
    Turns(device, "run", print, wait=False).start()
    print("held", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become other users")
def test_users_share_a_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the folder is one user's, and the file that was left in it another's, a third can."""
    folder = Path("/tmp") / f"pytest-gemm-test-{os.getpid()}"  # which other users can reach
    monkeypatch.setenv(turns.VARIABLE, str(folder))
    runs = []
    try:
        for user, what in (("12341", "make the folder"), ("12342", "lock"), ("12343", "lock")):
            command = [sys.executable, "-c", AS_USER, user, what]
            runs.append(subprocess.run(command, capture_output=True, text=True, check=False))
            if user == "12342":
                assert (folder / "host.lock").stat().st_uid == 12342
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    assert [(run.stdout, run.stderr) for run in runs[1:]] == [("held\n", "")] * 2


@pytest.mark.parametrize("what", ["symlink", "dangling symlink", "file", "below a file"])
def test_what_is_no_folder_is_refused_in_a_sentence(
    what: str, tmp_path: Path, locks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    match what:
        case "symlink":
            (tmp_path / "elsewhere").mkdir()
            locks.symlink_to(tmp_path / "elsewhere")
        case "dangling symlink":
            locks.symlink_to(tmp_path / "nowhere")
        case "file":
            locks.write_text("")
        case "below a file":
            locks.write_text("")
            monkeypatch.setenv(turns.VARIABLE, str(locks / "deeper"))
    with pytest.raises(BackendError) as error:
        Turns(GPU, "run", never)
    text = str(error.value)
    assert text.startswith(os.environ[turns.VARIABLE])
    assert "set PYTEST_GEMM_LOCKS to one that is shared by all users of this machine" in text
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("what", ["symlink", "folder"])
def test_what_is_no_lock_file_is_refused_in_a_sentence(
    what: str, tmp_path: Path, locks: Path
) -> None:
    target = tmp_path / "precious"
    target.write_text("kept")
    file = lock_file(GPU)
    if what == "symlink":
        file.symlink_to(target)
    else:
        file.mkdir()
    with pytest.raises(BackendError, match=r"cannot be locked .*set PYTEST_GEMM_LOCKS"):
        Turns(GPU, "run", never).start()
    assert target.read_text() == "kept"


def test_without_the_variable_the_folder_is_the_same_for_all(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(turns.VARIABLE)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(turns, "FOLDER", tmp_path / "all" / "users")
    assert lock_file(GPU) == tmp_path / "all" / "users" / "GPU-1234.lock"
    assert stat.S_IMODE((tmp_path / "all" / "users").stat().st_mode) == 0o777


def test_a_bench_waits_or_stops_and_who_verifies_does_neither(
    pytester: pytest.Pytester, hold: Callable[..., Holder]
) -> None:
    pytester.makepyfile(test_kernels="def test_gemm(gemm): gemm.check()")
    pytester.makeconftest(
        """
        import numpy as np, pytest_gemm
        @pytest_gemm.kernel(sizes=[8])
        def product(A, B, C):
            np.matmul(A, B, out=C)
        """
    )
    holder = hold(CPU, "run")
    verified = pytester.runpytest_subprocess()
    verified.assert_outcomes(passed=1)
    assert "in use" not in verified.stdout.str()

    stopped = pytester.runpytest_subprocess("--gemm-bench", "-o", "gemm_busy=stop")
    assert stopped.ret == pytest.ExitCode.USAGE_ERROR
    text = stopped.stdout.str() + stopped.stderr.str()
    assert text.count("in use by another run") == 1
    assert "(gemm_busy = stop)" in text
    assert "passed" not in text
    assert "Traceback" not in text

    waiting = subprocess.Popen(
        [sys.executable, "-m", "pytest", "--gemm-bench", "--benchmark-quiet"],
        cwd=pytester.path,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    with waiting:
        alarm = threading.Timer(120, waiting.kill)
        alarm.start()
        assert waiting.stdout is not None
        said = ""
        while "waiting for it" not in said and (line := waiting.stdout.readline()):
            said += line
        assert re.search(
            r"^.* is in use by another run, which holds .*: waiting for it$", said, re.M
        ), said
        holder.kill()
        rest = waiting.stdout.read()
        alarm.cancel()
    assert waiting.returncode == 0, rest
    assert "1 passed" in rest
