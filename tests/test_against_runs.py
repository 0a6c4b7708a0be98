"""``--gemm-against`` from end to end: real git, real workers, mostly on a clock of the sources'."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Project
from tests.git_repository import commit, git
from tests.test_duets import SITECUSTOMIZE

NAIVE = (Path(__file__).parent.parent / "kernels" / "naive.cu").read_text()
IN_WORKERS = ("-o", "gemm_in_process=false", "--gemm-device=host", "--gemm-check=off")


def timed(name: str, seconds: float) -> str:
    """A kernel whose launches last that long, as the scripted workers read it."""
    return f"{NAIVE.replace('naive(', f'{name}(')}// seconds: {seconds}\n"


@pytest.fixture
def repository(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """Two kernels of 10 ms, committed."""
    (project.path / "conftest.py").unlink()
    (project.path / "sitecustomize.py").write_text(SITECUSTOMIZE)
    (project.path / ".gitignore").write_text("__pycache__\n.pytest_cache\n")
    monkeypatch.setenv("PYTHONPATH", str(project.path))
    names = ("first", "second")
    commit(project.path, {f"kernels/{name}.cu": timed(name, 0.010) for name in names})
    return project


def bench(project: Project, *args: str) -> pytest.RunResult:
    return project.bench(*IN_WORKERS, "--gemm-size=16", *args)


def slow_down(project: Project, name: str, seconds: float) -> None:
    (project.path / "kernels" / f"{name}.cu").write_text(timed(name, seconds))


def records(project: Project) -> dict[str, Any]:
    report = json.loads((project.path / "out.json").read_text())
    return {record["case"]["kernel"]["name"]: record for record in report["records"]}


def exports(project: Project) -> list[str]:
    """The exports of revisions that lie about."""
    return [path.name for path in (project.path / "tmp").glob("pytest-gemm-*")]


def test_a_revision_without_anything_stored(
    repository: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    (repository.path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(repository.path / "tmp"))
    slow_down(repository, "first", 0.012)
    result = bench(repository, "--gemm-against=HEAD", "--gemm-report=out.json")
    short = git(repository.path, "rev-parse", "HEAD")[:7]
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        [
            f"gemm: the working tree, with uncommitted changes, is measured against HEAD ({short})",
            f"first on 16x16x16: slower by 20.0 % against HEAD ({short}) (12.0 ms, that one "
            "10.0 ms, measured side by side, *",
            f"  decided by a duet of HEAD ({short}) and this one: 12 processes, 2 rounds",
            "  repeat: pytest --gemm-bench --gemm-size=16 *first-16x16x16-float32?' "
            "--gemm-against=HEAD",
        ]
    )
    assert "accept:" not in result.stdout.str()
    found = records(repository)
    assert found["first"]["verdict"]["against"] == f"HEAD ({short})"
    assert (found["second"]["gate"], found["second"]["verdict"]["decided_by"]) == (
        "same", "program",
    )  # fmt: skip
    assert exports(repository) == []
    assert repository.files() == {}


def test_what_is_selected_does_not_change_the_verdict(repository: Project) -> None:
    slow_down(repository, "first", 0.012)
    bench(repository, "--gemm-against=HEAD", "--gemm-report=out.json")
    all_of_them = records(repository)["first"]["verdict"]
    bench(repository, "--gemm-against=HEAD", "--gemm-report=out.json", "-k", "first")
    assert records(repository)["first"]["verdict"] == all_of_them


def test_a_kernel_that_is_new_and_one_that_became_faster_pass(repository: Project) -> None:
    slow_down(repository, "second", 0.008)
    slow_down(repository, "third", 0.010)
    result = bench(repository, "--gemm-against=HEAD", "--gemm-report=out.json")
    assert result.ret == 0
    gates = {name: record["gate"] for name, record in records(repository).items()}
    assert gates == {"first": "same", "second": "faster", "third": "new"}
    result.stdout.fnmatch_lines(["new: at HEAD (*) there was no kernel third"])
    assert "store them" not in result.stdout.str()


def test_another_kernel(repository: Project) -> None:
    slow_down(repository, "second", 0.012)
    result = bench(repository, "--gemm-against=kernel:first", "--gemm-report=out.json")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["second on 16x16x16: slower by 20.0 % against kernel first *"])
    assert records(repository)["first"]["verdict"]["decided_by"] == "program"


def test_the_stored_kernel_although_nothing_changed(repository: Project) -> None:
    bench(repository, "--gemm-baseline=update")
    result = bench(repository, "--gemm-against=baseline", "--gemm-report=out.json")
    assert result.ret == 0
    for record in records(repository).values():
        verdict = record["verdict"]
        assert (verdict["outcome"], verdict["decided_by"], verdict["workers"]) == (
            "same", "duet", 6,
        )  # fmt: skip
        assert re.fullmatch(r"the kernel stored on \d{4}-\d\d-\d\d", verdict["against"])


def test_a_slower_kernel_than_the_stored_one_can_be_accepted(repository: Project) -> None:
    bench(repository, "--gemm-baseline=update")
    slow_down(repository, "first", 0.0105)
    result = bench(repository, "--gemm-against=baseline")
    result.stdout.fnmatch_lines(
        [
            "  repeat: *first-16x16x16-float32?' --gemm-against=baseline",
            "  accept: *first-16x16x16-float32?' --gemm-baseline=update",
        ]
    )


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (["--gemm-bench", "--gemm-against=nothing"], "git knows no commit 'nothing' here: *"),
        (["--gemm-bench", "--gemm-against="], "it is 'baseline', 'kernel:NAME' or a revision *"),
        (["--gemm-against=HEAD"], "--gemm-bench is missing: only timed kernels are measured"),
        (
            ["--gemm-bench", "--gemm-against=HEAD", "--gemm-baseline=update"],
            "--gemm-baseline=update compares nothing: leave one of the two out",
        ),
        (
            ["--gemm-bench", "--gemm-against=HEAD", "--gemm-baseline=off"],
            "--gemm-baseline=off compares nothing: leave one of the two out",
        ),
        (
            ["--gemm-bench", "--gemm-against=HEAD", "-o", "gemm_in_process=true"],
            "gemm_in_process = true leaves one process, and it takes several",
        ),
    ],
)
def test_what_cannot_be_asked_for(repository: Project, args: list[str], sentence: str) -> None:
    result = repository.pytester.runpytest_subprocess(
        "-W", "error", "-p", "no:hypothesispytest", *args
    )
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    (against,) = (word for word in args if word.startswith("--gemm-against"))
    result.stderr.fnmatch_lines([f"ERROR: {against}: {sentence}"])


def test_a_kernel_that_does_not_exist(repository: Project) -> None:
    for target in ("test_kernels.py", "kernels/first.cu"):
        result = bench(repository, "--gemm-against=kernel:thrid", target)
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        result.stderr.fnmatch_lines(
            ["ERROR: --gemm-against=kernel:thrid: there is no kernel thrid: name one of first, *"]
        )
    args = ("--gemm-bench", "--gemm-against=kernel:thrid", "-n", "1")
    result = repository.pytester.runpytest_subprocess(*args)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["--gemm-against=kernel:thrid: there is no kernel thrid: *"])


# On the real clock


def test_a_kernel_that_does_many_times_the_work_is_slower(project: Project) -> None:
    (project.path / "conftest.py").unlink()
    commit(project.path, {"kernels/naive.cu": NAIVE})
    line = "acc += A[(size_t)row * K + k] * B[(size_t)k * N + col];"
    assert line in NAIVE
    delay = "for (volatile int i = 0; i < 40; i = i + 1) {}"
    text = NAIVE.replace(line, f"{{ {line} {delay} }}")
    (project.path / "kernels" / "naive.cu").write_text(text)
    result = project.bench(*IN_WORKERS, "--gemm-size=96", "--gemm-against=HEAD")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["naive on 96x96x96: slower by * against HEAD (*) (*"])


PYTHON = """
    import pytest_gemm
    from helping import TIMES

    @pytest_gemm.kernel(sizes=["192"])
    def product(A, B, C):
        for _ in range(TIMES):
            C[:] = A @ B
"""


@pytest.mark.parametrize("args", [(), ("-n", "2")], ids=["alone", "xdist"])
def test_a_python_kernel_whose_module_changed_is_slower(
    project: Project, args: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    (project.path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(project.path / "tmp"))
    project.pytester.makeconftest(PYTHON)
    commit(project.path, {"helping.py": "TIMES = 1\n"})
    (project.path / "helping.py").write_text("TIMES = 8\n")
    result = project.bench(*IN_WORKERS, "--gemm-against=HEAD", *args)
    assert result.ret == 1
    assert exports(project) == []
    result.stdout.fnmatch_lines(["product on 192x192x192: slower by * against HEAD (*) (*"])
