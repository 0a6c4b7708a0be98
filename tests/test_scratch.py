"""Temporary folders: whose they are, and what becomes of those that a killed process left."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_gemm.scratch import PREFIX, VARIABLE, scratch, scratch_for_child, sweep


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    monkeypatch.delenv(VARIABLE, raising=False)
    return folder


def make_old(folder: Path) -> None:
    os.utime(folder, (0, 0), follow_symlinks=False)


def test_a_childs_folder_goes_with_all_that_is_in_it(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with scratch_for_child() as outer:
        monkeypatch.setenv(VARIABLE, str(outer))
        with scratch() as inner:
            assert inner.parent == outer
        assert list(outer.iterdir()) == []
        (outer / "left").mkdir()
    assert list(temporary.iterdir()) == []


def test_without_a_parent_it_lies_in_the_systems(temporary: Path) -> None:
    with scratch() as folder:
        assert folder.parent == temporary
        make_old(folder)
        sweep(temporary, PREFIX)
        assert folder.exists()
    assert list(temporary.iterdir()) == []


def test_only_what_is_old_and_held_by_nobody_is_removed(temporary: Path) -> None:
    precious = temporary / "precious"
    precious.mkdir()
    link = temporary / f"{PREFIX}link"
    link.symlink_to(precious)
    new, old = temporary / f"{PREFIX}new", temporary / f"{PREFIX}old"
    new.mkdir()
    with scratch_for_child() as held:
        old.mkdir()
        (old / "cc.s").touch()
        for folder in (held, link, old, precious):
            make_old(folder)
        sweep(temporary, PREFIX)
        assert set(temporary.iterdir()) == {held, link, new, precious}


def test_a_later_run_removes_what_a_killed_parent_left(temporary: Path) -> None:
    code = (
        "import os, signal; from pytest_gemm.scratch import scratch_for_child\n"
        "with scratch_for_child(): os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"TMPDIR": str(temporary)}, check=False
    )
    (left,) = temporary.iterdir()
    make_old(left)
    with scratch_for_child() as folder:
        assert list(temporary.iterdir()) == [folder]
