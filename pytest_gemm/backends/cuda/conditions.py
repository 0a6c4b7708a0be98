"""Whether a time can be judged, by the conditions under which it was taken."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

FOREIGN_LOAD = 1
"""Percent of the time that other processes may keep the GPU busy."""

CLOCK_TOLERANCE = 0.02
"""How far beyond the clocks of the baseline a clock may lie."""


def withhold_reason(
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    baseline_clocks: tuple[float, float] | None = None,
) -> str:
    """Why no verdict may be given, or an empty text.

    ``before`` and ``after`` are what ``Backend.conditions`` said around the sampling; a value
    that is missing or None withholds nothing. ``baseline_clocks`` are the least and the greatest
    SM clock in MHz of the sessions compared with; only the clock after the sampling is held
    against it, because an idle GPU clocks down. A power cap is normal and no reason.
    """
    for when, conditions in (("before", before), ("after", after)):
        if words := conditions.get("slowdown"):
            return f"the GPU slowed itself down ({words}; seen {when} the sampling)"
        load = conditions.get("foreign_utilisation")
        if load is not None and load >= FOREIGN_LOAD:
            return (
                f"other processes used the GPU ({load:g} % of the time, seen {when} the sampling)"
            )
    clock = after.get("sm_clock")
    if clock is None or baseline_clocks is None:
        return ""
    low, high = baseline_clocks
    if not low * (1 - CLOCK_TOLERANCE) <= clock <= high * (1 + CLOCK_TOLERANCE):
        return f"the SM clock was {clock:g} MHz; the baseline's was {low:g} to {high:g} MHz"
    return ""
