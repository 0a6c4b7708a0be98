"""Checking on the CPU: every fault at its line, and nothing said of kernels that are right."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pytest_gemm.backends.host import HostBackend
from pytest_gemm.backends.host.check import ASCENDING, DESCENDING, ThreadOrder
from pytest_gemm.kernelspec import Kernel
from pytest_gemm.problem import Problem
from pytest_gemm.registry import load_registry
from tests.checking import COMPILERS, check, marked_lines

TESTS = Path(__file__).parent
BROKEN = TESTS / "broken" / "check"
CORRECT = TESTS / "correct"
SHIPPED = TESTS.parent / "kernels"

ORDERS = [ASCENDING, DESCENDING, ThreadOrder("random", 1), ThreadOrder("random", 2)]


def kernels(folder: Path) -> list[Kernel]:
    registry = load_registry([folder], folder)
    assert not registry.errors
    return list(registry.kernels("host"))


def problem_for(kernel: Kernel) -> Problem:
    """Odd in every dimension, unless the kernel takes whole tiles only."""
    odd = Problem.parse("37x35" if kernel.op == "add" else "37x35x41", kernel.op)
    return Problem.parse("64x32x24") if kernel.skip_reason(odd) else odd


@pytest.fixture(scope="module", params=COMPILERS)
def backend(request: pytest.FixtureRequest) -> HostBackend:
    return HostBackend(compiler=request.param)


@pytest.mark.parametrize(
    "kernel", [*kernels(SHIPPED), *kernels(CORRECT)], ids=lambda kernel: kernel.id
)
def test_nothing_is_found_in_a_correct_kernel_in_any_order(
    kernel: Kernel, backend: HostBackend
) -> None:
    problem = problem_for(kernel)
    bits, traffic = set(), []
    for order in ORDERS:
        report, C, wanted = check(backend, kernel, problem, order=order)
        assert not report.findings
        assert report.fault is None
        assert report.more == 0
        np.testing.assert_array_equal(C, wanted)
        bits.add(C.tobytes())
        traffic.append(report.traffic)
    assert len(bits) == 1
    # The kernel's work does not depend on the order, save for who is last.
    assert all(t == traffic[0] for t in traffic)
    assert traffic[0].matrices.load_bytes > 0


# What else than a plain launch at 37 x 35 x 41 brings a fault out.
PROBLEMS = {"shuffle_with_exited_lane": "5x5x21"}
PADDED = {"ignores_leading_dimension"}
ONLY_CLANG = {"short_index"}
"""g++ has no check for it."""


@pytest.mark.parametrize("kernel", kernels(BROKEN), ids=lambda kernel: kernel.id)
def test_a_fault_is_found_at_its_line(kernel: Kernel, backend: HostBackend) -> None:
    path = BROKEN / f"{kernel.name}.cu"
    lines, other_lines = marked_lines(path, "finding"), marked_lines(path, "other")
    (kind,) = set(re.findall(r"// finding: (\S+)", path.read_text(encoding="utf-8")))
    report, _, _ = check(
        backend,
        kernel,
        Problem.parse(PROBLEMS.get(kernel.name, "37x35x41")),
        timeout=0.3,
        padding=3 if kernel.name in PADDED else 0,
    )
    if kernel.name in ONLY_CLANG and backend.device.environment["compiler"] == "g++":
        assert not report.findings
        return
    found = [f for f in report.findings if f.kind == kind and f.line in lines]
    assert found, [str(finding) for finding in report.findings]
    finding = found[0]
    assert finding.place.file == path.name
    assert (finding.block, finding.thread) != (None, None)
    if other_lines:
        assert finding.other_place.line in other_lines
    assert str(finding).startswith(f"{path.name}:{finding.line}: ")
    assert "\n" not in str(finding)
    assert {f.kind for f in report.findings} <= {kind, "out-of-bounds"}


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: f"{order.kind}{order.seed}")
@pytest.mark.parametrize("name", ["missing_first_barrier", "missing_second_barrier"])
def test_a_missing_barrier_is_a_race_of_two_lines_in_any_order(
    name: str, order: ThreadOrder, backend: HostBackend
) -> None:
    (kernel,) = (kernel for kernel in kernels(BROKEN) if kernel.name == name)
    path = BROKEN / f"{name}.cu"
    pair = {*marked_lines(path, "finding"), *marked_lines(path, "other")}
    report, _, _ = check(backend, kernel, Problem.parse("37x35x41"), order=order)
    assert {finding.kind for finding in report.findings} == {"race"}
    assert pair in [{finding.line, finding.other_place.line} for finding in report.findings]


@pytest.mark.parametrize(("name", "reuse"), [
    ("naive", 1),
    ("tiled", 16),
    ("tiled32", 32),
    ("register_blocked", 32),
])  # fmt: skip
def test_loads_per_element_are_counted_exactly(name: str, reuse: int, backend: HostBackend) -> None:
    (kernel,) = (kernel for kernel in kernels(SHIPPED) if kernel.name == name)
    M, N, K = 64, 32, 96
    report, _, _ = check(backend, kernel, Problem("gemm", M, N, K))
    traffic = report.traffic
    assert traffic.matrices.load_words * reuse == 2 * K * M * N
    assert traffic.matrices.loads == traffic.matrices.load_words
    assert (traffic.matrices.stores, traffic.matrices.store_words) == (M * N, M * N)
    assert {number: a.loads for number, a in traffic.arguments.items() if a.loads} == {
        1: M * N * K // reuse,
        2: M * N * K // reuse,
    }
    tiles = 0 if reuse == 1 else (M // reuse) * (N // reuse) * (K // reuse)
    assert traffic.barriers == 2 * tiles
    assert traffic.shared.store_words == tiles * 2 * reuse * reuse


def test_a_float4_is_one_access_of_four_words(backend: HostBackend) -> None:
    (kernel,) = (kernel for kernel in kernels(CORRECT) if kernel.name == "vector_loads")
    M, N, K = 64, 32, 24
    report, _, _ = check(backend, kernel, Problem("gemm", M, N, K))
    matrices = report.traffic.matrices
    assert matrices.load_words == 2 * M * N * K // 32
    assert matrices.loads == matrices.load_words // 4
    assert (matrices.stores, matrices.store_words) == (M * N // 4, M * N)


def test_different_barriers_are_reported_unless_they_are_allowed(backend: HostBackend) -> None:
    (allowed,) = (kernel for kernel in kernels(CORRECT) if kernel.name == "two_groups")
    kernel = replace(allowed, different_barriers=False)
    report, _, _ = check(backend, kernel, Problem.parse("37x35x41"))
    assert [finding.kind for finding in report.findings] == ["barrier-divergence"]
    assert report.fault is not None
    assert report.fault.kind == "barrier-divergence"
