"""``pytest-gemm profile``: why a kernel takes its time, by a GPU's counters."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
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
from pytest_gemm.versioned import damage_told

if TYPE_CHECKING:
    from pytest_gemm.backends.choice import Choice
    from pytest_gemm.case import Case
    from pytest_gemm.options import Options
    from pytest_gemm.profile.document import Profile


def add(commands: Commands) -> None:
    parser = commands.add_parser(
        "profile",
        help="say what limits a kernel, by the counters of a GPU beside what was predicted",
        description="Verify and time kernels of the project around the current folder, launch "
        "them under Nsight Compute's ncu, and print a report in Markdown: loads per element of C "
        "as predicted, as counted on the CPU and on the GPU, traffic, how busy each unit is, and "
        "one sentence about what limits each. Exit code 1 where counters are missing.",
    )
    parser.add_argument(
        "file",
        nargs="?",
        type=Path,
        metavar="FILE.json",
        help="print the report of an earlier --out instead",
    )
    add_device(parser)
    parser.add_argument(
        "--size",
        action="append",
        default=[],
        metavar="SIZE",
        help="sizes as of pytest --gemm-size, instead of the kernels' own; may be given several "
        "times",
    )
    add_words(parser)
    parser.add_argument(
        "--sanitizer",
        action="store_true",
        help="instead of counters: compute-sanitizer on small problems, beside the CPU's check",
    )
    parser.add_argument("--out", type=Path, metavar="FILE.json", help="also write what was found")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from pytest_gemm.baselines.files import write_text
    from pytest_gemm.profile.document import write
    from pytest_gemm.profile.report import report

    if arguments.file is not None:
        return _report_again(arguments)
    out: Path | None = arguments.out
    check_out(out)
    found = _profiled(arguments)
    print("\n".join(report(found)))
    if out is not None:
        write_text(out, write(found))
        _say(f"written to {out}")
    return _exit_code(found)


def _report_again(arguments: argparse.Namespace) -> int:
    """The report of an earlier ``--out``."""
    from pytest_gemm.profile.document import read
    from pytest_gemm.profile.report import report

    path: Path = arguments.file
    given = {"--out": arguments.out, "--size": arguments.size, "-k": arguments.words}
    others = {"--sanitizer": arguments.sanitizer, "--device": arguments.device}
    check_only_reported(path, {**given, **others})
    found = read(path)
    with damage_told(f"{path}: what it holds", "profile again"):
        text, code = "\n".join(report(found)), _exit_code(found)
    print(text)
    return code


def _exit_code(found: Profile) -> int:
    lacking = found.missing is not None or any(case.message for case in found.cases)
    return int(lacking or any(row.agrees is False for row in found.sanitized))


def _profiled(arguments: argparse.Namespace) -> Profile:
    from pytest_gemm.backends.choice import choose_backend
    from pytest_gemm.options import project_options

    sizes = [f"--gemm-size={size}" for size in arguments.size]
    options = project_options([f"--gemm-device={arguments.device}", "--gemm-bench", *sizes])
    choice = choose_backend(options.device)
    if choice.ssh or choice.gpus is None or len(choice.gpus) > 1:
        raise ConfigError(
            f"--device={options.device}: profile one device, on the machine that it is in"
        )
    cases = _cases(options, arguments.words)
    return (
        _sanitized(options, choice, cases, sweeps=bool(arguments.words))
        if arguments.sanitizer
        else _counted(options, choice, cases)
    )


def _counted(options: Options, choice: Choice, cases: Sequence[Case]) -> Profile:
    from pytest_gemm.doctor import Machine
    from pytest_gemm.executor import open_executor
    from pytest_gemm.profile.profiling import profile

    executor = open_executor(options, choice, _say, shared=True)
    return profile(executor, cases, Machine(), _gpu(choice), _say)


def _sanitized(options: Options, choice: Choice, cases: Sequence[Case], *, sweeps: bool) -> Profile:
    """``sweeps``: all kernels of a sweep, and not a few."""
    from pytest_gemm.backends import open_backend
    from pytest_gemm.backends.choice import Choice
    from pytest_gemm.doctor import Machine
    from pytest_gemm.executor import open_executor
    from pytest_gemm.profile.profiling import sanitized
    from pytest_gemm.profile.sanitizer import MEMBERS, of_each

    if choice.kind != "cuda":
        raise ConfigError(
            "--sanitizer: compute-sanitizer watches a GPU, and there is none here; pytest "
            "--gemm-check=full watches the same kernels on the CPU"
        )
    kernels = of_each(cases, None if sweeps else MEMBERS)
    if more := len(of_each(cases)) - len(kernels):
        _say(f"{len(kernels)} kernels; left out: {more} more of sweeps, which -k chooses")
    device = open_backend("cuda", _say, _gpu(choice)).device
    executor = open_executor(options, Choice("host"), _say, shared=True)
    return sanitized(executor, kernels, Machine(), _gpu(choice), device, _say)


def _cases(options: Options, words: Sequence[str]) -> list[Case]:
    """The cases of ``.cu`` kernels that the words choose. Raises ConfigError."""
    from pytest_gemm.collection import Collector

    project = Collector(options).project
    for mistake in project.registry.errors:
        _say(f"left out: {mistake}")
    chosen = [
        case
        for case in project.cases.values()
        if not case.settings.architecture and case.is_chosen(words)
    ]
    cases = [case for case in chosen if not case.kernel.skip_reason(case.problem)]
    for case in chosen:
        if reason := case.kernel.skip_reason(case.problem):
            _say(f"left out: {case.title}: {reason}")
    if not cases:
        raise ConfigError(
            "no case of a .cu kernel is left: see pytest --collect-only for their ids"
        )
    return cases


def _gpu(choice: Choice) -> int:
    return choice.gpus[0] if choice.gpus else 0


def _say(line: str) -> None:
    # At once, as several threads tell of their progress.
    print(f"pytest-gemm: {line}\n", end="", file=sys.stderr, flush=True)
