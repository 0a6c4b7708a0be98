"""What NVML says of the GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from pytest_gemm.backends.cuda.nvml import Nvml


class NVMLError(Exception):
    def __init__(self, value):
        self.value = value


class FakeNvml:
    """``pynvml`` for one GPU; what ``broken`` names raises."""

    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU, NVML_ERROR_NOT_FOUND = 1, 2, 0, 6
    NVMLError = NVMLError

    def __init__(self, reasons=0, pids=None, samples=(), broken=()):
        self.reasons = reasons
        self.pids = [os.getpid()] if pids is None else pids
        self.samples = samples
        self.broken = broken

    def __getattribute__(self, name):
        if name.startswith("nvml") and any(part in name for part in self.broken):
            raise AttributeError(name)
        return super().__getattribute__(name)

    def nvmlInit(self): ...

    def nvmlDeviceGetHandleByPciBusId(self, bus_id):
        assert bus_id == b"0000:0f:00.0"
        return "handle"

    def nvmlSystemGetDriverVersion(self):
        return b"580.159.04"

    def nvmlDeviceGetUUID(self, handle):
        return "GPU-1"

    def nvmlDeviceGetEccMode(self, handle):
        return [1, 1]

    def nvmlDeviceGetMigMode(self, handle):
        raise NVMLError(3)

    def nvmlDeviceGetEnforcedPowerLimit(self, handle):
        return 700000

    def nvmlDeviceGetMaxClockInfo(self, handle, kind):
        return {1: 1980, 2: 3201}[kind]

    def nvmlDeviceGetClockInfo(self, handle, kind):
        return {1: 1755, 2: 3201}[kind]

    def nvmlDeviceGetTemperature(self, handle, sensor):
        return 41

    def nvmlDeviceGetPowerUsage(self, handle):
        return 123456

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle):
        return self.reasons

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle):
        return self.reasons

    def nvmlDeviceGetUtilizationRates(self, handle):
        return SimpleNamespace(gpu=97, memory=5)

    def nvmlDeviceGetComputeRunningProcesses(self, handle):
        return [SimpleNamespace(pid=pid) for pid in self.pids]

    def nvmlDeviceGetProcessUtilization(self, handle, since):
        if self.samples is None:
            raise NVMLError(6)
        return [SimpleNamespace(pid=pid, smUtil=load) for pid, load in self.samples]


def nvml(monkeypatch, **state):
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(**state))
    return Nvml("0000:0f:00.0")


def test_conditions(monkeypatch):
    assert nvml(monkeypatch).conditions() == {
        "sm_clock": 1755,
        "memory_clock": 3201,
        "temperature": 41,
        "power": 123.456,
        "power_limit": 700.0,
        "power_cap": False,
        "slowdown": "",
        "limited_by": "",
        "utilisation": 97,
        "foreign_processes": 0,
        "foreign_utilisation": 0,
    }


def test_identity(monkeypatch):
    found = nvml(monkeypatch)
    assert found.identity() == {
        "driver": "580.159.04",
        "uuid": "GPU-1",
        "ecc": True,
        "mig": None,
        "power_limit": 700.0,
    }
    assert found.max_sm_clock() == 1980.0


def test_without_nvml_everything_is_none(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    missing = Nvml("0000:0f:00.0")
    assert set(missing.conditions().values()) == {None}
    assert set(missing.identity().values()) == {None}
    assert missing.max_sm_clock() is None


@pytest.mark.parametrize("broken", ["nvmlInit", "ByPciBusId"])
def test_a_gpu_that_nvml_cannot_open(monkeypatch, broken):
    assert set(nvml(monkeypatch, broken=(broken,)).conditions().values()) == {None}


def test_one_missing_value_leaves_the_others(monkeypatch):
    found = nvml(monkeypatch, broken=("ClockInfo", "Reasons", "Running")).conditions()
    missing = {key for key, value in found.items() if value is None}
    assert missing == {
        *("sm_clock", "memory_clock", "power_cap", "slowdown", "limited_by"),
        *("foreign_processes", "foreign_utilisation"),
    }


def test_an_old_pynvml_calls_them_throttle_reasons(monkeypatch):
    found = nvml(monkeypatch, broken=("EventReasons",), reasons=0x40).conditions()
    assert found["slowdown"] == "hardware thermal slowdown"


@pytest.mark.parametrize(("reasons", "slowdown", "cap", "other"), [
    (0x01, "", False, "idle"),
    (0x04, "", True, ""),
    (0x48, "hardware slowdown, hardware thermal slowdown", False, ""),
    (0x80, "hardware power brake", False, ""),
    (0x24, "software thermal slowdown", True, ""),
    (0x10, "sync boost", False, ""),
    (0x102, "", False, "application clocks, display clocks"),
])  # fmt: skip
def test_reasons(monkeypatch, reasons, slowdown, cap, other):
    found = nvml(monkeypatch, reasons=reasons).conditions()
    assert (found["slowdown"], found["power_cap"], found["limited_by"]) == (slowdown, cap, other)


@pytest.mark.parametrize(("pids", "samples", "processes", "load"), [
    ([], (), 0, None),
    ([4], (), 0, None),  # this process, as another namespace numbers it
    ([4, 5], (), 1, None),
    (["own"], ((4, 80),), 0, 0),
    (["own", 4], ((4, 80), (5, 30)), 1, 80),
    (["own", 4], (("own", 99), (4, 0)), 1, 0),
    (["own", 4], None, 1, 0),  # nobody did anything
    (["own", 4], ((4, 4294967295),), 1, 0),  # not a percentage
])  # fmt: skip
def test_other_processes(monkeypatch, pids, samples, processes, load):
    def own(pid):
        return os.getpid() if pid == "own" else pid

    samples = samples and tuple((own(pid), value) for pid, value in samples)
    found = nvml(monkeypatch, pids=[own(pid) for pid in pids], samples=samples).conditions()
    assert (found["foreign_processes"], found["foreign_utilisation"]) == (processes, load)


@pytest.mark.parametrize(
    ("own", "other", "load"),
    [("gemm-this", "gemm-this", 0), ("gemm-this", "gemm-that", 80), ("python", "python", 80)],
)
def test_workers_of_the_same_run_take_turns_and_do_not_count(monkeypatch, own, other, load):
    set_name = "open('/proc/self/comm', 'w').write({!r}); print(flush=True); input()"
    command = [sys.executable, "-c", set_name.format(other)]
    before = Path("/proc/self/comm").read_text()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as sibling:
        sibling.stdout.readline()
        Path("/proc/self/comm").write_text(own)
        try:
            pids, samples = [os.getpid(), sibling.pid], ((sibling.pid, 80),)
            found = nvml(monkeypatch, pids=pids, samples=samples).conditions()
        finally:
            Path("/proc/self/comm").write_text(before)
        sibling.communicate(b"\n")
    assert found["foreign_utilisation"] == load
