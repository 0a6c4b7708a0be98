"""Worker processes: how they start, import, print, end, and what is said where they cannot."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from textwrap import dedent
from uuid import uuid4

import pytest

from pytest_gemm import __version__
from pytest_gemm.backends.base import Device
from pytest_gemm.case import Case
from pytest_gemm.errors import BackendError
from pytest_gemm.function import FunctionName, Runnable
from pytest_gemm.problem import Problem
from pytest_gemm.registry import load_registry
from pytest_gemm.workers import turns
from pytest_gemm.workers import worker as worker_module
from pytest_gemm.workers.serve import Start
from pytest_gemm.workers.state import State
from pytest_gemm.workers.turns import Turns
from pytest_gemm.workers.worker import Ran, Worker

KERNELS = Path(__file__).parent.parent / "kernels"

PROJECT = {
    "conftest.py": """
        import os, sys
        import numpy as np
        import pytest_gemm

        print("imported the conftest")

        @pytest_gemm.kernel(sizes=[16])
        def product(A, B, C):
            np.matmul(A, B, out=C)

        @pytest_gemm.kernel(sizes=[16])
        def prints(A, B, C):
            print("a line of Python", end=" and ")
            sys.stdout.flush()
            os.write(1, b"a line of C\\n")
            print("an error", file=sys.stderr)
            C[:] = A @ B + 1  # wrong, so that pytest shows what was printed
    """,
    "deep/conftest.py": """
        import numpy as np
        import pytest_gemm

        print("imported the deep conftest")

        @pytest_gemm.kernel(sizes=[16])
        def deep(A, B, C):
            np.matmul(A, B, out=C)

        @pytest_gemm.kernel(sizes=[16])
        def deep_too(A, B, C):
            np.matmul(A, B, out=C)
    """,
    "package/__init__.py": "print('imported the package')",
    "package/inner/__init__.py": "",
    "package/inner/parts.py": """
        def multiply(A, B, C):
            C[:] = A @ B
    """,
    "package/inner/conftest.py": """
        import pytest_gemm
        from .parts import multiply
        from ..inner import parts

        @pytest_gemm.kernel(sizes=[16])
        def relative(A, B, C):
            parts.multiply(A, B, C)
    """,
    "only_here.py": """
        import sys
        import pytest_gemm
        if "pytest" not in sys.modules:
            raise RuntimeError("there is no pytest here")

        @pytest_gemm.kernel(sizes=[16])
        def needs_pytest(A, B, C):
            C[:] = A @ B
    """,
    "leaves.py": """
        import sys
        import pytest_gemm

        @pytest_gemm.kernel(sizes=[16])
        def leaves_at_import(A, B, C):
            C[:] = A @ B

        if "pytest" not in sys.modules:
            sys.exit("goodbye")
    """,
    "local.py": """
        import sys
        import pytest_gemm
        if "pytest" in sys.modules:
            @pytest_gemm.kernel(sizes=[16])
            def declared_under_pytest(A, B, C):
                C[:] = A @ B
    """,
    "kernels/prints_in_cuda.cu": """
        // /// gemm
        // block = [16, 16]
        // grid = ["cdiv(N, 16)", "cdiv(M, 16)"]
        // sizes = [16]
        // ///
        #include <cstdio>
        __global__ void prints_in_cuda(const float* A, const float* B, float* C,
                                       int M, int N, int K) {
            const int row = blockIdx.y * blockDim.y + threadIdx.y;
            const int col = blockIdx.x * blockDim.x + threadIdx.x;
            if (row == 0 && col == 0) printf("a line of CUDA\\n");
            if (row < M && col < N) C[row * N + col] = 1.0f;
        }
    """,
    "test_kernels.py": "def test_gemm(gemm): gemm.check()",
    "pytest.ini": "[pytest]\ngemm_modules = only_here leaves local\npythonpath = .\n",
}


def write_project(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text), encoding="utf-8")


@pytest.fixture(scope="module")
def sections(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What pytest printed of each kernel's case in one run of the project, passed ones too."""
    folder = tmp_path_factory.mktemp("workers")
    write_project(folder, PROJECT)
    command = [sys.executable, "-m", "pytest", "-rA", "-W", "error", "-p", "no:cacheprovider"]
    folders = [".", "deep", "package/inner"]
    run = subprocess.run(
        [*command, *folders], cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )
    print(run.stdout, run.stderr)
    parts = re.split(r"^_+ test_gemm\[(\w+)-16x16x16-float32\] _+$", run.stdout, flags=re.M)
    found = dict(zip(parts[1::2], parts[2::2], strict=True))
    return {**found, "": run.stdout + run.stderr}


def test_what_a_kernel_prints_is_captured_in_its_test(sections: dict[str, str]) -> None:
    section = sections["prints"]
    stdout, stderr = section.split("Captured stderr call")
    assert "a line of Python and a line of C\n" in stdout
    assert "an error" in stderr
    assert "a line of Python" not in "".join(
        text for name, text in sections.items() if name not in ("prints", "")
    )


def test_what_a_cuda_kernel_prints_is_captured_in_its_test(sections: dict[str, str]) -> None:
    assert "Captured stdout call" in sections["prints_in_cuda"]
    assert "\na line of CUDA\n" in sections["prints_in_cuda"]


@pytest.mark.parametrize("kernel", ["product", "deep", "deep_too", "relative"])
def test_a_kernel_is_found_wherever_its_module_is(kernel: str, sections: dict[str, str]) -> None:
    assert f"PASSED test_kernels.py::test_gemm[{kernel}-16x16x16-float32]" in sections[""]


def test_a_module_is_imported_once_though_others_have_its_name(sections: dict[str, str]) -> None:
    """Three files are ``conftest``; kernels of two of them take turns."""
    texts = "".join(text for name, text in sections.items() if name)
    assert texts.count("imported the conftest") == 1
    assert texts.count("imported the deep conftest") == 1


@pytest.mark.parametrize(
    ("kernel", "text"),
    [
        (
            "needs_pytest",
            "/only_here.py cannot be imported by a worker: RuntimeError: there is no pytest here",
        ),
        ("leaves_at_import", "/leaves.py cannot be imported by a worker: SystemExit: goodbye"),
        (
            "declared_under_pytest",
            "/local.py: declared_under_pytest is not there when a worker imports the file: declare "
            "the kernel at the top of its module, or set gemm_in_process = true",
        ),
    ],
)
def test_a_module_that_a_worker_cannot_use_is_one_sentence(
    kernel: str, text: str, sections: dict[str, str]
) -> None:
    first = sections[kernel].strip().splitlines()[0]
    assert first.startswith(f"{kernel} on 16x16x16: /")
    assert first.endswith(text)
    assert "Traceback" not in sections[kernel]


def test_nothing_but_the_broken_ones_failed(sections: dict[str, str]) -> None:
    assert "5 failed, 4 passed" in sections[""], sections[""]
    assert "Warning" not in sections[""]


def test_a_package_that_pytest_finds_without_the_path(pytester: pytest.Pytester) -> None:
    names = ["package/__init__.py", "package/inner/__init__.py", "package/inner/parts.py"]
    names += ["package/inner/conftest.py", "test_kernels.py"]
    write_project(pytester.path, {name: PROJECT[name] for name in names})
    run = pytester.runpytest_subprocess("--import-mode=importlib", ".", "package/inner")
    run.assert_outcomes(passed=1)


# One worker


MODULE = """
import ctypes, os, sys, threading, time
import numpy as np
import pytest_gemm

@pytest_gemm.kernel(sizes=[16])
def product(A, B, C):
    np.matmul(A, B, out=C)

@pytest_gemm.kernel(sizes=[16])
def writes_a_lot(A, B, C):
    np.matmul(A, B, out=C)
    if A.shape == (16, 16):
        print("x" * 3_000_000)

@pytest_gemm.kernel(sizes=[16])
def dies_loudly(A, B, C):
    print("it was here")
    ctypes.string_at(0)

@pytest_gemm.kernel(sizes=[16])
def keeps_the_lock_of_python(A, B, C):
    ctypes.PyDLL(None).sleep(1000)

@pytest_gemm.kernel(sizes=[16])
def reads_the_environment(A, B, C):
    print(os.environ.get("MY_SETTING"), os.environ["PYTEST_GEMM_CACHE"], os.getcwd())
    np.matmul(A, B, out=C)
"""

EVIL = """
import ctypes, json, multiprocessing, os, resource, signal, sys, time
import numpy as np
import pytest
import pytest_gemm

@pytest_gemm.kernel(sizes=[16])
def product(A, B, C):
    np.matmul(A, B, out=C)
    print("product is here")

@pytest_gemm.kernel(sizes=[16])
def forks_and_aborts(A, B, C):
    if os.fork() == 0:
        time.sleep(1000)
    os.abort()

@pytest_gemm.kernel(sizes=[16])
def forks_and_returns(A, B, C):
    np.matmul(A, B, out=C)
    os.fork()

@pytest_gemm.kernel(sizes=[16])
def forks_and_raises(A, B, C):
    np.matmul(A, B, out=C)
    if os.fork() == 0:
        raise RuntimeError("in the child")

@pytest_gemm.kernel(sizes=[16])
def has_processes(A, B, C):
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.map(abs, [-2]) == [2]
    np.matmul(A, B, out=C)

@pytest_gemm.kernel(sizes=[16])
def speaks_for_the_worker(A, B, C):
    np.matmul(A, B, out=C)
    json.dumps = lambda *args, **kwargs: "no answer"

@pytest_gemm.kernel(sizes=[16])
def leaves_no_memory(A, B, C):
    def full(*args, **kwargs):
        raise MemoryError("Unable to allocate 1.00 GiB")
    np.matmul(A, B, out=C)
    np.full = full

@pytest_gemm.kernel(sizes=[16])
def changes_folder(A, B, C):
    np.matmul(A, B, out=C)
    os.chdir("/")

@pytest_gemm.kernel(sizes=[16])
def clears_environment(A, B, C):
    np.matmul(A, B, out=C)
    os.environ.clear()

@pytest_gemm.kernel(sizes=[16])
def ignores_signals(A, B, C):
    np.matmul(A, B, out=C)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)

@pytest_gemm.kernel(sizes=[16])
def lowers_limits(A, B, C):
    np.matmul(A, B, out=C)
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))

@pytest_gemm.kernel(sizes=[16])
def rounds_upwards(A, B, C):
    np.matmul(A, B, out=C)
    ctypes.CDLL("libm.so.6").fesetround({"x86_64": 0x800, "aarch64": 0x400000}[os.uname().machine])

@pytest_gemm.kernel(sizes=[16])
def makes_errors_of_warnings(A, B, C):
    np.matmul(A, B, out=C)
    np.seterr(all="raise")

@pytest_gemm.kernel(sizes=[16])
def tells_its_process(A, B, C):
    np.matmul(A, B, out=C)
    print(os.getpid())

@pytest_gemm.kernel(sizes=[16])
def takes_all_memory(A, B, C):
    np.matmul(A, B, out=C)
    taken = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken, resource.RLIM_INFINITY))

@pytest_gemm.kernel(sizes=[16])
def interrupts_itself(A, B, C):
    os.kill(os.getpid(), signal.SIGINT)

@pytest_gemm.kernel(sizes=[16])
def fails_a_test(A, B, C):
    pytest.fail("not here")

@pytest_gemm.kernel(sizes=[16])
def leaves_a_generator(A, B, C):
    raise GeneratorExit

@pytest_gemm.kernel(sizes=[16])
def has_no_text(A, B, C):
    class Mute(Exception):
        def __str__(self):
            raise ValueError
    raise Mute

@pytest_gemm.kernel(sizes=[16])
def closes_streams(A, B, C):
    np.matmul(A, B, out=C)
    for descriptor in (0, 1, 2):
        os.close(descriptor)

@pytest_gemm.kernel(sizes=[16])
def closes_stdout(A, B, C):
    np.matmul(A, B, out=C)
    sys.stdout.close()

@pytest_gemm.kernel(sizes=[16])
def redirects_streams(A, B, C):
    np.matmul(A, B, out=C)
    os.dup2(os.open("/dev/null", os.O_WRONLY), 1)
    sys.stdout, sys.stderr = open("/dev/null", "w"), None

@pytest_gemm.kernel(sizes=[16])
def never_stops_printing(A, B, C):
    while True:
        print("x" * 1_000_000)
"""

START = Start(kind="host", gpu=0, hold="never", wait=True, run="gemm-test")


class Kernels:
    """The kernels of a module, as this process knows them."""

    def __init__(self, path: Path) -> None:
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        self.path = path
        self.module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.module)
        self.registry = load_registry((), path.parent, [self.module])

    def case(self, name: str) -> Runnable:
        (kernel,) = (k for k in self.registry.kernels("host") if k.name == name)
        case = Case(kernel, Problem("gemm", 16, 16, 16))
        return Runnable(case, FunctionName.of(getattr(self.module, name)))


@pytest.fixture
def kernels(write: Callable[[str, str], Path]) -> Kernels:
    return Kernels(write("some_kernels.py", MODULE))


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def start(said: list[str]) -> Iterator[Callable[..., Worker]]:
    with ExitStack() as stack:

        def start_one(ssh: dict[str, str] | None = None, timeout: float = 60.0) -> Worker:
            return stack.enter_context(closing(Worker(START, timeout, said.append, ssh)))

        yield start_one


def test_ctrl_c_while_a_worker_starts_is_not_for_it(
    start: Callable[..., Worker], write: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupts = "import os, signal; os.kill(os.getpid(), signal.SIGINT)"
    folders = [str(write("sitecustomize.py", interrupts).parent), os.environ.get("PYTHONPATH")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, folders)))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert start().ready().kind == "host"
    finally:
        signal.signal(signal.SIGINT, before)


def wait_until_dead(pid: int) -> None:
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


def pid_of(worker: Worker) -> int:
    assert worker._pid is not None
    return worker._pid


def test_a_worker_knows_its_device_and_is_started_once(
    start: Callable[..., Worker], kernels: Kernels
) -> None:
    worker = start()
    device = worker.ready()
    first = pid_of(worker)
    assert device.kind == "host"
    assert worker.run(kernels.case("product")).result.outcome == "passed"
    assert worker.ready() == device
    assert pid_of(worker) == first


def test_a_path_that_the_locale_cannot_write_is_told(
    start: Callable[..., Worker], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What LC_ALL=C makes of a name in UTF-8 where Python does not choose UTF-8 itself."""
    monkeypatch.syspath_prepend("t\udcc3\udcbc")
    with pytest.raises(BackendError, match="this locale does not have: set PYTHONUTF8=1"):
        start().ready()


def test_a_worker_that_is_killed_between_two_cases_is_replaced(
    start: Callable[..., Worker], kernels: Kernels, said: list[str]
) -> None:
    worker = start()
    worker.ready()
    first = pid_of(worker)
    os.kill(first, signal.SIGKILL)
    wait_until_dead(first)
    assert worker.run(kernels.case("product")).result.outcome == "passed"
    assert pid_of(worker) != first
    (line,) = (text for text in said if "lost" in text)
    assert line.startswith(
        "between two cases, a worker was lost: its process was killed by SIGKILL"
    )


def test_what_was_printed_before_a_crash_is_there_with_the_line_that_crashed(
    start: Callable[..., Worker], kernels: Kernels
) -> None:
    worker = start()
    ran = worker.run(kernels.case("dies_loudly"))
    assert ran.result.message == (
        "dies_loudly on 16x16x16: its process was killed by SIGSEGV (Segmentation fault)"
    )
    assert ran.result.device["kind"] == "host"
    assert ran.stdout == "it was here\n"
    line = MODULE[: MODULE.index("string_at")].count("\n") + 1
    assert f'"{kernels.path}", line {line} in dies_loudly' in ran.stderr
    again = worker.run(kernels.case("product"))
    assert again == Ran(again.result)
    assert again.result.outcome == "passed"


def test_of_endless_output_the_beginning_is_kept(
    start: Callable[..., Worker], kernels: Kernels
) -> None:
    ran = start().run(kernels.case("writes_a_lot"))
    assert ran.result.outcome == "passed"
    assert len(ran.stdout) < 1_100_000
    assert re.search(r"x\n\[\d+ more bytes\]\n$", ran.stdout)


@pytest.fixture
def evil(write: Callable[[str, str], Path]) -> Kernels:
    return Kernels(write("evil_kernels.py", EVIL))


@pytest.mark.parametrize(
    ("kernel", "text"),
    [
        ("forks_and_aborts", "its process was killed by SIGABRT (Aborted)"),
        ("speaks_for_the_worker", "its process sent what is no answer, and was ended"),
        ("leaves_no_memory", "its process has no memory left: Unable to allocate 1.00 GiB"),
        ("takes_all_memory", "no memory for a buffer of "),
        ("interrupts_itself", "its process was interrupted (SIGINT)"),
        ("fails_a_test", "evil_kernels.py:LINE: fails_a_test raised Failed: not here"),
        ("leaves_a_generator", "evil_kernels.py:LINE: leaves_a_generator raised GeneratorExit"),
        ("has_no_text", "evil_kernels.py:LINE: has_no_text raised Mute: (it has no text"),
    ],
)
def test_what_a_kernel_does_to_its_process_is_said_and_is_gone_with_it(
    kernel: str, text: str, start: Callable[..., Worker], evil: Kernels
) -> None:
    worker = start()
    ran = worker.run(evil.case(kernel))
    assert ran.result.outcome == "failed"
    title, _, message = ran.result.message.partition(": ")
    assert re.fullmatch(rf"{kernel} on \d+x\d+x\d+", title)
    message = re.sub(r"\S+evil_kernels.py:\d+", "evil_kernels.py:LINE", message)
    assert message.startswith(text)
    after = worker.run(evil.case("product"))
    assert after.result.outcome == "passed"
    assert "product is here" in after.stdout


@pytest.mark.parametrize(
    "kernel",
    [
        "changes_folder",
        "clears_environment",
        "ignores_signals",
        "lowers_limits",
        "rounds_upwards",
        "makes_errors_of_warnings",
    ],
)
def test_what_a_kernel_changes_of_its_process_ends_with_its_case(
    kernel: str, start: Callable[..., Worker], evil: Kernels
) -> None:
    worker = start()
    worker.ready()
    first = pid_of(worker)
    assert worker.run(evil.case(kernel)).result.outcome == "passed"
    after = worker.run(evil.case("tells_its_process"))
    assert after.result.outcome == "passed"
    assert set(after.stdout.split()) == {str(pid_of(worker))}
    assert pid_of(worker) != first


def test_a_process_that_nobody_changed_is_kept(start: Callable[..., Worker], evil: Kernels) -> None:
    worker = start()
    for _ in range(2):
        ran = worker.run(evil.case("tells_its_process"))
        assert set(ran.stdout.split()) == {str(pid_of(worker))}
    first = pid_of(worker)
    assert worker.run(evil.case("product")).result.outcome == "passed"
    assert pid_of(worker) == first


def test_an_error_of_a_library_names_the_line_of_the_kernel(
    start: Callable[..., Worker], evil: Kernels
) -> None:
    ran = start().run(evil.case("fails_a_test"))
    line = EVIL[: EVIL.index("pytest.fail")].count("\n") + 1
    assert f"{evil.path}:{line}: " in ran.result.message


@pytest.mark.parametrize("kernel", ["forks_and_returns", "forks_and_raises"])
def test_a_process_that_comes_back_out_of_a_kernel_is_ended_and_says_nothing_for_it(
    kernel: str, start: Callable[..., Worker], evil: Kernels
) -> None:
    worker = start()
    ran = worker.run(evil.case(kernel))
    assert ran.result.outcome == "passed"
    time.sleep(0.3)
    after = worker.run(evil.case("product"))
    assert after.result.message == ""
    assert "product is here" in after.stdout
    said = f"{kernel} forked a process, which did not end: it was ended"
    assert said in ran.stderr + after.stderr
    assert ("in the child" in ran.stderr + after.stderr) == (kernel == "forks_and_raises")


def test_a_kernel_may_have_processes_of_its_own(
    start: Callable[..., Worker], evil: Kernels
) -> None:
    ran = start().run(evil.case("has_processes"))
    assert (ran.result.outcome, ran.stderr) == ("passed", "")


@pytest.mark.parametrize("kernel", ["closes_streams", "closes_stdout", "redirects_streams"])
def test_the_next_kernels_output_is_caught_whatever_one_did_to_the_streams(
    kernel: str, start: Callable[..., Worker], evil: Kernels
) -> None:
    worker = start()
    worker.run(evil.case(kernel))
    after = worker.run(evil.case("product"))
    assert after.result.outcome == "passed"
    assert "product is here" in after.stdout


def test_endless_output_ends_the_process(
    start: Callable[..., Worker], evil: Kernels, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "MOST_PRINTED", 2**24)
    monkeypatch.setattr(worker_module, "WATCH", 0.1)
    worker = start()
    ran = worker.run(evil.case("never_stops_printing"))
    assert ran.result.message == (
        "never_stops_printing on 16x16x16: it printed more than 16 MiB: its worker was ended"
    )
    assert ran.stdout.startswith("xxx")
    assert worker.run(evil.case("product")).result.outcome == "passed"


def test_a_kernel_that_keeps_pythons_lock_is_ended_in_time(
    start: Callable[..., Worker], kernels: Kernels
) -> None:
    worker = start(timeout=2.0)
    worker.ready()
    first = pid_of(worker)
    ran = worker.run(kernels.case("keeps_the_lock_of_python"))
    assert ran.result.message == (
        "keeps_the_lock_of_python on 16x16x16: no answer for 2 s: its worker was ended"
    )
    with pytest.raises(ProcessLookupError):
        os.kill(first, 0)


def test_the_environment_and_the_folder_are_those_of_pytest(
    start: Callable[..., Worker], kernels: Kernels, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MY_SETTING", "42")
    monkeypatch.chdir(tmp_path)
    ran = start().run(kernels.case("reads_the_environment"))
    line = f"42 {os.environ['PYTEST_GEMM_CACHE']} {tmp_path}\n"
    assert set(ran.stdout.splitlines(keepends=True)) == {line}


def test_a_variable_that_names_no_compiler_is_said_by_the_worker(
    start: Callable[..., Worker], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_GEMM_CXX", "no-such-compiler")
    worker = start()
    for _ in range(2):
        with pytest.raises(BackendError, match="no-such-compiler") as error:
            worker.ready()
        assert "\n" not in str(error.value)


def test_a_disk_that_cannot_be_written_to_fails_the_case_in_a_sentence(
    start: Callable[..., Worker], write: Callable[[str, str], Path]
) -> None:
    new = f"// built by nobody before: {uuid4()}\n"
    path = write("add.cu", (KERNELS / "add.cu").read_text(encoding="utf-8") + new)
    (kernel,) = load_registry((), path.parent, files=(path,)).kernels("host")
    worker = start()
    worker.ready()
    assert worker._scratch is not None
    worker._scratch.rmdir()
    result = worker.run(Runnable(Case(kernel, kernel.problem("16")))).result
    assert result.outcome == "failed"
    assert result.message.startswith("add on 16x16: [Errno 2] No such file or directory: ")


def test_a_case_waits_for_its_turn_longer_than_it_may_last(
    kernels: Kernels, said: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(turns.VARIABLE, str(tmp_path / "locks"))

    held, told = threading.Event(), threading.Event()

    def hold(device: Device) -> None:
        with Turns(device, "case", said.append).turn():
            held.set()
            told.wait(30)
            time.sleep(1.5)  # longer than a case may last

    def hear(text: str) -> None:
        said.append(text)
        told.set()

    patient = Start(kind="host", gpu=0, hold="case", wait=True, run="gemm-test")
    with closing(Worker(patient, 1.0, hear)) as worker:
        other = threading.Thread(target=hold, args=(worker.ready(),))
        other.start()
        assert held.wait(30)
        ran = worker.run(kernels.case("product"))
        other.join()
    assert ran.result.outcome == "passed", ran.result.message
    assert [text.endswith("waiting for it") for text in said] == [True]


def test_stopping_from_another_thread_ends_what_is_running_for_good(
    start: Callable[..., Worker], kernels: Kernels
) -> None:
    worker = start()
    worker.ready()
    first = pid_of(worker)
    timer = threading.Timer(0.2, worker.stop)
    timer.start()
    ran = worker.run(kernels.case("keeps_the_lock_of_python"))
    timer.join()
    assert ran.result.outcome == "failed"
    with pytest.raises(ProcessLookupError):
        os.kill(first, 0)
    with pytest.raises(BackendError, match="this run has ended"):
        worker.ready()


def test_a_worker_that_was_stopped_before_it_started_never_starts(
    start: Callable[..., Worker],
) -> None:
    worker = start()
    worker.stop()
    with pytest.raises(BackendError, match="this run has ended"):
        worker.ready()
    assert worker._pid is None


def test_a_function_that_is_another_one_in_the_file_is_not_run(
    start: Callable[..., Worker], kernels: Kernels
) -> None:
    kernel = kernels.case("product")
    kernels.path.write_text(MODULE.replace("np.matmul(A, B, out=C)", "C[:] = A @ B"))
    ran = start().run(kernel)
    assert ran.result.message == (
        f"product on 16x16x16: {kernels.path}: product is another function in the file that a "
        "worker imports: make the files the same, and start pytest again"
    )


def test_a_file_that_is_not_there(start: Callable[..., Worker], kernels: Kernels) -> None:
    kernel = kernels.case("product")
    kernels.path.unlink()
    ran = start().run(kernel)
    assert ran.result.message == (
        f"product on 16x16x16: {kernels.path} is not on this machine: Python kernels run only "
        "where the project is"
    )


MISSING = "raise ModuleNotFoundError(\"No module named '{}'\")"

# The other side. What a stub on the path does is what an old or broken installation does.


@pytest.mark.parametrize(
    ("files", "text"),
    [
        (
            {"pytest_gemm/__init__.py": "__version__ = '0.0.7'"},
            f"pytest-gemm is 0.0.7 there and {__version__} here: install the same version there, "
            f"with: pip install pytest-gemm=={__version__}",
        ),
        (
            {
                "pytest_gemm/__init__.py": MISSING.format("pytest_gemm"),
            },
            f"pytest-gemm is missing: pip install pytest-gemm=={__version__} there",
        ),
        (
            {"numpy/__init__.py": MISSING.format("numpy")},
            "numpy is missing: pip install numpy there",
        ),
        (
            {"numpy/__init__.py": "raise RuntimeError('built for another machine')"},
            "RuntimeError: built for another machine",
        ),
    ],
)
def test_an_installation_that_does_not_fit_is_one_sentence(
    files: dict[str, str],
    text: str,
    start: Callable[..., Worker],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write_project(tmp_path / "stubs", files)
    monkeypatch.setattr(sys, "path", [str(tmp_path / "stubs"), *sys.path])
    worker = start()
    for _ in range(2):
        with pytest.raises(BackendError) as error:
            worker.ready()
        assert str(error.value).removeprefix("a worker could not be started: ") == text
    assert worker._channel is None


needs_ssh = pytest.mark.skipif(shutil.which("ssh") is None, reason="no ssh client here")


@needs_ssh
def test_a_machine_that_cannot_be_reached(start: Callable[..., Worker]) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]  # bound, and nobody listens
        worker = start({"ssh": f"-p {port} 127.0.0.1", "python": "/opt/python"})
        with pytest.raises(BackendError) as error:
            worker.ready()
    assert str(error.value) == (
        f"on -p {port} 127.0.0.1: no Python could be started: "
        f"try 'ssh -p {port} 127.0.0.1 /opt/python -V'"
    )


def test_no_ssh_here(start: Callable[..., Worker], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(BackendError, match="on lab: there is no program 'ssh' here"):
        start({"ssh": "lab"}).ready()


@pytest.mark.parametrize("word", ["exit 127", "echo Welcome; sleep 1000"])
def test_what_is_no_python_is_one_sentence_and_nothing_is_left_of_it(
    word: str, start: Callable[..., Worker], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An ssh that logs in nowhere, and runs what it is given as the server would."""
    ssh = tmp_path / "ssh"
    ssh.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\n{word}\n")
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(BackendError) as error:
        start({"ssh": "lab", "ssh_config": "my/config"}).ready()
    assert str(error.value) == (
        "on lab: no Python could be started: try 'ssh -F my/config lab python3 -V'"
    )
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_a_process_is_as_before_but_for_variables_that_are_new(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = State()
    monkeypatch.setenv("PYTEST_GEMM_TEST_NEW", "1")
    assert before.is_kept()
    monkeypatch.setenv("PATH", "/nowhere")
    assert not before.is_kept()
