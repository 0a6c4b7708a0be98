"""When the conditions of the sampling withhold a verdict."""

from __future__ import annotations

import pytest

from pytest_gemm.conditions import differences, withhold_reason

FINE = {
    **{"sm_clock": 1980, "slowdown": "", "power_cap": True, "foreign_utilisation": 0},
    "canary_s": 2.5e-4,
}

BASELINE = [FINE | {"sm_clock": 1935, "canary_s": 2.6e-4}, FINE, {}, {"sm_clock": None}]


@pytest.mark.parametrize(("before", "after", "baseline", "words"), [
    ({}, {}, [], ""),
    ({}, {}, BASELINE, ""),
    ({"power_cap": False}, {"power_cap": False}, BASELINE, ""),
    ({"slowdown": "hardware power brake"}, {}, [], "itself down (hardware power brake; seen be"),
    ({}, {"slowdown": "hardware thermal slowdown"}, [], "thermal slowdown; seen after"),
    ({}, {"foreign_utilisation": 35}, [], "other processes used the GPU (35 % of the time"),
    ({"foreign_utilisation": 1}, {}, [], "seen before"),
    ({"sm_clock": 345, "canary_s": 1e-3}, {}, BASELINE, ""),  # idle before
    ({}, {"sm_clock": 1410}, BASELINE, "was 1410 MHz; the baseline's was 1935 to 1980"),
    ({}, {"sm_clock": 1410}, [], ""),
    ({}, {"sm_clock": 1900}, BASELINE, ""),
    ({}, {"sm_clock": 2100}, BASELINE, "2100 MHz"),
    ({}, {"sm_clock": None}, BASELINE, ""),
    ({}, {"canary_s": 5e-4}, BASELINE, "took 2 times as long as in the baseline's sessions"),
    ({}, {"canary_s": 2.76e-4}, BASELINE, "1.1 times"),  # than the fastest, not the slowest
    ({}, {"canary_s": 2.74e-4}, BASELINE, ""),
    ({}, {"canary_s": 1e-4}, BASELINE, ""),
    ({}, {"canary_s": 5e-4}, [], ""),
    ({}, {"canary_s": None}, BASELINE, ""),
])  # fmt: skip
def test_withhold_reason(before, after, baseline, words):
    reason = withhold_reason(FINE | before, FINE | after, baseline)
    assert words in reason
    assert bool(words) == bool(reason)
    assert "\n" not in reason


@pytest.mark.parametrize("known", [{}, dict.fromkeys(FINE)])
def test_what_is_not_known_withholds_nothing(known):
    assert withhold_reason(known, known, BASELINE) == ""
    assert withhold_reason(FINE, FINE, [known]) == ""


def test_what_differs_from_the_baseline_s_conditions_is_told() -> None:
    before = {"registers": 168, "uuid": "GPU-1", "sm_clock": 1980, "driver": "580", "load": 1}
    now = {"registers": 184, "uuid": "GPU-2", "sm_clock": 1755, "driver": "580", "load": 2}
    assert differences(before, now) == [
        "registers 168 -> 184",
        "another device of the same model: GPU-1 -> GPU-2",
        "SM clock 1980 -> 1755 MHz",
    ]
    assert differences(before, before) == []
    assert differences({}, now) == differences(before, {"uuid": None}) == []
