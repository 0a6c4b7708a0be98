"""Deals cases to the workers of a run's devices: one worker, and one thread, for each."""

from __future__ import annotations

import queue
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from hashlib import sha256
from typing import Any

from pytest_gemm.backends.base import Device
from pytest_gemm.case import Case
from pytest_gemm.dueling import Times
from pytest_gemm.duet import Round
from pytest_gemm.errors import BackendError
from pytest_gemm.function import Function, Runnable
from pytest_gemm.result import Result
from pytest_gemm.workers.worker import Lost, Ran, Worker

Open = Callable[[int, Callable[[str], None], bool], Worker]
"""Makes a worker of the GPU with that number. The second argument is told of its progress; the
third says whether it helps the one that has the device already."""


class Pool:
    """Runs cases on one device, or on several at once; each case stays on one of them.

    ``gpus`` are numbers, or None for all that there are, presumably ``likely``: so many workers
    start at once. What workers say reaches ``progress`` in the thread that waits for them, and so
    does what a case printed. Devices that work ``ahead`` begin cases before they are asked for; of
    one device nothing is asked ahead, as the wait would be no shorter.
    """

    def __init__(
        self,
        open_worker: Open,
        gpus: Sequence[int] | None,
        progress: Callable[[str], None],
        *,
        likely: int = 1,
        ahead: bool = True,
    ) -> None:
        self._open = open_worker
        self._progress = progress
        self._ahead = ahead
        self._said: queue.SimpleQueue[str | _Answer] = queue.SimpleQueue()
        self._answers: dict[str, _Answer] = {}
        self._awaited: set[str] = set()
        self._place: dict[str, int] = {}
        self._all_gpus = gpus is None
        self._lanes = [self._lane(gpu) for gpu in (range(likely) if gpus is None else gpus)]

    def devices(self) -> list[Device]:
        """Start every worker and return what they run on. Raises BackendError."""
        self._start_all()
        return [self._started(lane) for lane in self._lanes]

    def expect(self, cases: Sequence[tuple[Case, Function | None]]) -> None:
        """Say what will be run, in order: deal it to the devices, and begin where there are many.

        The deal depends on nothing but the cases and the devices, and gives each as many. The
        cases of a device that cannot be used fail when they are run. Raises DeviceBusyError.
        """
        if len(self._lanes) == 1 and not self._all_gpus:
            return
        self._start_all()
        names = [self._identity(lane) for lane in self._lanes]
        self._place = deal([case.id for case, _ in cases], names)
        if self._ahead and len(self._lanes) > 1:
            for case, function in cases:
                self._begin(case, function, first=False)

    def run(self, case: Case, function: Function | None) -> Result:
        """Run a case, or wait for it where it was begun ahead. Raises BackendError."""
        self._begin(case, function, first=True)
        ran: Ran = self._wait_for(case.id)
        sys.stdout.write(ran.stdout)
        sys.stderr.write(ran.stderr)
        return ran.result

    @property
    def can_duet(self) -> bool:
        return True

    def duet(self, old: Runnable, new: Runnable, round_: Round) -> list[Times]:
        """A round of a duet, on the device of the new kernel's case, in processes of its own.

        These are kept for the duets that follow. A process that was lost is left out. Raises
        BackendError where all were, or a kernel failed its checks.
        """
        lane = self._lanes[self._place.get(new.case.id, 0)]
        name = f"duet {new.case.id}"
        self._ask(lane, name, lambda _: lane.duet(old, new, round_))
        times: list[Times] = self._wait_for(name)
        return times

    def close(self) -> None:
        """End all workers, whatever they are doing."""
        for lane in self._lanes:
            lane.stop()
        for lane in self._lanes:
            lane.join()

    def _start_all(self) -> None:
        """Begin to start every worker; how many there are, where it is all, the first one says."""
        for lane in self._lanes:
            self._ask_whether_ready(lane)
        if self._all_gpus:
            self._all_gpus = False
            self._identity(self._lanes[0])
            self._have(self._lanes[0].worker.count)

    def _have(self, count: int) -> None:
        """Have that many lanes, each asked whether it is ready."""
        for lane in self._lanes[count:]:
            lane.stop()
            lane.join()
        del self._lanes[count:]
        for gpu in range(len(self._lanes), count):
            self._lanes.append(self._lane(gpu))
            self._ask_whether_ready(self._lanes[-1])

    def _started(self, lane: _Lane) -> Device:
        self._ask_whether_ready(lane)
        device: Device = self._wait_for(lane.name)
        return device

    def _ask_whether_ready(self, lane: _Lane) -> None:
        self._ask(lane, lane.name, lambda worker: worker.ready())

    def _identity(self, lane: _Lane) -> str:
        """What tells a device from others, wherever it is counted."""
        try:
            return str(self._started(lane).environment.get("uuid") or lane.name)
        except BackendError:
            return lane.name

    def _lane(self, gpu: int) -> _Lane:
        return _Lane(f"gpu {gpu}", partial(self._open, gpu, self._said.put), self._said)

    def _begin(self, case: Case, function: Function | None, *, first: bool) -> None:
        lane = self._lanes[self._place.get(case.id, 0)]
        kernel = Runnable(case, function)
        self._ask(lane, case.id, lambda worker: worker.run(kernel), first=first)

    def _ask(
        self, lane: _Lane, name: str, work: Callable[[Worker], Any], *, first: bool = True
    ) -> None:
        if name not in self._awaited:
            self._awaited.add(name)
            lane.put(name, work, first=first)

    def _wait_for(self, name: str) -> Any:
        while name not in self._answers:
            said = self._said.get()
            if isinstance(said, str):
                self._progress(said)
            else:
                self._answers[said.name] = said
        self._awaited.remove(name)
        return self._answers.pop(name).value()


class _Answer:
    """What came of a piece of work: a value, or what it raised."""

    def __init__(self, name: str, work: Callable[[], Any]) -> None:
        self.name = name
        self._error: BaseException | None = None
        try:
            self._value = work()
        except BaseException as error:  # raised again in the thread that waits
            self._error = error

    def value(self) -> Any:
        if self._error is not None:
            raise self._error
        return self._value


class _Lane:
    """One worker's queue of work, and the thread that talks to it."""

    def __init__(
        self, name: str, open_worker: Callable[[bool], Worker], answers: queue.SimpleQueue[Any]
    ) -> None:
        self.name = name
        self.worker = open_worker(False)
        self._open = open_worker
        self._helpers: list[Worker] = []
        self._answers = answers
        self._work: deque[tuple[str, Callable[[Worker], Any]]] = deque()
        self._changed = threading.Condition()
        self._stopped = False
        self._thread = threading.Thread(target=self._loop, name=f"gemm {name}", daemon=True)

    def put(self, name: str, work: Callable[[Worker], Any], *, first: bool) -> None:
        with self._changed:
            if not self._thread.is_alive():
                self._thread.start()
            (self._work.appendleft if first else self._work.append)((name, work))
            self._changed.notify()

    def duet(self, old: Runnable, new: Runnable, round_: Round) -> list[Times]:
        """See ``Pool.duet``: the processes start together, and measure one after another."""
        first = (round_.number - 1) * round_.workers
        while len(self._helpers) < first + round_.workers:
            self._helpers.append(self._open(True))
        helpers = self._helpers[first : first + round_.workers]
        for helper in helpers:
            helper.begin()
        times, losses = [], []
        for number, helper in enumerate(helpers):
            try:
                times.append(helper.duet(old, new, round_, number))
            except Lost as lost:
                losses.append(lost)
        if not times:
            raise BackendError(str(losses[0]))
        return times

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify()
        for worker in (self.worker, *self._helpers):
            worker.stop()

    def join(self) -> None:
        if self._thread.is_alive():
            self._thread.join(timeout=5)

    def _loop(self) -> None:
        try:
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: self._stopped or self._work)
                    if self._stopped:
                        return
                    name, work = self._work.popleft()
                self._answers.put(_Answer(name, partial(work, self.worker)))
        finally:
            for worker in (self.worker, *self._helpers):
                worker.close()


def deal(cases: Iterable[str], devices: Sequence[str]) -> dict[str, int]:
    """A device's index for each case, as many cases to each.

    Each case has an order of preference of its own (rendezvous hashing: Thaler and Ravishankar,
    1998), so that most stay where they are when some come or go.
    """
    names = sorted(set(cases))
    most = -(-len(names) // len(devices))
    counts = [0] * len(devices)
    places = {}
    for name in names:
        free = [i for i in range(len(devices)) if counts[i] < most]
        place = max(free, key=lambda i: sha256(f"{devices[i]} {name}".encode()).digest())
        counts[place] += 1
        places[name] = place
    return places
