"""Loading a compiled kernel, passing its arguments, and the limits of a launch."""

from __future__ import annotations

import struct

import pytest

from pytest_gemm.backends.base import CudaProgram, LaunchConfig, Matrix
from pytest_gemm.backends.cuda.api import Libcuda
from pytest_gemm.backends.cuda.memory import DeviceBuffer
from pytest_gemm.backends.cuda.parameters import Signature, declared_parameters
from pytest_gemm.errors import BackendError, CompileError, KernelFault
from tests.fake_cupy import FakeCuda, FakeLibrary, Kernel

ONE = LaunchConfig((1, 1, 1), (1, 1, 1))


def signature(parameters, sizes=None, entry="k"):
    source = f"template <class T> __global__ void k({parameters}) {{}}"
    program = CudaProgram(source, "kernels/x.cu", entry)
    return Signature("k in kernels/x.cu", declared_parameters(program), sizes)


def packed(value):
    return bytes(value)


@pytest.mark.parametrize(("type_", "value", "form"), [
    ("int", -3, "<i"),
    ("const int", 2**31 - 1, "<i"),
    ("unsigned", 2**32 - 1, "<I"),
    ("unsigned int", 7, "<I"),
    ("size_t", 2**64 - 1, "<Q"),
    ("std::size_t", 2**40, "<Q"),
    ("long long", -(2**63), "<q"),
    ("int64_t", 2**40, "<q"),
    ("short", -5, "<h"),
    ("unsigned char", 255, "<B"),
    ("bool", 1, "<?"),
    ("float", 0.5, "<f"),
    ("float", 2, "<f"),
    ("double", 0.1, "<d"),
    ("const double", 3, "<d"),
    ("T", 5, "<i"),
    ("T", 0.5, "<f"),
])  # fmt: skip
def test_scalars_become_the_parameters_type(type_, value, form):
    for sizes in (None, (struct.calcsize(form),)):
        (argument,) = signature(f"{type_} n", sizes).pack([value])
        assert bytes(argument) == struct.pack(form, value)


@pytest.mark.parametrize(("type_", "sizes"), [
    ("half", None), ("__half", (2,)), ("const nv_bfloat16", None), ("T", (2,)),
])  # fmt: skip
def test_a_number_of_16_bits_is_of_the_matrices_type(type_, sizes):
    dtype, bits = ("bfloat16", 0x3FC0) if "bfloat" in type_ else ("float16", 0x3E00)
    C = Matrix(DeviceBuffer(4096, 64), 0, 4, 8, 8, dtype)
    both = None if sizes is None else (8, *sizes)
    _, alpha = signature(f"{type_.removeprefix('const ')}* C, {type_} alpha", both).pack([C, 1.5])
    assert bytes(alpha) == struct.pack("<H", bits)
    other = Matrix(DeviceBuffer(4096, 64), 0, 4, 8, 8, "float32")
    with pytest.raises(CompileError, match="not a floating-point number"):
        signature(f"float* C, {type_} alpha", both).pack([other, 1.5])


@pytest.mark.parametrize(("value", "size", "form"), [
    (2**40, 8, "<q"), (-1, 8, "<q"), (2**32 - 1, 4, "<I"), (0.1, 8, "<d"), (0.5, 4, "<f"),
    (200, 1, "<B"), (-3, 2, "<h"),
])  # fmt: skip
@pytest.mark.parametrize("parameters", ["T n", "index_t n"])
def test_the_driver_knows_the_size_of_other_types(parameters, value, size, form):
    (argument,) = signature(parameters, (size,)).pack([value])
    assert bytes(argument) == struct.pack(form, value)


def test_the_drivers_size_wins_over_the_sources_words():
    # `#define int long` and the like.
    (argument,) = signature("int n", (8,)).pack([2**40])
    assert bytes(argument) == struct.pack("<q", 2**40)


@pytest.mark.parametrize(("type_", "sizes", "value"), [
    ("int", None, 2**31), ("int", (4,), -(2**31) - 1), ("unsigned", None, -1), ("bool", None, 2),
    ("T", None, 2**31), ("T", (4,), 2**32), ("T", (8,), 2**64), ("short", None, 40000),
])  # fmt: skip
def test_an_integer_that_does_not_fit(type_, sizes, value):
    with pytest.raises(CompileError) as caught:
        signature(f"float* C, {type_} n", sizes and (8, *sizes)).pack([matrix(), value])
    assert str(caught.value) == (
        f"parameter 2 of k in kernels/x.cu is {type_}, which cannot hold {value}"
    )


def matrix(rows=4, columns=4, ld=4, offset=0):
    return Matrix(DeviceBuffer(4096, 64), offset, rows, columns, ld, "float32")


def test_matrices_become_addresses():
    values = signature("const float* __restrict__ A, T B").pack([matrix(), matrix(offset=256)])
    assert [value.value for value in values] == [4096, 4352]


@pytest.mark.parametrize(("type_", "argument", "words"), [
    ("int", matrix(), "is int, not a pointer"),
    ("float*", 3, "not an integer"),
    ("float*", 0.5, "not a floating-point number"),
    ("int", 0.5, "is int, not a floating-point number"),
    ("float*", None, "only a Python kernel can take"),
])  # fmt: skip
def test_arguments_of_another_kind(type_, argument, words):
    with pytest.raises(CompileError, match=words) as caught:
        signature(f"{type_} n").pack([argument])
    assert "\n" not in str(caught.value)


def test_a_struct_is_no_scalar():
    with pytest.raises(CompileError, match="is T, not a floating-point number"):
        signature("T n", (16,)).pack([0.5])
    with pytest.raises(CompileError, match="not a pointer"):
        signature("T n", (16,)).pack([matrix()])


@pytest.mark.parametrize("sizes", [None, (8, 4)])
def test_the_number_of_arguments(sizes):
    with pytest.raises(CompileError, match=r"takes 2 arguments and was given 1: list them"):
        signature("float* C, int n", sizes).pack([matrix()])


def test_an_entry_from_a_header():
    assert declared_parameters(CudaProgram('#include "a.cuh"', "x.cu", "k")) is None
    unknown = Signature("k", None, None)
    assert [bytes(v) for v in unknown.pack([3, 0.5])] == [
        struct.pack("<i", 3),
        struct.pack("<f", 0.5),
    ]
    known = Signature("k", None, (8, 8))
    assert [bytes(v) for v in known.pack([3, 0.5])] == [
        struct.pack("<q", 3),
        struct.pack("<d", 0.5),
    ]


def test_parameters_of_a_namespaced_entry():
    source = "namespace a { __global__ void k(int n) {} }\nnamespace b { __global__ void k() {} }"
    for entry, count in (("a::k", 1), ("::b::k", 0)):
        found = declared_parameters(CudaProgram(source, "x.cu", entry))
        assert found is not None
        assert len(found) == count
    assert declared_parameters(CudaProgram(source, "x.cu", "k")) is None


def test_more_elements_than_an_int_can_count():
    wide = matrix(rows=2**16, columns=2**15, ld=2**15)
    for fine in ("size_t n", "long long n", "bool n", "T n"):
        signature(f"float* C, {fine}").pack([wide, 1])
    for narrow in ("int n", "unsigned n", "short n"):
        with pytest.raises(CompileError, match=r"has 2147483648 elements.*take them as size_t"):
            signature(f"float* C, {narrow}").pack([wide, 1])
        signature(f"float* C, {narrow}").pack([matrix(2**16, 2**15 - 1, 2**15 - 1), 1])


# -- the kernel on the device -------------------------------------------------------------------


class Loaded:
    def __init__(self, parameters="float* C, int n", **kernel):
        self.fake = FakeCuda()
        self.kernel = self.fake.kernels["k"] = Kernel(**{"sizes": (8, 4)} | kernel)
        self.backend = self.fake.backend()
        source = f"__global__ void k({parameters}) {{}}"
        self.executable = self.backend.compile(CudaProgram(source, "kernels/x.cu", "k"))
        self.buffer = self.backend.allocate(64)

    def launch(self, config=ONE, *arguments):
        C = Matrix(self.buffer, 16, 3, 4, 4, "float32")
        return self.backend.time(self.executable, config, arguments or [C, 7])


def test_a_launch_reaches_the_driver():
    loaded = Loaded()
    config = LaunchConfig((3, 2, 1), (32, 4, 1), 1024)
    loaded.launch(config)
    size, shared, values = loaded.kernel.launches[0]
    assert (size, shared) == ((3, 2, 1, 32, 4, 1), 1024)
    assert values == [struct.pack("<Q", loaded.buffer.address + 16), struct.pack("<i", 7)]


def test_facts():
    loaded = Loaded(registers=40, local=8, shared=2048, max_threads=512)
    facts = dict(loaded.executable.facts)
    assert facts.pop("compile_seconds") > 0
    assert facts.pop("load_seconds") > 0
    assert facts == {
        "registers": 40,
        "local_bytes": 8,
        "static_shared_bytes": 2048,
        "max_threads": 512,
    }
    loaded.launch(LaunchConfig((1, 1, 1), (256, 1, 1)))
    assert loaded.executable.facts["blocks_per_sm"] == 2
    assert loaded.executable.facts["occupancy"] == 2 * 256 / 2048


def test_large_dynamic_shared_memory_is_enabled_once():
    loaded = Loaded(shared=1024)
    loaded.launch(LaunchConfig((1, 1, 1), (1, 1, 1), 49152 - 1024))
    assert loaded.kernel.dynamic == 0
    loaded.launch(LaunchConfig((1, 1, 1), (1, 1, 1), 49152))
    assert loaded.kernel.dynamic == 49152
    loaded.launch(LaunchConfig((1, 1, 1), (1, 1, 1), 232448 - 1024))
    assert loaded.kernel.dynamic == 232448 - 1024
    loaded.launch(LaunchConfig((1, 1, 1), (1, 1, 1), 60000))  # must not take it back
    assert loaded.kernel.dynamic == 232448 - 1024


def test_equal_values_of_another_type_are_another_launch():
    loaded = Loaded("T C", sizes=(4,))
    loaded.launch(ONE, 1)
    loaded.launch(ONE, 1.0)
    assert [values for _, _, values in loaded.kernel.launches] == [
        [struct.pack("<i", 1)],
        [struct.pack("<f", 1.0)],
    ]


def test_too_much_shared_memory():
    loaded = Loaded(shared=1024)
    with pytest.raises(KernelFault) as caught:
        loaded.launch(LaunchConfig((1, 1, 1), (1, 1, 1), 232448 - 1023))
    assert caught.value.kind == "cuda"
    assert str(caught.value) == (
        "231425 bytes of dynamic and 1024 of static shared memory exceed this GPU's 232448 per"
        " block"
    )


def test_too_many_threads_for_the_registers():
    loaded = Loaded(registers=80, max_threads=768)
    loaded.launch(LaunchConfig((1, 1, 1), (768, 1, 1)))
    with pytest.raises(KernelFault, match=r"a block of 1024 threads .* 80 registers .* have 768"):
        loaded.launch(LaunchConfig((1, 1, 1), (1024, 1, 1)))


@pytest.mark.parametrize(("grid", "block", "words"), [
    ((2**31, 1, 1), (1, 1, 1), "grid .* exceeds this GPU's limit of .2147483647, 65535, 65535"),
    ((1, 65536, 1), (1, 1, 1), "grid"),
    ((1, 1, 65536), (1, 1, 1), "grid"),
    ((1, 1, 1), (1, 1, 65), "block .* exceeds"),
    ((1, 1, 1), (64, 32, 1), "2048 threads, more than 1024"),
    ((0, 1, 1), (1, 1, 1), "below 1"),
    ((1, 1, 1), (1, 0, 1), "below 1"),
])  # fmt: skip
def test_limits_of_the_launch(grid, block, words):
    loaded = Loaded()
    with pytest.raises(BackendError, match=words):
        loaded.launch(LaunchConfig(grid, block))
    assert loaded.kernel.launches == []


def test_large_grids_are_fine():
    loaded = Loaded()
    loaded.launch(LaunchConfig((2**31 - 1, 65535, 65535), (1024, 1, 1)))


def test_a_driver_that_does_not_know_the_parameters():
    class Old:
        pass

    assert Libcuda(Old()).parameter_sizes(3) is None


def test_a_driver_call_that_fails():
    class Failing(FakeLibrary):
        def cuGraphGetNodes(self, graph, nodes, count):
            return 400

    with pytest.raises(BackendError, match="cuGraphGetNodes failed with CUDA error 400"):
        Libcuda(Failing(FakeCuda())).count_work(5)
