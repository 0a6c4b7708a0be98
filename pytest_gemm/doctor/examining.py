"""All findings, in their order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pytest_gemm.backends.cuda.hardware import folder_name
from pytest_gemm.doctor import cuda_python, host, nvidia, profiler, project
from pytest_gemm.doctor.finding import Finding
from pytest_gemm.doctor.machine import Machine


def everything(machine: Machine, baselines: Path) -> Iterator[Finding]:
    """See ``examine``. Importing this module imports NumPy."""
    container = host.container_kind(machine)
    driver = nvidia.examine(machine)
    # Before anything is tried out, which would be load itself.
    yield host.cpu_load(machine)
    yield nvidia.driver(driver, container)
    for gpu in driver.gpus:
        yield from nvidia.gpu(gpu)
    has_gpu = driver.is_there
    names = [gpu.name for gpu in driver.gpus]
    if has_gpu:
        python = cuda_python.examine(machine, driver)
        yield from cuda_python.findings(python, driver)
        names = python.found.get("gpus") or names
        yield profiler.ncu(machine, can_launch=python.works, container=container)
    yield host.system(machine)
    yield host.packages(machine)
    yield host.compiler(machine, has_gpu=has_gpu)
    yield host.container(machine)
    yield project.locks(machine, shared=has_gpu, container=container)
    yield from project.cache(machine)
    yield project.baselines(machine, baselines)
    devices = sorted(set(map(folder_name, names))) or [machine.cpu()]
    yield from project.all_stored(baselines, devices)
