"""Whether a time can be judged, by the conditions under which it was taken."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

FOREIGN_LOAD = 1
"""Percent of the time that other processes may keep the GPU busy."""

CLOCK_TOLERANCE = 0.02
"""How far beyond the clocks of the baseline a clock may lie."""

CANARY_TOLERANCE = 0.1
"""How much longer than the baseline's fastest the canary may take: it follows the clock, which a
power cap moves, while another process on the GPU makes it half as long again or more."""

TOLD = {
    "registers": "registers",
    "local_bytes": "bytes of local memory a thread (spills)",
    "static_shared_bytes": "bytes of static shared memory",
    "uuid": "another device of the same model:",
    "power_cap": "held down by the power cap:",
    "driver": "driver",
}
"""What is told where it differs, and in which words."""

Conditions = Mapping[str, Any]
"""What ``Backend.conditions`` said; a value that is missing or None is not known."""


def withhold_reason(
    before: Conditions, after: Conditions, baseline: Sequence[Conditions] = ()
) -> str:
    """Why no verdict may be given, or an empty text.

    ``before`` and ``after`` were taken around the sampling, ``baseline`` after the samplings of
    the sessions compared with. What is not known withholds nothing. Only the clock and the
    canary after the sampling are held against the baseline's, because an idle GPU clocks down.
    A power cap is normal and no reason.
    """
    for when, conditions in (("before", before), ("after", after)):
        if words := conditions.get("slowdown"):
            return f"the GPU slowed itself down ({words}; seen {when} the sampling)"
        load = conditions.get("foreign_utilisation")
        if load is not None and load >= FOREIGN_LOAD:
            return (
                f"other processes used the GPU ({load:g} % of the time, seen {when} the sampling)"
            )
    return _other_clock(after, baseline) or _slow_canary(after, baseline)


def differences(before: Conditions, now: Conditions) -> list[str]:
    """What of a build and of the conditions was otherwise when the baseline was stored."""
    found = [
        f"{what} {before[key]} -> {now[key]}"
        for key, what in TOLD.items()
        if None not in (before.get(key), now.get(key)) and before[key] != now[key]
    ]
    old, new = before.get("sm_clock"), now.get("sm_clock")
    if old and new and abs(new / old - 1) > CLOCK_TOLERANCE:
        found.append(f"SM clock {old:g} -> {new:g} MHz")
    return found


def _other_clock(after: Conditions, baseline: Sequence[Conditions]) -> str:
    clock, clocks = after.get("sm_clock"), _known("sm_clock", baseline)
    if clock is None or not clocks:
        return ""
    low, high = min(clocks), max(clocks)
    if low * (1 - CLOCK_TOLERANCE) <= clock <= high * (1 + CLOCK_TOLERANCE):
        return ""
    return f"the SM clock was {clock:g} MHz; the baseline's was {low:g} to {high:g} MHz"


def _slow_canary(after: Conditions, baseline: Sequence[Conditions]) -> str:
    seconds, known = after.get("canary_s"), _known("canary_s", baseline)
    if seconds is None or not known or seconds <= min(known) * (1 + CANARY_TOLERANCE):
        return ""
    return (
        f"a fixed kernel took {seconds / min(known):.3g} times as long as in the baseline's "
        "sessions: something else used the GPU, or slowed it down"
    )


def _known(key: str, conditions: Sequence[Conditions]) -> list[float]:
    return [c[key] for c in conditions if c.get(key) is not None]
