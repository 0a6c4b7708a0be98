"""Real git repositories in a folder of a test, whatever the user's own settings are."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ENVIRONMENT = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
    "GIT_AUTHOR_NAME": "A",
    "GIT_AUTHOR_EMAIL": "a@example.org",
    "GIT_COMMITTER_NAME": "A",
    "GIT_COMMITTER_EMAIL": "a@example.org",
}


def git(folder: Path, *words: str) -> str:
    """Run git in a folder and return what it prints."""
    environment = {**os.environ, **ENVIRONMENT}
    command = ["git", *words]
    run = subprocess.run(
        command, cwd=folder, env=environment, check=True, capture_output=True, text=True
    )
    return run.stdout.strip()


def commit(folder: Path, files: dict[str, str] | None = None) -> str:
    """Write files, commit all that the folder holds, and return the hash."""
    if not (folder / ".git").exists():
        git(folder, "init", "-q", "-b", "main")
    for name, text in (files or {}).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    git(folder, "add", "--all")
    git(folder, "commit", "-q", "--allow-empty", "-m", "a change")
    return git(folder, "rev-parse", "HEAD")
