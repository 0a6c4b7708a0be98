"""``pytest-gemm init``: a project that works, and nothing of the user's changed."""

from __future__ import annotations

import re
import shlex
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from pytest_gemm.cli import main
from pytest_gemm.cli.init import project_files, write_new
from pytest_gemm.errors import GemmError

ROOT = Path(__file__).parent.parent
WORKFLOW = project_files()[".github/workflows/kernels.yml"].decode()


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.fixture
def started(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    assert main(["init", "."]) == 0
    return pytester


def test_the_first_timed_run_is_green(started: pytest.Pytester) -> None:
    run = started.runpytest_subprocess("-W", "error", "--gemm-bench", "-o", "gemm_time_cap=0.02")
    assert run.ret == 0
    assert run.parseoutcomes() == {"passed": 6, "new": 6}


def test_what_ci_runs_is_green_on_the_first_push_and_holds_the_bits(
    started: pytest.Pytester,
) -> None:
    exact = yaml.safe_load(WORKFLOW)["jobs"]["exact"]
    [command] = [step["run"] for step in exact["steps"] if "pytest " in step.get("run", "")]
    words = shlex.split(command)
    assert words[:3] == ["python", "-m", "pytest"]
    assert words[3:] == ["--gemm-baseline=strict"]

    assert started.runpytest_subprocess(*words[3:]).parseoutcomes() == {"passed": 6}

    stored = started.path / "baselines/exact/tiled.json"
    [digest] = re.findall(r'tiled-131x67x203-float32", "digest": "(.*?)"', stored.read_text())
    stored.write_text(stored.read_text().replace(digest, "sha256:" + 32 * "0"))
    (started.path / "baselines/exact/naive.json").unlink()
    run = started.runpytest_subprocess(*words[3:], "-k", "131x67x203")
    assert run.parseoutcomes() == {"failed": 2, "deselected": 4}


def test_times_run_only_where_a_runner_was_named() -> None:
    workflow = yaml.safe_load(WORKFLOW)
    times = workflow["jobs"]["times"]
    assert times["if"] == "vars.GEMM_GPU_RUNNER != '' && github.event_name == 'push'"
    assert "strict" in times["steps"][-1]["run"]
    assert workflow["permissions"] == {"contents": "read"}


def test_git_ignores_the_times_of_cpus_alone(started: pytest.Pytester) -> None:
    def is_ignored(path: str) -> bool:
        command = ["git", "check-ignore", "-q", path]
        return subprocess.run(command, cwd=started.path, check=False).returncode == 0

    subprocess.run(["git", "init", "-q"], cwd=started.path, check=True)
    assert is_ignored("baselines/host-AuthenticAMD-1/naive.json")
    assert not any(map(is_ignored, ["baselines/NVIDIA-H200/naive.json", *project_files()]))


def test_what_it_wrote_and_what_comes_next_are_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["init", "a/new"]) == 0
    *written, following = capsys.readouterr().out.splitlines()
    assert written == [f"a/new/{path}" for path in project_files()]
    assert following == "next: cd a/new && pytest --gemm-bench"
    assert contents(tmp_path / "a/new") == project_files()


def test_a_second_time_nothing_is_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["init", str(tmp_path)])
    (tmp_path / "tests/test_kernels.py").unlink()
    capsys.readouterr()
    for said in (f"{tmp_path}/tests/test_kernels.py", f"{tmp_path}: all of it is there already"):
        assert main(["init", str(tmp_path)]) == 0
        assert capsys.readouterr().out.splitlines()[0] == said
        assert contents(tmp_path) == project_files()


@pytest.mark.parametrize("path", project_files())
def test_no_file_that_exists_is_changed_and_nothing_else_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], path: str
) -> None:
    (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / path).write_text("mine")

    assert main(["init", str(tmp_path)]) == 2

    said = capsys.readouterr().err
    assert said.startswith(f"pytest-gemm: {tmp_path / path} exists and is left alone")
    assert said.count("\n") == 1
    assert contents(tmp_path) == {path: b"mine"}


def test_files_of_others_are_no_hindrance(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("mine")
    (tmp_path / ".gitignore").write_text("mine")
    assert main(["init", str(tmp_path)]) == 0
    assert contents(tmp_path) == project_files() | {"README.md": b"mine", ".gitignore": b"mine"}


def test_a_link_that_leads_nowhere_is_a_file_too(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").symlink_to("elsewhere")
    assert main(["init", str(tmp_path)]) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["pyproject.toml"]


@pytest.mark.parametrize("path", ["tests", "kernels", ".github", ".github/workflows"])
def test_what_cannot_be_written_leaves_nothing_behind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], path: str
) -> None:
    """A file stands where a folder is needed: found out in the middle of the writing."""
    (tmp_path / path).parent.mkdir(exist_ok=True)
    (tmp_path / path).write_text("mine")

    assert main(["init", str(tmp_path)]) == 1

    said = capsys.readouterr().err
    assert "cannot be written" in said
    assert said.count("\n") == 1
    assert contents(tmp_path) == {path: b"mine"}
    assert len(list(tmp_path.iterdir())) == 1


def test_an_interrupted_start_leaves_nothing_behind(tmp_path: Path) -> None:
    class Interrupts(dict[str, bytes]):
        def __getitem__(self, path: str) -> bytes:
            if path == "c/d":
                raise KeyboardInterrupt
            return super().__getitem__(path)

    with pytest.raises(KeyboardInterrupt):
        write_new(tmp_path / "new", Interrupts({"a": b"", "b/c": b"", "c/d": b""}))
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_a_file_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(GemmError, match=r"file.*cannot be written"):
        write_new(tmp_path / "file", {"a": b""})
    assert contents(tmp_path) == {"file": b"mine"}


def test_the_wheel_ships_one_copy_of_what_the_repository_holds() -> None:
    """``benchmarks/first_verdict.py`` starts a project from a wheel."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    included = settings["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    shipped = {p: content for p, content in project_files().items() if p.endswith((".cu", ".json"))}
    assert included == {path: f"pytest_gemm/shipped/{path}" for path in shipped}
    assert {path: (ROOT / path).read_bytes() for path in included} == shipped
