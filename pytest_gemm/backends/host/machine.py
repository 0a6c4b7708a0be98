"""What this machine is: its CPU, the instructions it has, and a name to store baselines under."""

from __future__ import annotations

import hashlib
import os
import platform
import re
from contextlib import suppress
from functools import cache
from pathlib import Path

_X86_64_V3 = {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe", "abm"}


@cache
def cpu_facts() -> dict[str, str]:
    """The first processor's entries of ``/proc/cpuinfo``; empty where there are none."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    entries = (line.partition(":") for line in text.split("\n\n")[0].splitlines())
    return {key.strip(): value.strip() for key, _, value in entries}


def instruction_set() -> str:
    """The level that kernels are compiled for: ``x86-64-v3``, ``x86-64`` or ``armv8``.

    Not the most that this CPU has: a cache carried to another machine must still run there.
    """
    if platform.machine() != "x86_64":
        return "armv8"
    flags = set(cpu_facts().get("flags", "").split())
    return "x86-64-v3" if flags >= _X86_64_V3 else "x86-64"


def cpu_model() -> str:
    """For people: the model as the CPU calls itself, such as ``AMD EPYC``."""
    facts = cpu_facts()
    return facts.get("model name") or facts.get("CPU part") or platform.machine()


def device_name() -> str:
    """``host-<vendor-family-model-stepping>-<level>-<machine>``, safe as a folder's name.

    The numbers tell CPUs apart that call themselves alike; the machine's part is a hash, which
    discloses nothing.
    """
    facts = cpu_facts()
    x86 = ("vendor_id", "cpu family", "model", "stepping")
    arm = ("CPU implementer", "CPU part", "CPU variant", "CPU revision")
    cpu = "-".join(facts[key] for key in (x86 if "vendor_id" in facts else arm) if key in facts)
    name = f"host-{cpu or platform.machine()}-{instruction_set()}-{_machine_hash()}"
    return re.sub(r"[^\w.-]+", "_", name)


def _machine_hash() -> str:
    try:
        identity = Path("/etc/machine-id").read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        identity = ""
    if not identity:
        identity = "\n".join((platform.node(), cpu_model(), cpu_facts().get("flags", "")))
    return hashlib.sha256(f"pytest-gemm {identity}".encode()).hexdigest()[:8]


def core_count() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0))


def memory() -> int:
    """Bytes of memory that this process may have at most: the machine's, or its container's."""
    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    with suppress(OSError, ValueError):  # no container, or one without a limit
        limits.append(int(Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii")))
    return min(limits)
