"""What ``method.py`` runs in processes of their own: one way of timing the cases in each.

    python benchmarks/gpu/child.py WAY --out FILE [--cases NAME,NAME] [--seed N]

``session`` times them as pytest-gemm does, hot and then cold, in an order that the seed shuffles.
``levels`` shows what earlier kernels and copies do to a time, and what the shuffle does about it.
``nvbench`` lets NVBench time the same launches. ``launches`` makes a few ordinary launches of
each, to be watched by ncu. ``trace`` times them under CUPTI, through PyTorch's profiler.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

STARTED = time.perf_counter()
sys.path.insert(0, str(Path(__file__).parents[2]))

from cases import NINE, Prepared, prepare  # noqa: E402
from tables import LAUNCHES, MARKER, REPLAYED, REPLAYS  # noqa: E402

from pytest_gemm.backends import open_backend  # noqa: E402
from pytest_gemm.backends.base import Backend, CudaProgram, LaunchConfig  # noqa: E402
from pytest_gemm.device import DeviceMemory  # noqa: E402
from pytest_gemm.errors import GemmError  # noqa: E402
from pytest_gemm.launching import loaded, placements  # noqa: E402
from pytest_gemm.overheads import seconds_of  # noqa: E402
from pytest_gemm.timing import PLANS, take_samples  # noqa: E402

SAMPLES = 24
"""Of a case in each of the states that ``levels`` compares."""

COPIES, COPIED = 12, 2**18
"""Copies within the device's memory, and bytes of each."""


def session(backend: Backend, names: Sequence[str], options: argparse.Namespace) -> dict[str, Any]:
    """One process of pytest-gemm's own way. All that is no part of the nine cases' wall time
    (start-up, compiling, operands, first launches) is told by name."""
    device = backend.device
    begun = time.perf_counter() - STARTED
    order = list(names)
    random.Random(options.seed).shuffle(order)
    prepared = prepare(backend, order, options.most)
    first = [seconds_of(partial(_launch_once, case)) for case in prepared]
    timed: dict[str, list[dict[str, Any]]] = {}
    walls: dict[str, float] = {}
    for way in options.ways.split(","):
        started = time.perf_counter()
        timed[way] = [_timed(case, cold=way == "cold", seed=options.seed) for case in prepared]
        walls[way] = time.perf_counter() - started
    return {
        "seed": options.seed,
        "device": {"description": device.description, **device.environment},
        "start_s": begun,
        "compile_s": sum(case.compile_s for case in prepared),
        "operands_s": sum(case.operands_s for case in prepared),
        "first_launches_s": sum(first),
        "wall_s": walls,
        **timed,
    }


def _timed(case: Prepared, *, cold: bool, seed: int) -> dict[str, Any]:
    backend = case.launcher.backend
    place = placements(replace(case.launcher, cold=cold), case.problem, case.data, seed)
    found: dict[str, Any] = {"case": case.name}
    started = time.perf_counter()
    try:
        found["before"] = dict(backend.conditions())
        started = time.perf_counter()
        samples = take_samples(place, PLANS[backend.kind])
        found |= {"wall_s": time.perf_counter() - started, "after": dict(backend.conditions())}
        found |= {"launches": samples.launches, "rounds": samples.rounds}
        found["samples"] = [float(f"{s:.6g}") for s in samples.seconds]
    except GemmError as error:
        found |= {"wall_s": time.perf_counter() - started, "error": str(error)}
    return found


def _launch_once(case: Prepared) -> None:
    with loaded(case.launcher.backend, case.problem, case.data) as workspace:
        case.launcher.once(workspace)


def levels(backend: Any, names: Sequence[str], options: argparse.Namespace) -> dict[str, Any]:
    """Samples of each case as a foreign kernel left the multiprocessors, and shuffled; and of the
    first case after copies by our own stream and by the default one."""
    prepared = prepare(backend, names, options.most)
    return {
        "levels": {case.name: _levels(backend, case) for case in prepared},
        # Last: what the copies do lasts as long as the process.
        "copies": {"case": prepared[0].name, **_copies(backend, prepared[0])},
    }


def _levels(backend: Any, case: Prepared) -> dict[str, list[float]]:
    with _sampling(case) as samples:
        backend.canary()  # more blocks than fit
        with patch.object(backend._timer._shuffle, "launch", lambda: None):
            left = samples()
        return {"left": left, "shuffled": samples()}


def _copies(backend: Any, case: Prepared) -> dict[str, list[float]]:
    runtime = backend._api.runtime
    source, target = (backend.allocate(COPIED).address for _ in range(2))
    with _sampling(case) as samples:
        found = {"before": samples()}
        for title, stream in (("own stream", backend._queue.stream), ("default stream", 0)):
            for _ in range(COPIES):
                kind = runtime.memcpyDeviceToDevice
                runtime.memcpyAsync(target, source, COPIED, kind, stream)
            runtime.deviceSynchronize()
            found[title] = samples()
    return found


@contextmanager
def _sampling(case: Prepared) -> Iterator[Callable[[], list[float]]]:
    """Takes samples of about a millisecond on operands that stay where they are."""
    with loaded(case.launcher.backend, case.problem, case.data) as workspace:
        case.launcher.once(workspace)
        launches = max(2, int(1e-3 / (case.launcher.time(workspace, REPLAYED) / REPLAYED)))

        def samples() -> list[float]:
            return [case.launcher.time(workspace, launches) / launches for _ in range(SAMPLES)]

        for _ in range(4):  # the clocks climb
            samples()
        yield samples


def nvbench(backend: Any, names: Sequence[str], options: argparse.Namespace) -> dict[str, Any]:
    """NVBench with its defaults on the same launches: its stream becomes the back end's."""
    bench, cupy = import_module("cuda.bench"), backend._api.cupy
    prepared = {case.name: case for case in prepare(backend, names)}
    begun = time.perf_counter() - STARTED
    queue = backend._queue
    walls: dict[str, float] = {}

    def nine(state: Any) -> None:
        stream = state.get_stream()
        queue.stream = stream.addressof()
        queue.cupy_stream = cupy.cuda.Stream.from_external(stream)
        name = state.get_string("case")
        with prepared[name].queueing() as launch:
            launch()
            backend._api.runtime.deviceSynchronize()
            walls[name] = seconds_of(lambda: state.exec(lambda _: launch()))

    bench.register(nine).add_string_axis("case", list(names))
    raw = Path(options.out).with_suffix(".raw.json")
    bench.run_all_benchmarks([sys.argv[0], "--devices", "0", "--json", str(raw)])
    found = json.loads(raw.read_text())
    raw.unlink()
    return {"start_s": begun, "case_wall_s": walls, "states": found["benchmarks"][0]["states"]}


def launches(backend: Any, names: Sequence[str], options: argparse.Namespace) -> dict[str, Any]:
    """A marking kernel, then ``LAUNCHES`` launches, case by case."""
    mark = _marker(backend)
    for case in prepare(backend, names):
        with case.queueing() as launch:
            mark()
            for _ in range(LAUNCHES):
                launch()
            backend._api.runtime.deviceSynchronize()
    return {}


def trace(backend: Any, names: Sequence[str], options: argparse.Namespace) -> dict[str, Any]:
    """Start and duration of every kernel as CUPTI saw them, in graph replays where captured."""
    torch = import_module("torch")
    torch.cuda.init()
    prepared, mark = prepare(backend, names), _marker(backend)
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profiler:
        for case in prepared:
            with loaded(backend, case.problem, case.data) as workspace:
                mark()
                for _ in range(REPLAYS):
                    case.launcher.time(workspace, REPLAYED)
    raw = Path(options.out).with_suffix(".raw.json")
    profiler.export_chrome_trace(str(raw))
    events = json.loads(raw.read_text())["traceEvents"]
    raw.unlink()
    kernels = sorted((e["ts"], e["dur"], e["name"]) for e in events if e.get("cat") == "kernel")
    start = kernels[0][0]
    return {"kernels": [[round(ts - start, 3), dur, name[:60]] for ts, dur, name in kernels]}


def _marker(backend: Backend) -> Callable[[], None]:
    executable: Any = backend.compile(
        CudaProgram(f"__global__ void {MARKER}(float*) {{}}", "marker.cu", MARKER)
    )
    matrix = DeviceMemory(backend).allocate(1, 1)
    launch: Callable[[], None] = executable.prepare(LaunchConfig((1,) * 3, (1,) * 3), [matrix])
    return launch


WAYS = {way.__name__: way for way in (session, levels, nvbench, launches, trace)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("way", choices=WAYS)
    parser.add_argument("--out", required=True)
    parser.add_argument("--cases", default=",".join(NINE))
    parser.add_argument("--ways", default="hot,cold")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda", choices=("cuda", "host"))
    parser.add_argument("--most", type=int, help="cut sizes to this, for a rehearsal")
    options = parser.parse_args()
    backend = open_backend(options.device, lambda _: None)
    found = WAYS[options.way](backend, options.cases.split(","), options)
    found["process_s"] = time.perf_counter() - STARTED
    Path(options.out).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
