"""``pytest-gemm init``: a project that works, in an empty folder."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from pytest_gemm.cli.commands import Commands
from pytest_gemm.errors import ConfigError, GemmError

KERNELS = ("naive", "tiled")

_PACKAGE = Path(__file__).parent.parent


def add(commands: Commands) -> None:
    parser = commands.add_parser(
        "init",
        help="start a project: two kernels, a test, settings, CI",
        description="Write a project that works into a folder: two kernels, the test of two "
        "lines, the settings of pytest, a workflow for CI, and what is exact of the kernels. "
        "No file that exists is changed.",
    )
    parser.add_argument(
        "folder", type=Path, nargs="?", default=Path(), help="default: the current folder"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    folder: Path = arguments.folder
    written = write_new(folder, project_files())
    for path in written:
        print(f"{folder / path}")
    if not written:
        print(f"{folder}: all of it is there already")
    enter = "" if folder.resolve() == Path.cwd() else f"cd {folder} && "
    print(f"next: {enter}pytest --gemm-bench")
    return 0


def project_files() -> dict[str, bytes]:
    """The files of a new project by their paths."""
    from pytest_gemm.baselines.store import GIT_ATTRIBUTES
    from pytest_gemm.cli import init_texts as texts

    shipped = [f"kernels/{name}.cu" for name in KERNELS]
    shipped += [f"baselines/exact/{name}.json" for name in KERNELS]
    written = {
        "pyproject.toml": texts.PYPROJECT,
        "tests/test_kernels.py": texts.TEST,
        "baselines/README.md": texts.BASELINES,
        "baselines/.gitattributes": GIT_ATTRIBUTES,
        "baselines/.gitignore": texts.GIT_IGNORE,
        ".github/workflows/kernels.yml": texts.WORKFLOW,
    }
    return {path: _shipped(path) for path in shipped} | {
        path: text.encode() for path, text in written.items()
    }


def write_new(folder: Path, files: Mapping[str, bytes]) -> list[str]:
    """Write the files that are not there yet, all of them or none; returns their paths.

    A file that is there with the same content is left alone. Raises ConfigError where one has
    another, and GemmError where one cannot be written.
    """
    made: list[Path] = []
    try:
        new = [path for path, content in files.items() if not _is_there(folder / path, content)]
        for path in new:
            _make_folders((folder / path).parent, made)
            with (folder / path).open("xb") as file:
                made.append(folder / path)
                file.write(files[path])
    except OSError as error:
        _remove(made)
        raise GemmError(
            f"{error.filename or folder}: it cannot be written ({error.strerror}), so nothing is: "
            "name another folder with pytest-gemm init FOLDER"
        ) from None
    except BaseException:
        _remove(made)
        raise
    return new


def _is_there(path: Path, content: bytes) -> bool:
    """Raises ConfigError where something else is."""
    if not path.exists() and not path.is_symlink():
        return False
    with suppress(OSError):
        if path.read_bytes() == content:
            return True
    raise ConfigError(
        f"{path} exists and is left alone, so nothing is written: start in a new folder with "
        "pytest-gemm init FOLDER, and take over from there what you need"
    )


def _make_folders(folder: Path, made: list[Path]) -> None:
    if not folder.exists():
        _make_folders(folder.parent, made)
        folder.mkdir()
        made.append(folder)


def _remove(made: list[Path]) -> None:
    for path in reversed(made):
        with suppress(OSError):
            path.rmdir() if path.is_dir() else path.unlink()


def _shipped(path: str) -> bytes:
    """A file of this repository: below ``shipped`` in a wheel, at its own place in a checkout."""
    for root in (_PACKAGE / "shipped", _PACKAGE.parent):
        if (root / path).is_file():
            return (root / path).read_bytes()
    raise GemmError(f"{path} is missing from this installation: install pytest-gemm again")
