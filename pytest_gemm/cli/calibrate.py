"""``pytest-gemm calibrate``: how much builds of one kernel differ on this machine."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_gemm.cli.commands import Commands, add_device, add_words
from pytest_gemm.errors import ConfigError, GemmError

if TYPE_CHECKING:
    from pytest_gemm.calibrating import Rivals
    from pytest_gemm.calibration import Pair
    from pytest_gemm.case import Case
    from pytest_gemm.executor import Executor
    from pytest_gemm.margin import Calibration
    from pytest_gemm.options import Options

PAIRS = 12
LEAST_PAIRS = 5


def add(commands: Commands) -> None:
    parser = commands.add_parser(
        "calibrate",
        help="measure how much builds of one kernel differ on this machine",
        description="Let kernels of the project around the current folder duel with themselves, "
        "built another way, and store what they differ by: the device's margin is 3.5 times the "
        "bias that is found, if that is more than what is usual for its kind.",
    )
    add_device(parser)
    parser.add_argument(
        "--pairs",
        type=_pairs,
        default=PAIRS,
        metavar="N",
        help="duets to run, a few seconds each (default: %(default)s)",
    )
    add_words(parser)
    parser.add_argument(
        "--baselines",
        type=Path,
        metavar="FOLDER",
        help="where to store it (default: the project's folder of baselines)",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from pytest_gemm.backends.choice import choose_backend
    from pytest_gemm.executor import open_executor
    from pytest_gemm.options import project_options

    options = project_options([f"--gemm-device={arguments.device}", "--gemm-bench"])
    choice = choose_backend(options.device)
    if choice.gpus is None or len(choice.gpus) > 1:
        raise ConfigError(f"--device={options.device}: calibrate one device at a time")
    cases = _cases(options, arguments.words)
    executor = open_executor(options, choice, _warn, shared=False)
    try:
        return calibrate(
            executor, cases, arguments.pairs, options.seed, arguments.baselines or options.baselines
        )
    finally:
        executor.close()


def calibrate(
    executor: Executor, cases: Sequence[Case], count: int, seed: int, baselines: Path
) -> int:
    """Measure that many pairs, store what is found, and print it. The exit code."""
    from datetime import UTC, datetime

    from pytest_gemm.baselines import BaselineStore, epoch
    from pytest_gemm.calibrating import rivals
    from pytest_gemm.calibration import Measured, write_calibration

    started = time.monotonic()
    (device,) = executor.devices()
    print(f"{device.kind}: {device.description}")
    pairs = tuple(_dueled(executor, rivals(cases, count, seed)))
    if len(pairs) < LEAST_PAIRS:
        raise GemmError(
            f"{len(pairs)} pairs could be measured and {LEAST_PAIRS} are needed: nothing is stored"
        )
    date = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    measured = Measured(device.name, date, pairs, epoch(device.environment))
    path = BaselineStore(baselines).calibration_path(device.name)
    write_calibration(path, measured)
    print("\n".join(_told(measured.calibration, device.kind)))
    print(f"stored in {path}; {time.monotonic() - started:.0f} s")
    return 0


def _dueled(executor: Executor, chosen: Sequence[Rivals]) -> Iterator[Pair]:
    from pytest_gemm.calibrating import duel
    from pytest_gemm.report.text import percent
    from pytest_gemm.stats import mean_and_sd

    for number, (first, second) in enumerate(chosen, 1):
        try:
            pair = duel(executor, first, second)
        except GemmError as error:
            _warn(f"left out: {str(error).partition(chr(10))[0]}")
            continue
        change, sd = mean_and_sd(pair.ratios)
        scatter = f"{len(pair.ratios)} processes, {percent(sd, signed=False)} each"
        print(f"{number}/{len(chosen)} {pair.benchmark}: {percent(change)} ({scatter})", flush=True)
        yield pair


def _told(found: Calibration, kind: str) -> Iterator[str]:
    from pytest_gemm.margin import BIASES, duet_spread, expected, margin_of
    from pytest_gemm.report.text import percent

    def shown(fraction: float) -> str:
        return percent(fraction, signed=False)

    usual = expected(kind)
    spread = duet_spread(kind, found)
    own = "more than usual" if spread.sd > usual.duet.sd else f"usual is {shown(usual.duet.sd)}"
    margin = margin_of(kind, found)
    yield f"bias of a build: {shown(found.bias)} (of {found.duets} pairs)"
    yield f"scatter of a process: {shown(found.sd)} ({own})"
    yield (
        f"margin: {shown(margin)}, the larger of {shown(usual.margin)} and {BIASES:g} x the bias"
    )


def _cases(options: Options, words: Sequence[str]) -> list[Case]:
    """The cases of CUDA kernels that can be timed. Raises ConfigError where there is none."""
    from pytest_gemm.collection import Collector

    project = Collector(options).project
    for error in project.registry.errors:
        _warn(f"left out: {error}")
    usable = [
        case
        for case in project.cases.values()
        if not case.kernel.is_python and not case.kernel.skip_reason(case.problem)
    ]
    if not usable:
        raise ConfigError(
            f"{options.root}: no .cu kernel can be built another way: calibrate in the folder of a "
            "project that has one"
        )
    chosen = [case for case in usable if case.is_chosen(words)]
    if not chosen:
        raise ConfigError(f"-k {' -k '.join(words)}: no case contains that, such as {usable[0].id}")
    return chosen


def _pairs(text: str) -> int:
    count = int(text) if text.isdecimal() else 0
    if count < LEAST_PAIRS:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number of at least {LEAST_PAIRS}")
    return count


def _warn(line: str) -> None:
    print(f"pytest-gemm: {line}", file=sys.stderr, flush=True)
