"""The folder of baselines as a git revision holds it."""

from __future__ import annotations

import io
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from pytest_gemm.baselines import BaselineStore
from pytest_gemm.errors import ConfigError


@contextmanager
def store_at(folder: Path, revision: str) -> Iterator[BaselineStore]:
    """The store as it was in a revision; empty where the folder was not there yet.

    Raises ConfigError where there is no git, no repository, or no such revision.
    """
    commit = _git(folder, "rev-parse", "--verify", "--end-of-options", f"{revision}^{{commit}}")
    name = commit.decode().strip()
    tree = _git(folder, "ls-tree", "-r", "--name-only", name, ".")
    with TemporaryDirectory(prefix="pytest-gemm-") as temporary:
        root = Path(temporary)
        if tree:
            archive = _git(folder, "archive", "--format=tar", name, ".")
            with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
                for member in tar:
                    content = tar.extractfile(member) if member.isfile() else None
                    if content is not None:
                        path = root / member.name
                        path.parent.mkdir(parents=True, exist_ok=True)
                        path.write_bytes(content.read())
        yield BaselineStore(root)


def _git(folder: Path, *arguments: str) -> bytes:
    try:
        run = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, check=False)
    except OSError as error:
        raise ConfigError(f"git cannot be run ({error.strerror})") from None
    if run.returncode:
        words = run.stderr.decode("utf-8", "replace").strip().splitlines() or ["it says nothing"]
        raise ConfigError(f"{folder}: git failed: {words[0]}")
    return run.stdout
