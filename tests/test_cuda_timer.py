"""How the CUDA back end times launches, on a scripted device."""

from __future__ import annotations

import pytest

from pytest_gemm.backends.base import CudaProgram, LaunchConfig, Matrix, PythonProgram
from pytest_gemm.backends.cuda import timer
from pytest_gemm.errors import BackendError, CompileError, KernelFault
from tests.fake_cupy import NEVER, FakeCuda, Kernel

ONE = LaunchConfig((1, 1, 1), (1, 1, 1))
SOURCE = "__global__ void k(float* C) {}"


@pytest.fixture
def fake():
    return FakeCuda()


class Bench:
    """A back end with one buffer, and a kernel ``k`` of 10 us or a Python function."""

    def __init__(self, fake, function=None, **kernel):
        self.fake = fake
        fake.kernels["k"] = Kernel(sizes=(8,), **kernel)
        self.backend = fake.backend()
        self.buffer = self.backend.allocate(64)
        self.matrix = Matrix(self.buffer, 0, 4, 4, 4, "float32")
        program = CudaProgram(SOURCE, "kernels/x.cu", "k")
        self.arguments = [self.matrix]
        if function is not None:
            program = PythonProgram(function, ("C", "stream"))
            self.arguments = [self.matrix, None]
        self.executable = self.backend.compile(program)

    def time(self, launches=1, cold=False, timeout=60.0, arguments=None):
        return self.backend.time(
            self.executable,
            ONE,
            arguments or self.arguments,
            launches=launches,
            cold=cold,
            timeout=timeout,
        )

    def fault(self, kind, *arguments, **options):
        with pytest.raises(KernelFault) as caught:
            self.time(*arguments, **options)
        assert caught.value.kind == kind
        assert "\n" not in str(caught.value)
        return str(caught.value)

    def count(self, name):
        return self.fake.calls.count(name)


def test_one_launch_is_an_ordinary_one(fake):
    bench = Bench(fake)
    # The device waits for the host between the event and the launch: so it is with one launch.
    assert bench.time() == pytest.approx(1e-5, abs=3e-6)
    assert bench.count("launchKernel") == 1
    assert bench.count("streamBeginCapture") == 0


def test_many_launches_are_replayed_from_one_graph(fake):
    bench = Bench(fake)
    # Not one gap: the replay is queued behind the blocker.
    assert bench.time(20) == pytest.approx(20e-5, rel=1e-6)
    launches = fake.kernels["k"].launches
    assert len(launches) == 1 + 1 + 20  # ordinary, to count its operations, to capture
    for _ in range(5):
        assert bench.time(20) == pytest.approx(20e-5, rel=1e-6)
    assert len(launches) == 22
    assert bench.count("graphLaunch") == 6
    assert bench.count("graphUpload") == 1  # not within the first time
    assert bench.count("streamBeginCapture") == 2
    assert bench.backend.is_captured(bench.executable)


def test_other_launches_arguments_or_types_need_another_graph(fake):
    bench = Bench(fake)
    bench.time(20)
    bench.time(10)
    assert bench.count("graphInstantiate") == 2
    shifted = Matrix(bench.buffer, 16, 2, 4, 4, "float32")
    bench.time(20, arguments=[shifted])
    assert bench.count("graphInstantiate") == 3
    assert len(fake.graphs) == 3


@pytest.mark.parametrize("cold", [False, True])
@pytest.mark.parametrize("captured", [False, True])
def test_no_sample_begins_in_the_state_that_the_one_before_left(fake, cold, captured):
    shuffle = fake.kernels["shuffle"] = Kernel(seconds=5e-6, sizes=(4,))
    bench = Bench(fake, None if captured else refusing(fake, NotImplementedError("cuBLAS")))
    bench.time()
    assert shuffle.launches == []  # one launch is what a user would see
    for _ in range(3):
        assert bench.time(20, cold=cold) == pytest.approx(20e-5, rel=1e-6)  # not in the time
    sizes, _, turns = zip(*shuffle.launches, strict=True)
    assert len(set(map(tuple, turns))) == 3
    [(blocks, _, _, threads, _, _)] = set(sizes)
    assert blocks * threads == 4 * 132 * 2048  # no multiprocessor has room for all of its blocks


def test_the_shuffle_runs_before_the_device_is_held(fake):
    bench = Bench(fake)
    bench.time(20)
    queued = []
    graph_launch = fake.rt_graphLaunch

    def look(executable, stream):
        queued.extend(operation.kind for operation in fake.lanes[stream].operations)
        graph_launch(executable, stream)

    bench.backend._api.runtime.graphLaunch = look
    bench.time(20)
    assert queued == ["kernel", "hold", "event"]


def test_a_replay_that_the_blocker_did_not_wait_for_is_taken_again(fake):
    bench = Bench(fake)
    bench.time(20)
    stalls = iter([2, 0])
    launch = fake.rt_graphLaunch

    def stalled(executable, stream):
        fake.sleep(next(stalls))
        fake.run()
        launch(executable, stream)

    bench.backend._api.runtime.graphLaunch = stalled
    assert bench.time(20) == pytest.approx(20e-5, rel=1e-6)
    assert next(stalls, None) is None


def test_a_blocker_that_is_never_released_ends_replays(fake):
    bench = Bench(fake)
    bench.time(20)
    fake.releases_blocker = False
    with pytest.raises(BackendError, match=r"longer than 1 s to queue 20 launches of k in .*3 ti"):
        bench.time(20)
    assert fake.now < 4


def test_freeing_a_buffer_drops_its_graphs(fake):
    bench = Bench(fake)
    bench.time(20)
    assert len(fake.graphs) == 1
    bench.backend.free(bench.buffer)
    assert fake.graphs == {}
    with pytest.raises(BackendError, match="freed"):
        bench.time(20)


def test_few_sets_of_arguments_are_remembered(fake, monkeypatch):
    monkeypatch.setattr(timer, "KEPT", 2)
    bench = Bench(fake)
    for offset in (0, 16, 32):
        bench.time(5, arguments=[Matrix(bench.buffer, offset, 1, 4, 4, "float32")])
    assert len(fake.graphs) == 2


def python_kernel(fake, seconds=1e-5):
    def function(C, stream):
        fake.work(stream.ptr, seconds)

    return function


def test_a_python_kernel_is_captured_too(fake):
    bench = Bench(fake, python_kernel(fake))
    assert bench.time(20) == pytest.approx(20e-5, abs=3e-6)
    assert bench.count("graphLaunch") == 1


def refusing(fake, error, seconds=1e-5):
    """Like cuBLAS in CuPy: raises while its stream is captured."""

    def function(C, stream):
        if fake.lanes[stream.ptr].captured is not None:
            raise error
        fake.work(stream.ptr, seconds)

    return function


@pytest.mark.parametrize("error", [NotImplementedError("cuBLAS"), RuntimeError("a library's")])
def test_what_refuses_capture_is_queued_behind_the_blocker(fake, error):
    bench = Bench(fake, refusing(fake, error))
    for _ in range(3):
        # Not one gap between the launches, although each call costs the host time.
        assert bench.time(20) == pytest.approx(20e-5, rel=1e-6)
    assert bench.count("streamBeginCapture") == 1
    assert bench.count("streamEndCapture") == 1
    assert fake.graphs == {}
    assert not bench.backend.is_captured(bench.executable)


def test_the_first_launch_is_never_behind_the_blocker(fake):
    bench = Bench(fake, refusing(fake, NotImplementedError("cuBLAS")))
    held = []

    def function(C, stream):
        lane = fake.lanes[stream.ptr]
        held.append(any(operation.kind == "hold" for operation in lane.operations))
        refusing(fake, NotImplementedError("cuBLAS"))(C, stream)

    bench.executable = bench.backend.compile(PythonProgram(function, ("C", "stream")))
    bench.time(3)
    assert held == [False, True, True, True, True]  # ordinary, to be captured, queued
    other = Matrix(bench.buffer, 16, 2, 4, 4, "float32")
    bench.time(2, arguments=[other, None])
    assert held[5:] == [False, True, True]


def test_a_capture_that_is_invalidated_is_refused(fake):
    def function(C, stream):
        fake.work(stream.ptr)
        fake.lanes[stream.ptr].invalid = fake.lanes[stream.ptr].captured is not None

    bench = Bench(fake, function)
    assert bench.time(4) == pytest.approx(4e-5, rel=1e-6)
    assert not bench.backend.is_captured(bench.executable)


def test_many_queued_launches_go_in_chunks(fake):
    bench = Bench(fake, refusing(fake, NotImplementedError("cuBLAS")))
    assert bench.time(250) == pytest.approx(250e-5, rel=1e-6)
    # The blocker: loaded, for the capture that is refused, then once for each chunk.
    shuffles = len(fake.kernels["shuffle"].launches)
    assert bench.count("launchKernel") - shuffles == 1 + 1 + 3
    assert shuffles == 3


def test_a_kernel_that_waits_inside_ends_by_the_blockers_limit(fake):
    def function(C, stream):
        fake.work(stream.ptr)
        stream.synchronize()

    bench = Bench(fake, function)
    text = bench.fault("timeout", 20)
    assert "waits for the device inside the call" in text
    bench.executable = bench.backend.compile(CudaProgram(SOURCE, "kernels/x.cu", "k"))
    bench.arguments = [bench.matrix]
    assert bench.time(20) > 0  # nothing is lost


def test_a_full_queue_makes_the_chunks_smaller(fake):
    calls = 0

    def function(C, stream):
        nonlocal calls
        lane = fake.lanes[stream.ptr]
        if lane.captured is not None:
            raise NotImplementedError
        calls += 1
        if len(lane.operations) > 40:
            fake.wait_for_all()  # as the driver makes the host wait
        fake.work(stream.ptr)

    bench = Bench(fake, function)
    assert bench.time(60) == pytest.approx(60e-5, rel=1e-6)
    before = calls
    bench.time(60)
    assert calls == before + 60


def test_a_blocker_that_is_never_released_ends_the_same_way(fake):
    bench = Bench(fake, refusing(fake, NotImplementedError("cuBLAS")))
    bench.time(5)
    fake.releases_blocker = False
    assert "could not be queued within 1 s" in bench.fault("timeout", 5)


def test_cold_overwrites_the_cache_outside_of_the_time(fake):
    bench = Bench(fake)
    hot = bench.time(20)
    assert bench.time(20, cold=True) == pytest.approx(hot, abs=4e-6)
    assert bench.count("memsetAsync") == 20
    assert max(array.nbytes for array in fake.memory.values()) == 2 * fake.attributes["L2CacheSize"]
    assert bench.time(1, cold=True) == pytest.approx(1e-5, rel=1e-6)


def test_cold_works_where_capture_is_refused(fake):
    bench = Bench(fake, refusing(fake, NotImplementedError("cuBLAS")))
    assert bench.time(150, cold=True) == pytest.approx(150e-5, rel=1e-6)
    assert not bench.backend.is_captured(bench.executable)


@pytest.mark.parametrize("launches", [2, 20])
@pytest.mark.parametrize("null", [False, True])
def test_nothing_on_the_stream(fake, launches, null):
    fake.null_graphs = null
    bench = Bench(fake, lambda C, stream: None)
    text = bench.fault("escaped-stream", launches)
    assert "launches nothing on the given stream" in text
    assert fake.graphs == {}


def test_no_work_after_the_tenth_call(fake):
    calls = 0

    def function(C, stream):
        nonlocal calls
        calls += 1
        if calls <= 10:
            fake.work(stream.ptr)

    text = Bench(fake, function).fault("escaped-stream", 20)
    assert "20 calls of function put 8 operations" in text
    assert fake.graphs == {}


def test_events_are_no_work(fake):
    def function(C, stream):
        fake.runtime().eventRecord(fake.number(), stream.ptr)

    assert "launches nothing" in Bench(fake, function).fault("escaped-stream", 2)


def test_work_left_elsewhere_three_times_in_a_row(fake):
    other = fake.cupy().cuda.Stream(non_blocking=True)

    def function(C, stream):
        fake.work(stream.ptr)
        fake.work(other.ptr, 1e-3)

    bench = Bench(fake, function)
    bench.time()
    bench.time()
    assert "the device was busy for another" in bench.fault("escaped-stream")


@pytest.mark.parametrize("cold", [False, True])
def test_work_left_elsewhere_by_a_capture(fake, cold):
    other = fake.cupy().cuda.Stream(non_blocking=True)

    def function(C, stream):
        fake.work(stream.ptr)
        fake.work(other.ptr, 5e-6)
        fake.sleep(1e-5)  # the host is slower than that work: it is done before the next call

    text = Bench(fake, function).fault("escaped-stream", 20, cold)
    assert "works outside of the given stream" in text
    seconds = float(text.partition("another ")[2].partition(" s")[0])
    assert 20 * 5e-6 <= seconds < 1.2 * 20 * 5e-6
    assert fake.graphs == {}


def test_only_the_graph_is_replayed_once_it_is_captured(fake):
    """So a C that is overwritten in between shows what the graph lacks."""
    other = fake.cupy().cuda.Stream(non_blocking=True)

    def function(C, stream):
        fake.work(stream.ptr)
        fake.work(other.ptr, 1e-7)
        C[...] = 1  # at once, as by work that is not captured

    bench = Bench(fake, function)
    C = fake.memory[bench.buffer.address].view("float32")
    C[:] = 5
    bench.time(20)
    assert (C == 1).all()
    C[:] = 5
    bench.time(20)
    assert (C == 5).all()


def test_waiting_inside_for_another_stream(fake):
    other = fake.cupy().cuda.Stream(non_blocking=True)

    def function(C, stream):
        fake.work(stream.ptr)
        fake.work(other.ptr, 1e-6)
        other.synchronize()

    bench = Bench(fake, function)
    bench.time()
    text = bench.fault("escaped-stream", 20)
    assert "waits inside the call for work outside of the given stream" in text
    assert fake.graphs == {}


def test_a_device_that_is_shared_is_no_escape(fake):
    bench = Bench(fake)
    fake.turn_delay = 2e-3  # another process' turn, each time that the blocker is released
    assert bench.time(20) == pytest.approx(20e-5, rel=1e-6)


def test_a_hiccup_while_capturing_is_no_escape(fake):
    bench = Bench(fake)
    delays = iter([0, 1e-3, 1e-3, 1e-3, 0])
    fake.idle_delay = lambda: next(delays)
    assert bench.time(20) == pytest.approx(20e-5, abs=3e-6)
    assert len(fake.graphs) == 1


def test_one_hiccup_of_the_host_is_no_escape(fake):
    bench = Bench(fake)
    delays = iter([1e-3, 0, 1e-3, 1e-3, 0, 1e-3])
    fake.idle_delay = lambda: next(delays)
    for _ in range(6):
        bench.time()


def test_a_short_remainder_of_a_long_kernel_is_none(fake):
    bench = Bench(fake, seconds=0.1)
    fake.idle_delay = lambda: 0.015
    for _ in range(5):
        bench.time()


@pytest.mark.parametrize("launches", [1, 20])
def test_an_endless_kernel_ends_by_the_timeout(fake, launches):
    bench = Bench(fake, seconds=NEVER)
    text = bench.fault("timeout", launches, timeout=0.5)
    assert text.startswith("one launch took longer than 0.5 s")
    assert "no other kernel can run in its process" in text
    with pytest.raises(BackendError, match=r"took longer than 0\.5 s\): run this case in a new"):
        bench.time()
    with pytest.raises(BackendError, match="lost"):
        bench.backend.allocate(4)
    calls = list(fake.calls)
    bench.backend.free(bench.buffer)  # would wait for the kernel
    assert fake.calls == calls


def test_the_limit_grows_with_the_launches(fake):
    bench = Bench(fake, seconds=0.3)
    assert bench.time(20, timeout=0.5) == pytest.approx(6, rel=1e-3)


@pytest.mark.parametrize(("error", "kind", "words"), [
    ("cudaErrorIllegalAddress", "out-of-bounds", "out-of-bounds access"),
    ("cudaErrorMisalignedAddress", "misaligned", "misaligned access"),
    ("cudaErrorAssert", "assert", "an assertion failed"),
    ("cudaErrorIllegalInstruction", "trap", "illegal instruction"),
    ("cudaErrorHardwareStackError", "stack-overflow", "stack"),
    ("cudaErrorLaunchFailure", "cuda", "__trap()"),
    ("cudaErrorTensorMemoryLeak", "cuda", "cudaErrorTensorMemoryLeak: it failed"),
])  # fmt: skip
@pytest.mark.parametrize("launches", [1, 20])
def test_errors_that_lose_the_context(fake, error, kind, words, launches):
    bench = Bench(fake, error=error)
    text = bench.fault(kind, launches)
    assert words in text
    assert error in text
    assert "no other kernel can run in its process" in text
    with pytest.raises(BackendError, match=f"lost earlier.*{error}"):
        bench.backend.download(bench.buffer)
    bench.backend.free(bench.buffer)


def test_an_error_that_the_context_survives(fake):
    bench = Bench(fake)
    fake.failures["launchKernel"] = "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"
    text = bench.fault("cuda")
    assert "more registers" in text
    assert "lost" not in text
    fake.failures.clear()
    assert bench.time() > 0


def test_an_exception_names_the_users_line(fake):
    def broken(C, stream):
        raise ValueError("no such tile")

    bench = Bench(fake, broken)
    line = broken.__code__.co_firstlineno + 1
    assert bench.fault("exception", 20) == (
        f"{__file__}:{line}: broken raised ValueError: no such tile"
    )
    assert bench.fault("exception", 20)  # and again: it is not taken for launched


def test_an_exception_behind_the_blocker_releases_it(fake):
    calls = 0

    def broken(C, stream):
        nonlocal calls
        calls += 1
        if calls > 4:
            raise ValueError("late")
        refusing(fake, NotImplementedError("cuBLAS"))(C, stream)

    bench = Bench(fake, broken)
    assert "late" in bench.fault("exception", 20)
    fake.wait_for_all()
    assert fake.now < 0.5


def test_the_arguments_of_a_python_kernel_are_counted(fake):
    bench = Bench(fake, python_kernel(fake))
    with pytest.raises(CompileError, match=r"takes 2 arguments \(C, stream\) and was given 1"):
        bench.time(arguments=[bench.matrix])
