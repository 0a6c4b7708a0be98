"""``pytest-gemm doctor``: whether kernels can be run, timed and judged here."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_gemm.cli.commands import Commands
from pytest_gemm.cli.project import baselines_folder

if TYPE_CHECKING:
    from pytest_gemm.doctor import Finding

FORMAT = 1


def add(commands: Commands) -> None:
    parser = commands.add_parser(
        "doctor",
        help="say what works on this machine, and what mends what does not",
        description="Look at the GPU, its driver, CuPy, NVRTC, the headers, ncu, the C++ "
        "compiler, other load, locks and baselines. Nothing is changed. Each line says ok, or "
        "gives advice or names a fault with the command that mends it. Exit code 1 where "
        "there is a fault; a machine without a GPU is none.",
    )
    parser.add_argument("--json", action="store_true", help="for programs: one JSON object")
    parser.add_argument(
        "--baselines",
        type=Path,
        metavar="FOLDER",
        help="folder of baselines (default: that of the project around the current folder)",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from pytest_gemm.doctor import Machine, examine

    baselines = arguments.baselines or baselines_folder(Path.cwd())
    findings = examine(Machine(), baselines)
    return tell_json(findings) if arguments.json else tell(findings)


def tell(findings: Iterable[Finding]) -> int:
    """Print each finding as soon as it is known. The exit code."""
    counts = {"ok": 0, "advice": 0, "fault": 0}
    for finding in findings:
        counts[finding.status] += 1
        print(f"{finding.status:6}  {finding.name:14}  {finding.text}", flush=True)
        if finding.remedy:
            print(f"{'':24}-> {finding.remedy}", flush=True)
    faults = counts["fault"]
    print(f"{faults} fault{'' if faults == 1 else 's'}, {counts['advice']} with advice")
    return int(faults > 0)


def tell_json(findings: Iterable[Finding]) -> int:
    """Print all of them as one object. The exit code."""
    from pytest_gemm import __version__

    found = list(findings)
    healthy = all(finding.status != "fault" for finding in found)
    told = {
        "format": FORMAT,
        "pytest_gemm": __version__,
        "healthy": healthy,
        "findings": [vars(finding) for finding in found],
    }
    print(json.dumps(told, indent=2))
    return int(not healthy)
