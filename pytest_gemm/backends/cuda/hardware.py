"""What a GPU is: its name, its peaks, and the versions of what drives it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pytest_gemm.backends.base import Device
from pytest_gemm.backends.cuda.api import Api
from pytest_gemm.backends.cuda.compiler import Compiler
from pytest_gemm.backends.cuda.nvml import Nvml

# float32 lanes of a multiprocessor, by compute capability (CUDA C++ Programming Guide,
# "Arithmetic Instructions": results per clock cycle of 32-bit multiply-add).
_LANES = {
    **dict.fromkeys(((5, 0), (5, 2), (5, 3), (6, 1), (6, 2), (8, 6), (8, 7), (8, 9)), 128),
    **dict.fromkeys(((6, 0), (7, 0), (7, 2), (7, 5), (8, 0)), 64),
    **dict.fromkeys(((9, 0), (10, 0), (10, 3), (11, 0), (12, 0), (12, 1)), 128),
}


def describe(api: Api, index: int, nvml: Nvml, compiler: Compiler) -> Device:
    """The device of that index, for reports and as the key of its baselines."""
    properties = api.runtime.getDeviceProperties(index)
    name = properties["name"].decode()
    capability = (properties["major"], properties["minor"])
    memory, units = properties["totalGlobalMem"], properties["multiProcessorCount"]
    identity = nvml.identity()
    identity["uuid"] = identity["uuid"] or _uuid(properties)
    driver = identity.pop("driver") or f"CUDA {_version(api.runtime.driverGetVersion())}"
    return Device(
        kind="cuda",
        name=folder_name(name),
        description=f"{name}, {memory / 2**30:.0f} GiB, {units} SMs",
        environment={
            "gpu": name,
            "compute_capability": ".".join(map(str, capability)),
            "driver": driver,
            "cuda": _version(api.runtime.runtimeGetVersion()),
            "nvrtc": compiler.version,
            "cupy": api.cupy.__version__,
            "flags": compiler.flags_hash,
            "l2_bytes": _attribute(api, index, "L2CacheSize"),
            **identity,
        },
        peak_flops=peak_flops(api, index, capability, units, nvml.max_sm_clock()),
        peak_bandwidth=peak_bandwidth(api, index),
        memory=memory,
    )


def _uuid(properties: Mapping[str, Any]) -> str | None:
    digits = bytes(properties.get("uuid", b"")).hex()
    if len(digits) != 32:
        return None
    return "GPU-" + "-".join(re.findall(r"(.{8})(.{4})(.{4})(.{4})(.{12})", digits)[0])


def folder_name(name: str) -> str:
    """``NVIDIA H200`` as ``NVIDIA-H200``."""
    return re.sub(r"[^\w.]+", "-", name).strip("-")


def peak_flops(
    api: Api, index: int, capability: tuple[int, int], units: int, clock: float | None
) -> float | None:
    """float32 multiply-adds per second, times 2: SMs x lanes x 2 x the highest clock."""
    if clock is None:
        kilohertz = _attribute(api, index, "ClockRate")
        clock = kilohertz / 1e3 if kilohertz else None
    lanes = _LANES.get(capability)
    return None if lanes is None or clock is None else units * lanes * 2 * clock * 1e6


def peak_bandwidth(api: Api, index: int) -> float | None:
    """Bytes per second between the GPU and its memory: two transfers a clock on its whole bus."""
    kilohertz = _attribute(api, index, "MemoryClockRate")
    bits = _attribute(api, index, "GlobalMemoryBusWidth")
    return kilohertz * 1e3 * 2 * bits / 8 if kilohertz and bits else None


def l2_bytes(api: Api, index: int) -> int:
    """Size of the L2 cache; 64 MiB where the device does not say."""
    return _attribute(api, index, "L2CacheSize") or 64 * 2**20


def resident_threads(api: Api, index: int) -> int:
    """How many threads all multiprocessors together hold at once."""
    units = int(api.runtime.getDeviceProperties(index)["multiProcessorCount"])
    return units * (_attribute(api, index, "MaxThreadsPerMultiProcessor") or 2048)


def _attribute(api: Api, index: int, name: str) -> int | None:
    number: Any = getattr(api.runtime, f"cudaDevAttr{name}")
    try:
        return int(api.runtime.deviceGetAttribute(number, index)) or None
    except api.errors:
        return None


def _version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"
