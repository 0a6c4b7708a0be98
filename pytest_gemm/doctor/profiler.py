"""Nsight Compute: whether it is there, and whether it may read the counters."""

from __future__ import annotations

import re

from pytest_gemm.doctor.cuda_probe import ENTRY
from pytest_gemm.doctor.cuda_python import PROBE
from pytest_gemm.doctor.finding import Finding, advice, ok
from pytest_gemm.doctor.machine import Machine

SECONDS = 180
PARAMETERS = "/proc/driver/nvidia/params"
_PLACES = ("/usr/local/cuda*/bin/", "/opt/nvidia/nsight-compute/*/")
_ADMINISTRATOR = 1 << 21
"""CAP_SYS_ADMIN among the capabilities of a process."""

_COMPLAINT = re.compile("==(ERROR|WARNING)== *")
DENIED = "ERR_NVGPUCTRPERM"
_LIFT = (
    "echo 'options nvidia NVreg_RestrictProfilingToAdminUsers=0' | sudo tee "
    "/etc/modprobe.d/nvidia-profiling.conf, and reboot"
)


def ncu(machine: Machine, *, can_launch: bool, container: str) -> Finding:
    """Profile a kernel that does nothing, where one can be launched; else read the settings."""
    program = find(machine, "ncu")
    if not program:
        return ok("ncu", "not here; only profiling needs it")
    refused = is_restricted(machine) and not is_administrator(machine)
    said = ""
    if can_launch:
        answer = machine.run(
            [
                *(program, "--clock-control", "none", "--metrics", "sm__cycles_elapsed.max"),
                *("--kernel-name", ENTRY, machine.python, "-P", "-m", PROBE),
            ],
            SECONDS,
        )
        lines = [line.strip() for line in answer.output.splitlines()]
        if any("sm__cycles_elapsed.max" in line for line in lines):
            return ok("ncu", f"{program}, may read the counters")
        refused = DENIED in answer.output
        said = next((line for line in lines if _COMPLAINT.match(line)), answer.first_line)
    if refused:
        return denied(program, container)
    if can_launch:
        shown = _COMPLAINT.sub("", said) or "no counter was printed"
        return advice("ncu", f"{program} does not work here: {shown}", f"{program} --version")
    return ok("ncu", f"{program}; not tried, since no kernel can be launched")


def find(machine: Machine, name: str) -> str:
    """Where a program of CUDA's toolkit is, also where it is not on the path; or an empty text."""
    places = (place for pattern in _PLACES for place in reversed(machine.paths(pattern + name)))
    return machine.find(name) or next(places, "")


def denied(program: str, container: str) -> Finding:
    """``ncu`` is there and may not read the counters; ``container``: its kind, if in one."""
    root = "start the container with --cap-add=SYS_ADMIN" if container else f"sudo {program} ..."
    return advice("ncu", f"{program} may not read the counters ({DENIED})", f"{root}, or: {_LIFT}")


def is_restricted(machine: Machine) -> bool:
    """Whether the driver lets administrators alone read the counters."""
    lines = (machine.text(PARAMETERS) or "").splitlines()
    return "RmProfilingAdminOnly: 1" in map(str.strip, lines)


def is_administrator(machine: Machine) -> bool:
    """Root in a container is one only where it was started so."""
    for line in (machine.text("/proc/self/status") or "").splitlines():
        key, _, value = line.partition(":")
        if key == "CapEff":
            return bool(int(value, 16) & _ADMINISTRATOR)
    return False
