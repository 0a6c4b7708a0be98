"""What ``ncu --csv --print-units base`` printed, as numbers by our names."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from pytest_gemm.errors import BackendError
from pytest_gemm.profile.metrics import BY_NCU

Counters = Mapping[str, float]
"""By the names of ``metrics``: seconds, bytes, percent, counts; without what is unknown."""

_SCALES = {"ns": 1e-9, "nsecond": 1e-9, "us": 1e-6, "usecond": 1e-6, "ms": 1e-3, "msecond": 1e-3}
"""Seconds of the units of time, in their newer and older spelling."""

_SIZE = re.compile(r"\d+")


@dataclass
class Launch:
    """One launch that was profiled: grid and block in CUDA's (x, y, z) order."""

    kernel: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    counters: dict[str, float] = field(default_factory=dict)


def read(text: str) -> list[Launch]:
    """The launches in their order. Raises BackendError where there is no table or it is damaged.

    Metrics that are not ours are passed over, and so are values that are no number (``n/a``).
    """
    lines = text.splitlines()
    head = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if head is None:
        return []
    launches: dict[str, Launch] = {}
    rows = csv.DictReader(io.StringIO("\n".join(lines[head:])))
    try:
        for row in rows:
            if row["ID"].startswith("=="):
                continue
            launch = launches.setdefault(
                row["ID"],
                Launch(row["Kernel Name"], _sizes(row["Grid Size"]), _sizes(row["Block Size"])),
            )
            name = BY_NCU.get(row["Metric Name"])
            value = _number(row["Metric Value"])
            if name is not None and value is not None:
                launch.counters[name] = value * _SCALES.get(row["Metric Unit"], 1.0)
    except (KeyError, AttributeError, TypeError) as error:
        raise BackendError(
            f"ncu's table cannot be read at its line {rows.line_num} ({error}): "
            "see that ncu is 2021.1 or newer with ncu --version"
        ) from None
    return list(launches.values())


def medians(launches: Sequence[Launch]) -> dict[str, float]:
    """Of each counter that all launches have, the median."""
    common = set.intersection(*(set(launch.counters) for launch in launches)) if launches else set()
    return {
        name: float(median(launch.counters[name] for launch in launches)) for name in sorted(common)
    }


def _sizes(text: str) -> tuple[int, ...]:
    """``(16, 16, 1)``"""
    return tuple(int(number) for number in _SIZE.findall(text))


def _number(text: str) -> float | None:
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        return None
    return value if math.isfinite(value) else None
