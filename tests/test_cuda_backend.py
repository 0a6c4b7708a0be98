"""The CUDA back end as a whole: the device, memory, Python kernels, and where it cannot be used."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from pytest_gemm.backends.base import CudaProgram, LaunchConfig, Matrix, PythonProgram
from pytest_gemm.backends.cuda import CudaBackend, api, reference
from pytest_gemm.backends.cuda.hardware import folder_name, peak_flops
from pytest_gemm.baselines.records import EPOCH_KEYS
from pytest_gemm.device import DeviceMemory
from pytest_gemm.errors import BackendError
from tests.fake_cupy import FakeCuda, Kernel, RuntimeFailure

ONE = LaunchConfig((1, 1, 1), (1, 1, 1))


@pytest.fixture
def fake(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    return FakeCuda()


def test_device(fake):
    device = fake.backend().device
    assert (device.kind, device.name) == ("cuda", "NVIDIA-H200")
    assert device.description == "NVIDIA H200, 140 GiB, 132 SMs"
    assert device.memory == 140 * 2**30
    # As measured.
    assert device.peak_flops == pytest.approx(66.9e12, rel=1e-3)
    assert device.peak_bandwidth == pytest.approx(4.917e12, rel=1e-3)
    environment = dict(device.environment)
    assert len(environment.pop("flags")) == 8
    assert environment == {
        "gpu": "NVIDIA H200",
        "compute_capability": "9.0",
        "driver": "CUDA 13.0",
        "cuda": "13.0",
        "nvrtc": "13.0",
        "cupy": "14.2.0",
        "uuid": None,
        "ecc": None,
        "mig": None,
        "power_limit": None,
        "l2_bytes": 1000,
    }
    assert {"driver", "cuda", "nvrtc", "cupy", "flags"} <= set(EPOCH_KEYS)


@pytest.mark.parametrize(("model", "name"), [
    ("NVIDIA H200", "NVIDIA-H200"),
    ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb"),
    ("Tesla T4/../x", "Tesla-T4-..-x"),
])  # fmt: skip
def test_the_name_is_safe_as_a_folders(model, name):
    assert folder_name(model) == name


def test_peaks_that_are_unknown(fake):
    a = fake.api()
    assert peak_flops(a, 0, (9, 0), 132, 1000.0) == 132 * 128 * 2 * 1e9
    assert peak_flops(a, 0, (99, 0), 132, 1000.0) is None
    fake.attributes.update({"ClockRate": 0, "MemoryClockRate": 0})
    assert peak_flops(a, 0, (9, 0), 132, None) is None
    assert fake.backend().device.peak_bandwidth is None
    fake.failures["deviceGetAttribute"] = "cudaErrorInvalidValue"
    assert peak_flops(a, 0, (9, 0), 132, None) is None


def test_nothing_is_touched_before_it_is_needed(fake):
    CudaBackend(api=fake.api())
    assert fake.calls == []


def test_cupy_is_not_imported_with_the_package():
    code = (
        "import sys, pytest_gemm.backends.cuda\n"
        "assert not {'cupy', 'pynvml'} & set(sys.modules), sorted(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_cupy(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    told = []
    with pytest.raises(BackendError, match="CuPy cannot be used here: "):
        CudaBackend(progress=told.append).device  # noqa: B018
    assert told == ["starting CUDA (once)"]


def test_cupy_without_a_driver(monkeypatch):
    loaded = SimpleNamespace(runtime=None, driver=None, nvrtc=None)
    monkeypatch.setattr(api, "import_module", lambda name: loaded)

    def missing(name):
        raise OSError(f"{name}: cannot open shared object file\nmore")

    monkeypatch.setattr(api.ctypes, "CDLL", missing)
    with pytest.raises(BackendError) as caught:
        api.load_api()
    assert str(caught.value) == (
        "CuPy cannot be used here: libcuda.so.1: cannot open shared object file"
    )


def test_the_installed_cupy_has_all_that_is_used(monkeypatch, fake):
    cupy = pytest.importorskip("cupy")
    load = ctypes.CDLL
    monkeypatch.setattr(
        api.ctypes, "CDLL", lambda name, *a, **k: name != "libcuda.so.1" and load(name, *a, **k)
    )
    real, scripted = api.load_api(), fake.api()
    for part in ("runtime", "driver", "nvrtc"):
        missing = set(vars(getattr(scripted, part))) - set(dir(getattr(real, part)))
        assert not missing, part
    assert set(vars(scripted.cupy.cuda)) <= set(dir(cupy.cuda))
    assert real.include_folders


def test_no_gpu_or_not_that_many(fake):
    with pytest.raises(BackendError, match="there is no GPU 3 here: 1 can be seen"):
        CudaBackend(3, api=fake.api()).device  # noqa: B018
    fake.failures["getDeviceCount"] = "cudaErrorInsufficientDriver"
    with pytest.raises(BackendError, match="no GPU can be used here: cudaErrorInsufficientDriver"):
        CudaBackend(api=fake.api()).device  # noqa: B018


def test_bytes_come_back(fake):
    backend = fake.backend()
    data = np.arange(256, dtype=np.uint8)
    buffer = backend.allocate(256)
    backend.upload(buffer, data)
    assert np.array_equal(backend.download(buffer), data)
    strided = np.arange(512, dtype=np.uint8)[::2]
    backend.upload(buffer, strided)
    assert np.array_equal(backend.download(buffer), strided)
    with pytest.raises(BackendError, match="3 bytes do not fill a buffer of 256"):
        backend.upload(buffer, data[:3])


def test_buffers_after_they_are_freed(fake):
    backend = fake.backend()
    buffer = backend.allocate(16)
    backend.free(buffer)
    assert fake.memory == {}
    for use in (backend.download, backend.free):
        with pytest.raises(BackendError, match="after it was freed"):
            use(buffer)
    with pytest.raises(BackendError, match="not this back end's"):
        backend.download(SimpleNamespace(nbytes=4))


def test_every_allocation_is_the_drivers_own(fake):
    backend = fake.backend()
    for _ in range(3):
        backend.free(backend.allocate(64))
    assert fake.calls.count("malloc") == fake.calls.count("free") == 3


def test_too_little_memory_says_how_much_there_is(fake):
    fake.capacity = 5 * 10**9
    with pytest.raises(BackendError) as caught:
        fake.backend().allocate(20 * 10**9)
    assert str(caught.value) == ("no memory for a buffer of 20 GB: 5 of the GPU's 10 GB are free")


def test_matrices_of_users_own_tests(fake):
    with DeviceMemory(fake.backend()) as memory:
        data = np.arange(6, dtype=np.float32).reshape(2, 3)
        assert np.array_equal(memory.download(memory.upload(data)), data)
    assert fake.memory == {}


def test_a_python_kernel_gets_arrays_scalars_and_the_stream(fake):
    backend = fake.backend()
    buffer = backend.allocate(4 * 12)
    backend.upload(buffer, np.arange(12, dtype=np.float32).view(np.uint8))
    given = []

    def kernel(C, M, alpha, stream):
        given.append((C.tolist(), C.strides, M, alpha, stream is fake.stream_stack[-1]))
        C *= 2

    program = PythonProgram(kernel, ("C", "M", "alpha", "stream"))
    C = Matrix(buffer, 4, 2, 3, 4, "float32")
    backend.time(backend.compile(program), ONE, [C, 2, 0.5, None])
    assert given == [([[1, 2, 3], [5, 6, 7]], (16, 4), 2, 0.5, True)]
    assert fake.stream_stack == []
    result = backend.download(buffer).view(np.float32)
    assert result.tolist() == [0, 2, 4, 6, 4, 10, 12, 14, 8, 9, 10, 11]


def test_the_stream_is_left_after_an_exception(fake):
    backend = fake.backend()

    def kernel(C):
        raise ValueError

    program = backend.compile(PythonProgram(kernel, ("C",)))
    with pytest.raises(Exception, match="ValueError"):
        backend.time(program, ONE, [Matrix(backend.allocate(4), 0, 1, 1, 1, "float32")])
    assert fake.stream_stack == []


def test_the_canary(fake):
    fake.kernels["canary"] = Kernel(seconds=2.5e-4, sizes=(8, 8, 4))
    backend = fake.backend()
    first = backend.canary()
    assert first == pytest.approx(2.5e-4, rel=1e-6)
    kept = len(fake.memory)  # the blocker's
    fake.kernels["canary"].seconds = 4e-4  # a neighbour
    assert backend.canary() == pytest.approx(4e-4, rel=1e-6)
    assert len(fake.sources) == 3  # compiled once, as are the blocker and the shuffle
    assert len(fake.memory) == kept == 1
    assert fake.graphs == {}


def test_conditions_without_nvml(fake):
    fake.kernels["canary"] = Kernel(seconds=2.5e-4, sizes=(8, 8, 4))
    found = dict(fake.backend().conditions())
    assert found.pop("canary_s") == pytest.approx(2.5e-4, rel=1e-6)
    assert set(found.values()) == {None}


def test_compile_returns_facts(fake):
    executable = fake.backend().compile(CudaProgram("__global__ void k() {}", "x.cu", "k"))
    assert executable.facts["registers"] == 32
    assert dict(fake.backend().compile(PythonProgram(len, ("x",))).facts) == {}


# -- reference programs --------------------------------------------------------------------------


class Pointer:
    """A ``cupy.cuda.MemoryPointer``; ``copies`` are source, target and bytes of all its memory."""

    def __init__(self, ptr, copies):
        self.ptr = ptr
        self.copies = copies

    def __add__(self, offset):
        return Pointer(self.ptr + offset, self.copies)

    def copy_from_device_async(self, source, nbytes, stream):
        self.copies.append((source.ptr, self.ptr, nbytes, stream))


class Array:
    def __init__(self, contiguous=True, nbytes=64, ptr=4096):
        self.flags = SimpleNamespace(c_contiguous=contiguous)
        self.nbytes = nbytes
        self.data = Pointer(ptr, [])
        self.items = {}

    def __setitem__(self, key, value):
        self.items[key] = value


def test_copy_is_one_copy_on_the_stream():
    program = reference.copy_program()
    assert program.parameters == ("A", "C", "stream")
    A, C = Array(), Array(ptr=8192)
    program.function(A, C, "the stream")
    assert C.data.copies == [(4096, 8192, 64, "the stream")]
    padded = Array(contiguous=False)
    program.function(A, padded, "the stream")
    assert padded.data.copies == []
    assert padded.items == {...: A}


@pytest.mark.parametrize(
    ("nbytes", "ptr", "vectors", "rest"),
    [
        (2**29 - 4, 0, 0, 2**29 - 4),
        (2**29, 0, 2**25, 0),
        (2**29 + 20, 2**33, 2**25 + 1, 4),
        (2**29, 8, 0, 2**29),
    ],
)
def test_a_large_copy_is_a_kernels(monkeypatch, nbytes, ptr, vectors, rest):
    launches = []
    made = SimpleNamespace(RawKernel=lambda *_: lambda *a, **k: launches.append((*a, k)))
    monkeypatch.setattr(reference, "import_module", {"cupy": made}.get)
    reference._copier.cache_clear()
    A, C = Array(nbytes=nbytes), Array(nbytes=nbytes, ptr=ptr)
    reference.copy_program().function(A, C, "the stream")
    reference._copier.cache_clear()
    blocks = (vectors + 255) // 256
    launch = ((blocks,), (256,), (A, C, vectors), {"stream": "the stream"})
    assert launches == [launch] * bool(vectors)
    start = 16 * vectors
    assert C.data.copies == [(4096 + start, ptr + start, rest, "the stream")] * bool(rest)


@pytest.mark.parametrize("name", ["CUPY_TF32", "NVIDIA_TF32_OVERRIDE"])
def test_cublas_refuses_to_be_told_to_use_tf32(monkeypatch, name):
    monkeypatch.setenv(name, "0")
    assert reference.cublas_program().parameters == ("A", "B", "C", "stream")
    monkeypatch.setenv(name, "1")
    with pytest.raises(BackendError, match=f"{name} is set"):
        reference.cublas_program()


def test_a_failure_to_allocate_for_another_reason(fake):
    backend = fake.backend()
    backend.allocate(4)
    fake.failures["malloc"] = "cudaErrorInvalidValue"
    with pytest.raises(Exception, match="cudaErrorInvalidValue") as caught:
        backend.allocate(4)
    assert not isinstance(caught.value, RuntimeFailure)
