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

_SUBMODULE = "160000 "
"""The mode of an entry that is another repository's commit."""


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

    All of them, or of one folder of now what it held then. Those of a submodule too, where its
    repository has that commit; ``absent`` are the submodules of which that does not hold, known
    when ``folder`` is. Neither the index nor the working tree of the repository takes part, and no
    hook is run.
    """

    def __init__(self, revision: Revision, part: Path | None = None) -> None:
        self.revision = revision
        self._part = part
        self._temporary = ExitStack()
        self.absent: list[str] = []

    @cached_property
    def folder(self) -> Path:
        """Where the top of the repository is. Raises ConfigError."""
        parent = self._temporary.enter_context(scratch()).resolve()
        folder = parent / "tree"
        folder.mkdir()
        top, commit = self.revision.top, self.revision.commit
        part = (self._part or top).resolve().relative_to(top)
        where = "" if part == Path() else part.as_posix()
        if tree := _git(top, "rev-parse", "--verify", f"{commit}:{where}", quiet=True):
            self._write(top, tree, part, folder)
        return folder

    def _write(self, repository: Path, tree: str, place: Path, folder: Path) -> None:
        """Write a tree to that place in the folder."""
        index = {"GIT_INDEX_FILE": str(folder.parent / "index")}
        _git(repository, "read-tree", tree, environment=index)
        prefix = f"--prefix={folder / place}/"
        _git(repository, "checkout-index", "--all", prefix, environment=index)
        entries = _git(repository, "ls-files", "--stage", "-z", environment=index)
        for entry in entries.split("\0"):
            if entry.startswith(_SUBMODULE):
                described, _, path = entry.partition("\t")
                self._write_submodule(described.split()[1], place / path, folder)

    def _write_submodule(self, commit: str, place: Path, folder: Path) -> None:
        now = self.revision.top / place
        # In a folder that is no repository, git would take the one around it.
        if (now / ".git").exists() and _commit(now, commit):
            self._write(now, commit, place, folder)
        else:
            self.absent.append(place.as_posix())

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
    said = said.removeprefix("fatal: ")
    # What git says to do, as about a repository of another user.
    advice = [f": {line.strip()}" for line in run.stderr.splitlines() if line.startswith("\tgit ")]
    raise ConfigError(f"git {words[0]} failed in {folder}: {said}{''.join(advice[:1])}")
