"""Old kernels are found in real git repositories, and measured by an executor that is scripted."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from types import ModuleType

import pytest

from pytest_gemm.against import NoOpponent, OldKernels, Opponents, OtherKernel, kernel_named
from pytest_gemm.baselines import BaselineStore
from pytest_gemm.case import Case, Settings
from pytest_gemm.errors import ConfigError
from pytest_gemm.function import FunctionName
from pytest_gemm.judging import Judge
from pytest_gemm.problem import Problem
from pytest_gemm.record import Record
from pytest_gemm.registry import Registry, load_registry
from pytest_gemm.revision import Export, find_revision
from pytest_gemm.verdict import Verdict
from tests.git_repository import commit, git
from tests.test_judging import KERNEL, FakeExecutor, result

FRONT_MATTER = """
    // /// gemm
    // block = [{block}]
    // grid = ["cdiv(N, 16)", "cdiv(M, 16)"]
    // {more}
    // ///
    {before}
    extern "C" __global__ void {name}(const float* A, const float* B, float* C,
                                      int M, int N, int K) {{ {body} }}
"""


def cuda(
    body: str = ";", name: str = "k", block: str = "16, 16", more: str = "", before: str = ""
) -> str:
    text = FRONT_MATTER.format(body=body, name=name, block=block, more=more, before=before)
    return dedent(text)


class Repository:
    """A project in git: its kernels now, and what they are measured against."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.folders: tuple[Path, ...] = (path / "kernels",)
        self._open: list[Opponents] = []
        self._modules: list[str] = []
        commit(path, {"readme": ""})

    @property
    def registry(self) -> Registry:
        found = load_registry([f for f in self.folders if f.is_dir()], self.path, self.modules)
        assert found.errors == ()
        return found

    modules: tuple[ModuleType, ...] = ()

    def case(self, name: str = "k", size: str = "64") -> Case:
        (kernel,) = (k for k in self.registry.kernels("host") if name in (k.id, k.name))
        return Case(kernel, Problem.parse(size, kernel.op, kernel.dtype), Settings(timed=True))

    def against(self, ref: str = "HEAD") -> OldKernels:
        export = Export(find_revision(self.path, ref))
        self._open.append(OldKernels(export, "host", self.path, self.folders))
        return self._open[-1]  # type: ignore[return-value]

    def find(self, name: str = "k", size: str = "64", ref: str = "HEAD"):  # type: ignore[no-untyped-def]
        case = self.case(name, size)
        function = self.registry.functions.get(case.kernel.callable)
        return self.against(ref).find(case, function)

    def refusal(self, name: str = "k", size: str = "64") -> tuple[str, str]:
        with pytest.raises(NoOpponent) as caught:
            self.find(name, size)
        assert "\n" not in str(caught.value)
        assert "pytest-gemm-" not in str(caught.value)
        return caught.value.outcome, str(caught.value)

    def load(self, name: str) -> None:
        """Import a module of the project, as pytest would."""
        sys.path.insert(0, str(self.path))
        known = set(sys.modules)
        self.modules = (*self.modules, __import__(name))
        self._modules += set(sys.modules) - known

    def close(self) -> None:
        for opponents in self._open:
            opponents.close()
        for name in self._modules:
            sys.modules.pop(name, None)


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Repository]:
    monkeypatch.setattr(sys, "path", sys.path[:])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    repository = Repository(tmp_path)
    yield repository
    repository.close()


def change(repository: Repository, files: Mapping[str, str | None]) -> None:
    """Write or remove files of the working tree, without a commit."""
    for name, text in files.items():
        path = repository.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink() if text is None else path.write_text(text)


# What a .cu kernel was


def test_source_launch_and_parameters_are_those_of_the_revision(repository: Repository) -> None:
    old = cuda("TILE;", block="8, 8", more="params.TILE = 4")
    commit(repository.path, {"kernels/k.cu": old})
    change(repository, {"kernels/k.cu": cuda("TILE;", more="params.TILE = 8")})
    opponent = repository.find()
    kernel = opponent.case.kernel
    assert (kernel.block, kernel.params, kernel.defines) == (
        ("8", "8"), (("TILE", 4),), (("TILE", 4),),
    )  # fmt: skip
    assert kernel.id == "k at HEAD"
    assert opponent.case.problem == repository.case().problem
    assert opponent.notes == ()


def test_includes_are_those_of_the_revision(repository: Repository) -> None:
    source = cuda("x;", before='#include "../lib/x.cuh"')
    commit(repository.path, {"kernels/k.cu": source, "lib/x.cuh": "// old text\n"})
    change(repository, {"lib/x.cuh": "// new text\n"})
    assert "// new text" in repository.case().kernel.source
    opponent = repository.find()
    assert "// old text" in opponent.case.kernel.source
    assert "// new text" not in opponent.case.kernel.source


def test_a_sidecar_is_that_of_the_revision(repository: Repository) -> None:
    source = 'extern "C" __global__ void k(const float* A, const float* B, float* C, int N) {}\n'
    sidecar = '[[kernel]]\nsource = "k.cu"\nblock = [{}]\ngrid = ["N"]\n'
    commit(
        repository.path,
        {"kernels/k.cu": source, "kernels/k.gemm.toml": sidecar.format("32, 1")},
    )
    change(repository, {"kernels/k.gemm.toml": sidecar.format("64, 1")})
    assert repository.find().case.kernel.block == ("32", "1")


def test_the_working_tree_is_what_is_measured(repository: Repository) -> None:
    commit(repository.path, {"kernels/k.cu": cuda("1;")})
    commit(repository.path, {"kernels/k.cu": cuda("2;")})
    change(repository, {"kernels/k.cu": cuda("3;")})
    assert "3;" in repository.case().kernel.source
    assert "2;" in repository.find().case.kernel.source
    assert "1;" in repository.find(ref="HEAD~1").case.kernel.source


@pytest.mark.parametrize("where", ["src/deep/k.cu", "kernels/other_file.cu"])
def test_a_kernel_that_moved_is_found_by_its_name(repository: Repository, where: str) -> None:
    text = cuda("old;", more='name = "k"')
    commit(repository.path, {where: text})
    change(repository, {where: None, "kernels/k.cu": cuda("new;")})
    opponent = repository.find()
    assert "old;" in opponent.case.kernel.source
    assert opponent.notes == (f"at {repository.against().name} it was in {where}",)


def test_two_places_where_it_may_have_been(repository: Repository) -> None:
    commit(repository.path, {"a/k.cu": cuda("a;"), "b/k.cu": cuda("b;")})
    change(repository, {"kernels/k.cu": cuda()})
    outcome, text = repository.refusal()
    assert outcome == "withheld"
    assert text.endswith("several kernels were called k: a/k.cu, b/k.cu")


def test_a_kernel_that_did_not_exist_is_new(repository: Repository) -> None:
    commit(repository.path, {"kernels/k.cu": cuda()})
    change(repository, {"kernels/renamed.cu": cuda(name="k")})
    outcome, text = repository.refusal("renamed")
    assert outcome == "new"
    assert text == f"at {repository.against().name} there was no kernel renamed"


def test_another_sweep_has_other_kernels(repository: Repository) -> None:
    commit(repository.path, {"kernels/k.cu": cuda("TT;", more="sweep.TT = [1, 2]")})
    change(repository, {"kernels/k.cu": cuda("TT;", more="sweep.TT = [2, 3]")})
    assert repository.find("k[TT:2]").case.kernel.params == (("TT", 2),)
    outcome, text = repository.refusal("k[TT:3]")
    assert outcome == "new"
    assert text.endswith("there was no kernel k[TT:3]: there was k[TT:1], k[TT:2]")


def test_the_only_kernel_is_that_of_the_sweep(repository: Repository) -> None:
    commit(repository.path, {"kernels/k.cu": cuda("TT;", more="params.TT = 1")})
    change(repository, {"kernels/k.cu": cuda("TT;", more="sweep.TT = [2, 3]")})
    assert repository.find("k[TT:3]").case.kernel.params == (("TT", 1),)


def test_a_problem_that_it_did_not_take_is_new(repository: Repository) -> None:
    commit(repository.path, {"kernels/k.cu": cuda(more='requires = ["M % 64 == 0"]')})
    change(repository, {"kernels/k.cu": cuda()})
    assert repository.find(size="128").case.problem.M == 128
    outcome, text = repository.refusal(size="100")
    assert outcome == "new"
    assert text.endswith("does not take 100x100x100: requires M % 64 == 0")


def test_another_operation_is_not_compared(repository: Repository) -> None:
    add = cuda(more='op = "add"').replace(", int K", "")
    commit(repository.path, {"kernels/k.cu": add})
    change(repository, {"kernels/k.cu": cuda()})
    outcome, text = repository.refusal()
    assert outcome == "withheld"
    assert "computes add in float32, k gemm in float32" in text


def test_another_layout_is_not_compared(repository: Repository) -> None:
    commit(repository.path, {"kernels/k.cu": cuda(more='transb = "T"')})
    change(repository, {"kernels/k.cu": cuda()})
    outcome, text = repository.refusal()
    assert outcome == "withheld"
    assert "-float32+NT, k " in text


def test_a_file_that_cannot_be_read_at_the_revision(repository: Repository) -> None:
    commit(repository.path, {"kernels/k.cu": cuda(more="blok = 3"), "kernels/a.cu": cuda()})
    change(repository, {"kernels/k.cu": cuda()})
    outcome, text = repository.refusal()
    assert outcome == "withheld"
    assert text.startswith(f"at {repository.against().name}: kernels/k.cu:5: ")


def test_what_else_could_not_be_read_then_does_not_matter(repository: Repository) -> None:
    """Nor where a kernel's ancestor lies in another folder."""
    child = cuda(name="child", more='derived_from = "k"')
    broken = cuda(more="blok = 3")
    files = {"kernels/k.cu": cuda(), "more/child.cu": child, "kernels/broken.cu": broken}
    commit(repository.path, files)
    change(repository, {"kernels/broken.cu": None, "more/new.cu": cuda(name="new")})
    repository.folders = (repository.path / "kernels", repository.path / "more")
    assert repository.find("k").case.kernel.name == "k at HEAD"
    assert repository.find("child").case.kernel.derived_from == "k"
    # Of a kernel that is not found nobody can tell.
    outcome, text = repository.refusal("new")
    assert outcome == "withheld"
    assert ": kernels/broken.cu:5: " in text
    commit(repository.path)
    change(repository, {"more/newer.cu": cuda(name="newer")})
    assert repository.refusal("newer")[0] == "new"


def test_a_submodule_that_is_not_here_may_have_held_it(
    repository: Repository, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    commit(other)
    allow = ("-c", "protocol.file.allow=always")
    git(repository.path, *allow, "submodule", "-q", "add", str(other), "lib")
    included = cuda(before='#include "../lib/step.h"')
    commit(repository.path, {"kernels/k.cu": included})
    change(repository, {"kernels/k.cu": cuda()})
    (repository.path / "lib").rename(tmp_path / "elsewhere")
    (repository.path / "lib").mkdir()
    absent = (
        "; what the submodule lib was is not here: get it with 'git submodule update --init lib' "
        "or with 'git fetch' in it"
    )
    name = repository.against().name
    outcome, text = repository.refusal()
    assert (outcome, text) == (
        "withheld",
        f"at {name}: kernels/k.cu:7: lib/step.h does not exist: correct the #include{absent}",
    )
    change(repository, {"kernels/k.cu": None})
    commit(repository.path)
    change(repository, {"kernels/k.cu": cuda()})
    assert repository.refusal() == (
        "withheld", f"at {repository.against().name} no kernel k was found{absent}"
    )  # fmt: skip


def test_kernels_outside_of_the_repository(repository: Repository, tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    commit(inner)
    change(repository, {"kernels/k.cu": cuda()})
    case = repository.case()
    old = OldKernels(Export(find_revision(inner, "HEAD")), "host", inner, repository.folders)
    with pytest.raises(NoOpponent, match=r"kernels lies outside of the repository"):
        old.find(
            replace(case, kernel=replace(case.kernel, path=str(tmp_path / "kernels/k.cu"))), None
        )
    old.close()


# What a Python kernel was

PYTHON = """
    import pytest_gemm
    {imports}

    @pytest_gemm.kernel{options}
    def {name}(A, B, C):
        {body}
"""


def python(body: str, imports: str = "", name: str = "p", options: str = "") -> str:
    return dedent(PYTHON).format(body=body, imports=imports, name=name, options=options)


def test_a_python_kernel_and_what_it_imports_are_of_the_revision(repository: Repository) -> None:
    module = python("C[0] = factor()", "from helping import factor")
    files = {"kernels_then.py": module, "helping.py": "def factor():\n    return 1\n"}
    commit(repository.path, files)
    change(repository, {"helping.py": "def factor():\n    return 2\n"})
    repository.load("kernels_then")
    (now,) = repository.registry.functions.values()
    opponent = repository.find("p")
    C = [0]
    now(None, None, C)
    assert C == [2]
    opponent.function.load()(None, None, C)
    assert C == [1]
    # The names are the working tree's again.
    assert sys.modules["helping"].factor() == 2
    assert FunctionName.of(now).load() is now


def test_packages_and_relative_imports_are_of_the_revision(repository: Repository) -> None:
    files = {
        "pack/__init__.py": "from .sub import factor\n",
        "pack/sub/__init__.py": "def factor():\n    return 1\n",
        "pack/mod.py": python("C[0] = factor()", "from . import factor"),
    }
    commit(repository.path, files)
    change(repository, {"pack/sub/__init__.py": "def factor():\n    return 2\n"})
    repository.load("pack.mod")
    repository.modules = (sys.modules["pack.mod"],)
    C = [0]
    opponent = repository.find("p")
    opponent.function.load()(None, None, C)
    assert C == [1]
    assert opponent.function.load() is opponent.function.load()
    assert sys.modules["pack"].factor() == 2


def test_a_python_kernel_that_moved_is_found_by_its_function(repository: Repository) -> None:
    commit(repository.path, {"before.py": python("C[0] = 1")})
    change(repository, {"before.py": None, "after.py": python("C[0] = 2")})
    repository.load("after")
    opponent = repository.find("p")
    assert opponent.notes == (f"at {repository.against().name} it was in before.py",)
    C = [0]
    opponent.function.load()(None, None, C)
    assert C == [1]


def test_a_python_kernel_that_did_not_exist_is_new(repository: Repository) -> None:
    commit(repository.path, {"mod_new.py": "x = 1\n"})
    change(repository, {"mod_new.py": python("C[0] = 2")})
    repository.load("mod_new")
    assert repository.refusal("p")[0] == "new"


def test_an_import_that_fails_at_the_revision_is_said(repository: Repository) -> None:
    commit(repository.path, {"mod_bad.py": python("pass", "import no_such_module")})
    change(repository, {"mod_bad.py": python("pass")})
    repository.load("mod_bad")
    outcome, text = repository.refusal("p")
    assert outcome == "withheld"
    assert "mod_bad.py cannot be imported" in text
    assert "No module named 'no_such_module'" in text
    assert "tree" not in text


def test_an_import_when_called_would_be_todays(repository: Repository) -> None:
    helper = "def factor():\n    from late_too import x\n    return x\n"
    body = "C[0] = late_helper.factor() + factor()"
    module = python(body, "import late_helper\nfrom late_helper import factor")
    commit(repository.path, {"m_late.py": module, "late_helper.py": helper, "late_too.py": "x = 1"})
    repository.load("m_late")
    outcome, text = repository.refusal("p")
    assert outcome == "withheld"
    assert "late_helper.py:2: p imports a module of the project when it is called" in text


def test_an_import_of_what_is_installed_is_the_same_for_both(repository: Repository) -> None:
    commit(
        repository.path,
        {"m_numpy.py": python("import numpy\n        C[0] = 1".replace("        C", "    C"))},
    )
    repository.load("m_numpy")
    assert repository.find("p").function is not None


def test_a_module_that_comes_from_the_working_tree_all_the_same(repository: Repository) -> None:
    """As where a package is installed by a finder of its own, which knows one folder only."""
    hidden = repository.path / "hidden"
    commit(repository.path, {"m_hook.py": python("C[0] = 1", "import found_by_hook")})
    change(repository, {"hidden/found_by_hook.py": ""})

    class Finder:
        @staticmethod
        def find_spec(name, path=None, target=None):  # type: ignore[no-untyped-def]
            from importlib.machinery import PathFinder

            return PathFinder.find_spec(name, [str(hidden)]) if name == "found_by_hook" else None

    sys.meta_path.append(Finder)
    try:
        repository.load("m_hook")
        outcome, text = repository.refusal("p")
    finally:
        sys.meta_path.remove(Finder)
    assert outcome == "withheld"
    assert "found_by_hook is imported from hidden/found_by_hook.py" in text.replace(
        f"{repository.path}/", ""
    )


# Another kernel


def test_a_kernel_by_its_name_or_id(repository: Repository) -> None:
    change(
        repository,
        {"kernels/k.cu": cuda(), "kernels/s.cu": cuda("TT;", more="sweep.TT = [1, 2]", name="s")},
    )
    registry = repository.registry
    assert kernel_named("k", registry, "host").id == "k"
    assert kernel_named("s[TT:2]", registry, "host").id == "s[TT:2]"
    with pytest.raises(ConfigError, match=r"s is 2 kernels: name one of s\[TT:1\], s\[TT:2\]$"):
        kernel_named("s", registry, "host")
    with pytest.raises(ConfigError, match=r"no kernel x: name one of k, s\[TT:1\], s\[TT:2\]$"):
        kernel_named("x", registry, "host")


def test_another_kernel_has_the_same_problem(repository: Repository) -> None:
    add = cuda(more='op = "add"', name="a").replace(", int K", "")
    files = {"kernels/k.cu": cuda(), "kernels/other.cu": cuda("2;"), "kernels/a.cu": add}
    change(repository, files)
    other = OtherKernel("other", "host", lambda: repository.registry)
    opponent = other.find(repository.case(), None)
    assert (opponent.case.kernel.id, opponent.case.problem) == ("other", repository.case().problem)
    with pytest.raises(NoOpponent, match="other computes gemm in float32, a add in float32"):
        other.find(repository.case("a"), None)


# The verdict


@pytest.fixture
def changed(repository: Repository) -> Repository:
    """A kernel that changed since the last commit."""
    commit(repository.path, {"kernels/k.cu": cuda("old;")})
    change(repository, {"kernels/k.cu": cuda("new;")})
    return repository


def judge(repository: Repository, executor: FakeExecutor, cases: int = 1) -> Judge:
    store = BaselineStore(repository.path / "baselines")
    opponents = repository.against()
    return Judge(store, executor, None, opponents, cases=lambda: cases)  # type: ignore[arg-type]


def test_slower_than_a_revision_with_nothing_stored(changed: Repository) -> None:
    executor = FakeExecutor(ratio=1.2)
    verdict = judge(changed, executor).verdict(changed.case(), None, result(0.012))
    assert (verdict.outcome, verdict.decided_by) == ("slower", "duet")
    assert verdict.change == pytest.approx(0.2)
    assert verdict.baseline_median == pytest.approx(0.01)
    assert verdict.against == f"HEAD ({git(changed.path, 'rev-parse', 'HEAD')[:7]})"
    assert verdict.notes == ()
    old, new, _ = executor.asked[0]
    assert "old;" in old.kernel.source
    assert new == changed.case()


def test_faster_than_a_revision_asks_for_nothing_to_be_stored(changed: Repository) -> None:
    verdict = judge(changed, FakeExecutor(ratio=0.8)).verdict(changed.case(), None, result(0.008))
    assert verdict.outcome == "faster"
    assert verdict.notes == ()


def test_the_same_program_is_not_measured(changed: Repository) -> None:
    executor = FakeExecutor(ratio=2.0)
    change(changed, {"kernels/k.cu": cuda("old;", more='sizes = ["32"]')})
    verdict = judge(changed, executor).verdict(changed.case(), None, result(0.02))
    assert (verdict.outcome, verdict.decided_by) == ("same", "program")
    assert executor.asked == []


def test_the_count_of_cases_widens_the_interval_and_is_that_of_what_is_stored(
    changed: Repository,
) -> None:
    case, executor = changed.case(), FakeExecutor(ratio=1.2)
    few = judge(changed, executor, cases=1).verdict(case, None, result(0.012))
    many = judge(changed, executor, cases=500).verdict(case, None, result(0.012))
    assert few.low is not None
    assert many.low is not None
    assert many.low < few.low
    none = judge(changed, executor, cases=0).verdict(case, None, result(0.012))
    assert none.low == few.low


def test_a_duet_that_cannot_be_had_withholds(changed: Repository) -> None:
    executor = FakeExecutor(error="k at HEAD on 64x64x64: wrong\nmore")
    verdict = judge(changed, executor).verdict(changed.case(), None, result(0.01))
    assert verdict.outcome == "withheld"
    assert verdict.notes == (f"no duet against {verdict.against}: k at HEAD on 64x64x64: wrong",)
    assert not verdict.fails()
    assert verdict.fails(strict=True)


def test_what_did_not_exist_is_new_and_nothing_is_measured(repository: Repository) -> None:
    executor = FakeExecutor()
    change(repository, {"kernels/k.cu": cuda()})
    verdict = judge(repository, executor).verdict(repository.case(), None, result(0.01))
    assert verdict.outcome == "new"
    assert "there was no kernel k" in verdict.notes[0]
    assert executor.asked == []


def test_what_it_was_measured_against_is_in_the_properties_and_the_report() -> None:
    verdict = Verdict("slower", change=0.2, decided_by="duet", against="HEAD~1 (abc1234)")
    case = Case(KERNEL, Problem.parse("64"), Settings(timed=True))
    record = Record(case, result(0.012), "failed", "slower", "slower", verdict)
    assert record.properties()["gemm_against"] == "HEAD~1 (abc1234)"
    assert Record.from_dict(record.to_dict()) == record


def test_settings_that_cannot_be_used_withhold(changed: Repository) -> None:
    def cases() -> int:
        raise ConfigError("the kernel folder x does not exist")

    store = BaselineStore(changed.path / "baselines")
    against = Judge(store, FakeExecutor(), None, changed.against(), cases=cases)  # type: ignore[arg-type]
    verdict = against.verdict(changed.case(), None, result(0.01))
    assert (verdict.outcome, verdict.notes) == ("withheld", ("the kernel folder x does not exist",))
