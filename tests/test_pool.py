"""Cases dealt to the workers of several devices; the workers are scripted and have no process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_gemm.backends.base import Device
from pytest_gemm.case import Case
from pytest_gemm.dueling import Times
from pytest_gemm.duet import Round
from pytest_gemm.errors import BackendError, DeviceBusyError
from pytest_gemm.function import Runnable
from pytest_gemm.kernelspec import Kernel
from pytest_gemm.problem import Problem
from pytest_gemm.result import Result
from pytest_gemm.workers.pool import Pool, deal
from pytest_gemm.workers.worker import Lost, Ran

NAMES = st.lists(st.text("abcdefgh", min_size=1, max_size=6), max_size=60, unique=True)
DEVICES = st.integers(1, 8).map(lambda n: [f"GPU-{i}" for i in range(n)])


@given(NAMES, DEVICES)
def test_the_deal_gives_each_device_as_many(names: list[str], devices: list[str]) -> None:
    places = deal(names, devices)
    assert set(places) == set(names)
    counts = [list(places.values()).count(i) for i in range(len(devices))]
    assert sum(counts) == len(names)
    assert max(counts) <= -(-len(names) // len(devices))


@given(NAMES, DEVICES, st.randoms())
def test_the_deal_depends_on_the_names_alone(names: list[str], devices: list[str], order) -> None:  # type: ignore[no-untyped-def]
    shuffled = order.sample(names, len(names))
    assert deal(shuffled, devices) == deal([*names, *names], devices)


@given(NAMES, DEVICES, st.text("xyz", min_size=1, max_size=3))
def test_one_case_more_moves_few_of_the_others(
    names: list[str], devices: list[str], added: str
) -> None:
    before, after = deal(names, devices), deal([*names, added], devices)
    moved = [name for name in names if before[name] != after[name]]
    # The case itself, and each device's place if there is one more, push one case on at a time,
    # and a device that was full stays so: at most one move less than there are devices each.
    D = len(devices)
    assert len(moved) <= (D + 1) * (D - 1)


def test_of_many_cases_most_stay_with_another_device() -> None:
    names = [f"kernel{i}-64x64x64-float32" for i in range(300)]
    before = deal(names, ["GPU-a", "GPU-b", "GPU-c"])
    after = deal(names, ["GPU-a", "GPU-b", "GPU-c", "GPU-d"])
    moved = sum(before[name] != after[name] for name in names)
    assert 75 <= moved <= 110  # 75 must


class FakeWorker:
    """Runs no case: says what a script says of it, and notes what it was asked."""

    def __init__(
        self, gpu: int, progress: Callable[[str], None], helps: bool, script: Script
    ) -> None:
        self.gpu = gpu
        self.helps = helps
        self.duets: list[tuple[int, int]] = []
        self.count = script.count
        self.progress = progress
        self.script = script
        self.stopped = threading.Event()
        self.asked: list[str] = []
        self.closed = False

    def begin(self) -> None:
        pass

    def ready(self) -> Device:
        if self.gpu in self.script.broken:
            raise self.script.broken[self.gpu]
        self.progress(f"gpu {self.gpu} starts")
        uuid = {"uuid": f"GPU-{self.gpu}"}
        return Device("cuda", "a-gpu", "a GPU", uuid)

    def run(self, kernel: Runnable) -> Ran:
        case = kernel.case
        self.ready()
        self.asked.append(case.id)
        self.script.began(case.id)
        self.progress(f"{case.problem.M} on {self.gpu}")
        return self.script.run(self, case)

    def duet(self, old: object, new: object, round_: Round, number: int) -> Times:
        self.duets.append((round_.number, number))
        return self.script.duet(number)

    def stop(self) -> None:
        self.stopped.set()

    def close(self) -> None:
        self.closed = True


class Script:
    """What the workers of a pool do."""

    def __init__(self, count: int = 1, **broken: Exception) -> None:
        self.count = count
        self.broken = {int(key.removeprefix("gpu")): error for key, error in broken.items()}
        self.workers: list[FakeWorker] = []
        self.said: list[tuple[str, str]] = []
        self._begun: set[str] = set()
        self._changed = threading.Condition()
        self.run: Callable[[FakeWorker, Case], Ran] = lambda worker, case: Ran(
            Result("passed", f"on gpu {worker.gpu}")
        )

        self.duet: Callable[[int], Times] = lambda number: [[[1.0 + number] * 4]]

    def open(self, gpu: int, progress: Callable[[str], None], helps: bool) -> FakeWorker:
        self.workers.append(FakeWorker(gpu, progress, helps, self))
        return self.workers[-1]

    def progress(self, text: str) -> None:
        self.said.append((text, threading.current_thread().name))

    def began(self, case_id: str) -> None:
        with self._changed:
            self._begun.add(case_id)
            self._changed.notify_all()

    def wait_until_begun(self, *ids: str) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self._begun >= set(ids), timeout=30)


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    """Twelve cases of one kernel, whose problems are told by M."""
    kernel = Kernel(name="product", path="k.py", callable="product", args=("A", "B", "C"))
    return [Case(kernel, Problem("gemm", M, 8, 8)) for M in range(1, 13)]


@pytest.fixture
def open_pool() -> Iterator[Callable[..., Pool]]:
    pools = []

    def open_one(script: Script, gpus: Sequence[int] | None = (0,), **options: int) -> Pool:
        pools.append(Pool(script.open, gpus, script.progress, **options))  # type: ignore[arg-type]
        return pools[-1]

    yield open_one
    for pool in pools:
        pool.close()


OpenPool = Callable[..., Pool]


def expected(cases: list[Case]) -> list[tuple[Case, None]]:
    return [(case, None) for case in cases]


def test_one_device_is_asked_nothing_ahead(open_pool: OpenPool, cases: list[Case]) -> None:
    script = Script()
    pool = open_pool(script)
    pool.expect(expected(cases))
    assert pool.run(cases[3], None).message == "on gpu 0"
    assert script.workers[0].asked == [cases[3].id]


def test_several_devices_begin_before_they_are_asked(
    open_pool: OpenPool, cases: list[Case]
) -> None:
    script = Script()
    pool = open_pool(script, (0, 2))
    pool.expect(expected(cases))
    script.wait_until_begun(*(case.id for case in cases))
    first, second = (worker.asked for worker in script.workers)
    order = [case.id for case in cases]
    assert first == [name for name in order if name in first]
    assert second == [name for name in order if name in second]
    assert (len(first), len(second)) == (6, 6)
    for case in cases:
        assert pool.run(case, None).message == f"on gpu {0 if case.id in first else 2}"
    assert script.workers[0].asked == first, "what was begun is not run again"


def test_under_sharing_nothing_is_begun_ahead_and_the_deal_is_the_same(
    open_pool: OpenPool, cases: list[Case]
) -> None:
    ahead, shared = open_pool(Script(), (0, 1)), open_pool(Script(), (0, 1), ahead=False)
    for pool in (ahead, shared):
        pool.expect(expected(cases))
    for case in reversed(cases):
        assert ahead.run(case, None) == shared.run(case, None)


def test_a_case_that_is_repeated_goes_first_and_stays_on_its_device(
    open_pool: OpenPool, cases: list[Case]
) -> None:
    script, repeated = Script(), threading.Event()

    def run(worker: FakeWorker, case: Case) -> Ran:
        if worker.asked[0] == cases[0].id and len(worker.asked) == 2:
            # What is said after the first answer is heard when the next one is waited for.
            worker.progress("the second case has begun")
            repeated.wait(30)
        return Ran(Result("passed", f"on gpu {worker.gpu}"))

    def hear(text: str) -> None:
        if text == "the second case has begun":
            repeated.set()

    script.run, script.progress = run, hear  # type: ignore[method-assign]
    pool = open_pool(script, (0, 1))
    pool.expect(expected(cases))
    device = pool.run(cases[0], None).message
    assert pool.run(cases[0], None).message == device
    worker = script.workers[int(device[-1])]
    assert [name == cases[0].id for name in worker.asked[:3]] == [True, False, True]


def test_an_error_is_raised_where_its_case_is_waited_for(
    open_pool: OpenPool, cases: list[Case]
) -> None:
    script = Script()

    def run(worker: FakeWorker, case: Case) -> Ran:
        if case is cases[1]:
            raise BackendError("no memory for this one")
        return Ran(Result("passed"))

    script.run = run
    pool = open_pool(script, (0, 1))
    pool.expect(expected(cases))
    script.wait_until_begun(*(case.id for case in cases))
    assert pool.run(cases[0], None).outcome == "passed"
    with pytest.raises(BackendError, match="no memory for this one"):
        pool.run(cases[1], None)
    assert pool.run(cases[2], None).outcome == "passed"


def test_progress_reaches_the_thread_that_waits_in_order(
    open_pool: OpenPool, cases: list[Case]
) -> None:
    script = Script()
    pool = open_pool(script, (0, 1))
    pool.expect(expected(cases))
    for case in cases:
        pool.run(case, None)
    assert {thread for _, thread in script.said} == {threading.current_thread().name}
    for gpu, worker in enumerate(script.workers):
        sizes = [text.split()[0] for text, _ in script.said if text.endswith(f" on {gpu}")]
        assert sizes == [name.split("-")[1].split("x")[0] for name in worker.asked]


def test_what_a_case_printed_appears_where_the_case_is_waited_for(
    open_pool: OpenPool, cases: list[Case], capsys: pytest.CaptureFixture[str]
) -> None:
    script = Script()
    script.run = lambda worker, case: Ran(Result("passed"), f"out {case.id}\n", f"err {case.id}\n")
    pool = open_pool(script, (0, 1))
    pool.expect(expected(cases))
    script.wait_until_begun(*(case.id for case in cases))
    assert capsys.readouterr() == ("", "")
    for case in cases:
        pool.run(case, None)
        assert capsys.readouterr() == (f"out {case.id}\n", f"err {case.id}\n")


def test_the_cases_of_a_device_that_cannot_start_fail_and_the_others_run(
    open_pool: OpenPool, cases: list[Case]
) -> None:
    script = Script(gpu5=BackendError("there is no GPU 5 here"))
    pool = open_pool(script, (0, 5))
    with pytest.raises(BackendError, match="no GPU 5"):
        pool.devices()
    pool.expect(expected(cases))
    outcomes = []
    for case in cases:
        try:
            outcomes.append(pool.run(case, None).message)
        except BackendError as error:
            outcomes.append(str(error))
    assert outcomes.count("on gpu 0") == outcomes.count("there is no GPU 5 here") == 6


def test_a_device_that_is_busy_is_said_before_anything_is_run(
    open_pool: OpenPool, cases: list[Case]
) -> None:
    script = Script(gpu1=DeviceBusyError("it is in use"))
    pool = open_pool(script, (0, 1))
    with pytest.raises(DeviceBusyError):
        pool.expect(expected(cases))
    assert script.workers[0].asked == []


@pytest.mark.parametrize("first", ["devices", "expect"])
def test_all_are_as_many_as_the_first_worker_counts(
    first: str, open_pool: OpenPool, cases: list[Case]
) -> None:
    script = Script(count=3)
    pool = open_pool(script, None)
    assert [worker.gpu for worker in script.workers] == [0]
    if first == "devices":
        uuids = [device.environment["uuid"] for device in pool.devices()]
        assert uuids == ["GPU-0", "GPU-1", "GPU-2"]
    pool.expect(expected(cases))
    for case in cases:
        pool.run(case, None)
    assert [worker.gpu for worker in script.workers] == [0, 1, 2]
    assert [len(worker.asked) for worker in script.workers] == [4, 4, 4]


@pytest.mark.parametrize("count", [1, 2, 4])
def test_workers_of_all_devices_start_at_once_where_their_number_was_guessed(
    count: int, open_pool: OpenPool, cases: list[Case]
) -> None:
    script = Script(count)
    script.broken = {gpu: BackendError("no such GPU") for gpu in range(count, 3)}
    pool = open_pool(script, None, likely=3)
    assert [worker.gpu for worker in script.workers] == [0, 1, 2]
    assert len(pool.devices()) == count
    pool.expect(expected(cases))
    assert {pool.run(case, None).message for case in cases} == {
        f"on gpu {gpu}" for gpu in range(count)
    }
    assert [worker.gpu for worker in script.workers] == list(range(max(3, count)))
    assert all(worker.stopped.is_set() and worker.closed for worker in script.workers[count:])


def test_all_where_there_is_none(open_pool: OpenPool, cases: list[Case]) -> None:
    pool = open_pool(Script(gpu0=BackendError("no GPU")), None)
    pool.expect(expected(cases))
    with pytest.raises(BackendError, match="no GPU"):
        pool.run(cases[0], None)


def test_closing_ends_a_worker_that_is_busy_and_runs_nothing_more(cases: list[Case]) -> None:
    script = Script()

    def run(worker: FakeWorker, case: Case) -> Ran:
        assert worker.stopped.wait(30)
        return Ran(Result("failed", "ended"))

    script.run = run
    before = set(threading.enumerate())
    pool = Pool(script.open, (0, 1), script.progress)  # type: ignore[arg-type]
    pool.expect(expected(cases))
    script.wait_until_begun(cases[0].id)
    pool.close()
    assert all(worker.stopped.is_set() for worker in script.workers)
    assert all(len(worker.asked) <= 1 for worker in script.workers)
    assert all(worker.closed for worker in script.workers)
    assert set(threading.enumerate()) <= before


def test_closing_a_pool_that_was_never_used_starts_nothing() -> None:
    script = Script()
    pool = Pool(script.open, (0, 1), script.progress)  # type: ignore[arg-type]
    pool.close()
    assert script.said == []


ROUND = Round(1, workers=3, placements=1, blocks=1)


def test_each_part_of_a_duet_has_a_process_of_its_own(open_pool: OpenPool, cases: Any) -> None:
    script = Script()
    pool = open_pool(script)
    old, new = map(Runnable, cases[:2])
    assert pool.duet(old, new, ROUND) == [[[[1.0 + i] * 4]] for i in range(3)]
    main, *helpers = script.workers
    assert main.duets == []
    assert [helper.duets for helper in helpers] == [[(1, 0)], [(1, 1)], [(1, 2)]]
    assert all(helper.helps for helper in helpers)
    assert not main.helps


def test_the_processes_are_kept_for_other_duets_but_not_for_a_second_round(
    open_pool: OpenPool, cases: Any
) -> None:
    script = Script()
    pool = open_pool(script)
    for case in cases[1:4]:
        pool.duet(Runnable(cases[0]), Runnable(case), ROUND)
    assert len(script.workers) == 1 + 3
    pool.duet(Runnable(cases[0]), Runnable(cases[1]), replace(ROUND, number=2))
    assert len(script.workers) == 1 + 6
    assert [helper.duets for helper in script.workers[4:]] == [[(2, 0)], [(2, 1)], [(2, 2)]]


def test_a_process_that_is_lost_is_left_out_of_the_duet(open_pool: OpenPool, cases: Any) -> None:
    script = Script()

    def duet(number: int) -> Times:
        if number == 1:
            raise Lost("killed by SIGKILL")
        return [[[1.0] * 4]]

    script.duet = duet
    assert len(open_pool(script).duet(Runnable(cases[0]), Runnable(cases[1]), ROUND)) == 2


def test_a_duet_whose_processes_are_all_lost_says_how(open_pool: OpenPool, cases: Any) -> None:
    script = Script()

    def duet(number: int) -> Times:
        raise Lost(f"killed {number}")

    script.duet = duet
    with pytest.raises(BackendError, match="killed 0"):
        open_pool(script).duet(Runnable(cases[0]), Runnable(cases[1]), ROUND)


def test_a_kernel_that_fails_its_checks_ends_the_duet(open_pool: OpenPool, cases: Any) -> None:
    script = Script()

    def duet(number: int) -> Times:
        raise BackendError("37 elements of C wrong")

    script.duet = duet
    with pytest.raises(BackendError, match="elements of C wrong"):
        open_pool(script).duet(Runnable(cases[0]), Runnable(cases[1]), ROUND)
    assert [helper.duets for helper in script.workers[1:]] == [[(1, 0)], [], []]


def test_the_duet_of_a_case_is_on_its_device_and_ends_with_the_pool(
    open_pool: OpenPool, cases: Any
) -> None:
    script = Script()
    pool = open_pool(script, (0, 1))
    pool.expect([(case, None) for case in cases])
    place = int(pool.run(cases[5], None).message[-1])
    pool.duet(Runnable(cases[0]), Runnable(cases[5]), ROUND)
    assert {worker.gpu for worker in script.workers if worker.helps} == {place}
    pool.close()
    assert all(
        worker.stopped.is_set() and worker.closed for worker in script.workers if worker.helps
    )
