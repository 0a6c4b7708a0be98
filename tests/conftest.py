"""Shared by the tests: small projects that pytest runs, some with a clock that is scripted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent

import pytest

pytest_plugins = ["pytester"]

TEST = """
    def test_gemm(gemm):
        gemm.check()
"""

# Kernels in Python need no compiler, so that a run takes a fraction of a second.
KERNELS = """
    import numpy as np
    import pytest_gemm

    @pytest_gemm.kernel(sizes=["16x16x16", "16x24x8"], deterministic=True)
    def outer(A, B, C):
        C[:] = 0
        for k in range(A.shape[1]):
            C += np.outer(A[:, k], B[k])

    @pytest_gemm.kernel(sizes=["16x16x16", "16x24x8"], derived_from="outer", change="BLAS")
    def blas(A, B, C):
        C[:] = A @ B

    @pytest_gemm.kernel(op="add", sizes=["16x16"], deterministic=True)
    def plus(A, B, C):
        np.add(A, B, out=C)
"""

# No compiler and no real time: a launch lasts as long as SECONDS says for the kernel's function.
SCRIPTED_DEVICE = """
    import sys
    sys.path.append({root!r})
    import pytest_gemm.backends
    from pytest_gemm.backends.base import Device
    from tests.memory_backend import MemoryBackend

    class ScriptedBackend(MemoryBackend):
        kind = "host"
        device = Device("host", {device!r}, "a scripted CPU", {environment!r})

        def time(self, executable, config, arguments, *, launches=1, cold=False, timeout=60.0):
            global LAUNCHED
            LAUNCHED = arguments
            super().time(executable, config, arguments, timeout=timeout)
            name = executable.program.function.__name__
            return {per_call}(name) * launches

        def conditions(self):
            return {conditions!r}

        def compile(self, program):
            if {progress!r}:
                self.progress({progress!r})
            return super().compile(program)

    def open_backend(kind, progress, gpu=0):
        backend = ScriptedBackend()
        backend.progress = progress
        return backend

    pytest_gemm.backends.open_backend = open_backend
"""


@pytest.fixture(scope="session", autouse=True)
def _folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One cache of builds for the whole run, so that each kernel is compiled once.

    Locks of this process' own: runs that time nothing real need not wait for each other. What the
    inner runs come to is nothing that GitHub should show of the outer one.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("GITHUB_ACTIONS", raising=False)
        patch.setenv("PYTEST_GEMM_CACHE", str(tmp_path_factory.getbasetemp().parent / "builds"))
        patch.setenv("PYTEST_GEMM_LOCKS", str(tmp_path_factory.mktemp("locks")))
        yield


_STORED: dict[str, dict[str, str]] = {}
"""The files of a first session, by what the device and the kernels are scripted as."""


class Project:
    """A folder with kernels and the two-line test, in which pytest is run."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self.pytester = pytester
        self.path = pytester.path
        pytester.makepyfile(test_kernels=TEST)
        self.script({})

    def script(
        self,
        seconds: dict[str, float],
        kernels: str = KERNELS,
        device: str = "host-scripted",
        compiler: str = "g++ 12",
        per_call: str = "",
        conditions: dict[str, object] | None = None,
        progress: str = "",
    ) -> None:
        """Set the seconds of a launch per kernel function (0.010 for others), and the device.

        ``per_call`` names a function in ``kernels`` that gives them instead, and may look at the
        arguments, which are in ``LAUNCHED``; ``progress`` is what
        the back end says when it compiles.
        """
        scripted = SCRIPTED_DEVICE.format(
            root=str(Path(__file__).parent.parent),
            device=device,
            environment={"compiler": compiler},
            conditions=conditions or {},
            progress=progress,
            per_call=per_call or f"(lambda name: {seconds!r}.get(name, 0.010))",
        )
        self.pytester.makeconftest(dedent(scripted) + dedent(kernels))

    def run(self, *args: str) -> pytest.RunResult:
        """Run pytest in a process of its own, where kernels run too; warnings are errors.

        What is scripted in a conftest is not there in a worker. Hypothesis would take a tenth of a
        second to load.
        """
        in_process = ("-o", "gemm_in_process=true", "-p", "no:hypothesispytest")
        return self.pytester.runpytest_subprocess("-W", "error", *in_process, *args)

    def bench(self, *args: str) -> pytest.RunResult:
        """A timed run without pytest-benchmark's own table."""
        return self.run("--gemm-bench", "--benchmark-quiet", *args)

    def store(self) -> None:
        """Store a first session; what is scripted alike is run once, and copied from then on."""
        assert not self.files()
        script = (self.path / "conftest.py").read_text(encoding="utf-8")
        if script not in _STORED:
            assert self.bench("--gemm-baseline=update").ret == 0
            _STORED[script] = self.files()
        for name, text in _STORED[script].items():
            path = self.path / "baselines" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")

    def files(self) -> dict[str, str]:
        """Every stored file's text, by its path below ``baselines``."""
        root = self.path / "baselines"
        return {
            str(path.relative_to(root)): path.read_text(encoding="utf-8")
            for path in sorted(root.rglob("*"))
            if path.is_file()
        }


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.setenv("COLUMNS", "250")
    # Set where these tests themselves run side by side.
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    return Project(pytester)


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str], Path]:
    """Write a text to a file below the test's folder and return its path."""

    def write_text(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    return write_text
