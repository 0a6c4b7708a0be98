"""Our samples in pytest-benchmark's table and JSON: replayed through its own fixture."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import pytest


class Replay:
    """A timer and a target for pytest-benchmark: each run of the target lasts one sample."""

    def __init__(self) -> None:
        self._now = 0.0
        self._samples: list[float] = []

    def load(self, samples: Sequence[float]) -> None:
        self._samples = list(reversed(samples))

    def target(self) -> None:
        self._now = self._samples.pop() if self._samples else 0.0

    def timer(self) -> float:
        # Back to zero after each reading, so that end - start is the sample to the last bit.
        now, self._now = self._now, 0.0
        return now


class _Benchmark(Protocol):
    group: str
    extra_info: dict[str, Any]

    def pedantic(self, target: object, *, rounds: int) -> object: ...


def is_wanted(config: pytest.Config) -> bool:
    """Whether timed cases are published: pytest-benchmark is there and not told to skip."""
    return bool(
        config.getoption("gemm_bench")
        and config.pluginmanager.hasplugin("benchmark")
        and not config.getoption("benchmark_skip")
    )


def announce(config: pytest.Config, cases: Iterable[pytest.Item]) -> None:
    """Name the fixture on each item where ``--benchmark-only`` would else skip it.

    Otherwise it is asked for when there are samples: a fixture that is left unused warns.
    """
    if is_wanted(config) and config.getoption("benchmark_only"):
        for item in cases:
            item.fixturenames.append("benchmark")  # type: ignore[attr-defined]


def marks(config: pytest.Config) -> list[pytest.MarkDecorator]:
    """The marks of a case: ``gemm``, and a timer for pytest-benchmark that replays."""
    replay = [pytest.mark.benchmark(timer=Replay().timer)] if is_wanted(config) else []
    return [pytest.mark.gemm, *replay]


def publish(
    request: pytest.FixtureRequest, group: str, samples: Sequence[float], info: Mapping[str, Any]
) -> None:
    """Hand the samples (seconds) of this item to pytest-benchmark, where that is wanted."""
    if not is_wanted(request.config):
        return
    if not samples:
        # Named by ``announce``: taken back, or it would warn that it was left unused.
        if unused := request.node.funcargs.pop("benchmark", None):
            unused.skipped = True
        return
    replay: Replay = request.node.get_closest_marker("benchmark").kwargs["timer"].__self__
    replay.load(samples)
    benchmark: _Benchmark = request.getfixturevalue("benchmark")
    benchmark.group = group
    benchmark.extra_info.update(info)
    benchmark.pedantic(replay.target, rounds=len(samples))
