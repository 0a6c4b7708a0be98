"""What every machine has: its system, Python packages, a compiler, load, perhaps a container."""

from __future__ import annotations

from contextlib import suppress

from pytest_gemm.doctor.finding import Finding, advice, fault, ok
from pytest_gemm.doctor.machine import Machine
from pytest_gemm.errors import BackendError

PLATFORMS = ("Linux x86_64", "Linux aarch64")
BUSY = 0.5
"""The load, as a part of the cores, from which other programs count as disturbing."""

_MARKS = {"/.dockerenv": "Docker", "/run/.containerenv": "Podman"}
_VARIABLES = {
    "KUBERNETES_SERVICE_HOST": "Kubernetes",
    "APPTAINER_CONTAINER": "Apptainer",
    "SINGULARITY_CONTAINER": "Singularity",
}


def container_kind(machine: Machine) -> str:
    """Such as ``Docker``; empty outside of any that is known."""
    for variable, kind in _VARIABLES.items():
        if machine.environ.get(variable):
            return kind
    for path, kind in _MARKS.items():
        if machine.paths(path):
            return kind
    return (machine.text("/run/systemd/container") or "").strip()


def system(machine: Machine) -> Finding:
    if machine.platform in PLATFORMS:
        return ok("system", machine.platform)
    return fault(
        "system",
        f"{machine.platform}: kernels run on {' and '.join(PLATFORMS)} alone",
        "use a Linux machine, on Windows: wsl --install",
    )


def packages(machine: Machine) -> Finding:
    """Whether each requirement is met; an installer that was told not to look leaves some unmet."""
    from packaging.requirements import Requirement

    installed = machine.packages()
    missing = []
    for requirement in map(Requirement, machine.requirements()):
        if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
            continue
        version = installed.get(requirement.name.lower().replace("_", "-"))
        if version is None or not requirement.specifier.contains(version, prereleases=True):
            missing.append((requirement, version))
    if not missing:
        shown = ((name, installed.get(name)) for name in ("pytest", "pytest-benchmark"))
        return ok(
            "packages", ", ".join(f"{name} {version or 'missing'}" for name, version in shown)
        )
    text = ", ".join(
        f"{wanted.name} {version} is not {wanted.specifier}"
        if version
        else f"{wanted.name} is missing"
        for wanted, version in missing
    )
    named = " ".join(f"'{wanted.name}{wanted.specifier}'" for wanted, _ in missing)
    return fault("packages", text, f"{machine.python} -m pip install --upgrade {named}")


def compiler(machine: Machine, *, has_gpu: bool) -> Finding:
    """Without a GPU nothing runs without one; with one the sanitizer does not."""
    try:
        return ok("compiler", machine.compiler())
    except BackendError as error:
        text = str(error).partition(": run `pip")[0]
        remedy = f"{machine.python} -m pip install 'pytest-gemm[host]'"
        if machine.environ.get("PYTEST_GEMM_CXX"):  # no other one is looked for
            remedy = "unset PYTEST_GEMM_CXX, or let it name a compiler that works"
        if has_gpu:
            return advice("compiler", f"{text}; kernels are timed, but not watched", remedy)
        return fault("compiler", text, remedy)


def cpu_load(machine: Machine) -> Finding:
    cores = machine.cores()
    words = (machine.text("/proc/loadavg") or "").split()
    with suppress(IndexError, ValueError):
        load = float(words[0])
        text = f"{load:g} of {cores} cores busy in the last minute"
        if load <= BUSY * cores:
            return ok("cpu load", text)
        return advice("cpu load", text, "stop what else runs; see: top -o %CPU")
    return ok("cpu load", "not known")


def container(machine: Machine) -> Finding:
    kind = container_kind(machine)
    quota, _, period = (machine.text("/sys/fs/cgroup/cpu.max") or "").strip().partition(" ")
    allowed = 0.0
    with suppress(ValueError, ZeroDivisionError):
        allowed = float(quota) / float(period)
    if not allowed or allowed >= machine.cores():
        return ok("container", kind or "none")
    text = f"{kind or 'a control group'} stops programs beyond {allowed:g} cores"
    if allowed >= 1:
        return ok("container", text)
    return advice("container", f"{text}, in the middle of a launch too", "give it --cpus=2")
