"""What limits a launch, decided from its counters, and said in one sentence. Pure functions.

The two thresholds are those of Nsight Compute's own rule for its section "GPU Speed Of Light
Throughput": from 80 % of its peak on a unit is the limit; where none reaches 60 %, latencies are.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from pytest_gemm.markdown import digits
from pytest_gemm.profile.counters import Counters
from pytest_gemm.profile.facts import stalls
from pytest_gemm.profile.metrics import STALLS
from pytest_gemm.report.text import rate

BUSY = 80.0
"""Percent of a unit's peak from which on it is the limit."""

LATENT = 60.0
"""Percent that no unit reaches where warps wait for latencies."""

UNITS = {
    "dram": "DRAM",
    "l2": "L2",
    "shared": "the data banks of L1 and shared memory",
    "writeback": "the way of loaded data to the registers",
    "l1": "L1 and shared memory",
    "fma": "the float32 pipe",
    "fp64": "the float64 pipe",
    "tensor": "the tensor cores",
    "issue": "the issue slots",
}
"""What may be busy; where two are equally so, the first."""


@dataclass(frozen=True)
class Limit:
    """``kind``: ``grid``, ``latency``, ``unknown`` or one of ``UNITS``; ``text`` says why."""

    kind: str
    text: str


@dataclass(frozen=True)
class Roof:
    """A point under the roofline: operations per second, per byte of DRAM traffic, and the roof.

    ``by`` is what the roof is there: ``arithmetic`` or ``memory``.
    """

    rate: float
    intensity: float
    height: float
    by: str

    @property
    def part(self) -> float:
        """Of the roof that is reached."""
        return self.rate / self.height


def limit(counters: Counters, blocks: int) -> Limit:
    """The first limiter of a launch with that many blocks."""
    units = counters.get("units", 0)
    if 0 < blocks < units:
        return Limit(
            "grid",
            f"the grid, as its {blocks} blocks leave {units - blocks:.0f} of {units:.0f} "
            "multiprocessors without work",
        )
    known = {name: counters[name] for name in UNITS if name in counters}
    if not known:
        return Limit("unknown", "not known, as no counter of a unit was read")
    first = max(known, key=lambda name: known[name])
    busy = f"{UNITS[first]} at {known[first]:.0f} % of the peak"
    if known[first] >= BUSY:
        return Limit(first, busy)
    waiting = _waiting(counters)
    if known[first] >= LATENT:
        return Limit(first, f"{busy}{f', while {waiting}' if waiting else ''}")
    reason = f": {waiting}" if waiting else ""
    return Limit("latency", f"latency, as no unit is busier than {busy}{reason}")


def _waiting(counters: Counters) -> str:
    """``warps wait 45 % of their time for data from shared memory``"""
    waits = [stall for stall in stalls(counters) if stall.reason != "not_selected"]
    if not waits:
        return ""
    longest = waits[0]
    text = f"warps wait {100 * longest.share:.0f} % of their time for {STALLS[longest.reason]}"
    if "occupancy" in counters:
        text += f", with {counters['occupancy']:.0f} % of the most warps resident"
    return text


def roof(
    flops: int,
    seconds: float,
    dram_bytes: float | None,
    peak_flops: float | None,
    peak_bandwidth: float | None,
) -> Roof | None:
    """Where a launch is under the roofline; None where a peak or the traffic is not known."""
    if dram_bytes is None or not peak_flops or not peak_bandwidth or not seconds:
        return None
    intensity = flops / dram_bytes if dram_bytes else inf
    memory = intensity * peak_bandwidth
    if memory < peak_flops:
        return Roof(flops / seconds, intensity, memory, "memory")
    return Roof(flops / seconds, intensity, peak_flops, "arithmetic")


def sentence(title: str, place: Roof | None, found: Limit) -> str:
    """``tiled on 1024x1024x1024: 5.10 TFLOP/s, 8 % of ...; first limiter: ...``"""
    where = ""
    if place is not None:
        by = "memory" if place.by == "memory" else "the arithmetic"
        where = (
            f"{rate(place.rate, 'FLOP/s')}, {100 * place.part:.1f} % of the "
            f"{rate(place.height, 'FLOP/s')} that {by} allows at {digits(place.intensity)} FLOP "
            "per byte of DRAM; "
        )
    return f"{title}: {where}first limiter: {found.text}"
