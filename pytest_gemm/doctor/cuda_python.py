"""What drives a GPU from Python: CuPy, NVRTC, CUDA's headers, NVML."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pytest_gemm.doctor.finding import Finding, advice, fault, ok
from pytest_gemm.doctor.machine import TIMED_OUT, Answer, Machine
from pytest_gemm.doctor.nvidia import Driver

SECONDS = 120
PROBE = "pytest_gemm.doctor.cuda_probe"
NEWEST = 13
"""The newest CUDA that there is an extra of pytest-gemm for; the oldest is the one before."""

_WHEEL = re.compile(r"cupy(?:-cuda(\d\d)x)?")


@dataclass(frozen=True)
class CudaPython:
    """``wheels``: CuPy's distributions and the CUDA of each (0: built for what was there).

    ``found`` is what ``cuda_probe`` printed; ``nvml`` is whether NVML's bindings are installed.
    """

    python: str
    visible: str | None
    wheels: tuple[tuple[str, int], ...] = ()
    nvml: bool = False
    found: dict[str, Any] = field(default_factory=dict)

    @property
    def works(self) -> bool:
        """Whether a kernel was launched."""
        return "headers" in self.found


def examine(machine: Machine, driver: Driver) -> CudaPython:
    """Import and try CuPy, where there is one and it can be expected to work."""
    packages = machine.packages()
    matches = ((name, _WHEEL.fullmatch(name)) for name in sorted(packages))
    wheels = tuple((name, int(match[1] or 0)) for name, match in matches if match)
    facts = CudaPython(
        machine.python,
        machine.environ.get("CUDA_VISIBLE_DEVICES"),
        wheels,
        any(name in packages for name in ("nvidia-ml-py", "pynvml")),
    )
    if not wheels or not driver.is_there:
        return facts
    answer = machine.run([machine.python, "-P", "-m", PROBE], SECONDS)
    return CudaPython(facts.python, facts.visible, wheels, facts.nvml, _read(answer))


def _read(answer: Answer) -> dict[str, Any]:
    """What it printed last; what else it said where that is no JSON, as after a crash."""
    lines = answer.output.strip().splitlines()
    try:
        found = json.loads(lines[-1])
        if isinstance(found, dict):
            return found
    except (IndexError, ValueError):
        pass
    if answer.code == TIMED_OUT:
        how = answer.output
    else:
        how = f"signal {-answer.code}" if answer.code < 0 else f"exit code {answer.code}"
        how = f"its process ended with {how}" + (f": {lines[-1].strip()}" if lines else "")
    return {"failed": "import", "error": how}


def findings(facts: CudaPython, driver: Driver) -> Iterator[Finding]:
    """CuPy's line; where it works, those of what it needs."""
    found = facts.found
    yield cupy(facts, driver)
    if "nvrtc" in found:
        yield ok("nvrtc", found["nvrtc"])
    elif found.get("failed") == "compile":
        yield fault("nvrtc", found["error"], _install(facts, driver))
    if found.get("failed") == "launch":
        yield fault("launch", found["error"], "see what the driver says: sudo dmesg | grep -i nvrm")
    if facts.works:
        yield headers(facts, driver)
    yield nvml(facts)


def cupy(facts: CudaPython, driver: Driver) -> Finding:
    found = facts.found
    if not facts.wheels:
        return fault("cupy", "CuPy is missing: nothing runs on the GPU", _install(facts, driver))
    fitting = _fitting(driver)
    if len(facts.wheels) > 1:
        names = [name for name, _ in facts.wheels]
        keep = next((n for n, cuda in facts.wheels if cuda == fitting), names[-1])
        gone = " ".join(name for name in names if name != keep)
        # Both write into one folder, so that what is left is incomplete.
        return fault(
            "cupy",
            f"{' and '.join(names)} are both installed, into the same folder",
            f"{facts.python} -m pip uninstall -y {gone} && "
            f"{facts.python} -m pip install --force-reinstall --no-deps {keep}",
        )
    [(name, cuda)] = facts.wheels
    cuda = cuda or found.get("cuda", 0) // 1000
    known = driver.cuda_major or found.get("driver", 0) // 1000
    if 0 < known < cuda:
        return fault(
            "cupy",
            f"{name} is built for CUDA {cuda}, which the driver {driver.version} is too old for "
            f"(it knows {driver.cuda or known})",
            f"{facts.python} -m pip uninstall -y {name} && {_install(facts, driver)}"
            if known >= NEWEST - 1
            else "install a newer driver; on Ubuntu: sudo ubuntu-drivers install",
        )
    if found.get("failed") == "see" or found.get("gpus") == []:
        text = f"CuPy sees no GPU ({found.get('error') or '0 devices'})"
        if facts.visible is not None:
            return fault(
                "cupy",
                f"{text}: CUDA_VISIBLE_DEVICES is {facts.visible!r}",
                "unset CUDA_VISIBLE_DEVICES",
            )
        return fault("cupy", text, "nvidia-smi")
    if found.get("failed") == "import":
        remedy = _install(facts, driver).replace("install ", "install --force-reinstall ")
        return fault("cupy", found["error"], remedy)
    return ok("cupy", f"{name} {found['cupy']}, sees {len(found['gpus'])} of {_count(driver)}")


def headers(facts: CudaPython, driver: Driver) -> Finding:
    if failures := facts.found["headers"]:
        named = ", ".join(failures)
        error = next(iter(failures.values()))
        return fault("headers", f"{named} cannot be included: {error}", _install(facts, driver))
    return ok("headers", "CUDA's and libcu++'s")


def nvml(facts: CudaPython) -> Finding:
    if facts.nvml:
        return ok("nvml", "load, clocks and slowdowns are watched")
    return advice(
        "nvml",
        "its bindings are missing: a run that others disturb is judged like any",
        f"{facts.python} -m pip install nvidia-ml-py",
    )


def _fitting(driver: Driver) -> int:
    return NEWEST if driver.cuda_major in (0, *range(NEWEST, 100)) else NEWEST - 1


def _install(facts: CudaPython, driver: Driver) -> str:
    return f"{facts.python} -m pip install 'pytest-gemm[cuda{_fitting(driver)}]'"


def _count(driver: Driver) -> str:
    return f"{len(driver.gpus) or 'an unknown number of'} GPUs"
