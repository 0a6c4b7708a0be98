"""The project as it was at a revision of git, in a folder of its own."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pytest_gemm.errors import ConfigError
from pytest_gemm.scratch import scratch

_OF_A_HOOK = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX")
"""Set for what a hook of git runs, and true of another folder or index than is meant here."""


@dataclass(frozen=True)
class Revision:
    """A commit: as it was asked for, its hash, and the top folder of the repository now."""

    ref: str
    commit: str
    top: Path

    def __str__(self) -> str:
        """``HEAD~1 (abc1234)``, or the hash alone where it was asked for by that."""
        return self.ref if self.commit.startswith(self.ref) else f"{self.ref} ({self.commit[:7]})"

    @property
    def is_dirty(self) -> bool:
        """Whether tracked files differ from the commit that is checked out."""
        return bool(_git(self.top, "status", "--porcelain", "--untracked-files=no"))


def find_revision(folder: Path, ref: str) -> Revision:
    """Look a revision up in the repository that the folder lies in.

    Raises ConfigError, with the way out, where there is no git, no repository or no such commit.
    """
    top = Path(_git(folder, "rev-parse", "--show-toplevel"))
    # What begins with a dash would be an option.
    found = "" if ref.startswith("-") else _commit(top, ref)
    if found:
        return Revision(ref, found, top.resolve())
    if _git(top, "rev-parse", "--is-shallow-repository") == "true":
        raise ConfigError(
            f"git knows no commit {ref!r} here, and the clone is shallow: get the rest with 'git "
            "fetch --unshallow', or in CI with a checkout of fetch-depth 0"
        )
    raise ConfigError(
        f"git knows no commit {ref!r} here: name a branch, tag or hash, and 'git fetch' it if it "
        "is new"
    )


class Export:
    """A revision's files, written to a temporary folder when they are first asked for.

    All of them, or of one folder of now what it held then. Neither the index nor the working tree
    of the repository takes part, and no hook is run.
    """

    def __init__(self, revision: Revision, part: Path | None = None) -> None:
        self.revision = revision
        self._part = part
        self._temporary = ExitStack()

    @cached_property
    def folder(self) -> Path:
        """Where the top of the repository is. Raises ConfigError."""
        parent = self._temporary.enter_context(scratch()).resolve()
        folder = parent / "tree"
        folder.mkdir()
        index = {"GIT_INDEX_FILE": str(parent / "index")}
        top, commit = self.revision.top, self.revision.commit
        part = (self._part or top).resolve().relative_to(top)
        where = "" if part == Path() else part.as_posix()
        if tree := _git(top, "rev-parse", "--verify", f"{commit}:{where}", quiet=True):
            prefix = f"--prefix={folder / part}/"
            _git(top, "read-tree", tree, environment=index)
            _git(top, "checkout-index", "--all", prefix, environment=index)
        return folder

    def then(self, path: Path) -> Path | None:
        """Where a file or folder of now was; None for one outside of the repository."""
        try:
            return self.folder / path.resolve().relative_to(self.revision.top)
        except ValueError:
            return None

    def close(self) -> None:
        """Remove the folder."""
        self._temporary.close()


def _commit(top: Path, ref: str) -> str:
    return _git(top, "rev-parse", "--verify", f"{ref}^{{commit}}", quiet=True)


def _git(
    folder: Path, *words: str, quiet: bool = False, environment: Mapping[str, str] | None = None
) -> str:
    """What git prints. Raises ConfigError; with ``quiet`` it is empty where git says no."""
    clean = {name: value for name, value in os.environ.items() if name not in _OF_A_HOOK}
    try:
        run = subprocess.run(
            ["git", "--no-optional-locks", *words],
            cwd=folder,
            env={**clean, **(environment or {}), "LC_ALL": "C"},
            capture_output=True,
            text=True,
            errors="surrogateescape",
            check=False,
        )
    except OSError as error:
        raise ConfigError(
            f"git cannot be started ({error.strerror}): install it, or compare with what is stored"
        ) from None
    if run.returncode == 0 or quiet:
        return run.stdout.strip() if run.returncode == 0 else ""
    if "not a git repository" in run.stderr:
        raise ConfigError(f"{folder} is in no git repository: compare with what is stored instead")
    (said, *_) = run.stderr.strip().splitlines() or [f"exit code {run.returncode}"]
    raise ConfigError(f"git {words[0]} failed in {folder}: {said.removeprefix('fatal: ')}")
