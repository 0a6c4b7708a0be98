"""Machine code held against what is stored, from end to end; the compiler is scripted."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from types import SimpleNamespace

import pytest

from pytest_gemm.baselines import BaselineStore, source_hash
from pytest_gemm.case import Case, Settings
from pytest_gemm.errors import BackendError, CompileError
from pytest_gemm.exact import facts_of
from pytest_gemm.kernelspec import Kernel
from pytest_gemm.problem import Problem
from pytest_gemm.record import Record
from pytest_gemm.registry import load_registry
from pytest_gemm.result import Result
from pytest_gemm.runner import Runner
from pytest_gemm.session import GemmSession
from pytest_gemm.static import gate
from pytest_gemm.static.gate import held_against_stored, remarks, since_opponent, since_stored
from pytest_gemm.static.inspection import MachineCode
from tests.conftest import Project
from tests.memory_backend import MemoryBackend
from tests.test_baselines import session
from tests.test_static_policy import OLD

KERNEL = """\
// /// gemm
// name  = "tiled"
// block = [8, 8]
// grid  = [1, 1]
// ///
__global__ void tiled(const float* A, const float* B, float* C, int M, int N, int K) {}
"""

# What a compiler would say of tiled.cu: the facts and the toolchain stand in a file.
SCRIPT = """
import json
from pathlib import Path
import pytest_gemm.runner
from pytest_gemm.errors import BackendError
from pytest_gemm.static.inspection import MachineCode

class Inspector:
    def __init__(self, toolchain):
        pass

    def inspect(self, kernel, architecture):
        facts, toolchain = json.loads(Path("code.json").read_text())
        return MachineCode(facts, "sha256:" + "0" * 32, toolchain)

def find_toolchain():
    if not Path("code.json").exists():
        raise BackendError("nvrtc: not installed; pip install 'pytest-gemm[static]'")

pytest_gemm.runner.Inspector = Inspector
pytest_gemm.runner.find_toolchain = find_toolchain
"""

NVRTC = "nvrtc 13.5.37 -ftz=true"

CASE = Case(Kernel("tiled"), Problem.parse("64"), Settings(architecture="sm_90"))


def found(toolchain: str = NVRTC, **facts: int) -> Result:
    return Result(
        "passed", digest="sha256:00", counters=OLD | facts, environment={"toolchain": toolchain}
    )


def held(root: Path, result: Result, mode: str = "auto", case: Case = CASE) -> Record:
    return held_against_stored(case, result, BaselineStore(root), mode=mode, accept="ACCEPT")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store that holds what ``found()`` says."""
    store = BaselineStore(tmp_path)
    for fact in facts_of(CASE, found()):
        store.update_exact(fact)
    store.flush()
    return tmp_path


def outcome(record: Record) -> tuple[str, str]:
    return record.outcome, record.gate


def test_a_case_of_machine_code_has_names_of_its_own() -> None:
    assert (CASE.id, CASE.title) == ("tiled-sm_90", "tiled for sm_90")
    assert Case.from_dict(json.loads(json.dumps(CASE.to_dict()))) == CASE


def test_what_is_as_it_was_passes_without_a_word(root: Path) -> None:
    for mode in ("auto", "strict"):
        record = held(root, found(), mode)
        assert (*outcome(record), record.message) == ("passed", "same", "")
    assert list(remarks([record])) == []


@pytest.mark.parametrize("mode", ["auto", "strict"])
def test_what_is_worse_fails(root: Path, mode: str) -> None:
    record = held(root, found(spill_store_bytes=8, registers=184, blocks_per_sm=4), mode)
    assert outcome(record) == ("failed", "worse")
    assert record.message.splitlines() == [
        "tiled for sm_90: bytes of spill stores 0 -> 8; warps per multiprocessor 28 -> 8 "
        "(registers 71 -> 184); accept with: ACCEPT",
        "  all changes: bytes of spill stores 0 -> 8; registers 71 -> 184; blocks per "
        "multiprocessor 14 -> 4",
    ]
    assert list(remarks([record])) == []


@pytest.mark.parametrize("mode", ["auto", "strict"])
def test_what_is_only_different_is_said(root: Path, mode: str) -> None:
    record = held(root, found(registers=72), mode)
    assert outcome(record) == ("passed", "changed")
    assert list(remarks([record])) == [
        "tiled for sm_90: registers 71 -> 72; store it with: pytest --gemm-check=full "
        "--gemm-baseline=update"
    ]


def test_an_update_accepts_and_says_what(root: Path) -> None:
    record = held(root, found(spill_load_bytes=4), "update")
    assert outcome(record) == ("passed", "stored")
    assert record.message == "tiled for sm_90: bytes of spill loads 0 -> 4"


def test_what_is_new_fails_in_strict_mode_alone(tmp_path: Path) -> None:
    record = held(tmp_path, found())
    assert outcome(record) == ("passed", "new")
    assert list(remarks([record, replace(record, case=CASE)])) == [
        f"machine code: 2 new: nothing is stored for {NVRTC}; store with: pytest "
        "--gemm-check=full --gemm-baseline=update"
    ]
    assert outcome(held(tmp_path, found(), "update")) == ("passed", "stored")
    record = held(tmp_path, found(), "strict")
    assert outcome(record) == ("failed", "new")
    assert record.message.endswith(f"nothing is stored for {NVRTC}; store it with: ACCEPT")
    assert list(remarks([record])) == []


def test_what_cannot_be_launched_is_said_before_it_is_stored(tmp_path: Path) -> None:
    record = held(tmp_path, found(blocks_per_sm=0))
    assert outcome(record) == ("passed", "new")
    assert "tiled for sm_90: no block of it fits on a multiprocessor" in record.message


def test_another_toolchain_opens_an_epoch(root: Path) -> None:
    worse = found("nvrtc 13.6.1 -ftz=true", spill_store_bytes=8)
    record = held(root, worse)
    assert outcome(record) == ("passed", "new")
    assert f"nvrtc 13.6.1 -ftz=true opens a new epoch: what is stored is of {NVRTC}" in (
        record.message
    )
    assert outcome(held(root, worse, "strict")) == ("failed", "new")


def test_another_architecture_is_no_epoch(root: Path) -> None:
    case = replace(CASE, settings=Settings(architecture="sm_80"))
    assert "nothing is stored for" in held(root, found(), case=case).message


def test_what_could_not_be_inspected_is_no_pass(root: Path) -> None:
    missing = Result("skipped", "tiled for sm_90: nvrtc: not installed; pip install x")
    record = held(root, missing)
    assert outcome(record) == ("skipped", "ungated")
    assert list(remarks([record])) == [
        "machine code: 1 not inspected: nvrtc: not installed; pip install x"
    ]
    assert outcome(held(root, missing, "strict")) == ("failed", "ungated")


@pytest.mark.parametrize("mode", ["auto", "strict", "update", "off"])
def test_what_does_not_compile_fails(root: Path, mode: str) -> None:
    broken = Result("failed", "tiled for sm_90: tiled.cu:3: error: no")
    assert outcome(held(root, broken, mode)) == ("failed", "")


def test_nothing_is_compared_where_that_is_asked_for(root: Path) -> None:
    record = held(root, found(spill_store_bytes=8), "off")
    assert outcome(record) == ("passed", "ungated")
    assert list(remarks([record])) == []


def test_a_damaged_file_withholds_the_verdict(root: Path) -> None:
    path = root / "exact" / "tiled.json"
    path.write_text(path.read_text()[:-20])
    record = held(root, found())
    assert outcome(record) == ("passed", "withheld")
    assert list(remarks([record])) == [record.message]
    assert "tiled.json: it is not JSON" in record.message
    assert outcome(held(root, found(), "strict")) == ("failed", "withheld")


# What a worker makes of it


class Scripted:
    """An inspector that finds, or raises, what it was given."""

    def __init__(self, answer: MachineCode | Exception) -> None:
        self._answer = answer

    def inspect(self, kernel: Kernel, architecture: str) -> MachineCode:
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (MachineCode(OLD, "sha256:00", NVRTC), "passed"),
        (BackendError("nvrtc: not installed"), "skipped"),
        (CompileError("tiled.cu:3: error: no"), "failed"),
    ],
)
def test_a_runner_runs_nothing(
    answer: MachineCode | Exception, outcome: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_gemm.runner.Inspector", lambda toolchain: Scripted(answer))
    monkeypatch.setattr("pytest_gemm.runner.find_toolchain", lambda: None)
    result = Runner(MemoryBackend(), progress=print).run(CASE)
    assert result.outcome == outcome
    assert Result.from_dict(json.loads(json.dumps(result.to_dict()))) == result
    if isinstance(answer, MachineCode):
        assert result.counters == OLD
        assert result.environment == {"toolchain": NVRTC}
    else:
        assert result.message == f"tiled for sm_90: {answer}"


# Why a kernel became slower


def kernel(folder: Path, source: str = KERNEL) -> Kernel:
    folder.joinpath("tiled.cu").write_text(source)
    [found] = load_registry((), folder, files=(folder / "tiled.cu",)).kernels("cuda")
    return found


TIMED = Result("passed", device={"name": "NVIDIA-H200"}, environment={"compute_capability": "9.0"})


@pytest.fixture
def slower(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Case:
    """A kernel that was changed since a session was stored; only its new source has spills."""

    class OfSource:
        def __init__(self, toolchain: None) -> None:
            pass

        def inspect(self, kernel: Kernel, architecture: str) -> MachineCode:
            assert architecture == "sm_90"
            spills = (
                {"registers": 184, "spill_load_bytes": 8} if "volatile" in kernel.source else {}
            )
            return MachineCode(OLD | spills, "", NVRTC)

    monkeypatch.setattr(gate, "Inspector", OfSource)
    monkeypatch.setattr(gate, "find_toolchain", lambda: None)
    old = kernel(tmp_path)
    launch = {"entry": "tiled", "params": {}, "args": list(old.args), "block": ["8", "8"]}
    stored = session(
        device="NVIDIA-H200",
        environment={"nvrtc": "13.0"},
        source=source_hash(old.code),
        launch=launch | {"grid": ["1", "1"], "shared_mem": "0"},
    )
    store = BaselineStore(tmp_path)
    store.append(stored, old.code)
    store.flush()
    new = kernel(tmp_path, KERNEL.replace("{}", "{ volatile int a; }"))
    return Case(new, Problem.parse("64"), Settings(timed=True))


def test_a_slowdown_is_explained_by_both_machine_codes(slower: Case, tmp_path: Path) -> None:
    assert since_stored(slower, TIMED, BaselineStore(tmp_path)) == (
        "machine code for sm_90: bytes of spill loads 0 -> 8; registers 71 -> 184"
    )


def test_a_cpu_has_no_machine_code_to_explain(slower: Case, tmp_path: Path) -> None:
    assert since_stored(slower, replace(TIMED, environment={}), BaselineStore(tmp_path)) == ""


def test_an_unchanged_source_is_explained_by_its_compiler(slower: Case, tmp_path: Path) -> None:
    same = replace(slower, kernel=kernel(tmp_path))
    assert since_stored(same, TIMED, BaselineStore(tmp_path)) == "", "its code was not stored"
    store = BaselineStore(tmp_path)
    for toolchain, registers in ((NVRTC, 1), ("nvrtc 13.0.88 -ftz=true", 60)):
        for fact in facts_of(CASE, found(toolchain, registers=registers)):
            store.update_exact(fact)
    store.flush()
    assert since_stored(same, TIMED, BaselineStore(tmp_path)) == (
        "machine code for sm_90: registers 60 -> 71"
    )


def test_a_slowdown_against_another_kernel_is_explained_by_both(
    slower: Case, tmp_path: Path
) -> None:
    old = kernel(tmp_path)
    assert since_opponent(old, slower, TIMED) == (
        "machine code for sm_90: bytes of spill loads 0 -> 8; registers 71 -> 184"
    )
    assert since_opponent(slower.kernel, slower, TIMED) == ""
    assert since_opponent(old, slower, replace(TIMED, environment={})) == ""
    blas = Kernel("blas", callable="tests.blas")
    assert since_opponent(blas, slower, TIMED) == "", "Python has none"


def test_why_nothing_is_explained_is_said(
    slower: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> None:
        raise BackendError("nvrtc: not installed")

    monkeypatch.setattr(gate, "find_toolchain", missing)
    assert since_stored(slower, TIMED, BaselineStore(tmp_path)) == (
        "machine code not compared: nvrtc: not installed"
    )


# From end to end


@pytest.fixture
def compiled(project: Project) -> Project:
    """A project with one kernel for a GPU, whose machine code is what ``code.json`` says."""
    project.script({}, kernels="")
    conftest = project.path / "conftest.py"
    conftest.write_text(conftest.read_text() + dedent(SCRIPT))
    swept = KERNEL.replace(
        "// ///\n__global__", "// [sweep.T]\n// host = [4]\n// cuda = [8]\n// ///\n__global__"
    )
    project.pytester.mkdir("kernels").joinpath("tiled.cu").write_text(
        swept.replace("[8, 8]", '["T", 8]')
    )
    return project


def run(project: Project, facts: Mapping[str, int] | None, *args: str) -> pytest.RunResult:
    code = project.path / "code.json"
    code.unlink(missing_ok=True)
    if facts is not None:
        code.write_text(json.dumps([facts, NVRTC]), encoding="utf-8")
    options = ("--gemm-check=full", "-o", "gemm_architectures=sm_80 sm_90", "-k", "sm_")
    return project.run(*options, *args)


def test_a_project_is_gated_from_end_to_end(compiled: Project) -> None:
    result = run(compiled, OLD)
    assert result.parseoutcomes() == {"passed": 2, "new": 2, "deselected": 3}
    assert compiled.files() == {}, "nothing is stored unasked"

    assert run(compiled, OLD, "--gemm-baseline=update").parseoutcomes()["stored"] == 2
    before = compiled.files()
    *facts, _ = json.loads(before["exact/tiled.json"])["facts"]
    assert [fact["benchmark"] for fact in facts] == ["tiled[T:8]-sm_80", "tiled[T:8]-sm_90"]
    assert all(fact["recipe"] == NVRTC and fact["counters"] == OLD for fact in facts)

    result = run(compiled, OLD | {"stack_bytes": 256}, "--gemm-baseline=strict", "-k", "sm_90")
    assert result.ret == 1
    assert result.parseoutcomes() == {"failed": 1, "deselected": 4}
    result.stdout.fnmatch_lines(
        [
            "tiled[[]T:8] for sm_90: bytes of stack 0 -> 256; accept with: pytest "
            "--gemm-check=full 'test_kernels.py::test_gemm[[]tiled[[]T:8]-sm_90]' "
            "--gemm-baseline=update"
        ]
    )
    assert compiled.files() == before

    result = run(compiled, None)
    assert result.parseoutcomes() == {"skipped": 2, "ungated": 2, "deselected": 3}
    result.stdout.fnmatch_lines(
        ["machine code: 2 not inspected: nvrtc: not installed; pip install 'pytest-gemm[[]static]'"]
    )


def test_it_takes_the_full_check_and_that_is_said(compiled: Project) -> None:
    options = ("-o", "gemm_architectures=sm_80 sm_90", "--gemm-check=off", "--gemm-size=8")
    result = compiled.run(*options, "-v")
    result.stdout.no_fnmatch_line("*tiled*-sm_*")
    result.stdout.fnmatch_lines(
        ["gemm: machine code for sm_80, sm_90 is inspected with --gemm-check=full only"]
    )


def test_an_architecture_that_is_not_known_is_said(compiled: Project) -> None:
    result = compiled.run("-o", "gemm_architectures=sm_80 hopper")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["*gemm_architectures: the architecture 'hopper' is none of sm_70*"]
    )


EXPLAINED = """
    import pytest_gemm.session
    pytest_gemm.session.since_stored = lambda case, result, store: "machine code for sm_90: worse"
"""


def test_a_slower_kernel_fails_with_what_changed_in_its_code(project: Project) -> None:
    kernels = """
        import pytest_gemm

        @pytest_gemm.kernel(sizes=["16"])
        def blas(A, B, C):
            C[:] = A @ B
    """
    project.script({}, kernels=dedent(kernels) + dedent(EXPLAINED))
    project.bench("--gemm-baseline=update")
    project.bench().stdout.no_fnmatch_line("*machine code*")
    project.script({"blas": 0.05}, kernels=dedent(kernels) + dedent(EXPLAINED))
    result = project.bench()
    assert result.parseoutcomes() == {"failed": 1}
    result.stdout.fnmatch_lines(["blas on 16x16x16: slower*", "*accept:*", "machine code*: worse"])


def test_what_a_kernel_is_measured_against_is_what_it_is_compared_with(
    slower: Case, tmp_path: Path
) -> None:
    opponent = SimpleNamespace(case=replace(slower, kernel=kernel(tmp_path)))
    opponents = SimpleNamespace(find=lambda case, function: opponent)
    here = SimpleNamespace(_opponents=opponents, store=BaselineStore(tmp_path / "none"))
    text = GemmSession._changed_code(here, slower, None, TIMED)  # type: ignore[arg-type]
    assert text == "machine code for sm_90: bytes of spill loads 0 -> 8; registers 71 -> 184"
    here._opponents = None
    assert GemmSession._changed_code(here, slower, None, TIMED) == ""  # type: ignore[arg-type]
