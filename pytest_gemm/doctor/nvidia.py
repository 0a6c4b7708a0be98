"""The driver and its GPUs, as ``nvidia-smi -q -x`` describes them.

The driver brings that program along, so this needs no Python package. Names of elements differ
from driver to driver: each value is looked for under every name that it has had.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from pytest_gemm.conditions import FOREIGN_LOAD
from pytest_gemm.doctor.finding import Finding, advice, fault, ok
from pytest_gemm.doctor.machine import Answer, Machine

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

SECONDS = 30
VENDOR = "0x10de"
_SLOWDOWNS = {
    "hw_slowdown": "hardware slowdown",
    "hw_thermal_slowdown": "hardware thermal slowdown",
    "hw_power_brake_slowdown": "hardware power brake",
    "sw_thermal_slowdown": "software thermal slowdown",
    "sync_boost": "sync boost",
}
_REMEDIES = {
    "version mismatch": "reboot: the driver was updated while it was loaded",
    "couldn't communicate": "sudo modprobe nvidia, or install the driver for this kernel again",
    "No devices were found": "see why the driver gave the GPU up: sudo dmesg | grep -i nvrm",
    "Insufficient Permissions": "become a member of the group that owns /dev/nvidia*",
}


class Process(NamedTuple):
    """A program that has the GPU open."""

    pid: str
    name: str


@dataclass(frozen=True)
class Gpu:
    """One GPU: clocks in MHz, power in W, load in percent; None for what is not known."""

    index: int
    name: str
    memory: str
    mig: bool
    compute_mode: str
    sm_clock: float | None
    max_sm_clock: float | None
    held_clocks: bool
    slowdowns: tuple[str, ...]
    power_limit: float | None
    default_power_limit: float | None
    load: float | None
    processes: tuple[Process, ...]


@dataclass(frozen=True)
class Driver:
    """``hardware``: NVIDIA's PCI devices; ``loaded``: the driver has its device nodes.

    ``answer`` is what nvidia-smi said where that was no description; None where there is none.
    """

    hardware: tuple[str, ...] = ()
    loaded: bool = False
    answer: Answer | None = None
    version: str = ""
    cuda: str = ""
    gpus: tuple[Gpu, ...] = ()

    @property
    def cuda_major(self) -> int:
        """The newest CUDA that the driver knows, 0 where that is not known."""
        major = self.cuda.partition(".")[0]
        return int(major) if major.isdecimal() else 0

    @property
    def is_there(self) -> bool:
        """Whether programs can be expected to find a GPU."""
        return self.loaded or bool(self.gpus)


def examine(machine: Machine) -> Driver:
    hardware = tuple(_hardware(machine))
    loaded = bool(machine.paths("/dev/nvidiactl"))
    program = machine.find("nvidia-smi") or machine.find("/usr/lib/wsl/lib/nvidia-smi")
    if not program:
        return Driver(hardware, loaded)
    answer = machine.run([program, "-q", "-x"], SECONDS)
    described = _parsed(answer.output) if answer.code == 0 else None
    if described is None:
        return Driver(hardware, loaded, answer)
    gpus = tuple(_gpu(index, gpu) for index, gpu in enumerate(described.findall("gpu")))
    version = _text(described, "driver_version")
    return Driver(hardware, loaded, answer, version, _text(described, "cuda_version"), gpus)


def driver(driver: Driver, container: str) -> Finding:
    """Whether there is a GPU and a driver that works."""
    if driver.gpus:
        return ok("driver", f"{driver.version}, CUDA {driver.cuda or 'not known'}")
    if driver.answer is not None and (driver.loaded or driver.hardware):
        said = driver.answer.first_line or f"exit code {driver.answer.code}"
        remedies = (remedy for part, remedy in _REMEDIES.items() if part in driver.answer.output)
        return fault("driver", f"nvidia-smi: {said}", next(remedies, "nvidia-smi"))
    if driver.loaded:
        remedy = (
            "start the container with NVIDIA_DRIVER_CAPABILITIES=compute,utility"
            if container
            else "install the nvidia-utils package of the driver's version"
        )
        text = "nvidia-smi is missing, so load, clocks and power are not known"
        return advice("driver", text, remedy)
    if driver.hardware and container:
        return advice(
            "driver",
            "the machine has an NVIDIA GPU, which this container does not see: host only",
            "start the container with --gpus all",
        )
    if driver.hardware:
        return fault(
            "driver",
            f"no driver is loaded for the NVIDIA GPU (PCI device {driver.hardware[0]})",
            "install NVIDIA's driver and reboot; on Ubuntu: sudo ubuntu-drivers install",
        )
    return ok("driver", "no NVIDIA GPU: kernels run on this CPU (host only)")


def gpu(gpu: Gpu) -> Iterator[Finding]:
    """Each line of one GPU."""
    yield ok(f"gpu {gpu.index}", f"{gpu.name}, {gpu.memory}")
    yield _mig(gpu)
    yield _mode(gpu)
    yield _clocks(gpu)
    yield _power(gpu)
    yield _load(gpu)


def _mig(gpu: Gpu) -> Finding:
    if not gpu.mig:
        return ok(f"mig {gpu.index}", "off")
    return advice(
        f"mig {gpu.index}",
        "on: what is timed is a slice, beside others that share its memory and power",
        f"sudo nvidia-smi -i {gpu.index} -mig 0",
    )


def _mode(gpu: Gpu) -> Finding:
    name = f"compute mode {gpu.index}"
    if gpu.compute_mode in ("Default", ""):
        return ok(name, gpu.compute_mode or "not known")
    return fault(
        name,
        f"{gpu.compute_mode}: a duet is several processes at once",
        f"sudo nvidia-smi -i {gpu.index} -c DEFAULT",
    )


def _clocks(gpu: Gpu) -> Finding:
    name = f"clocks {gpu.index}"
    now, most = _shown(gpu.sm_clock, "MHz"), _shown(gpu.max_sm_clock, "MHz")
    text = f"{now} now, {most} at most"
    if gpu.slowdowns:
        return advice(
            name,
            f"{text}; {', '.join(gpu.slowdowns)}: verdicts are withheld while it lasts",
            f"let it cool down, see to its fans and power supply: nvidia-smi -i {gpu.index} -q "
            "-d PERFORMANCE,TEMPERATURE",
        )
    if gpu.held_clocks:
        return advice(
            name,
            f"{text}; set lower than they could be, which baselines of other clocks do not fit",
            f"sudo nvidia-smi -i {gpu.index} -rgc && sudo nvidia-smi -i {gpu.index} -rac",
        )
    return ok(name, text)


def _power(gpu: Gpu) -> Finding:
    name = f"power {gpu.index}"
    limit, usual = gpu.power_limit, gpu.default_power_limit
    if limit is None or usual is None or limit >= usual:
        return ok(name, f"limit {_shown(limit, 'W')}")
    return advice(
        name,
        f"capped at {limit:g} W, usual are {usual:g} W: large kernels are slower",
        f"sudo nvidia-smi -i {gpu.index} -pl {usual:g}",
    )


def _load(gpu: Gpu) -> Finding:
    name = f"gpu load {gpu.index}"
    who = ", ".join(f"{process.name or 'process'} ({process.pid})" for process in gpu.processes)
    if gpu.load is None:
        return ok(name, f"not known{f'; open in {who}' if who else ''}")
    if gpu.load < FOREIGN_LOAD:
        return ok(name, f"idle{f', but open in {who}' if who else ''}")
    return advice(
        name,
        f"{gpu.load:g} % busy{f' with {who}' if who else ''}: verdicts are withheld",
        "wait for it, or take another one with --gemm-device=cuda:N; see: nvidia-smi",
    )


def _hardware(machine: Machine) -> Iterator[str]:
    """NVIDIA's display and compute controllers (PCI class 3), such as ``10de:2335``."""
    for path in machine.paths("/sys/bus/pci/devices/*/vendor"):
        folder = path.rpartition("/")[0]
        if (machine.text(path) or "").strip() != VENDOR:
            continue
        if (machine.text(f"{folder}/class") or "").startswith("0x03"):
            device = (machine.text(f"{folder}/device") or "").strip().removeprefix("0x")
            yield f"{VENDOR.removeprefix('0x')}:{device}"


def _parsed(text: str) -> Element | None:
    from xml.etree import ElementTree

    try:
        root = ElementTree.fromstring(text.strip())
    except ElementTree.ParseError:
        return None
    return root if root.find("gpu") is not None else None


def _gpu(index: int, gpu: Element) -> Gpu:
    return Gpu(
        index,
        _text(gpu, "product_name"),
        _text(gpu, "fb_memory_usage/total"),
        _text(gpu, "mig_mode/current_mig") == "Enabled",
        _text(gpu, "compute_mode"),
        _number(gpu, "clocks/sm_clock"),
        _number(gpu, "max_clocks/sm_clock"),
        _is_active(gpu, "applications_clocks_setting"),
        tuple(words for reason, words in _SLOWDOWNS.items() if _is_active(gpu, reason)),
        _number(
            gpu,
            "gpu_power_readings/current_power_limit",
            "gpu_power_readings/power_limit",
            "power_readings/enforced_power_limit",
            "power_readings/power_limit",
        ),
        _number(
            gpu, "gpu_power_readings/default_power_limit", "power_readings/default_power_limit"
        ),
        _number(gpu, "utilization/gpu_util"),
        tuple(
            Process(_text(process, "pid"), _text(process, "process_name").rpartition("/")[2])
            for process in gpu.iterfind("processes/process_info")
            if "C" in _text(process, "type")
        ),
    )


def _is_active(gpu: Element, reason: str) -> bool:
    kinds = ("event", "throttle")
    found = (_text(gpu, f"clocks_{k}_reasons/clocks_{k}_reason_{reason}") for k in kinds)
    return "Active" in found


def _text(element: Element, *paths: str) -> str:
    found = ((element.findtext(path) or "").strip() for path in paths)
    return next((text for text in found if text and text != "N/A"), "")


def _number(element: Element, *paths: str) -> float | None:
    for path in paths:
        try:
            return float(_text(element, path).split()[0])
        except (IndexError, ValueError):
            continue
    return None


def _shown(value: float | None, unit: str) -> str:
    return "not known" if value is None else f"{value:g} {unit}"
