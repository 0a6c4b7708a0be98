"""The examples: those for a CPU run, those for a GPU put their work where they are told."""

from __future__ import annotations

import importlib.util
import re
import shutil
import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pytest_gemm.against import OldKernels
from pytest_gemm.backends.cuda.timer import PATIENCE
from pytest_gemm.case import Case, Settings
from pytest_gemm.errors import KernelFault
from pytest_gemm.function import FunctionName
from pytest_gemm.launching import Launcher, loaded, program_of
from pytest_gemm.matrices import operands
from pytest_gemm.problem import Problem
from pytest_gemm.registry import load_registry
from pytest_gemm.revision import Export, find_revision
from tests.fake_cupy import FakeCuda, Lane, RuntimeFailure
from tests.git_repository import commit
from tests.host_kernels.harness import installed_compilers

EXAMPLES = Path(__file__).parent.parent / "examples"
README = (EXAMPLES / "README.md").read_text(encoding="utf-8")
TEST = "def test_gemm(gemm):\n    gemm.check()\n"


def imported(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


run_examples = imported("run_examples", EXAMPLES / "run.py")

NEEDS: dict[str, tuple[str, tuple[str, ...]]] = run_examples.NEEDS


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no c++, the compiler that there is."""
    if not shutil.which("c++"):
        command, *_ = installed_compilers()
        monkeypatch.setenv("CXX", command.replace("python", sys.executable, 1))


def on(device: str) -> list[str]:
    return [name for name, (devices, _) in NEEDS.items() if device in devices.split()]


def test_all_examples_are_listed_and_can_be_copied() -> None:
    folders = {path.parent.name for path in EXAMPLES.glob("*/conftest.py")}
    rows = re.findall(r"^\| \[(\w+)\]\(\w+/conftest.py\) \| ([\w, ]+) \| (.*?) \|", README, re.M)
    devices = {name: tuple(where.split(", ")) for name, where, _ in rows}
    words = {"host": "CPU", "cuda": "GPU"}
    assert devices == {
        name: tuple(words[word] for word in where.split()) for name, (where, _) in NEEDS.items()
    }
    assert folders == NEEDS.keys()
    for name in NEEDS:
        assert (EXAMPLES / name / "test_kernels.py").read_text() == TEST
        assert (EXAMPLES / name / "pytest.ini").read_text() == "[pytest]\n"
        assert (EXAMPLES / name / "conftest.py").read_text().startswith('"""')


@pytest.mark.parametrize("name", ["numpy_matmul", "ctypes_library", "nanobind_module"])
def test_an_example_on_the_cpu(name: str, compiler: None) -> None:
    done = run_examples.run(name, "host", ["-W", "error", "-o", "gemm_time_cap=0.02"])
    assert done.ok, done.output
    assert " passed" in done.output
    if name == "nanobind_module":  # or another Python would load it, and fail
        suffix = sysconfig.get_config_var("EXT_SUFFIX")
        assert (EXAMPLES / name / "build" / f"gemm_cpu{suffix}").exists()


def test_what_runs_is_chosen_by_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    there = {"nanobind", "cupy"}
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name in there)
    assert run_examples.selected("host", []) == [
        "numpy_matmul", "ctypes_library", "nanobind_module",
    ]  # fmt: skip
    assert run_examples.selected("cuda", []) == [
        "ctypes_library", "nanobind_module", "cupy_raw", "cupy_elementwise", "cublas",
    ]  # fmt: skip
    assert run_examples.selected("cuda:1", []) == run_examples.selected("cuda", [])
    assert run_examples.selected("cuda", ["torch_op"]) == ["torch_op"]
    with pytest.raises(SystemExit, match="no example torchop: there are numpy_matmul, "):
        run_examples.selected("host", ["torchop"])


def test_the_other_examples_run_after_one_that_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(name: str, device: str) -> Any:
        if name == "ctypes_library":
            raise OSError("no compiler")
        return run_examples.Run(name, True, ["pytest"], 0, 1.0, f"{name} on {device}")

    monkeypatch.setattr(run_examples, "run", run)
    names = ["numpy_matmul", "ctypes_library", "nanobind_module"]
    monkeypatch.setattr(sys, "argv", ["run.py", "--out", str(tmp_path), *names])
    assert run_examples.main() == 1
    said = capsys.readouterr().out
    assert [line[:4] for line in said.splitlines() if "[" in line] == ["ok  ", "FAIL", "ok  "]
    text = (tmp_path / "host.txt").read_text()
    assert "##### ctypes_library: FAIL, 0.0 s\n\nOSError: no compiler\n" in text
    assert "nanobind_module on host" in text


@pytest.mark.parametrize("device", ["host", "cuda"])
def test_what_is_published_has_every_example(device: str) -> None:
    text = (EXAMPLES / "output" / f"{device}.txt").read_text(encoding="utf-8")
    assert re.findall(r"^##### (\w+): (\w+), [\d.]+ s$", text, re.M) == [
        (name, "ok") for name in on(device)
    ]
    assert run_examples.anonymous(text) == text
    assert not re.search(r"/(tmp|home|root|opt)\b", text)
    assert f"(output/{device}.txt)" in README
    sections = dict(zip(on(device), re.split(r"^##### .*", text, flags=re.M)[1:], strict=True))
    for name, section in sections.items():
        if name != run_examples.FAULT:
            assert re.search(r"^=+ \d+ passed, \d+ ungated in [\d.]+s =+$", section, re.M)


def test_what_python_kernels_md_shows_was_printed() -> None:
    page = (EXAMPLES.parent / "docs" / "python-kernels.md").read_text(encoding="utf-8")
    printed = (EXAMPLES / "output" / "cuda.txt").read_text(encoding="utf-8")
    rows, sentences = re.findall(r"test_examples.py -->\n```text\n(.*?)```", page, re.S)
    _, *kernels = rows.splitlines()
    for row in kernels:
        name, problem, *figures = re.split(r" {2,}", row)
        (line,) = (
            s for s in printed.splitlines() if re.match(rf"{re.escape(name)} +{problem} ", s)
        )
        cells = iter(re.split(r" {2,}", line))
        assert all(figure in cells for figure in figures), row  # in this order
    timed = re.findall(r"^(\S+) +1024x1024\S* +ok", printed, re.M)
    assert [row.split()[0] for row in kernels] == timed
    for sentence in sentences.splitlines():
        assert f": {sentence}\n" in printed


def test_places_of_a_machine_are_not_published() -> None:
    text = """gemm: cuda: NVIDIA H200; driver 580, nvrtc 13.0, uuid GPU-d77021a2-6f35
../gemm-example-nmiz7ued/cublas/test.py: A "/tmp/gemm-example-nmiz7ued/x", 3 / 4
/opt/a/.venv/lib/python3.12/site-packages/numba/x.py:3: Warning
"""
    assert (
        run_examples.anonymous(text)
        == """gemm: cuda: NVIDIA H200; driver 580, nvrtc 13.0
FOLDER/cublas/test.py: A "FOLDER/x", 3 / 4
site-packages/numba/x.py:3: Warning
"""
    )


# Against a revision


def test_the_kernels_of_the_examples_can_be_slowed_down(tmp_path: Path) -> None:
    """One that cannot only shows that nothing is said of the same kernel twice."""
    slower = {}
    for name in NEEDS:
        folder = shutil.copytree(EXAMPLES / name, tmp_path / name)
        slower[name] = {path.name for path in run_examples.slow_down(folder)}
    sources = {
        "ctypes_library": {"gemm.cpp", "gemm.cu"},
        "nanobind_module": {"multiply.cpp", "multiply.cu"},
        "cupy_raw": {"conftest.py"},
        "torch_load_inline": {"conftest.py"},
        "triton_matmul": {"conftest.py"},
        "numba_cuda": {"conftest.py"},
    }
    assert slower == {name: sources.get(name, set()) for name in NEEDS}
    for path in tmp_path.glob("*/conftest.py"):
        compile(path.read_text(), path, "exec")


def test_a_library_is_built_from_the_source_of_the_revision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiler: None
) -> None:
    name = "ctypes_library_of_a_revision"
    module_file, source = tmp_path / f"{name}.py", tmp_path / "gemm.cpp"
    shutil.copy(EXAMPLES / "ctypes_library" / "conftest.py", module_file)
    shutil.copy(EXAMPLES / "ctypes_library" / "gemm.cpp", source)
    commit(tmp_path, {".gitignore": "build/\n"})
    source.write_text("#error of now\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, name, ModuleType(name))
    registry = load_registry((), tmp_path, modules=[imported(name, module_file)])
    (kernel,) = registry.kernels("host")
    opponents = OldKernels(Export(find_revision(tmp_path, "HEAD")), "host", tmp_path, ())
    try:
        case = Case(kernel, Problem.parse("5"), Settings(timed=True))
        old = opponents.find(case, registry.functions[kernel.callable]).function
        assert isinstance(old, FunctionName)
        A = np.arange(6, dtype=np.float32).reshape(2, 3)
        B = np.arange(12, dtype=np.float32).reshape(3, 4)
        C = np.full((2, 4), np.nan, np.float32)
        old.load()(A, B, C, 2, 4, 3)
        assert (C == A @ B).all()
        assert (Path(old.copy) / "build" / "gemm.cpp.so").is_file()
    finally:
        opponents.close()


# On a GPU: libraries that only know of streams, and put a kernel of 10 us on their current one


class DeviceArray(np.ndarray[Any, Any]):
    """As CuPy's: its memory has an address, and DLPack makes the reader's stream wait for ours."""

    machine: FakeCuda

    @property
    def data(self) -> Any:
        return SimpleNamespace(ptr=self.ctypes.data)

    def __dlpack__(self, *, stream: int | None = None, **_: Any) -> Any:
        ours = self.machine.lanes[self.machine.stream_stack[-1].ptr]
        waits = stream != -1 and ours is not self.machine.lanes[stream or DEFAULT]
        if waits and ours.captured is not None:
            ours.invalid = True
            raise RuntimeFailure("cudaErrorStreamCaptureImplicit: it failed")
        return self


DEFAULT = 7
"""The default stream, on which nobody waits."""


class Libraries:
    """Modules that stand for CuPy, PyTorch, Triton and Numba."""

    def __init__(self, fake: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fake = fake
        self.torch_streams = [DEFAULT]
        fake.lanes[DEFAULT] = Lane()
        DeviceArray.machine = fake
        language = SimpleNamespace(constexpr=int)
        for name, module in {
            "cupy": self.cupy(),
            "torch": self.torch(),
            "torch.utils": SimpleNamespace(),
            "torch.utils.cpp_extension": SimpleNamespace(load_inline=self.load_inline),
            "triton": SimpleNamespace(
                jit=self.on_torch, cdiv=lambda a, b: -(-a // b), language=language
            ),
            "triton.language": language,
            "numba": SimpleNamespace(cuda=self.numba()),
        }.items():
            monkeypatch.setitem(sys.modules, name, module)  # type: ignore[arg-type]

    def on_cupy(self, *arguments: Any, **keywords: Any) -> None:
        self.fake.work(self.fake.stream_stack[-1].ptr)

    def cupy(self) -> Any:
        stack = self.fake.stream_stack

        class Null:
            def __enter__(self) -> None:
                stack.append(SimpleNamespace(ptr=DEFAULT))

            def __exit__(self, *_: object) -> None:
                stack.pop()

        def kernel(*_: Any) -> Any:
            return self.on_cupy

        streams = SimpleNamespace(Stream=SimpleNamespace(null=Null()))
        return SimpleNamespace(
            RawKernel=kernel, ElementwiseKernel=kernel, matmul=self.on_cupy, cuda=streams
        )

    def torch(self) -> Any:
        @contextmanager
        def stream(ptr: int) -> Iterator[None]:
            self.torch_streams.append(ptr)
            yield
            self.torch_streams.pop()

        def from_dlpack(array: Any) -> Any:
            return array.__dlpack__(stream=self.torch_streams[-1], max_version=(1, 0))

        return SimpleNamespace(
            set_num_threads=lambda count: None,
            from_dlpack=from_dlpack,
            mm=lambda a, b, out: self.fake.work(self.torch_streams[-1]),
            cuda=SimpleNamespace(ExternalStream=lambda ptr: ptr, stream=stream),
        )

    def on_torch(self, function: Any) -> Any:
        """Triton's ``jit``."""

        class Jit:
            def __getitem__(_, grid: Any) -> Any:  # noqa: N805
                return lambda *args, **keys: self.fake.work(self.torch_streams[-1])

        return Jit()

    def load_inline(self, *sources: Any, functions: Any) -> Any:
        (name,) = functions
        return SimpleNamespace(**{name: lambda *_: self.fake.work(self.torch_streams[-1])})

    def numba(self) -> Any:
        def as_cuda_array(array: Any, sync: bool = True) -> Any:
            assert not sync, "this waits for the stream"
            return array

        def jit(function: Any) -> Any:
            class Jit:
                def __getitem__(_, key: Any) -> Any:  # noqa: N805
                    stream = key[2] if len(key) > 2 else DEFAULT
                    return lambda *args: self.fake.work(stream)

            return Jit()

        return SimpleNamespace(
            jit=jit, as_cuda_array=as_cuda_array, external_stream=lambda ptr: ptr
        )

    def of_a_compiler(self, *_: Any) -> Any:
        """A library that nvcc built: the stream comes last."""

        def call(*arguments: Any) -> None:
            self.fake.work(arguments[-1])

        return SimpleNamespace(gemm=call, multiply=call)


@pytest.fixture
def launch(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], dict[str, Any]]:
    """Time 20 launches of every kernel of an example: seconds and whether they were captured, or
    the kind of the fault, by kernel.
    """

    def times(name: str) -> dict[str, Any]:
        fake = FakeCuda()
        libraries = Libraries(fake, monkeypatch)
        backend = fake.backend()
        ndarray = backend._api.cupy.ndarray
        backend._api.cupy.ndarray = lambda *a, **k: ndarray(*a, **k).view(DeviceArray)
        monkeypatch.setitem(sys.modules, "example", ModuleType("example"))
        module = imported("example", EXAMPLES / name / "conftest.py")
        for compiled in ("library", "module"):
            if hasattr(module, compiled):
                monkeypatch.setattr(module, compiled, libraries.of_a_compiler)
        folders = [path for path in EXAMPLES.glob(f"{name}/kernels") if path.is_dir()]
        registry = load_registry(folders, EXAMPLES / name, modules=[module])
        assert registry.errors == ()
        found: dict[str, Any] = {}
        for kernel in registry.kernels("cuda"):
            if not kernel.is_python:
                continue
            function = registry.functions[kernel.callable]
            problem = Problem.parse("67x45" if kernel.op == "add" else "67x45x33", kernel.op)
            executable = backend.compile(program_of(kernel, function))
            launcher = Launcher(kernel, backend, executable, timeout=20)
            with loaded(backend, problem, operands(problem, 0, "uniform")) as workspace:
                try:
                    for _ in range(PATIENCE):
                        seconds = launcher.time(workspace, 20)
                    found[kernel.id] = (seconds, backend.is_captured(executable))
                except KernelFault as fault:
                    found[kernel.id] = fault.kind
        return found

    return times


@pytest.mark.parametrize("name", [name for name in on("cuda") if name != "wrong_stream"])
def test_an_example_for_a_gpu_works_on_the_given_stream(
    name: str, launch: Callable[[str], dict[str, Any]]
) -> None:
    found = launch(name)
    assert found
    for seconds, captured in found.values():
        assert seconds == pytest.approx(20e-5, rel=1e-6)
        assert captured


def test_the_example_of_what_is_wrong_is_noticed(
    launch: Callable[[str], dict[str, Any]],
) -> None:
    names = ("cupy", "torch", "numba")
    assert launch("wrong_stream") == {f"{n}_default_stream": "escaped-stream" for n in names}
