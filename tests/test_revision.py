"""Revisions of real git repositories: found, exported without a trace, or a sentence."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from pytest_gemm.errors import ConfigError
from pytest_gemm.revision import Export, find_revision
from pytest_gemm.scratch import VARIABLE
from tests.git_repository import ENVIRONMENT, commit, git

SUBMODULE = ("-c", "protocol.file.allow=always", "submodule", "-q", "add")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Two commits: kernels/a.cu is ``one``, then ``two``."""
    folder = tmp_path / "repository"
    folder.mkdir()
    commit(folder, {"kernels/a.cu": "one"})
    git(folder, "tag", "v1")
    commit(folder, {"kernels/a.cu": "two"})
    return folder


def message(folder: Path, ref: str) -> str:
    with pytest.raises(ConfigError) as caught:
        find_revision(folder, ref)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("ref", ["HEAD~1", "v1", "main^", "refs/tags/v1"])
def test_a_revision_is_named_with_its_hash(repository: Path, ref: str) -> None:
    first = git(repository, "rev-parse", "v1")
    found = find_revision(repository / "kernels", ref)
    assert (found.commit, found.top) == (first, repository.resolve())
    assert str(found) == f"{ref} ({first[:7]})"


def test_a_hash_is_not_said_twice(repository: Path) -> None:
    short = git(repository, "rev-parse", "--short", "v1")
    assert str(find_revision(repository, short)) == short


def test_an_export_holds_the_old_files_and_leaves_no_trace(repository: Path) -> None:
    (repository / "kernels" / "a.cu").write_text("uncommitted")
    (repository / ".gitattributes").write_text("* export-ignore\n")
    git(repository, "add", ".gitattributes")
    before = git(repository, "status", "--porcelain")
    export = Export(find_revision(repository, "v1"))
    path = export.then(repository / "kernels" / "a.cu")
    assert path is not None
    assert path.read_text() == "one"
    folder = export.folder
    export.close()
    assert not folder.parent.exists()
    assert git(repository, "status", "--porcelain") == before
    assert git(repository, "worktree", "list", "--porcelain").count("worktree ") == 1


def test_one_folder_alone_is_exported_to_its_place(repository: Path) -> None:
    commit(repository, {"base lines/deep/a.json": "stored", "top.txt": "top"})
    for part, files in {
        "base lines/deep": ["base lines/deep/a.json"],
        ".": ["base lines/deep/a.json", "kernels/a.cu", "top.txt"],
        "not there": [],
    }.items():
        export = Export(find_revision(repository, "HEAD"), repository / part)
        found = [path for path in export.folder.rglob("*") if path.is_file()]
        assert sorted(str(path.relative_to(export.folder)) for path in found) == files
        export.close()


def test_submodules_are_exported_as_far_as_they_are_here(repository: Path, tmp_path: Path) -> None:
    inner, outer = tmp_path / "inner", tmp_path / "outer"
    for folder in (inner, outer):
        folder.mkdir()
        commit(folder, {"own.cu": folder.name})
    git(inner, *SUBMODULE, str(repository), "deep er")
    commit(inner)
    git(outer, *SUBMODULE, str(inner), "lib/inner")
    commit(outer)
    with closing(Export(find_revision(outer, "HEAD"))) as export:
        assert (export.folder / "lib" / "inner" / "own.cu").read_text() == "inner"
        assert export.absent == ["lib/inner/deep er"]
    git(
        outer,
        "-c",
        "protocol.file.allow=always",
        "submodule",
        "-q",
        "update",
        "--recursive",
        "--init",
    )
    commit(outer / "lib" / "inner" / "deep er", {"kernels/a.cu": "three"})
    with closing(Export(find_revision(outer, "HEAD"))) as export:
        assert (export.folder / "lib/inner/deep er/kernels/a.cu").read_text() == "two"
        assert export.absent == []


def test_what_was_never_exported_closes_too(repository: Path) -> None:
    Export(find_revision(repository, "v1")).close()


def test_an_export_that_fails_is_removed_too(
    repository: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    export = Export(find_revision(repository, "v1"))
    blob = git(repository, "rev-parse", "v1:kernels/a.cu")
    (repository / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    with pytest.raises(ConfigError, match="git checkout-index failed in "):
        _ = export.folder
    export.close()
    assert list(temporary.iterdir()) == []


def test_a_later_run_removes_the_export_of_a_killed_one(
    repository: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    monkeypatch.delenv(VARIABLE, raising=False)
    revision = find_revision(repository, "v1")
    code = (
        "import os, signal, sys; from pathlib import Path\n"
        "from pytest_gemm.revision import Export, find_revision\n"
        "export = Export(find_revision(Path(sys.argv[1]), 'v1')); export.folder\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    command = [sys.executable, "-c", code, str(repository)]
    subprocess.run(command, env=os.environ | {"TMPDIR": str(temporary)}, check=False)
    (left,) = temporary.iterdir()
    os.utime(left, (0, 0))
    with closing(Export(revision)) as export:
        os.utime(export.folder.parent, (0, 0))
        with closing(Export(revision)) as other:
            theirs = {export.folder.parent, other.folder.parent}
            assert {*temporary.iterdir()} == theirs


def test_a_file_outside_of_the_repository_was_nowhere(repository: Path, tmp_path: Path) -> None:
    export = Export(find_revision(repository, "v1"))
    assert export.then(tmp_path / "elsewhere.cu") is None
    export.close()


def test_uncommitted_changes_are_known(repository: Path) -> None:
    assert not find_revision(repository, "v1").is_dirty
    (repository / "new.txt").write_text("untracked")
    assert not find_revision(repository, "v1").is_dirty
    (repository / "kernels" / "a.cu").write_text("three")
    assert find_revision(repository, "v1").is_dirty


@pytest.mark.parametrize("ref", ["nothing", "--all", "v1:kernels", "HEAD~7"])
def test_an_unknown_revision(repository: Path, ref: str) -> None:
    assert message(repository, ref).startswith(f"git knows no commit {ref!r} here: name a branch")


def test_a_shallow_clone_says_how_to_get_the_rest(repository: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "-q", "--depth=1", f"file://{repository}", "shallow")
    text = message(tmp_path / "shallow", "HEAD~1")
    assert "git fetch --unshallow" in text
    assert "fetch-depth 0" in text
    assert str(find_revision(tmp_path / "shallow", "HEAD")).startswith("HEAD (")


def test_no_repository(tmp_path: Path) -> None:
    assert "is in no git repository" in message(tmp_path, "HEAD")


def test_a_repository_of_another_user(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**ENVIRONMENT, "GIT_TEST_ASSUME_DIFFERENT_OWNER": "1"}.items():
        monkeypatch.setenv(name, value)
    way_out = f": git config --global --add safe.directory {repository}"
    assert message(repository, "HEAD").endswith(way_out)


def test_no_git(repository: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert message(repository, "HEAD").startswith("git cannot be started")


def test_a_hook_of_another_repository_does_not_matter(
    repository: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "index"))
    assert find_revision(repository, "HEAD").top == repository.resolve()
