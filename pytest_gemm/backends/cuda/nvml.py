"""What the driver's management library (NVML) knows of a GPU; None for all that it does not."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

# Bits of nvmlClocksEventReasons that mean trouble, and those that are only told.
_SLOWDOWN = {
    0x08: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}
_POWER_CAP = 0x04
_OTHER = {0x01: "idle", 0x02: "application clocks", 0x100: "display clocks"}

WORKER = "gemm-"
"""What the names of worker processes start with; the rest is the same in one run."""

RECENT = 2.0
"""Seconds of the past over which other processes' load is asked for."""


class Nvml:
    """One GPU, found by its PCI bus id. Never raises: what cannot be read is None."""

    def __init__(self, pci_bus_id: str) -> None:
        self._handle: Any = None
        try:
            self._nvml: Any = import_module("pynvml")
            self._nvml.nvmlInit()
            self._handle = self._nvml.nvmlDeviceGetHandleByPciBusId(pci_bus_id.encode())
        except Exception:
            self._nvml = None

    def identity(self) -> dict[str, Any]:
        """What stays the same: driver, UUID, ECC and MIG modes, power limit in W."""
        return {
            "driver": self._text(lambda n, h: n.nvmlSystemGetDriverVersion()),
            "uuid": self._text(lambda n, h: n.nvmlDeviceGetUUID(h)),
            "ecc": self._read(lambda n, h: bool(n.nvmlDeviceGetEccMode(h)[0])),
            "mig": self._read(lambda n, h: bool(n.nvmlDeviceGetMigMode(h)[0])),
            "power_limit": self._read(lambda n, h: n.nvmlDeviceGetEnforcedPowerLimit(h) / 1e3),
        }

    def max_sm_clock(self) -> float | None:
        """The highest SM clock in MHz."""
        clock = self._read(lambda n, h: n.nvmlDeviceGetMaxClockInfo(h, n.NVML_CLOCK_SM))
        return None if clock is None else float(clock)

    def conditions(self) -> dict[str, Any]:
        """What changes: clocks in MHz, temperature in degrees Celsius, power in W, loads in %.

        ``slowdown`` and ``limited_by`` are words joined by commas, empty for none; ``power_cap``
        is whether the software power limit holds the clock down. ``foreign_processes`` counts the
        others that have the GPU open, ``foreign_utilisation`` is the greatest load of one of them.
        """
        reasons = self._read(_clock_reasons)
        pids = self._read(
            lambda n, h: [int(p.pid) for p in n.nvmlDeviceGetComputeRunningProcesses(h)]
        )
        return {
            "sm_clock": self._read(lambda n, h: n.nvmlDeviceGetClockInfo(h, n.NVML_CLOCK_SM)),
            "memory_clock": self._read(lambda n, h: n.nvmlDeviceGetClockInfo(h, n.NVML_CLOCK_MEM)),
            "temperature": self._read(
                lambda n, h: n.nvmlDeviceGetTemperature(h, n.NVML_TEMPERATURE_GPU)
            ),
            "power": self._read(lambda n, h: n.nvmlDeviceGetPowerUsage(h) / 1e3),
            "power_limit": self._read(lambda n, h: n.nvmlDeviceGetEnforcedPowerLimit(h) / 1e3),
            "power_cap": None if reasons is None else bool(reasons & _POWER_CAP),
            "slowdown": None if reasons is None else _words(reasons, _SLOWDOWN),
            "limited_by": None if reasons is None else _words(reasons, _OTHER),
            "utilisation": self._read(lambda n, h: n.nvmlDeviceGetUtilizationRates(h).gpu),
            # In another process namespace our own number is not in the list, but we are.
            "foreign_processes": None if pids is None else max(0, len(pids) - 1),
            "foreign_utilisation": self._foreign_utilisation(pids),
        }

    def _foreign_utilisation(self, pids: list[int] | None) -> int | None:
        if pids is None or os.getpid() not in pids:
            return None  # which of them is this process cannot be told
        if len(pids) == 1:
            return 0
        since = int((time.time() - RECENT) * 1e6)
        samples = self._read(lambda n, h: _process_samples(n, h, since))
        own = {os.getpid(), *filter(_is_of_this_run, pids)}
        return None if samples is None else _foreign(samples, own)

    def _text(self, ask: Callable[[Any, Any], str | bytes]) -> str | None:
        value = self._read(ask)
        return value.decode() if isinstance(value, bytes) else value

    def _read(self, ask: Callable[[Any, Any], Any]) -> Any:
        if self._nvml is None:
            return None
        try:
            return ask(self._nvml, self._handle)
        except Exception:  # NVMLError, and functions that an old pynvml does not have
            return None


def _clock_reasons(nvml: Any, handle: Any) -> int:
    ask = getattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", None)
    return int((ask or nvml.nvmlDeviceGetCurrentClocksThrottleReasons)(handle))


def _process_samples(nvml: Any, handle: Any, since: int) -> list[tuple[int, int]]:
    try:
        samples = nvml.nvmlDeviceGetProcessUtilization(handle, since)
    except nvml.NVMLError as error:
        if getattr(error, "value", None) == nvml.NVML_ERROR_NOT_FOUND:
            return []  # nobody did anything
        raise
    return [(int(sample.pid), int(sample.smUtil)) for sample in samples]


def _foreign(samples: Iterable[tuple[int, int]], own: Collection[int]) -> int:
    return max((load for pid, load in samples if pid not in own and load <= 100), default=0)


def _is_of_this_run(pid: int) -> bool:
    """Whether a process is a worker of the same run: those take turns with this one."""
    own = _name("self")
    return own.startswith(WORKER) and _name(str(pid)) == own


def _name(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _words(reasons: int, names: dict[int, str]) -> str:
    return ", ".join(word for bit, word in names.items() if reasons & bit)
