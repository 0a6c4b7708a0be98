"""cuBLAS as a reference, called through a scripted library."""

from __future__ import annotations

import ctypes
import sys
from types import SimpleNamespace

import pytest

from pytest_gemm.backends.base import LaunchConfig, Matrix
from pytest_gemm.backends.cuda import cublas, reference
from pytest_gemm.backends.cuda.cublas import PLACES, WORKSPACE, Cublas, load_cublas
from pytest_gemm.errors import BackendError
from pytest_gemm.problem import Problem
from tests.fake_cupy import FakeCuda

HANDLE, SCRATCH = 77, 0x5000
ONE = LaunchConfig((1, 1, 1), (1, 1, 1))


class Library:
    """``libcublas``: notes its calls, and works on the stream that it was given."""

    def __init__(self, fake=None):
        self.fake = fake
        self.calls = []
        self.statuses = {}
        self.stream = None

    def __getattr__(self, name):
        def call(*arguments):
            self.calls.append((name, arguments))
            if name == "cublasCreate_v2":
                arguments[0]._obj.value = HANDLE
            if name == "cublasSetStream_v2":
                self.stream = arguments[1].value
            if name == "cublasSgemm_v2" and self.fake:
                self.fake.work(self.stream)
            return self.statuses.get(name, 0)

        return call

    def named(self, name):
        return [arguments for called, arguments in self.calls if called == name]


class Array:
    """A CuPy array, as far as cuBLAS must know it."""

    itemsize = 4

    def __init__(self, address, rows, columns, ld):
        self.data = SimpleNamespace(ptr=address)
        self.device = SimpleNamespace(id=0)
        self.shape = (rows, columns)
        self.strides = (4 * ld, 4)


@pytest.fixture(autouse=True)
def nothing_is_remembered():
    load_cublas.cache_clear()
    yield
    load_cublas.cache_clear()


@pytest.fixture
def cupy(monkeypatch):
    """A CuPy whose cuBLAS can be loaded from ``cupy.library``."""
    calls = []
    module = SimpleNamespace(calls=calls, library=Library(), allocated=[])

    def allocate(nbytes):
        module.allocated.append(nbytes)
        return SimpleNamespace(ptr=SCRATCH)

    module.matmul = lambda A, B, out: calls.append((A, B, out))
    module.cuda = SimpleNamespace(
        runtime=SimpleNamespace(runtimeGetVersion=lambda: 13010),
        Memory=allocate,
    )
    device = SimpleNamespace(get_cublas_handle=lambda: calls.append("loaded"))

    def load(name):
        assert calls == ["loaded"]
        assert name == "libcublas.so.13"
        if module.library is None:
            raise OSError("cannot open shared object file")
        return module.library

    monkeypatch.setitem(sys.modules, "cupy", module)
    monkeypatch.setitem(sys.modules, "cupy.cuda", module.cuda)
    monkeypatch.setitem(sys.modules, "cupy.cuda.device", device)
    monkeypatch.setattr(cublas, "ctypes", SimpleNamespace(**{**vars(ctypes), "CDLL": load}))
    return module


def plain(value):
    """What C sees of an argument."""
    value = getattr(value, "_obj", value)
    return getattr(value, "value", value)


def test_rows_are_what_cublas_calls_columns_and_their_padding_is_left_alone():
    library = Library()
    own = Cublas(library, SimpleNamespace(ptr=SCRATCH))
    own.multiply(Array(1000, 5, 7, 8), Array(2000, 7, 3, 4), Array(3000, 5, 3, 6), stream=9)
    [arguments] = library.named("cublasSgemm_v2")
    # handle, no transposition, N, M, K, alpha, B, ldb, A, lda, beta, C, ldc
    assert [plain(a) for a in arguments] == [
        *(HANDLE, 0, 0, 3, 5, 7, 1.0, 2000, 4, 1000, 8, 0.0, 3000, 6)
    ]


def test_it_computes_in_float32_with_scratch_memory_of_its_own():
    library = Library()
    own = Cublas(library, SimpleNamespace(ptr=SCRATCH))
    array = Array(1000, 4, 4, 4)
    own.multiply(array, array, array, stream=9)
    assert [plain(a) for a in library.named("cublasSetMathMode")[0]] == [HANDLE, 0]
    names = [name for name, _ in library.calls]
    # A change of the stream takes the memory away.
    assert names[-3:] == ["cublasSetStream_v2", "cublasSetWorkspace_v2", "cublasSgemm_v2"]
    given = [plain(a) for a in library.named("cublasSetWorkspace_v2")[0]]
    assert given == [HANDLE, SCRATCH, WORKSPACE]


def test_the_scratch_memory_lies_elsewhere_for_every_new_c(cupy):
    program = reference.cublas_program()
    addresses = [*range(0, 4000 * PLACES, 4000), 0, 4000]
    for address in addresses:
        array = Array(address, 4, 4, 4)
        program.function(array, array, array, SimpleNamespace(ptr=9))
    used = [plain(memory) for _, memory, _ in cupy.library.named("cublasSetWorkspace_v2")]
    assert len(set(used)) == PLACES
    assert used[PLACES:] == used[:2]  # what was captured with it is replayed with it
    assert min(used) == SCRATCH
    assert max(used) + WORKSPACE <= SCRATCH + cupy.allocated[0]
    assert len(cupy.allocated) == 1


def test_a_status_is_an_error():
    library = Library()
    library.statuses["cublasCreate_v2"] = 1
    with pytest.raises(BackendError, match="cublasCreate_v2 failed with status 1"):
        Cublas(library, None)


def test_the_library_is_cupy_s_and_is_opened_once(cupy):
    program = reference.cublas_program()
    arrays = [Array(1000 * i, 4, 4, 4) for i in (1, 2, 3)]
    for _ in range(2):
        program.function(*arrays, SimpleNamespace(ptr=9))
    assert cupy.calls == ["loaded"]
    assert len(cupy.library.named("cublasCreate_v2")) == 1
    assert len(cupy.library.named("cublasSgemm_v2")) == 2


def test_without_the_library_cupy_multiplies(cupy):
    cupy.library = None
    A, B, C = (Array(1000 * i, 4, 4, 4) for i in (1, 2, 3))
    reference.cublas_program().function(A, B, C, SimpleNamespace(ptr=9))
    assert cupy.calls == ["loaded", (A, B, C)]


def test_its_launches_are_captured(cupy):
    fake = FakeCuda()
    cupy.library = Library(fake)
    backend = fake.backend()

    def ndarray(shape, dtype, memptr, strides):
        return Array(memptr.memory.address + memptr.offset, *shape, strides[0] // 4)

    backend._api.cupy.ndarray = ndarray
    matrices = [Matrix(backend.allocate(64), 0, 4, 4, 4, "float32") for _ in range(3)]
    executable = backend.compile(reference.cublas_program())
    seconds = backend.time(executable, ONE, [*matrices, None], launches=20)
    assert seconds == pytest.approx(20e-5, abs=3e-6)
    assert backend.is_captured(executable)
    assert fake.calls.count("graphLaunch") == 1


class Strided:
    """An array of any type and shape."""

    def __init__(self, address, itemsize, shape, steps):
        self.data = SimpleNamespace(ptr=address)
        self.itemsize, self.shape = itemsize, shape
        self.strides = tuple(itemsize * step for step in steps)


def called(problem, A, B, C):
    library = Library()
    Cublas(library, SimpleNamespace(ptr=SCRATCH)).multiply(A, B, C, 9, problem)
    name, arguments = library.calls[-1]
    return name, [plain(argument) for argument in arguments]


def test_other_types_and_transpositions_are_named():
    problem = Problem("gemm", 5, 3, 7, 0.5, 1.0, "float16", out_dtype="float32", transb="T")
    A = Strided(1000, 2, (5, 7), (8, 1))
    B = Strided(2000, 2, (3, 7), (10, 1))
    C = Strided(3000, 4, (5, 3), (4, 1))
    # C^T = B A^T: B's rows are what cuBLAS calls columns, of a matrix to be transposed.
    assert called(problem, A, B, C) == ("cublasGemmEx", [
        *(HANDLE, 1, 0, 3, 5, 7, 0.5, 2000, 2, 10, 1000, 2, 8, 1.0, 3000, 0, 4, 68, -1)
    ])  # fmt: skip


def test_a_batch_of_columns_needs_no_exchange():
    problem = Problem(
        "gemm", 5, 3, 7, dtype="int8", layout="column-major", transa="T", batch=6, beta=1.0
    )
    A = Strided(1000, 1, (6, 7, 5), (40, 1, 8))
    B = Strided(2000, 1, (6, 7, 3), (24, 1, 8))
    C = Strided(3000, 4, (6, 5, 3), (18, 1, 6))
    assert called(problem, A, B, C) == ("cublasGemmStridedBatchedEx", [
        *(HANDLE, 1, 0, 5, 3, 7, 1, 1000, 3, 8, 40, 2000, 3, 8, 24, 1, 3000, 10, 6, 18, 6, 72, -1)
    ])  # fmt: skip


def test_numbers_are_in_the_type_of_sums():
    problem = Problem("gemm", 4, 4, 4, -2.0, dtype="float16", acc_dtype="float16")
    arrays = [Strided(1000 * i, 2, (4, 4), (4, 1)) for i in (1, 2, 3)]
    _, arguments = called(problem, *arrays)
    assert (arguments[6], arguments[-2]) == (0xC000, 64)
    problem = Problem("gemm", 4, 4, 4, -2.0, dtype="float64")
    arrays = [Strided(1000 * i, 8, (4, 4), (4, 1)) for i in (1, 2, 3)]
    name, arguments = called(problem, *arrays)
    assert (name, arguments[6], arguments[-2]) == ("cublasGemmEx", -2.0, 70)


def test_without_the_library_other_products_are_refused(cupy):
    cupy.library = None
    problem = Problem("gemm", 4, 4, 4, dtype="float16")
    arrays = [Array(1000 * i, 4, 4, 4) for i in (1, 2, 3)]
    with pytest.raises(BackendError, match="cuBLAS cannot be loaded for 4x4x4-float16"):
        reference.cublas_program(problem).function(*arrays, SimpleNamespace(ptr=9))
