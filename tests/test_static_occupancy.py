"""How many blocks fit on a multiprocessor. ``benchmarks/occupancy.py`` compares with NVIDIA's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_gemm.errors import ConfigError
from pytest_gemm.static.occupancy import MULTIPROCESSORS, Occupancy, occupancy

# Of cuda_occupancy.h, CUDA 13.5: benchmarks/occupancy.py.
KNOWN = [
    # architecture, threads, registers, shared bytes, barriers; blocks, limiter
    (("sm_90", 256, 32, 0, 0), 8, "threads"),
    (("sm_90", 256, 33, 0, 0), 6, "registers"),
    (("sm_90", 128, 168, 0, 0), 3, "registers"),
    (("sm_90", 128, 169, 0, 0), 2, "registers"),
    (("sm_90", 128, 255, 0, 0), 2, "registers"),
    (("sm_90", 1024, 64, 8192, 1), 1, "registers"),
    (("sm_90", 1024, 65, 0, 0), 0, "registers"),
    (("sm_90", 64, 100, 8192, 1), 8, "registers"),
    (("sm_90", 32, 16, 0, 1), 32, "blocks"),
    (("sm_90", 32, 16, 0, 16), 4, "barriers"),
    (("sm_90", 128, 32, 48 * 1024, 0), 4, "shared memory"),
    (("sm_90", 128, 32, 227 * 1024, 0), 1, "shared memory"),
    (("sm_90", 128, 32, 227 * 1024 + 1, 0), 0, "shared memory"),
    (("sm_80", 128, 32, 48 * 1024, 0), 3, "shared memory"),
    (("sm_80", 32, 16, 0, 16), 32, "blocks"),
    (("sm_75", 256, 32, 0, 0), 4, "threads"),
    (("sm_86", 128, 32, 0, 0), 12, "threads"),
    (("sm_89", 32, 32, 0, 0), 24, "blocks"),
    (("sm_120", 32, 32, 0, 2), 12, "barriers"),
]


@pytest.mark.parametrize(("launch", "blocks", "limiter"), KNOWN)
def test_known_launches(launch: tuple[str, int, int, int, int], blocks: int, limiter: str) -> None:
    found = occupancy(*launch)
    assert (found.blocks, found.limiter) == (blocks, limiter)


def test_the_fraction_counts_warps_not_threads() -> None:
    assert occupancy("sm_90", 128, 255, 0) == Occupancy(2, 8 / 64, "registers")
    assert occupancy("sm_90", 33, 32, 0).fraction == 1.0
    assert occupancy("sm_86", 1024, 32, 0).fraction == 32 / 48


def test_a_suffix_for_one_chip_or_family_changes_nothing() -> None:
    assert occupancy("sm_90a", 128, 168, 0) == occupancy("sm_90", 128, 168, 0)


@pytest.mark.parametrize("name", ["sm_99", "sm_9", "90", "compute_90", "sm_90b"])
def test_an_unknown_architecture_is_said(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"the architecture '{name}' is none of sm_70, .*sm_90"):
        occupancy(name, 128, 32, 0)


@given(
    st.sampled_from([f"sm_{number}" for number in MULTIPROCESSORS]),
    st.integers(1, 1024),
    st.integers(1, 255),
    st.integers(0, 200_000),
)
def test_more_of_anything_never_raises_it(
    architecture: str, threads: int, registers: int, nbytes: int
) -> None:
    here = occupancy(architecture, threads, registers, nbytes)
    assert 0 <= here.fraction <= 1
    assert occupancy(architecture, threads, registers + 1, nbytes).blocks <= here.blocks
    assert occupancy(architecture, threads, registers, nbytes + 1).blocks <= here.blocks
    assert occupancy(architecture, threads + 1, registers, nbytes).blocks <= here.blocks
