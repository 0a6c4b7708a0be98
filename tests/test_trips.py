"""The way to the device and back, on scripted clocks."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from pytest_gemm.backends.base import CudaProgram, LaunchConfig, Trip
from pytest_gemm.backends.cuda import transfers
from pytest_gemm.backends.host import HostBackend
from pytest_gemm.errors import KernelFault
from tests.fake_cupy import NEVER, FakeCuda, Kernel
from tests.test_pipeline import Scripted, product, run

ONE = LaunchConfig((1, 1, 1), (1, 1, 1))
PROGRAM = CudaProgram("__global__ void k() {}", "x.cu", "k")


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    fake = FakeCuda()
    fake.kernels["k"] = Kernel(seconds=2e-3)
    return fake


@pytest.mark.parametrize("pinned", [False, True])
def test_each_part_of_a_trip_is_timed_on_the_device(fake: FakeCuda, pinned: bool) -> None:
    backend = fake.backend()
    data = [np.arange(nbytes, dtype=np.uint8) for nbytes in (200, 100)]
    buffers = [backend.allocate(x.nbytes) for x in data]
    output = backend.allocate(50)
    kept = set(fake.memory)
    executable = backend.compile(PROGRAM)
    fake.copy_seconds = 1e-5
    inputs = list(zip(buffers, data, strict=True))
    trips = backend.trips(executable, ONE, [], inputs, output, pinned=pinned, count=3)
    assert len(trips) == 3
    for trip in trips:
        # The host may queue later than the device could begin: a microsecond a call.
        assert trip.upload == pytest.approx(3e-3, abs=2e-5)
        assert trip.launch == pytest.approx(2e-3, abs=2e-5)
        assert trip.download == pytest.approx(0.5e-3, abs=2e-5)
        assert trip.total == pytest.approx(trip.upload + trip.launch + trip.download)
    assert len(fake.kernels["k"].launches) == 4  # one more, before those that count
    assert fake.calls.count("hostAlloc") == fake.calls.count("freeHost") == 3 * pinned
    assert set(fake.memory) == kept
    for buffer, content in inputs:
        assert np.array_equal(backend.download(buffer), content)


def test_a_kernel_that_never_ends_is_a_fault_of_its_own(
    fake: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfers, "PATIENCE", 0.1)
    backend = fake.backend()
    output = backend.allocate(4)
    fake.kernels["k"].seconds = NEVER
    with pytest.raises(KernelFault, match=r"longer than 0\.5 s"):
        backend.trips(
            backend.compile(PROGRAM), ONE, [], [], output, pinned=False, count=1, timeout=0.5
        )
    assert backend.lost


def test_a_cpu_has_no_way_to_go() -> None:
    backend = HostBackend()
    output = backend.allocate(4)
    executable: Any = None
    assert backend.trips(executable, ONE, [], [], output, pinned=True, count=1) == ()


class Far(Scripted):
    """The device is elsewhere: pinned memory is twice as fast."""

    def trips(self, *_: Any, pinned: bool, count: int, **__: Any) -> Sequence[Trip]:
        f = 1 if pinned else 2
        return [Trip(f * 3.0, 1.0, f * 2.0, f * 5.0 + 1 + i % 2) for i in range(count)]


def test_a_case_has_the_medians_of_its_trips_where_they_are_asked_for() -> None:
    result = run(product, Far(), timed=True, trips=True, time_cap=0.01)
    assert result.outcome == "passed"
    found = {
        name: value
        for name, value in result.counters.items()
        if name.startswith(("pageable", "pinned"))
    }
    for name in ("pageable", "pinned"):
        assert 0 < found.pop(f"{name}_total_error") < 1
        assert found.pop(f"{name}_launch_error") == 0
    assert found == {
        "pageable_upload_s": 6,
        "pageable_launch_s": 1,
        "pinned_launch_s": 1,
        "pageable_download_s": 4,
        "pageable_total_s": 11.5,
        "pinned_upload_s": 3,
        "pinned_download_s": 2,
        "pinned_total_s": 6.5,
    }


def test_a_case_has_none_unasked_or_where_there_is_no_way() -> None:
    for backend, asked in ((Far(), False), (Scripted(), True)):
        result = run(product, backend, timed=True, trips=asked, time_cap=0.01)
        assert result.outcome == "passed"
        assert not any(name.startswith(("pageable", "pinned")) for name in result.counters)
