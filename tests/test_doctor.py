"""``pytest-gemm doctor``: each line, against machines with one thing wrong."""

from __future__ import annotations

import fnmatch
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_gemm.baselines import BaselineStore
from pytest_gemm.cli import main
from pytest_gemm.cli.doctor import tell, tell_json
from pytest_gemm.doctor import Finding, examine
from pytest_gemm.doctor.cuda_probe import ENTRY, try_out
from pytest_gemm.doctor.machine import TIMED_OUT, Answer, Machine
from pytest_gemm.errors import BackendError
from tests.fake_cupy import FakeCuda, Kernel
from tests.test_baselines import DEVICE, session, stored

CPU, GPU = DEVICE, "NVIDIA-H200"
SMI, NCU = "/usr/bin/nvidia-smi", "/usr/local/cuda-13.0/bin/ncu"

DESCRIBED = """\
<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v13.dtd">
<nvidia_smi_log>
  <driver_version>580.159.04</driver_version>
  <cuda_version>13.0</cuda_version>
  <attached_gpus>1</attached_gpus>
  <gpu id="00000000:0F:00.0">
    <product_name>NVIDIA H200</product_name>
    <mig_mode><current_mig>Disabled</current_mig></mig_mode>
    <uuid>GPU-1</uuid>
    <clocks_event_reasons>
      <clocks_event_reason_gpu_idle>Active</clocks_event_reason_gpu_idle>
      <clocks_event_reason_applications_clocks_setting>Not Active\
</clocks_event_reason_applications_clocks_setting>
      <clocks_event_reason_sw_power_cap>Not Active</clocks_event_reason_sw_power_cap>
      <clocks_event_reason_hw_slowdown>Not Active</clocks_event_reason_hw_slowdown>
      <clocks_event_reason_sw_thermal_slowdown>Not Active</clocks_event_reason_sw_thermal_slowdown>
    </clocks_event_reasons>
    <fb_memory_usage><total>143771 MiB</total><used>0 MiB</used></fb_memory_usage>
    <compute_mode>Default</compute_mode>
    <utilization><gpu_util>0 %</gpu_util></utilization>
    <gpu_power_readings>
      <instant_power_draw>76.30 W</instant_power_draw>
      <current_power_limit>700.00 W</current_power_limit>
      <default_power_limit>700.00 W</default_power_limit>
    </gpu_power_readings>
    <clocks><sm_clock>345 MHz</sm_clock><mem_clock>3201 MHz</mem_clock></clocks>
    <max_clocks><sm_clock>1980 MHz</sm_clock></max_clocks>
    <processes></processes>
  </gpu>
</nvidia_smi_log>
"""

WORKING: dict[str, Any] = {
    "cupy": "14.2.0",
    "cuda": 13000,
    "driver": 13000,
    "gpus": ["NVIDIA H200"],
    "nvrtc": "13.0",
    "headers": {},
}

PACKAGES = {"pytest": "9.2.0", "pytest-benchmark": "5.3.1", "numpy": "2.4.6"}
GPU_PACKAGES = {**PACKAGES, "cupy-cuda13x": "14.2.0", "nvidia-ml-py": "13.580.65"}


class FakeMachine(Machine):
    """A laptop without a GPU; ``with_gpu`` makes a server with an H200 of it.

    ``answers`` are what programs say, by their paths; the probe's stands under ``probe``.
    """

    python = "python"
    platform = "Linux x86_64"

    def __init__(self, locks: Path) -> None:
        self.environ: dict[str, str] = {"PYTEST_GEMM_LOCKS": str(locks)}
        self.files: dict[str, str] = {"/proc/loadavg": "0.08 0.10 0.09 1/300 4242\n"}
        self.answers: dict[str, Answer] = {}
        self.installed: dict[str, str] = dict(PACKAGES)
        self.required = ["pytest>=8.3", "pytest-benchmark>=5.3", "ziglang>=0.14; extra == 'host'"]
        self.no_compiler = ""
        self.read_only: set[Path] = set()
        self.commands: list[Sequence[str]] = []

    def with_gpu(self) -> FakeMachine:
        self.files |= {
            "/dev/nvidiactl": "",
            "/sys/bus/pci/devices/0000:0f:00.0/vendor": "0x10de\n",
            "/sys/bus/pci/devices/0000:0f:00.0/class": "0x030200\n",
            "/sys/bus/pci/devices/0000:0f:00.0/device": "0x2335\n",
            "/proc/driver/nvidia/params": "EnableMSI: 1\nRmProfilingAdminOnly: 1\n",
            "/proc/self/status": "Name:\tpython\nCapEff:\t000001ffffffffff\n",
        }
        self.answers |= {
            SMI: Answer(0, DESCRIBED),
            NCU: Answer(0, "  sm__cycles_elapsed.max  cycle  2,034\n"),
        }
        self.installed = dict(GPU_PACKAGES)
        self.probe(**WORKING)
        return self

    def probe(self, **found: Any) -> None:
        self.answers["probe"] = Answer(0, f"a warning of CuPy's\n{json.dumps(found)}\n")

    def describe(self, old: str, new: str) -> None:
        assert old in self.answers[SMI].output
        self.answers[SMI] = Answer(0, self.answers[SMI].output.replace(old, new))

    def text(self, path: str) -> str | None:
        return self.files.get(path)

    def paths(self, pattern: str) -> list[str]:
        there = [*self.files, *(path for path in self.answers if path != SMI)]
        return sorted(path for path in there if fnmatch.fnmatchcase(path, pattern))

    def find(self, command: str) -> str:
        return SMI if command == "nvidia-smi" and SMI in self.answers else ""

    def run(self, command: Sequence[str], timeout: float) -> Answer:
        self.commands.append(command)
        return self.answers["probe" if command[0] == self.python else command[0]]

    def is_writable(self, folder: Path) -> bool:
        return folder not in self.read_only

    def packages(self) -> Mapping[str, str]:
        return self.installed

    def requirements(self) -> Sequence[str]:
        return self.required

    def compiler(self) -> str:
        if self.no_compiler:
            raise BackendError(self.no_compiler)
        return "g++ (g++ 12.2.0)"

    def cpu(self) -> str:
        return CPU

    def cores(self) -> int:
        return 8


class Patient:
    """A machine with a project, and what the doctor says of them."""

    def __init__(self, folder: Path) -> None:
        self.machine = FakeMachine(folder / "locks")
        self.baselines = folder / "baselines"
        self.locks = folder / "locks"

    def findings(self) -> dict[str, Finding]:
        found = list(examine(self.machine, self.baselines))
        assert len({finding.name for finding in found}) == len(found)
        for finding in found:
            assert bool(finding.remedy) == (finding.status != "ok"), finding
            assert finding.text
            assert "\n" not in finding.text + finding.remedy
        return {finding.name: finding for finding in found}

    def sick(self) -> dict[str, Finding]:
        """Those lines that are not ok."""
        return {n: f for n, f in self.findings().items() if f.status != "ok"}


@pytest.fixture
def laptop(tmp_path: Path) -> Patient:
    patient = Patient(tmp_path)
    stored(patient.baselines, *(session(day) for day in range(1, 4)))
    return patient


@pytest.fixture
def server(tmp_path: Path) -> Patient:
    patient = Patient(tmp_path)
    patient.machine.with_gpu()
    stored(patient.baselines, *(session(day, device=GPU) for day in range(1, 4)))
    return patient


def test_a_laptop_without_a_gpu_is_no_failure(
    laptop: Patient, capsys: pytest.CaptureFixture[str]
) -> None:
    assert laptop.sick() == {}
    found = laptop.findings()
    assert found["driver"].text == "no NVIDIA GPU: kernels run on this CPU (host only)"
    assert found["stored"].text == f"1 benchmarks of {CPU}, 3 sessions or more of each"
    assert not {"cupy", "nvrtc", "ncu", "clocks 0"} & set(found)
    assert tell(found.values()) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "0 faults, 0 with advice"


def test_a_server_that_has_all_of_it(server: Patient) -> None:
    assert server.sick() == {}
    assert {name: finding.text for name, finding in server.findings().items()} == {
        "cpu load": "0.08 of 8 cores busy in the last minute",
        "driver": "580.159.04, CUDA 13.0",
        "gpu 0": "NVIDIA H200, 143771 MiB",
        "mig 0": "off",
        "compute mode 0": "Default",
        "clocks 0": "345 MHz now, 1980 MHz at most",
        "power 0": "limit 700 W",
        "gpu load 0": "idle",
        "cupy": "cupy-cuda13x 14.2.0, sees 1 of 1 GPUs",
        "nvrtc": "13.0",
        "headers": "CUDA's and libcu++'s",
        "nvml": "load, clocks and slowdowns are watched",
        "ncu": f"{NCU}, may read the counters",
        "system": "Linux x86_64",
        "packages": "pytest 9.2.0, pytest-benchmark 5.3.1",
        "compiler": "g++ (g++ 12.2.0)",
        "container": "none",
        "locks": str(server.locks),
        "baselines": str(server.baselines),
        "stored": f"1 benchmarks of {GPU}, 3 sessions or more of each",
    }


Change = Callable[[FakeMachine], object]


def without(path: str) -> Change:
    return lambda machine: (machine.files.pop(path, ""), machine.answers.pop(path, ""))


def answering(path: str, code: int, output: str) -> Change:
    return lambda machine: machine.answers.update({path: Answer(code, output)})


def described(old: str, new: str) -> Change:
    return lambda machine: machine.describe(old, new)


def having(**files: str) -> Change:
    return lambda machine: machine.files.update(files)


def setting(**variables: str) -> Change:
    return lambda machine: machine.environ.update(variables)


def installing(*gone: str, **new: str) -> Change:
    def change(machine: FakeMachine) -> None:
        for name in gone:
            del machine.installed[name]
        machine.installed |= {name.replace("_", "-"): version for name, version in new.items()}

    return change


def finding(found: dict[str, Any]) -> Change:
    return lambda machine: machine.probe(**found)


def until(step: str, error: str) -> dict[str, Any]:
    """What the probe prints where a step fails."""
    have = {"import": 0, "see": 3, "compile": 4, "launch": 5}[step]
    return dict(list(WORKING.items())[:have]) | {"failed": step, "error": error}


def both(*changes: Change) -> Change:
    return lambda machine: [change(machine) for change in changes]


BUSY = """<process_info><pid>123</pid><type>C</type>\
<process_name>/usr/bin/python3</process_name></process_info>\
<process_info><pid>9</pid><type>G</type><process_name>Xorg</process_name></process_info>"""
NOT_ACTIVE = "Not Active</clocks_event_reason_hw_slowdown>"
FIXED = "applications_clocks_setting>Not Active"
NO_DRIVER = both(without("/dev/nvidiactl"), without(SMI))
OLD_DRIVER = both(described("<cuda_version>13.0", "<cuda_version>12.4"), finding({}))
INSIDE = having(**{"/.dockerenv": ""})

FAULTS: dict[str, tuple[Change, str, str, str, str]] = {
    # What is wrong: the line, its status, what it says and what mends it.
    "no driver": (
        NO_DRIVER,
        *("driver", "fault", "no driver is loaded for the NVIDIA GPU (PCI device 10de:2335)"),
        "ubuntu-drivers install",
    ),
    "a container that does not see it": (
        both(NO_DRIVER, INSIDE),
        *("driver", "advice", "which this container does not see: host only", "--gpus all"),
    ),
    "the driver was updated": (
        answering(SMI, 18, "Failed to initialize NVML: Driver/library version mismatch\n"),
        *("driver", "fault", "nvidia-smi: Failed to initialize NVML: Driver/library", "reboot"),
    ),
    "the driver is not loaded": (
        answering(SMI, 9, "NVIDIA-SMI has failed because it couldn't communicate with the driver."),
        *("driver", "fault", "couldn't communicate", "sudo modprobe nvidia"),
    ),
    "the GPU fell off the bus": (
        answering(SMI, 6, "No devices were found\n"),
        *("driver", "fault", "No devices were found", "dmesg"),
    ),
    "the driver hangs": (
        answering(SMI, TIMED_OUT, "no answer for 30 s"),
        *("driver", "fault", "nvidia-smi: no answer for 30 s", "nvidia-smi"),
    ),
    "a description that is none": (
        answering(SMI, 0, "<nvidia_smi_log>"),
        *("driver", "fault", "nvidia-smi: <nvidia_smi_log>", "nvidia-smi"),
    ),
    "nvidia-smi is missing": (
        without(SMI),
        *("driver", "advice", "load, clocks and power are not known", "nvidia-utils"),
    ),
    "nvidia-smi is missing in a container": (
        both(without(SMI), INSIDE),
        *("driver", "advice", "not known", "NVIDIA_DRIVER_CAPABILITIES=compute,utility"),
    ),
    "MIG": (
        described("<current_mig>Disabled", "<current_mig>Enabled"),
        *("mig 0", "advice", "what is timed is a slice", "sudo nvidia-smi -i 0 -mig 0"),
    ),
    "one process at a time": (
        described("<compute_mode>Default", "<compute_mode>Exclusive_Process"),
        *("compute mode 0", "fault", "Exclusive_Process", "sudo nvidia-smi -i 0 -c DEFAULT"),
    ),
    "it is too hot": (
        described(NOT_ACTIVE, "Active</clocks_event_reason_hw_slowdown>"),
        *("clocks 0", "advice", "hardware slowdown: verdicts are withheld", "cool down"),
    ),
    "clocks are held": (
        described(FIXED, "applications_clocks_setting>Active"),
        *("clocks 0", "advice", "set lower than they could be", "nvidia-smi -i 0 -rgc"),
    ),
    "power is capped": (
        described("<current_power_limit>700", "<current_power_limit>450"),
        *("power 0", "advice", "capped at 450 W, usual are 700 W", "nvidia-smi -i 0 -pl 700"),
    ),
    "the GPU is busy": (
        both(
            described("<gpu_util>0 %", "<gpu_util>42 %"),
            described("<processes>", f"<processes>{BUSY}"),
        ),
        *("gpu load 0", "advice", "42 % busy with python3 (123): verdicts are withheld"),
        "--gemm-device=cuda:N",
    ),
    "CuPy is missing": (
        installing("cupy-cuda13x"),
        *("cupy", "fault", "CuPy is missing", "python -m pip install 'pytest-gemm[cuda13]'"),
    ),
    "CuPy is missing, and the driver is older": (
        both(OLD_DRIVER, installing("cupy-cuda13x")),
        *("cupy", "fault", "CuPy is missing", "python -m pip install 'pytest-gemm[cuda12]'"),
    ),
    "a driver too old for CuPy": (
        OLD_DRIVER,
        *("cupy", "fault", "cupy-cuda13x is built for CUDA 13, which the driver 580.159.04 is too"),
        "python -m pip uninstall -y cupy-cuda13x && python -m pip install 'pytest-gemm[cuda12]'",
    ),
    "a driver too old for any": (
        both(described("<cuda_version>13.0", "<cuda_version>11.8"), finding({})),
        *("cupy", "fault", "(it knows 11.8)", "install a newer driver"),
    ),
    "a driver too old for a CuPy built here": (
        both(installing("cupy-cuda13x", cupy="14.2.0"), OLD_DRIVER, finding({"cuda": 13000})),
        *("cupy", "fault", "cupy is built for CUDA 13", "pip uninstall -y cupy && "),
    ),
    "two CuPys": (
        installing(cupy_cuda12x="13.6.0"),
        *("cupy", "fault", "cupy-cuda12x and cupy-cuda13x are both installed"),
        "pip uninstall -y cupy-cuda12x && python -m pip install --force-reinstall --no-deps cupy-c",
    ),
    "CuPy cannot be imported": (
        finding(until("import", "CuPy cannot be used here: libcublas.so.13: cannot open")),
        *("cupy", "fault", "libcublas.so.13: cannot open"),
        "pip install --force-reinstall 'pytest-gemm[cuda13]'",
    ),
    "CuPy crashes": (
        answering("probe", -11, "Fatal Python error: Segmentation fault"),
        *("cupy", "fault", "its process ended with signal 11: Fatal Python error", "reinstall"),
    ),
    "CuPy hangs": (
        answering("probe", TIMED_OUT, "no answer for 120 s"),
        *("cupy", "fault", "no answer for 120 s", "reinstall"),
    ),
    "CuPy says nothing": (
        answering("probe", 1, ""),
        *("cupy", "fault", "its process ended with exit code 1", "reinstall"),
    ),
    "GPUs are hidden": (
        both(setting(CUDA_VISIBLE_DEVICES=""), finding(until("see", "cudaErrorNoDevice: none"))),
        *("cupy", "fault", "sees no GPU (cudaErrorNoDevice: none): CUDA_VISIBLE_DEVICES is ''"),
        "unset CUDA_VISIBLE_DEVICES",
    ),
    "no GPU is seen": (
        finding(until("see", "") | {"gpus": []}),
        *("cupy", "fault", "sees no GPU (0 devices)", "nvidia-smi"),
    ),
    "NVRTC is missing": (
        finding(until("compile", "NVRTC cannot be loaded (libnvrtc.so.13: cannot open)")),
        *("nvrtc", "fault", "libnvrtc.so.13", "pip install 'pytest-gemm[cuda13]'"),
    ),
    "a launch fails": (
        finding(until("launch", "cudaErrorECCUncorrectable: uncorrectable ECC error")),
        *("launch", "fault", "cudaErrorECCUncorrectable", "dmesg"),
    ),
    "CuPy without headers": (
        finding(WORKING | {"headers": {"<cuda_fp16.h>": "doctor.cu:1: error: cannot open"}}),
        *("headers", "fault", "<cuda_fp16.h> cannot be included: doctor.cu:1: error"),
        "pip install 'pytest-gemm[cuda13]'",
    ),
    "no NVML": (
        installing("nvidia-ml-py"),
        *("nvml", "advice", "a run that others disturb is judged like any"),
        "pip install nvidia-ml-py",
    ),
    "ncu without permission": (
        answering(NCU, 1, "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission"),
        *("ncu", "advice", f"{NCU} may not read the counters (ERR_NVGPUCTRPERM)"),
        f"sudo {NCU} ..., or: echo 'options nvidia NVreg_RestrictProfilingToAdminUsers=0'",
    ),
    "ncu without permission in a container": (
        both(INSIDE, answering(NCU, 1, "==ERROR== ERR_NVGPUCTRPERM - The user does not have")),
        *("ncu", "advice", "may not read", "start the container with --cap-add=SYS_ADMIN, or: "),
    ),
    "ncu that may not, where it cannot be tried": (
        both(
            installing("cupy-cuda13x"), having(**{"/proc/self/status": "CapEff:\t0000000000000000"})
        ),
        *("ncu", "advice", "may not read the counters", "sudo"),
    ),
    "ncu that does not work": (
        answering(NCU, 1, "==PROF==\n==ERROR== Failed to initialize the profiler"),
        *("ncu", "advice", "does not work here: Failed to initialize the profiler", "--version"),
    ),
    "ncu that sees no kernel": (
        answering(NCU, 0, "==PROF== Connected\n==WARNING== No kernels were profiled."),
        *("ncu", "advice", "does not work here: No kernels were profiled.", "--version"),
    ),
    "another system": (
        lambda machine: setattr(machine, "platform", "Darwin arm64"),
        *("system", "fault", "Darwin arm64: kernels run on Linux x86_64 and Linux aarch64", "wsl"),
    ),
    "an old pytest-benchmark": (
        installing(pytest_benchmark="4.0.0"),
        *("packages", "fault", "pytest-benchmark 4.0.0 is not >=5.3"),
        "python -m pip install --upgrade 'pytest-benchmark>=5.3'",
    ),
    "a package is missing": (
        installing("pytest-benchmark"),
        *("packages", "fault", "pytest-benchmark is missing", "'pytest-benchmark>=5.3'"),
    ),
    "no compiler beside a GPU": (
        lambda machine: setattr(machine, "no_compiler", "no compiler (none): run `pip"),
        *("compiler", "advice", "no compiler (none); kernels are timed, but not watched"),
        "pip install 'pytest-gemm[host]'",
    ),
    "the CPU is busy": (
        having(**{"/proc/loadavg": "6.50 3.00 1.00 9/300 4242"}),
        *("cpu load", "advice", "6.5 of 8 cores busy", "top"),
    ),
    "half a core": (
        both(INSIDE, having(**{"/sys/fs/cgroup/cpu.max": "50000 100000\n"})),
        *("container", "advice", "Docker stops programs beyond 0.5 cores", "--cpus=2"),
    ),
    "a locks folder that is not shared": (
        both(INSIDE, lambda machine: machine.environ.pop("PYTEST_GEMM_LOCKS")),
        *("locks", "advice", "other containers on the same GPU do not see it (Docker)"),
        "export PYTEST_GEMM_LOCKS=FOLDER",
    ),
}


@pytest.mark.parametrize("what", FAULTS)
def test_a_fault_is_named_with_what_mends_it(server: Patient, what: str) -> None:
    change, name, status, text, remedy = FAULTS[what]
    change(server.machine)
    found = server.sick()[name]
    assert found.status == status
    assert text in found.text
    assert remedy in found.remedy


@pytest.mark.parametrize("what", FAULTS)
def test_no_other_line_is_blamed(server: Patient, what: str) -> None:
    change, name, *_ = FAULTS[what]
    change(server.machine)
    follows = {
        "a container that does not see it": "stored",  # for the CPU
        "no driver": "stored",
        "ncu that may not, where it cannot be tried": "cupy",
    }
    assert set(server.sick()) <= {name, follows.get(what, name)}


def test_without_a_gpu_a_compiler_is_needed(laptop: Patient) -> None:
    laptop.machine.no_compiler = "no C++ compiler works here (tried): run `pip install ...`"
    found = laptop.findings()["compiler"]
    assert (found.status, found.text) == ("fault", "no C++ compiler works here (tried)")
    assert found.remedy == "python -m pip install 'pytest-gemm[host]'"
    assert tell([found]) == 1


def test_a_compiler_that_is_named_is_not_mended_by_another(laptop: Patient) -> None:
    laptop.machine.environ["PYTEST_GEMM_CXX"] = "/nowhere/c++"
    laptop.machine.no_compiler = "the C++ compiler '/nowhere/c++' does not exist: run `pip ...`"
    found = laptop.sick()["compiler"]
    assert (found.status, found.remedy[:22]) == ("fault", "unset PYTEST_GEMM_CXX,")


@pytest.mark.parametrize(
    ("has_record", "text", "remedy"),
    [
        (False, "numpy is missing", "python -m pip install --upgrade 'numpy>=2'"),
        (True, "numpy is installed and cannot be imported", "--force-reinstall numpy"),
    ],
)
def test_without_numpy_that_is_the_only_finding(
    laptop: Patient, monkeypatch: pytest.MonkeyPatch, has_record: bool, text: str, remedy: str
) -> None:
    laptop.machine.required.append("numpy>=2")
    if not has_record:
        del laptop.machine.installed["numpy"]
    monkeypatch.delitem(sys.modules, "pytest_gemm.doctor.examining", raising=False)
    monkeypatch.setattr(sys, "meta_path", [WithoutNumPy(), *sys.meta_path])
    found = laptop.findings()
    assert {*found} == {"packages"}
    assert (found["packages"].status, found["packages"].text) == ("fault", text)
    assert remedy in found["packages"].remedy


class WithoutNumPy:
    """Import hook: what needs NumPy cannot be imported."""

    def find_spec(self, name: str, path: object, target: object = None) -> None:
        if name == "pytest_gemm.doctor.examining":
            raise ModuleNotFoundError("No module named 'numpy'", name="numpy")


def test_cupy_on_a_laptop_is_left_alone(laptop: Patient) -> None:
    laptop.machine.installed |= GPU_PACKAGES
    assert laptop.sick() == {}
    assert laptop.machine.commands == []


def test_a_driver_of_before_535_calls_things_otherwise(server: Patient) -> None:
    server.machine.describe("gpu_power_readings", "power_readings")
    server.machine.describe("current_power_limit>700", "enforced_power_limit>450")
    server.machine.describe("</current_power_limit", "</enforced_power_limit")
    server.machine.describe("clocks_event_reason", "clocks_throttle_reason")
    server.machine.describe(
        "Not Active</clocks_throttle_reason_hw_s", "Active</clocks_throttle_reason_hw_s"
    )
    sick = server.sick()
    assert sick["power 0"].text == "capped at 450 W, usual are 700 W: large kernels are slower"
    assert "hardware slowdown" in sick["clocks 0"].text


def test_what_the_driver_does_not_tell_is_no_fault(server: Patient) -> None:
    for value in ("0 %", "345 MHz", "1980 MHz", "700.00 W", "Disabled", "Default"):
        server.machine.describe(f">{value}<", ">N/A<")
    assert server.sick() == {}
    assert server.findings()["clocks 0"].text == "not known now, not known at most"
    assert server.findings()["gpu load 0"].text == "not known"


def test_an_idle_gpu_that_others_have_open_is_told(server: Patient) -> None:
    server.machine.describe("<processes>", f"<processes>{BUSY}")
    assert server.findings()["gpu load 0"].text == "idle, but open in python3 (123)"


def test_each_gpu_has_its_lines(server: Patient) -> None:
    output = server.machine.answers[SMI].output
    start, end = output.index("  <gpu id"), output.index("</nvidia_smi_log>")
    second = output[start:end].replace("<gpu_util>0 %", "<gpu_util>99 %")
    server.machine.answers[SMI] = Answer(0, output[:end] + second + output[end:])
    sick = server.sick()
    assert set(sick) == {"gpu load 1"}
    assert server.findings()["cupy"].text == "cupy-cuda13x 14.2.0, sees 1 of 2 GPUs"


def test_a_gpu_under_wsl(server: Patient) -> None:
    """There is no device node, and nvidia-smi is not on everybody's path."""
    del server.machine.files["/dev/nvidiactl"]
    server.machine.find = lambda command: SMI if command.startswith("/usr/lib/wsl") else ""  # type: ignore[method-assign]
    assert server.sick() == {}


def test_a_slice_has_baselines_of_its_own(server: Patient) -> None:
    """Of MIG, the driver names the GPU and CUDA the slice, as baselines do."""
    server.machine.probe(**WORKING | {"gpus": ["NVIDIA H200 MIG 1g.18gb"]})
    found = server.sick()["stored"]
    assert found.text == f"no times for NVIDIA-H200-MIG-1g.18gb, only for {GPU}"


def test_a_checkout_that_is_not_installed_is_no_fault(laptop: Patient) -> None:
    """There is no metadata then that says what it needs."""
    laptop.machine.required = []
    del laptop.machine.installed["pytest-benchmark"]
    assert laptop.findings()["packages"].text == "pytest 9.2.0, pytest-benchmark missing"


def test_ncu_is_tried_with_a_kernel_of_the_probe(server: Patient) -> None:
    server.findings()
    ncu = server.machine.commands[-1]
    assert ncu[0] == NCU
    assert tuple(ncu[-4:]) == ("python", "-P", "-m", "pytest_gemm.doctor.cuda_probe")


# What is stored


def test_only_other_devices_are_stored(laptop: Patient, tmp_path: Path) -> None:
    laptop.baselines = tmp_path / "others"
    stored(laptop.baselines, session(1, device=GPU))
    found = laptop.sick()["stored"]
    assert found.text == f"no times for {CPU}, only for {GPU}"
    assert found.remedy == "pytest --gemm-bench --gemm-baseline=update"
    assert found.status == "advice"


def test_nothing_is_stored(laptop: Patient, tmp_path: Path) -> None:
    laptop.baselines = tmp_path / "new" / "baselines"
    found = laptop.findings()
    assert found["stored"].text == f"no times for {CPU}"
    assert found["baselines"].text == f"{laptop.baselines}, which update makes"
    assert not (tmp_path / "new").exists()


def test_too_few_sessions_are_provisional(laptop: Patient, tmp_path: Path) -> None:
    laptop.baselines = tmp_path / "few"
    stored(laptop.baselines, session(1), session(2))
    found = laptop.sick()["stored"]
    assert "2 sessions or more of each: provisional below 3" in found.text


def test_damage_is_named_with_the_way_out(laptop: Patient) -> None:
    path = laptop.baselines / CPU / "tiled.json"
    path.write_text(path.read_text().replace('"n": 30', '"n": 0', 1))
    found = laptop.sick()["stored"]
    assert found.status == "fault"
    assert "tiled.json: line" in found.text
    assert "git checkout" in found.remedy


def test_damage_of_what_is_exact_is_named_with_the_way_out(laptop: Patient) -> None:
    folder = laptop.baselines / "exact"
    folder.mkdir(exist_ok=True)
    (folder / "tiled.json").write_bytes(b"\x00\xff")
    (folder / "other.json").write_text("")
    found = laptop.sick()["baselines"]
    assert found.status == "fault"
    assert found.text.startswith(f"{folder / 'other.json'}: ")
    assert found.text.endswith(" (and 1 more)")
    assert "git checkout" in found.remedy


@pytest.mark.parametrize("name", ["baselines", "locks"])
def test_a_folder_that_cannot_be_written_to(laptop: Patient, name: str) -> None:
    folder: Path = getattr(laptop, name)
    folder.mkdir(exist_ok=True)
    laptop.machine.read_only.add(folder)
    found = laptop.sick()[name]
    assert found.status == "fault"
    assert found.text == f"{folder} cannot be written to"
    assert found.remedy.startswith("sudo ")
    assert str(folder) in found.remedy


@pytest.mark.parametrize("name", ["baselines", "locks"])
def test_a_folder_that_cannot_be_made(laptop: Patient, tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("")
    laptop.baselines = tmp_path / "file" / "baselines"
    laptop.machine.environ["PYTEST_GEMM_LOCKS"] = str(tmp_path / "file" / "locks")
    found = laptop.sick()[name]
    assert found.status == "fault"
    assert not found.remedy.startswith("sudo")


def test_a_cache_that_is_named_must_be_one_that_can_be_written_to(
    laptop: Patient, tmp_path: Path
) -> None:
    assert "cache" not in laptop.findings()
    laptop.machine.environ["PYTEST_GEMM_CACHE"] = str(tmp_path / "new" / "cache")
    assert laptop.findings()["cache"] == Finding("cache", "ok", str(tmp_path / "new" / "cache"))
    assert not (tmp_path / "new").exists()
    laptop.machine.read_only.add(tmp_path)
    found = laptop.sick()["cache"]
    assert found.status == "fault"
    assert found.remedy == "unset PYTEST_GEMM_CACHE"


# The probe


@pytest.fixture
def fake() -> FakeCuda:
    cuda = FakeCuda()
    cuda.kernels[ENTRY] = Kernel(sizes=(4,))
    return cuda


def test_the_probe_tries_everything(fake: FakeCuda) -> None:
    found = try_out(fake.api)
    assert set(found) == set(WORKING)
    assert found["gpus"] == ["NVIDIA H200"]
    assert found["headers"] == {}
    assert "launchKernel" in fake.calls
    assert [source for source in fake.sources if "#include <cuda_fp16.h>" in source]


@pytest.mark.parametrize(("call", "step"), [("getDeviceCount", "see"), ("launchKernel", "launch")])
def test_the_probe_says_which_step_failed(fake: FakeCuda, call: str, step: str) -> None:
    fake.failures[call] = "cudaErrorUnknown"
    found = try_out(fake.api)
    assert found["failed"] == step
    assert found["error"].startswith("cudaErrorUnknown")
    assert list(found)[:3] == ["cupy", "cuda", "driver"]


def test_the_probe_without_cupy() -> None:
    def load() -> Any:
        raise BackendError("CuPy cannot be used here: No module named 'cupy'\nmore")

    error = "CuPy cannot be used here: No module named 'cupy'"
    assert try_out(load) == {"failed": "import", "error": error}


def test_the_probe_says_which_header_is_missing(fake: FakeCuda) -> None:
    def load() -> Any:
        if "launchKernel" in fake.calls:
            fake.log = 'doctor.cu(1): catastrophic error: cannot open source file "x.h"'
        return fake.api()

    headers = try_out(load)["headers"]
    assert list(headers) == ["<cuda_fp16.h>", "<mma.h>", "<limits>"]
    assert headers["<mma.h>"] == 'doctor.cu:1: error: cannot open source file "x.h"'


# The command, and this machine


def test_the_command_looks_at_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\ngemm_baselines = kept\n")
    monkeypatch.chdir(tmp_path)
    code = main(["doctor", "--json"])
    told = json.loads(capsys.readouterr().out)
    assert told["format"] == 1
    found = {finding["name"]: finding for finding in told["findings"]}
    assert found["baselines"]["text"] == f"{tmp_path}/kept, which update makes"
    assert found["packages"]["status"] == "ok"
    assert told["healthy"] == (code == 0)
    assert code == any(finding["status"] == "fault" for finding in told["findings"])
    assert list(tmp_path.iterdir()) == [tmp_path / "pytest.ini"]


def test_a_fault_is_exit_code_1_and_advice_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    advice = Finding("power 0", "advice", "capped", "raise it")
    fault = replace(advice, status="fault")
    assert (tell([advice]), tell_json([advice])) == (0, 0)
    assert (tell([advice, fault]), tell_json([fault])) == (1, 1)
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == [
        "advice  power 0         capped",
        "                        -> raise it",
        "0 faults, 1 with advice",
    ]


def test_the_real_machine_never_raises(tmp_path: Path) -> None:
    machine = Machine()
    assert machine.text(str(tmp_path)) is None
    assert machine.paths(f"{tmp_path}/*") == []
    assert machine.find("no-such-command") == ""
    assert machine.run(["/no/such/command"], 1).code == 127
    assert machine.run([sys.executable, "-c", "print(1)"], 60) == (0, "1\n")
    assert machine.run(["sleep", "9"], 0.01) == (TIMED_OUT, "no answer for 0.01 s")
    assert machine.packages()["pytest-benchmark"]
    assert any(text.startswith("pytest-benchmark") for text in machine.requirements())
    assert machine.cores() > 0
    assert machine.cpu().startswith("host-")


def test_nothing_is_stored_by_looking(server: Patient) -> None:
    before = sorted(server.baselines.rglob("*"))
    server.findings()
    assert sorted(server.baselines.rglob("*")) == before
    assert BaselineStore(server.baselines).devices() == (GPU,)
