"""The command ``pytest-gemm``: one module for each subcommand, listed in ``COMMANDS``.

A command's module has ``add(commands)``, which adds its parser with a default ``run`` that takes
the arguments and returns the exit code: 0, or 1 where something could not be done. A mistake in
the arguments is a ConfigError, and exit code 2. What only ``run`` needs is imported there.
Files are written whole, when what is in them is finished; a command that has written some when
Ctrl-C ends it says so in the KeyboardInterrupt.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence

from pytest_gemm.cli import adopt, baseline, calibrate, doctor, init, profile, report, study
from pytest_gemm.errors import ConfigError, DeviceBusyError, GemmError

__all__ = [
    "COMMANDS",
    "adopt",
    "baseline",
    "calibrate",
    "doctor",
    "init",
    "main",
    "profile",
    "report",
    "study",
]

COMMANDS = (adopt, baseline, calibrate, doctor, init, profile, report, study)

UNFINISHED = "what was not finished was not written"


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; its exit code."""
    parser = argparse.ArgumentParser(
        prog="pytest-gemm", description="What pytest-gemm does outside of a pytest run."
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in COMMANDS:
        command.add(commands)
    arguments = parser.parse_args(argv)
    try:
        code: int = arguments.run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read the output, such as head, has seen enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt as error:
        print(f"pytest-gemm: interrupted; {str(error) or UNFINISHED}", file=sys.stderr)
        return 128 + signal.SIGINT
    except ModuleNotFoundError as error:
        if str(error.name).startswith("pytest_gemm"):
            raise
        print(f"{parser.prog}: {error.name} is missing; see: pytest-gemm doctor", file=sys.stderr)
        return 1
    except (GemmError, DeviceBusyError) as error:
        print(f"pytest-gemm: {error}", file=sys.stderr)
        return 2 if isinstance(error, ConfigError) else 1
    return code
