"""CUDA as CuPy shows it, without a GPU: streams, events, graphs and kernels on a scripted clock.

Kernels have a duration and may fail; calls cost a microsecond; nothing runs by itself: the host's
clock moves with each call, each poll and each sleep.
"""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np

from pytest_gemm.backends.cuda import CudaBackend
from pytest_gemm.backends.cuda.api import Api, Libcuda
from pytest_gemm.backends.cuda.blocker import Blocker

CALL = 1e-6
NEVER = float("inf")

ATTRIBUTES = {
    **{"MaxGridDimX": 2**31 - 1, "MaxGridDimY": 65535, "MaxGridDimZ": 65535},
    **{"MaxBlockDimX": 1024, "MaxBlockDimY": 1024, "MaxBlockDimZ": 64},
    **{"MaxThreadsPerBlock": 1024, "MaxThreadsPerMultiProcessor": 2048},
    **{"MaxSharedMemoryPerBlock": 49152, "MaxSharedMemoryPerBlockOptin": 232448},
    **{"ClockRate": 1980000, "MemoryClockRate": 3201000, "GlobalMemoryBusWidth": 6144},
    "L2CacheSize": 1000,
}


class RuntimeFailure(RuntimeError):
    """``CUDARuntimeError``: the name comes first in its text."""


class DriverFailure(RuntimeError):
    """``CUDADriverError``."""


class NvrtcFailure(RuntimeError):
    """``NVRTCError``."""


@dataclass
class Kernel:
    """A compiled kernel: seconds of one launch, an error it ends with, the bytes it takes."""

    seconds: float = 1e-5
    error: str = ""
    sizes: tuple[int, ...] = ()
    registers: int = 32
    local: int = 0
    shared: int = 0
    max_threads: int = 1024
    launches: list[tuple[Any, ...]] = field(default_factory=list)
    dynamic: int = 0


@dataclass
class Operation:
    """Something queued on a stream."""

    kind: str
    seconds: float = 0.0
    queued: float = 0.0
    error: str = ""
    event: int = 0
    turns: Any = None
    turn: int = 0
    limit: float = 0.0
    released: float = NEVER


@dataclass
class Lane:
    """A stream."""

    operations: deque[Operation] = field(default_factory=deque)
    free_at: float = 0.0
    captured: list[Operation] | None = None
    invalid: bool = False

    @property
    def holds(self) -> bool:
        return bool(self.operations) and self.operations[0].kind == "hold"


class FakeCuda:
    """The machine. ``calls`` are the names of the API calls so far, in order."""

    def __init__(self) -> None:
        self.now = 0.0
        self.kernels: dict[str, Kernel] = {}
        self.log = ""
        self.sources: list[str] = []
        self.options: tuple[str, ...] = ()
        self.calls: list[str] = []
        self.failures: dict[str, str] = {}
        self.lost = ""
        self.lanes: dict[int, Lane] = {}
        self.events: dict[int, float | None] = {}
        self.graphs: dict[int, list[Operation]] = {}
        self.memory: dict[int, Any] = {}
        self.capacity = 2**40
        self.copy_seconds = 0.0
        self.attributes = dict(ATTRIBUTES)
        self.releases_blocker = True
        self.null_graphs = False
        self.turn_delay = 0.0
        self.idle_delay: Callable[[], float] = lambda: 0.0
        self.archs: tuple[int, ...] = (80, 90, 100)
        self._next = 1000
        self._functions: dict[int, Kernel] = {}
        self._programs: dict[int, SimpleNamespace] = {}
        self.stream_stack: list[Any] = []

    # -- making things ------------------------------------------------------------------------

    def api(self) -> Api:
        """What the back end is given instead of CuPy."""
        return Api(self.cupy(), self.runtime(), self.driver(), self.nvrtc(), self.libcuda())

    def backend(self) -> CudaBackend:
        """A back end on this machine, whose polls and sleeps move its clock."""
        backend = CudaBackend(api=self.api())
        backend._queue._clock = self.tick
        backend._queue._sleep = self.sleep
        return backend

    def number(self) -> int:
        self._next += 1
        return self._next

    def tick(self) -> float:
        self.now += CALL
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def _called(self, name: str) -> None:
        self.calls.append(name)
        self.tick()
        if self.lost:
            raise RuntimeFailure(f"{self.lost}: it failed")
        if name in self.failures:
            raise RuntimeFailure(f"{self.failures[name]}: it failed")

    # -- running ------------------------------------------------------------------------------

    def queue(self, stream: int, operation: Operation) -> None:
        """Put an operation on a stream, or into the graph that is being captured there."""
        lane = self.lanes[stream]
        operation.queued = self.now
        if lane.captured is not None:
            lane.captured.append(operation)
        else:
            lane.operations.append(operation)

    def work(self, stream: int, seconds: float = 1e-5) -> None:
        """What a Python kernel does: a kernel of some library."""
        self.queue(stream, Operation("kernel", seconds))

    def run(self) -> bool:
        """Let every stream go on until now; whether all is done."""
        # A held device runs nothing else, so what holds it goes first.
        lanes = sorted(self.lanes.values(), key=lambda lane: not lane.holds)
        for lane in lanes:
            while not any(other.holds for other in lanes if other is not lane):
                if not lane.operations or not self._step(lane, lane.operations[0]):
                    break
                lane.operations.popleft()
        return not any(lane.operations for lane in self.lanes.values())

    def _step(self, lane: Lane, operation: Operation) -> bool:
        start = max(lane.free_at, operation.queued)
        if operation.kind == "hold":
            if operation.turns[0] >= operation.turn and self.releases_blocker:
                operation.released = min(operation.released, self.now)
                end = max(start, operation.released + self.turn_delay)
                if end > self.now:
                    return False
            elif self.now - start <= operation.limit:
                return False
            else:
                operation.turns[1] = operation.turn
                end = start + operation.limit
            for other in self.lanes.values():
                other.free_at = max(other.free_at, end)
            return True
        if start + operation.seconds > self.now:
            return False
        lane.free_at = start + operation.seconds
        if operation.kind == "event":
            self.events[operation.event] = lane.free_at
        if operation.error:
            self.lost = operation.error
        return True

    def wait_for_all(self) -> None:
        """Synchronise; a test that would hang fails instead."""
        step = 1e-6
        for _ in range(100_000):
            if self.run():
                return
            assert not any(
                lane.operations[0].seconds == NEVER
                for lane in self.lanes.values()
                if lane.operations
            ), "this would wait forever"
            self.now += step
            step = min(1.1 * step, 1e-4)
        raise AssertionError("this would wait forever")

    @property
    def held(self) -> bool:
        """Whether the host holds the device."""
        self.run()
        return any(lane.holds for lane in self.lanes.values())

    # -- the APIs -----------------------------------------------------------------------------

    def cupy(self) -> Any:
        fake = self

        class Stream:
            def __init__(self, non_blocking: bool = False) -> None:
                assert non_blocking
                self.ptr = fake.number()
                fake.lanes[self.ptr] = Lane()

            def __enter__(self) -> Any:
                fake.stream_stack.append(self)
                return self

            def __exit__(self, *_: object) -> None:
                fake.stream_stack.pop()

            def synchronize(self) -> None:
                fake.runtime().streamSynchronize(self.ptr)

        def unowned(address: int, size: int, owner: Any) -> Any:
            return SimpleNamespace(address=address, size=size, owner=owner)

        def pointer(memory: Any, offset: int) -> Any:
            return SimpleNamespace(memory=memory, offset=offset)

        def ndarray(shape: Any, dtype: Any, memptr: Any, strides: Any) -> Any:
            memory = fake.memory[memptr.memory.address]
            return np.ndarray(shape, dtype, memory.data, memptr.offset, strides)

        cuda = SimpleNamespace(
            Stream=Stream,
            UnownedMemory=unowned,
            MemoryPointer=pointer,
            get_cuda_path=lambda: None,
        )
        return SimpleNamespace(
            cuda=cuda, ndarray=ndarray, __version__="14.2.0", __file__="/nowhere/__init__.py"
        )

    def runtime(self) -> Any:
        names = [name for name in dir(self) if name.startswith("rt_")]
        functions = {name[3:]: self._wrapped(name[3:], getattr(self, name)) for name in names}
        constants = {
            "eventDefault": 0,
            "streamCaptureModeRelaxed": 2,
            "hostAllocMapped": 2,
            "memcpyHostToDevice": 1,
            "memcpyDeviceToHost": 2,
            "memcpyDeviceToDevice": 3,
        }
        attributes = {f"cudaDevAttr{name}": name for name in self.attributes}
        return SimpleNamespace(
            CUDARuntimeError=RuntimeFailure, **functions, **constants, **attributes
        )

    def _wrapped(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            if name not in ("eventQuery", "check_status"):
                self._called(name)
            return function(*arguments)

        return call

    def rt_setDevice(self, _: int) -> None: ...

    def rt_getDeviceCount(self) -> int:
        return 1

    def rt_getDeviceProperties(self, _: int) -> dict[str, Any]:
        return {
            **{"name": b"NVIDIA H200", "major": 9, "minor": 0},
            **{"totalGlobalMem": 140 * 2**30, "multiProcessorCount": 132},
        }

    def rt_deviceGetPCIBusId(self, _: int) -> str:
        return "0000:00:00.0"

    def rt_deviceGetAttribute(self, name: str, _: int) -> int:
        return self.attributes[name]

    def rt_driverGetVersion(self) -> int:
        return 13000

    def rt_runtimeGetVersion(self) -> int:
        return 13000

    def rt_memGetInfo(self) -> tuple[int, int]:
        return self.capacity, 2 * self.capacity

    def rt_deviceSynchronize(self) -> None:
        self.wait_for_all()
        if self.lost:
            raise RuntimeFailure(f"{self.lost}: it failed")
        self.now += self.idle_delay()

    def rt_malloc(self, nbytes: int) -> int:
        if nbytes > self.capacity:
            raise RuntimeFailure("cudaErrorMemoryAllocation: out of memory")
        array = np.zeros(nbytes, np.uint8)
        self.memory[array.ctypes.data] = array
        return array.ctypes.data

    def rt_free(self, address: int) -> None:
        del self.memory[address]

    def rt_hostAlloc(self, nbytes: int, _: int) -> int:
        return self.rt_malloc(nbytes)

    def rt_freeHost(self, address: int) -> None:
        self.rt_free(address)

    def rt_memcpyAsync(self, target: int, source: int, nbytes: int, _: int, stream: int) -> None:
        assert stream in self.lanes
        ctypes.memmove(target, source, nbytes)
        if self.copy_seconds:
            self.queue(stream, Operation("memcpy", nbytes * self.copy_seconds))

    def rt_memsetAsync(self, _: int, __: int, nbytes: int, stream: int) -> None:
        self.queue(stream, Operation("memset", nbytes * 1e-9))

    def rt_streamSynchronize(self, stream: int) -> None:
        lane = self.lanes[stream]
        if lane.captured is not None:
            lane.invalid = True
            raise RuntimeFailure("cudaErrorStreamCaptureUnsupported: not while capturing")
        self.wait_for_all()

    def rt_eventCreateWithFlags(self, _: int) -> int:
        return self.number()

    def rt_eventRecord(self, event: int, stream: int) -> None:
        self.events[event] = None
        self.queue(stream, Operation("event", event=event))

    def rt_eventQuery(self, event: int) -> int:
        self.tick()
        self.run()
        if self.lost:
            return 700
        return 0 if self.events[event] is not None else 600

    def rt_check_status(self, status: int) -> None:
        if status:
            raise RuntimeFailure(f"{self.lost}: it failed")

    def rt_eventElapsedTime(self, start: int, end: int) -> float:
        first, last = self.events[start], self.events[end]
        assert first is not None
        assert last is not None
        return (last - first) * 1e3

    def rt_streamBeginCapture(self, stream: int, mode: int) -> None:
        assert mode == 2
        self.lanes[stream].captured = []

    def rt_streamEndCapture(self, stream: int) -> int:
        lane = self.lanes[stream]
        assert lane.captured is not None
        nodes, lane.captured = lane.captured, None
        if not nodes and self.null_graphs:
            return 0
        if lane.invalid:
            lane.invalid = False
            raise RuntimeFailure("cudaErrorStreamCaptureInvalidated: it failed")
        graph = self.number()
        self.graphs[graph] = nodes
        return graph

    def rt_graphInstantiate(self, graph: int) -> int:
        assert self.graphs[graph], "this graph does nothing"
        assert not self.held, "this may need memory, and so wait for the device"
        executable = self.number()
        self.graphs[executable] = self.graphs[graph]
        return executable

    def rt_graphDestroy(self, graph: int) -> None:
        del self.graphs[graph]

    def rt_graphExecDestroy(self, executable: int) -> None:
        del self.graphs[executable]

    def rt_graphUpload(self, executable: int, _: int) -> None:
        assert executable in self.graphs

    def rt_graphLaunch(self, executable: int, stream: int) -> None:
        for node in self.graphs[executable]:
            self.queue(stream, Operation(node.kind, node.seconds, error=node.error))

    def driver(self) -> Any:
        def load(image: bytes) -> str:
            self._called("moduleLoadData")
            return image.decode()

        def function(module: str, entry: str) -> int:
            assert module == f"code of {entry}"
            handle = self.number()
            self._functions[handle] = self.kernels.setdefault(entry, Kernel())
            return handle

        def get(attribute: str, handle: int) -> int:
            return int(getattr(self._functions[handle], attribute))

        def set_(handle: int, attribute: str, value: int) -> None:
            assert attribute == "dynamic"
            self._functions[handle].dynamic = value

        names = {
            "NUM_REGS": "registers",
            "LOCAL_SIZE_BYTES": "local",
            "SHARED_SIZE_BYTES": "shared",
            "MAX_THREADS_PER_BLOCK": "max_threads",
            "MAX_DYNAMIC_SHARED_SIZE_BYTES": "dynamic",
        }
        return SimpleNamespace(
            CUDADriverError=DriverFailure,
            moduleLoadData=load,
            moduleGetFunction=function,
            funcGetAttribute=get,
            funcSetAttribute=set_,
            occupancyMaxActiveBlocksPerMultiprocessor=lambda *_: 2,
            launchKernel=self._launch,
            **{f"CU_FUNC_ATTRIBUTE_{key}": value for key, value in names.items()},
        )

    def _launch(self, handle: int, *rest: Any) -> None:
        *size, shared, stream, parameters, _ = rest
        self._called("launchKernel")
        kernel = self._functions[handle]
        pointers = (ctypes.c_void_p * 16).from_address(parameters)
        if self.kernels.get("hold") is kernel:
            blocks, threads = size[0], size[3]
            assert blocks * threads == 132 * 2048  # it fills the device
            address = ctypes.c_void_p.from_address(pointers[0]).value
            turn = ctypes.c_int.from_address(pointers[1]).value
            limit = ctypes.c_ulonglong.from_address(pointers[2]).value
            turns = (ctypes.c_int * 2).from_address(address)
            self.queue(stream, Operation("hold", turns=turns, turn=turn, limit=limit * 1e-9))
            return
        values = [
            ctypes.string_at(pointers[index], size_) for index, size_ in enumerate(kernel.sizes)
        ]
        kernel.launches.append((tuple(size), shared, values))
        self.queue(stream, Operation("kernel", kernel.seconds, error=kernel.error))

    def nvrtc(self) -> Any:
        def create(source: str, name: str, headers: Any, names: Any) -> int:
            assert all(isinstance(text, bytes) for text in (*headers, *names))
            assert len(headers) == len(names)
            handle = self.number()
            self.sources.append(source)
            self._programs[handle] = SimpleNamespace(name=name, entry="")
            return handle

        def add(handle: int, entry: str) -> None:
            self._programs[handle].entry = entry

        def compile_(handle: int, options: tuple[str, ...]) -> None:
            self.options = options
            if self.log:
                raise NvrtcFailure("NVRTC_ERROR_COMPILATION (6)")

        def lowered(handle: int, entry: str) -> str:
            return entry.partition("<")[0]

        def code(handle: int) -> bytes:
            return f"code of {lowered(handle, self._programs[handle].entry)}".encode()

        return SimpleNamespace(
            NVRTCError=NvrtcFailure,
            getVersion=lambda: (13, 0),
            getSupportedArchs=lambda: self.archs,
            createProgram=create,
            addNameExpression=add,
            compileProgram=compile_,
            getProgramLog=lambda _: self.log,
            getCUBIN=code,
            getPTX=code,
            getLoweredName=lowered,
            destroyProgram=self._programs.pop,
        )

    def libcuda(self) -> Libcuda:
        return Libcuda(FakeLibrary(self))


class FakeLibrary:
    """``libcuda.so``: C functions with pointers for results."""

    def __init__(self, fake: FakeCuda) -> None:
        self._fake = fake

    def cuGraphGetNodes(self, graph: Any, nodes: Any, count: Any) -> int:
        found = self._fake.graphs[graph.value]
        if nodes is not None:
            if count._obj.value == 0:
                return 1  # as the driver does
            for index, node in enumerate(found):
                nodes[index] = {"kernel": 16, "memset": 18, "event": 23}[node.kind]
        count._obj.value = len(found)
        return 0

    def cuGraphNodeGetType(self, node: Any, kind: Any) -> int:
        kind._obj.value = node.value - 16
        return 0

    def cuFuncGetParamInfo(self, function: Any, index: Any, offset: Any, size: Any) -> int:
        sizes = self._fake._functions[function.value].sizes
        if index.value >= len(sizes):
            return 1
        size._obj.value = sizes[index.value]
        return 0


__all__ = ["Blocker", "FakeCuda", "Kernel"]
