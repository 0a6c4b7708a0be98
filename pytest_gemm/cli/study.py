"""``pytest-gemm study``: measures kernels against each other, against C, and over block sizes."""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_gemm.cli.commands import (
    Commands,
    add_device,
    add_words,
    check_only_reported,
    check_out,
)
from pytest_gemm.errors import ConfigError
from pytest_gemm.studies import NAMES
from pytest_gemm.versioned import damage_told

if TYPE_CHECKING:
    from pytest_gemm.backends.choice import Choice
    from pytest_gemm.collection import Collection
    from pytest_gemm.options import Options
    from pytest_gemm.studies.document import Study
    from pytest_gemm.studies.lab import Lab

LIMIT = 10.0


def add(commands: Commands) -> None:
    parser = commands.add_parser(
        "study",
        help="measure what each change brought, from which size a GPU pays, how block sizes matter",
        description="Measure kernels of the project around the current folder, checked and timed "
        "as pytest --gemm-bench does, and print a report in Markdown. Nothing is judged or stored.",
    )
    parser.add_argument(
        "name",
        metavar="NAME",
        help=f"{', '.join(NAMES)}, all, or the FILE.json of an earlier --out: print its report",
    )
    add_device(parser)
    parser.add_argument(
        "--size",
        action="append",
        default=[],
        metavar="N",
        help="N of the square matrices, instead of the study's; may be given several times. Such "
        "cases run however long they take",
    )
    add_words(parser)
    parser.add_argument(
        "--limit",
        type=float,
        default=LIMIT,
        metavar="SECONDS",
        help="leave out what would take longer than this for one case (default: %(default)g)",
    )
    parser.add_argument(
        "--out", type=Path, metavar="FILE.json", help="also write what was measured"
    )
    parser.add_argument(
        "--figures", type=Path, metavar="FOLDER", help="also draw the figures there, as SVG"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    if arguments.figures is not None and not arguments.figures.is_dir():
        raise ConfigError(f"--figures={arguments.figures}: name a folder that exists")
    if arguments.name.endswith(".json"):
        with damage_told(f"{arguments.name}: what it holds", "measure again"):
            failed = [_tell(study, arguments.figures) for study in _read(arguments)]
    else:
        failed = [_tell(study, arguments.figures) for study in _measured(arguments)]
    return int(any(failed))


def _read(arguments: argparse.Namespace) -> list[Study]:
    from pytest_gemm.studies.document import read

    given = {"--out": arguments.out, "--size": arguments.size, "-k": arguments.words}
    path = Path(arguments.name)
    check_only_reported(path, {**given, "--device": arguments.device})
    studies = read(path)
    if not studies:
        raise ConfigError(f"{arguments.name}: no study is in it")
    return studies


def _tell(study: Study, folder: Path | None) -> bool:
    """Print a study's report; whether a case of it failed."""
    from pytest_gemm.studies.catalogue import report

    print("\n".join(report(study)), flush=True)
    if folder is not None:
        _draw(study, folder)
    return bool(study.failures)


def _draw(study: Study, folder: Path) -> None:
    from pytest_gemm.baselines.files import safe_name, write_text
    from pytest_gemm.studies.figures import figures

    for name, text in figures(study):
        write_text(folder / f"{safe_name(name)}.svg", text)


def _measured(arguments: argparse.Namespace) -> Iterator[Study]:
    """Each study as soon as it is finished: a later one that fails takes nothing away.

    Of all, those that the project has no case for are left out.
    """
    from pytest_gemm.backends.choice import choose_backend
    from pytest_gemm.baselines.files import write_text
    from pytest_gemm.studies.catalogue import carry_out
    from pytest_gemm.studies.document import write
    from pytest_gemm.studies.lab import NoCase

    names = NAMES if arguments.name == "all" else (arguments.name,)
    if not set(names) <= set(NAMES):
        raise ConfigError(f"{arguments.name}: a study is one of {', '.join(NAMES)} or all")
    sizes = sorted({_size(text) for text in arguments.size}, key=int)
    if not 0 < arguments.limit < math.inf:
        raise ConfigError(f"--limit={arguments.limit:g}: it is a number of seconds above 0")
    out: Path | None = arguments.out
    check_out(out)
    options = _options(arguments.device, ())
    choice = choose_backend(options.device)
    if choice.gpus is None or len(choice.gpus) > 1:
        raise ConfigError(f"--device={options.device}: a study is made on one device")
    limit = math.inf if sizes else arguments.limit
    studies: list[Study] = []
    lacking: NoCase | None = None
    for name in names:
        started = time.monotonic()
        _say(f"{name}:")
        lab = _lab(arguments, options, choice, sizes, limit)
        try:
            studies.append(carry_out(name, lab))
        except NoCase as error:
            if len(names) == 1:
                raise
            _say(f"{name}: left out: {error}")
            lacking = error
            continue
        except KeyboardInterrupt:
            if out is None or not studies:
                raise
            done = f"{len(studies)} of {len(names)} studies"
            raise KeyboardInterrupt(f"{out} has the {done} that were finished") from None
        finally:
            lab.close()
        _say(f"{name}: {time.monotonic() - started:.0f} s")
        if out is not None:
            write_text(out, write(studies))
        yield studies[-1]
    if lacking is not None and not studies:
        raise lacking
    if out is not None:
        _say(f"written to {out}")


def _lab(
    arguments: argparse.Namespace,
    options: Options,
    choice: Choice,
    sizes: Sequence[str],
    limit: float,
) -> Lab:
    from dataclasses import replace

    from pytest_gemm.executor import open_executor
    from pytest_gemm.studies.lab import Lab, Project

    collect = cache(partial(_collect, arguments.device))
    # Each case holds the device: on a CPU, both executors have the same.
    opened = partial(open_executor, options, progress=_say, shared=True)
    return Lab(
        Project(lambda wanted: collect(tuple(wanted)), arguments.words),
        choice.kind,
        sizes,
        lambda: opened(choice),
        lambda: opened(replace(choice, kind="serial", gpus=(0,))),
        _say,
        limit,
    )


def _collect(device: str, sizes: tuple[str, ...]) -> Collection:
    """The project's kernels, those in Python too that gemm_modules names. Raises ConfigError."""
    from pytest_gemm.collection import Collector
    from pytest_gemm.registry import import_module

    options = _options(device, sizes)
    project = Collector(options, [*map(import_module, options.modules)]).project
    for mistake in project.registry.errors:
        _say(f"left out: {mistake}")
    return project


def _options(device: str, sizes: Sequence[str]) -> Options:
    from pytest_gemm.options import project_options

    own = [f"--gemm-size={size}" for size in sizes]
    return project_options([f"--gemm-device={device}", "--gemm-bench", *own])


def _size(text: str) -> str:
    if not text.isdecimal() or not int(text):
        raise ConfigError(f"--size={text}: it is a whole number of at least 1, the N of N x N")
    return str(int(text))


def _say(line: str) -> None:
    print(f"pytest-gemm: {line}", file=sys.stderr, flush=True)
