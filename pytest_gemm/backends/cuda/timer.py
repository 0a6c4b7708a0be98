"""How launches are timed: one by one, replayed from a graph, queued behind a blocker, or cold.

- *Hot*: the launches are captured in a CUDA graph, which the device runs without the host. Its
  replay is queued behind a blocking kernel, and two events around it tell the time. Where the
  launches cannot be captured (CuPy refuses to capture cuBLAS), they are queued there themselves.
- *Cold*: before each launch, twice the L2 cache is overwritten. The launches are queued behind the
  blocking kernel, not captured: that works for every program, it is how NVBench measures, and
  two events around each launch leave the overwriting out of the time.

Ahead of the blocking kernel runs another, which leaves no sample the state of the one before: see
``shuffle``.

Each way starts with one ordinary launch of the same arguments: a kernel that is loaded at its
first launch would wait for the device, and so for the blocking kernel, forever.

Work outside of the given stream would not be timed, and is a fault:

- To capture launches runs nothing, so whatever the device does after it was put elsewhere. It is
  held meanwhile: what is left adds up over all launches, and none of it is done before one looks.
- After launches that were not captured, the device must be idle soon after our stream.
- What is too short for both must still not be needed: once captured, the same arguments are only
  replayed, so that a C that was overwritten in between is right only if the graph is complete.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from pytest_gemm.backends.base import Argument, LaunchConfig, Matrix
from pytest_gemm.backends.cuda.api import Api
from pytest_gemm.backends.cuda.blocker import LIMIT, THREADS, Blocker
from pytest_gemm.backends.cuda.compiler import Compiler
from pytest_gemm.backends.cuda.graphs import CaptureRefused, Graph
from pytest_gemm.backends.cuda.memory import DeviceBuffer, Memory
from pytest_gemm.backends.cuda.queue import Queue
from pytest_gemm.backends.cuda.shuffle import Shuffle
from pytest_gemm.errors import BackendError, KernelFault

KEPT = 32
"""Sets of arguments whose launches and graphs are remembered."""

CHUNKS = (100, 10, 1)
"""Launches queued at once: a stream holds about a thousand operations, then the host waits."""

SLACK = 50e-6
"""Seconds that the device may take to become idle after our stream did."""

PATIENCE = 3
"""Launches in a row with work left elsewhere that make a fault: one may be the host's hiccup."""


class Launchable(Protocol):
    """What both kinds of executable can do."""

    name: str

    def prepare(
        self, config: LaunchConfig, arguments: Sequence[Argument]
    ) -> Callable[[], None]: ...


@dataclass
class _Habits:
    """What was learnt of an executable."""

    capturable: bool = True
    chunk: int = 0
    late: int = 0


@dataclass
class _Work:
    """An executable on certain arguments; ``seconds`` are those of its ordinary launch."""

    name: str
    habits: _Habits
    launch: Callable[[], None]
    buffers: tuple[DeviceBuffer, ...]
    launched: bool = False
    seconds: float = 0.0
    operations: int = 0
    graphs: dict[int, Graph] = field(default_factory=dict)

    def release(self) -> None:
        for graph in self.graphs.values():
            graph.release()
        self.graphs.clear()


class Timer:
    """Times launches on one queue.

    ``l2_bytes`` is the size of the L2 cache; ``threads`` is how many the device holds at once.
    """

    def __init__(
        self,
        api: Api,
        queue: Queue,
        memory: Memory,
        compiler: Compiler,
        l2_bytes: int,
        threads: int,
    ) -> None:
        self._api = api
        self._queue = queue
        self._memory = memory
        self._compiler = compiler
        self._l2_bytes = l2_bytes
        self._threads = threads
        self._works: OrderedDict[Hashable, _Work] = OrderedDict()
        self._habits: WeakKeyDictionary[Any, _Habits] = WeakKeyDictionary()

    def time(
        self,
        executable: Launchable,
        config: LaunchConfig,
        arguments: Sequence[Argument],
        launches: int,
        cold: bool,
        timeout: float,
    ) -> float:
        """Seconds of all launches. Raises KernelFault, CompileError, BackendError."""
        self._queue.check()
        work = self._work(executable, config, arguments)
        with self._queue.guarded():
            if launches == 1 and not cold:
                return self._once(work, timeout)
            if not work.launched:
                self._once(work, timeout)
            graph = self._graph(work, launches, timeout)
            if cold:
                return self._in_chunks(self._cold, work, launches, timeout)
            if graph is None:
                return self._in_chunks(self._queued, work, launches, timeout)
            return self._replayed(work, graph, launches, timeout)

    def forget(self, buffer: DeviceBuffer) -> None:
        """Drop what refers to a buffer that is freed."""
        for key in [key for key, work in self._works.items() if buffer in work.buffers]:
            self._works.pop(key).release()

    def is_captured(self, executable: Launchable) -> bool:
        """Whether nothing refused to be captured so far."""
        habits = self._habits.get(executable)
        return habits is None or habits.capturable

    @cached_property
    def _blocker(self) -> Blocker:
        return Blocker(self._api, self._queue, self._compiler, self._threads // THREADS)

    @cached_property
    def _shuffle(self) -> Shuffle:
        return Shuffle(self._api, self._queue, self._compiler, self._threads // THREADS)

    @cached_property
    def _evicting(self) -> DeviceBuffer:
        return self._memory.allocate(2 * self._l2_bytes)

    def _work(
        self, executable: Launchable, config: LaunchConfig, arguments: Sequence[Argument]
    ) -> _Work:
        types = tuple(map(type, arguments))  # 1 and 1.0 are equal
        key = (executable, config, tuple(arguments), types)
        if work := self._works.get(key):
            self._works.move_to_end(key)
            return work
        launch = executable.prepare(config, arguments)
        matrices = [a.buffer for a in arguments if isinstance(a, Matrix)]
        buffers = tuple(b for b in matrices if isinstance(b, DeviceBuffer))
        habits = self._habits.setdefault(executable, _Habits(chunk=CHUNKS[0]))
        work = self._works[key] = _Work(executable.name, habits, launch, buffers)
        while len(self._works) > KEPT:
            self._works.popitem(last=False)[1].release()
        return work

    def _once(self, work: _Work, timeout: float) -> float:
        self._queue.record(0)
        work.launch()
        self._queue.record(1)
        self._queue.wait(1, timeout, timeout)
        work.seconds = self._queue.elapsed(0, 1)
        work.launched = True
        self._check_idle(work, work.seconds)
        return work.seconds

    def _replayed(self, work: _Work, graph: Graph, launches: int, timeout: float) -> float:
        for _ in range(PATIENCE):
            with self._held_afresh():
                self._around(graph.replay, 1)
            self._queue.wait(1, self._limit(work, launches, timeout) + LIMIT, timeout)
            if not self._blocker.expired:
                return self._queue.elapsed(0, 1)
        raise BackendError(
            f"the host took longer than {LIMIT:g} s to queue {launches} launches of {work.name}, "
            f"{PATIENCE} times in a row"
        )

    def _graph(self, work: _Work, launches: int, timeout: float) -> Graph | None:
        """The launches as a graph, checked for work elsewhere; None where capture is refused."""
        if not work.habits.capturable:
            return None
        try:
            if not work.operations:
                work.operations = self._operations(work, timeout)
            if launches not in work.graphs:
                work.graphs[launches] = self._captured(work, launches, timeout)
        except CaptureRefused:
            work.habits.capturable = False
            return None
        return work.graphs[launches]

    def _operations(self, work: _Work, timeout: float) -> int:
        """How many operations one launch is: at least one."""
        one, _ = self._held_capture(work, 1, timeout)
        one.release()
        if self._blocker.expired:
            raise KernelFault(
                "escaped-stream",
                f"{work.name} waits inside the call for work outside of the given stream",
            )
        if not one.work:
            raise KernelFault(
                "escaped-stream",
                f"{work.name} launches nothing on the given stream: it works on another stream, "
                "or returns without work",
            )
        return one.work

    def _captured(self, work: _Work, launches: int, timeout: float) -> Graph:
        for _ in range(PATIENCE):
            graph, left = self._held_capture(work, launches, timeout)
            if graph.work != launches * work.operations:
                graph.release()
                raise _incomplete(work, launches, graph.work)
            if left <= SLACK:
                graph.upload()
                return graph
            graph.release()
        raise _escaped(work, left, "nothing was to run")

    def _held_capture(self, work: _Work, launches: int, timeout: float) -> tuple[Graph, float]:
        """Capture while the device is held; the seconds for which it works on after that."""
        with self._blocker.holding():
            graph = Graph(self._api, self._queue, work.launch, launches)
        # Not counted: until the device let go, and this process' turn came on a shared one.
        self._queue.record(0)
        self._queue.wait(0, timeout + LIMIT, timeout)
        return graph, self._queue.remaining_work()

    def _in_chunks(
        self,
        method: Callable[[_Work, int, float], float | None],
        work: _Work,
        launches: int,
        timeout: float,
    ) -> float:
        total, done = 0.0, 0
        while done < launches:
            count = min(launches - done, work.habits.chunk)
            seconds = method(work, count, timeout)
            if seconds is None:
                work.habits.chunk = self._smaller(work, count)
            else:
                total, done = total + seconds, done + count
        return total

    def _smaller(self, work: _Work, count: int) -> int:
        for chunk in CHUNKS:
            if chunk < count:
                return chunk
        raise KernelFault(
            "timeout",
            f"a launch of {work.name} could not be queued within {LIMIT:g} s: it waits for the "
            "device inside the call; leave waiting (synchronize, .get(), .item()) out of it",
        )

    def _queued(self, work: _Work, launches: int, timeout: float) -> float | None:
        """Seconds of launches behind the blocker; None where it gave up first."""
        with self._held_afresh():
            self._around(work.launch, launches)
        self._queue.wait(1, self._limit(work, launches, timeout) + LIMIT, timeout)
        seconds = self._queue.elapsed(0, 1)
        self._check_idle(work, seconds)
        return None if self._blocker.expired else seconds

    def _cold(self, work: _Work, launches: int, timeout: float) -> float | None:
        """The same with the L2 cache overwritten before each; the sum of the single times."""
        address, nbytes = self._evicting.address, self._evicting.nbytes
        with self._held_afresh():
            for index in range(launches):
                self._api.runtime.memsetAsync(address, index & 1, nbytes, self._queue.stream)
                self._queue.record(2 * index)
                work.launch()
                self._queue.record(2 * index + 1)
        last = 2 * launches - 1
        self._queue.wait(last, self._limit(work, launches, timeout) + LIMIT, timeout)
        seconds = sum(self._queue.elapsed(2 * i, 2 * i + 1) for i in range(launches))
        self._check_idle(work, seconds)
        return None if self._blocker.expired else seconds

    def _held_afresh(self) -> AbstractContextManager[None]:
        """Hold the device, whose multiprocessors then are in a state of chance."""
        self._shuffle.launch()
        return self._blocker.holding()

    def _around(self, launch: Callable[[], None], launches: int) -> None:
        self._queue.record(0)
        for _ in range(launches):
            launch()
        self._queue.record(1)

    def _limit(self, work: _Work, launches: int, timeout: float) -> float:
        # Many launches cannot be told apart from outside; the ordinary one says what to expect.
        return timeout + 10 * launches * work.seconds

    def _check_idle(self, work: _Work, seconds: float) -> None:
        """Raise KernelFault where work went on elsewhere when our stream was done."""
        left = self._queue.remaining_work()
        work.habits.late = work.habits.late + 1 if left > max(SLACK, 0.2 * seconds) else 0
        if work.habits.late >= PATIENCE:
            raise _escaped(work, left, f"the stream was done after {seconds:.3g} s")


def _escaped(work: _Work, left: float, otherwise: str) -> KernelFault:
    return KernelFault(
        "escaped-stream",
        f"{work.name} works outside of the given stream: the device was busy for another "
        f"{left:.3g} s when {otherwise}",
    )


def _incomplete(work: _Work, launches: int, operations: int) -> KernelFault:
    return KernelFault(
        "escaped-stream",
        f"{launches} calls of {work.name} put {operations} operations on the given stream "
        f"where one call puts {work.operations}: some return without work, or work on "
        "another stream",
    )
