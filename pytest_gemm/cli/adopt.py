"""``pytest-gemm adopt``: find out how somebody else's kernel is launched, and declare it."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_gemm.cli.commands import Commands
from pytest_gemm.errors import ConfigError

if TYPE_CHECKING:
    from pytest_gemm.adopt.adopting import Adoption
    from pytest_gemm.adopt.source import Source

SECONDS = 25.0


def add(commands: Commands) -> None:
    parser = commands.add_parser(
        "adopt",
        help="find the declaration of a kernel that has none",
        description="Try what a kernel's arguments, block and grid may be, on small exact problems "
        "on the CPU, and print the front matter that passes, with what it is exact for.",
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="the file with the kernel")
    parser.add_argument("--entry", default="", metavar="NAME", help="which kernel of the file")
    parser.add_argument(
        "--write",
        action="store_true",
        help="put the front matter into the file, or into a sidecar where it cannot hold one",
    )
    parser.add_argument(
        "--sidecar",
        action="store_true",
        help="with --write: into FILE's sidecar, and leave FILE as it is",
    )
    parser.add_argument(
        "--seconds",
        type=_seconds,
        default=SECONDS,
        metavar="S",
        help="when to stop trying (default: %(default)g)",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from pytest_gemm.adopt.adopting import adopt
    from pytest_gemm.adopt.prober import Prober
    from pytest_gemm.adopt.source import read_source
    from pytest_gemm.adopt.writing import place_for
    from pytest_gemm.includes import is_file

    path: Path = arguments.file
    if arguments.sidecar and not arguments.write:
        raise ConfigError("--sidecar says where to write: add --write")
    if not is_file(path):
        what = "it is no file: name one" if path.exists() else "there is no such file"
        raise ConfigError(f"{path}: {what}")
    source = read_source(path, arguments.entry)
    place = place_for(source, sidecar=arguments.sidecar)
    started = time.monotonic()
    progress = _Progress(sys.stderr.isatty())
    name = source.name or path.stem
    with Prober(source.shown, source.text, name, started + arguments.seconds) as prober:
        try:
            adoption = adopt(source, prober, progress)
        finally:
            progress.end()
        seconds = time.monotonic() - started
        print("\n".join(_told(source, adoption, place.lines, prober.launches, seconds)))
    if adoption.failure or adoption.reading is None:
        return 1
    if arguments.write:
        print(place.write(adoption.reading))
    return 0


def _told(
    source: Source,
    adoption: Adoption,
    lines: Callable[..., list[str]],
    launches: int,
    seconds: float,
) -> Iterator[str]:
    name = source.function.name
    tried = f"{launches} launches, {seconds:.1f} s"
    failure = adoption.failure
    if adoption.reading is None:
        yield f"{source.shown}: {name}: {failure}"
        return
    if failure:
        none = f"no reading of {name} as a product or a sum passes"
        yield f"{source.shown}: {none}; the nearest one is"
        yield ""
    yield from lines(adoption.reading)
    yield ""
    for note in adoption.notes:
        yield f"{name}: {note}"
    if failure:
        yield f"{name}: its first fault: {failure}"
        yield f"{name}: not adopted ({tried})"
    else:
        yield f"{name}: exact on all problems of the check, and no access is at fault ({tried})"


class _Progress:
    """Says what is tried in one line of a terminal."""

    def __init__(self, is_terminal: bool) -> None:
        self._is_terminal = is_terminal
        self._width = 0

    def __call__(self, text: str) -> None:
        if self._is_terminal:
            line = f"adopt: {text}"[:100]
            sys.stderr.write("\r" + line.ljust(self._width))
            sys.stderr.flush()
            self._width = len(line)

    def end(self) -> None:
        if self._width:
            sys.stderr.write("\r" + " " * self._width + "\r")


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds above 0")
    return seconds
