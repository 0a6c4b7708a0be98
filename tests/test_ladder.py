"""The kernel ladder: every rung right for any sizes, and one change away from the one before."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_gemm.backends.host import HostBackend
from pytest_gemm.checking import Checker
from pytest_gemm.correctness import check_exactly, exact_suite
from pytest_gemm.kernelspec import Kernel
from pytest_gemm.launching import Launcher, program_of
from pytest_gemm.problem import Problem
from pytest_gemm.registry import load_registry

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "kernels" / "ladder"
REGISTRY = load_registry([FOLDER], ROOT)
KERNELS = REGISTRY.kernels("host")
RUNGS = [kernel for kernel in KERNELS if kernel.op == "gemm"]

# Whole blocks of 256 x 128 with more tiles than there are stages; rows of float4 that end within
# a block and a tile; rows that are none; a K of one.
SIZES = ["256x128x160", "132x260x68", "129x131x67", "131x133x1", "1x257x36", "257x1x36"]
CHECKED = ["thread_column", "padded_a", "double_buffer", "row_major_a", "three_stages"]
CHECKED += ["serpentine"]
"""One of each kind of copy, so that every access is watched, in several orders of the threads."""


@pytest.fixture(scope="module")
def backend() -> HostBackend:
    return HostBackend()


def test_each_rung_leads_to_the_naive_product() -> None:
    assert REGISTRY.errors == ()
    specs = {name: spec for name, spec in REGISTRY.specs.items() if name != "add_float4"}
    assert {name for name, spec in specs.items() if not spec.derived_from} == {"naive"}
    for spec in specs.values():
        assert bool(spec.change) == bool(spec.derived_from), spec.name


def test_the_default_suite_has_no_rung() -> None:
    shipped = load_registry([ROOT / "kernels"], ROOT).specs
    assert {spec.path for spec in shipped.values()} == {
        f"kernels/{path.name}" for path in (ROOT / "kernels").glob("*.cu")
    }


def test_rungs_of_one_source_differ_in_one_thing() -> None:
    by_name = {kernel.name: kernel for kernel in RUNGS}
    compared = 0
    for kernel in RUNGS:
        parent = by_name.get(kernel.derived_from)
        if parent is None or parent.filename != kernel.filename:
            continue
        own, other = dict(kernel.params), dict(parent.params)
        changed = {name for name, value in own.items() if value != other[name]}
        if kernel.entry.partition("<")[0] != parent.entry.partition("<")[0]:
            changed.add("entry")
        # A warp keeps its 32 lanes when a thread's part of C grows.
        assert len(changed) == 1 or changed <= {"TM", "TN", "WM"}, kernel.name
        compared += 1
    assert compared >= 9


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.id)
def test_a_rung_is_exact_for_any_sizes(backend: HostBackend, kernel: Kernel) -> None:
    launcher = Launcher(kernel, backend, backend.compile(program_of(kernel, None)), 20.0)
    sizes = SIZES if kernel.op == "gemm" else ["64x64", "1x1025", "33x31"]
    larger = [kernel.of_kind(Problem.parse(size, kernel.op)) for size in sizes]
    for problem in (*exact_suite(kernel), *larger):
        check_exactly(launcher.once, backend, problem, kernel=kernel.id)


@pytest.mark.parametrize("name", CHECKED)
def test_no_access_is_wrong(backend: HostBackend, name: str) -> None:
    kernel = next(kernel for kernel in RUNGS if kernel.name == name)
    found = Checker(backend, "auto", 0, 60.0).check(kernel)
    assert (found.failure, found.unchecked) == ("", "")
