"""What commands share: options that several have, and the type that they add their parsers to."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_gemm.errors import ConfigError

if TYPE_CHECKING:
    # argparse has no public name for it.
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]
else:
    Commands = object


def add_device(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--device", default="auto", help="as of pytest --gemm-device; one device (default: auto)"
    )


def add_words(parser: argparse.ArgumentParser) -> None:
    """``-k``, as ``words``: see ``Case.is_chosen``."""
    parser.add_argument(
        "-k",
        dest="words",
        action="append",
        default=[],
        metavar="TEXT",
        help="only cases whose id contains TEXT; may be given several times",
    )


def check_only_reported(file: Path, options: Mapping[str, object]) -> None:
    """Raises ConfigError where options of measuring are given with a file of earlier results."""
    if given := [name for name, value in options.items() if value and value != "auto"]:
        raise ConfigError(f"{', '.join(given)}: {file} was measured before, and is only reported")


def check_out(out: Path | None) -> None:
    """Raises ConfigError where ``--out`` cannot be a JSON file: before anything is measured."""
    if out is None:
        return
    folder = out.absolute().parent
    if out.suffix != ".json" or out.is_dir() or not folder.is_dir():
        raise ConfigError(f"--out={out}: name a .json file in a folder that exists")
    if not os.access(folder, os.W_OK):
        raise ConfigError(f"--out={out}: the folder {folder} cannot be written to")
