"""Whether kernels can be run, timed and judged on a machine, and what mends what cannot.

Probes read facts of a ``Machine`` and never change anything; small functions make a ``Finding`` of
them. ``machine`` is the only module that touches the machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pytest_gemm.doctor import host
from pytest_gemm.doctor.finding import Finding, Status, fault
from pytest_gemm.doctor.machine import Machine

__all__ = ["Finding", "Machine", "Status", "examine"]


def examine(machine: Machine, baselines: Path) -> Iterator[Finding]:
    """Look at everything, one finding after another; ``baselines`` is the project's folder.

    Where a package is missing without which nothing can be looked at, that is the only finding.
    """
    try:
        from pytest_gemm.doctor.examining import everything
    except ModuleNotFoundError as error:
        found = host.packages(machine)
        if found.status == "ok":  # as far as its records say
            name = str(error.name).partition(".")[0]
            again = f"{machine.python} -m pip install --force-reinstall {name}"
            found = fault("packages", f"{name} is installed and cannot be imported", again)
        yield found
        return
    yield from everything(machine, baselines)
