"""What changed between two machine codes, and what of it is worse."""

from __future__ import annotations

import pytest

from pytest_gemm.static.policy import changes, share, worsened

# register_blocked for sm_90, NVRTC 13.5.37.
OLD = {
    **{"registers": 71, "stack_bytes": 0, "spill_store_bytes": 0, "spill_load_bytes": 0},
    **{"static_shared_bytes": 8192, "dynamic_shared_bytes": 0, "barriers": 1},
    **{"threads": 64, "blocks_per_sm": 14, "loops": 1},
    **{"instructions": 923, "FFMA": 512, "LDS": 64, "LDG": 32, "STS": 32, "STG": 16, "BAR": 2},
    **{"loop.instructions": 776, "loop.FFMA": 512, "loop.LDS": 64, "loop.LDG": 32},
}

SHARE = "FFMA share of the inner loop"
TURN = "less is unrolled: FFMA in a turn of the inner loop"


def test_equal_facts_have_not_changed() -> None:
    assert changes(OLD, dict(OLD)) == worsened(OLD, dict(OLD)) == []


@pytest.mark.parametrize(
    ("new", "phrases"),
    [
        ({"spill_store_bytes": 8}, ["bytes of spill stores 0 -> 8"]),
        ({"spill_load_bytes": 4}, ["bytes of spill loads 0 -> 4"]),
        ({"stack_bytes": 256}, ["bytes of stack 0 -> 256"]),
        (
            {"registers": 73, "blocks_per_sm": 12},
            ["warps per multiprocessor 28 -> 24 (registers 71 -> 73)"],
        ),
        (
            {"dynamic_shared_bytes": 9000, "blocks_per_sm": 12},
            ["warps per multiprocessor 28 -> 24 (bytes of dynamic shared memory 0 -> 9000)"],
        ),
        ({"loop.instructions": 800}, [f"{SHARE} 66.0 % -> 64.0 %"]),
        (
            {"loop.FFMA": 16, "loop.instructions": 24, "loops": 2},
            [f"{TURN} 512 -> 16, loops 1 -> 2"],
        ),
        ({"loop.FFMA": 256, "loop.instructions": 390}, [f"{TURN} 512 -> 256"]),
        (
            {"loop.FFMA": 16, "loop.instructions": 27, "loops": 2},
            [f"{SHARE} 66.0 % -> 59.3 %", f"{TURN} 512 -> 16, loops 1 -> 2"],
        ),
        ({"loop.FFMA": 0}, [f"{SHARE} 66.0 % -> 0.0 %", f"{TURN} 512 -> 0"]),
    ],
)
def test_what_is_worse(new: dict[str, int], phrases: list[str]) -> None:
    assert worsened(OLD, OLD | new) == phrases


@pytest.mark.parametrize(
    "new",
    [
        {"registers": 72},  # as many blocks fit
        {"registers": 60, "blocks_per_sm": 16},
        {"threads": 128, "blocks_per_sm": 7},  # as many warps
        {"loop.instructions": 786},  # 65.1 %
        {"loop.instructions": 700},
        {"loop.FFMA": 1024, "loop.instructions": 1500, "loops": 3},
        {"loop.FFMA": 256, "loop.instructions": 380},  # smaller tiles, a better loop
        {"LDG": 99, "instructions": 2000},
    ],
)
def test_what_is_only_different(new: dict[str, int]) -> None:
    assert worsened(OLD, OLD | new) == []
    assert changes(OLD, OLD | new)


def test_what_got_better_backwards_is_worse() -> None:
    assert worsened(OLD | {"spill_load_bytes": 4}, OLD) == []


def test_a_kernel_whose_loop_is_gone_lost_nothing() -> None:
    straight = {name: n for name, n in OLD.items() if not name.startswith("loop.")} | {"loops": 0}
    assert worsened(OLD, straight) == worsened(straight, OLD) == []
    assert share(straight) is None
    assert f"{SHARE} 66.0 % -> none" in changes(OLD, straight)


def test_a_launch_that_depends_on_the_problem_has_no_occupancy_to_lose() -> None:
    launch = ("threads", "dynamic_shared_bytes", "blocks_per_sm")
    free = {name: n for name, n in OLD.items() if name not in launch}
    assert worsened(OLD, free) == worsened(free, OLD) == []


def test_products_of_other_kinds_are_named() -> None:
    old = {name.replace("FFMA", "HMMA"): n for name, n in OLD.items()}
    assert worsened(old, old | {"loop.instructions": 900}) == [
        "HMMA share of the inner loop 66.0 % -> 56.9 %"
    ]


def test_every_change_is_told_and_the_most_telling_first() -> None:
    new = OLD | {"registers": 184, "blocks_per_sm": 4, "loop.instructions": 900, "LDL": 3}
    assert changes(OLD, new) == [
        "registers 71 -> 184",
        "blocks per multiprocessor 14 -> 4",
        f"{SHARE} 66.0 % -> 56.9 %",
        "instructions of the inner loop 776 -> 900",
        "LDL 0 -> 3",
    ]


def test_no_fact_is_left_out() -> None:
    for name in OLD:
        assert changes(OLD, OLD | {name: OLD[name] + 1000})
