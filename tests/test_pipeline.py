"""One case from end to end, on a back end in memory whose clock is scripted."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from pytest_gemm.backends.base import Argument, Device, Executable, LaunchConfig
from pytest_gemm.case import Case, Settings
from pytest_gemm.errors import BackendError, KernelFault
from pytest_gemm.judging import session_of
from pytest_gemm.kernelspec import Kernel
from pytest_gemm.pipeline import run_case
from pytest_gemm.problem import Problem
from pytest_gemm.result import Result
from pytest_gemm.reuse import Reuse
from tests.memory_backend import MemoryBackend

Function = Callable[..., object]


class Scripted(MemoryBackend):
    """Launches last ``seconds`` each; counts them."""

    kind = "host"

    def __init__(self, seconds: float = 0.001, **limits: Any) -> None:
        super().__init__()
        self.seconds = seconds
        self.limits = limits
        self.launched: list[int] = []
        self.cold = False

    @property
    def device(self) -> Device:
        return Device("host", "host-scripted", "scripted", {"compiler": "c"}, **self.limits)

    def time(
        self,
        executable: Executable,
        config: LaunchConfig,
        arguments: Sequence[Argument],
        *,
        launches: int = 1,
        cold: bool = False,
        timeout: float = 60.0,
    ) -> float:
        super().time(executable, config, arguments, launches=launches, timeout=timeout)
        self.launched.append(launches)
        self.cold |= cold
        return self.seconds * launches

    def conditions(self) -> Mapping[str, Any]:
        return {"launched": len(self.launched)}


def product(A: Any, B: Any, C: Any) -> None:
    C[:] = A @ B


def case(**settings: Any) -> Case:
    kernel = Kernel("product", args=("A", "B", "C"), callable="x.py::product", path="x.py")
    return Case(kernel, Problem("gemm", 48, 40, 24), Settings(**settings))


def run(function: Function, backend: MemoryBackend, **settings: Any) -> Result:
    return run_case(case(**settings), backend, function)


def test_a_right_kernel_passes_with_a_digest_and_no_samples() -> None:
    result = run(product, Scripted())
    assert result.outcome == "passed"
    assert result.digest.startswith("sha256:")
    assert result.samples == ()
    assert result.device["name"] == "host-scripted"
    assert {"compile_s", "first_launch_s"} <= set(result.counters)


def test_a_timed_kernel_has_samples_and_says_under_what_conditions() -> None:
    backend = Scripted()
    result = run(product, backend, timed=True, time_cap=0.01)
    assert result.estimate is not None
    assert result.estimate.median == pytest.approx(0.001)
    assert len(result.samples) == result.estimate.n
    before, after = (result.conditions[when]["launched"] for when in ("before", "after"))
    assert after - before > len(result.samples)
    assert {"upload_s", "download_s", "end_to_end_s"} <= set(result.counters)
    assert backend.buffers == []


def test_a_c_that_is_read_is_checked_after_one_launch() -> None:
    """A second launch would find the result of the first."""

    def adds(A: Any, B: Any, C: Any) -> None:
        C += A @ B

    adding = Kernel("adds", args=("A", "B", "C"), beta=1.0, callable="x.py::adds", path="x.py")
    timed = Case(adding, adding.problem("48x40x24"), Settings(timed=True, time_cap=0.01))
    backend = Scripted(seconds=1e-6)
    result = run_case(timed, backend, adds)
    assert result.outcome == "passed", result.message
    assert result.launches > 1
    assert backend.launched[-2:] == [1, 1]
    assert timed.id == "adds-48x40x24-float32+beta:1"


def test_python_kernels_are_given_what_is_stored() -> None:
    seen = []

    def multiplies(A: Any, B: Any, C: Any, batch: int) -> None:
        seen.append((A.shape, A.dtype, B.shape, C.shape, batch))
        wide = (A.astype(np.uint32) << 16).view(np.float32)
        C[:] = wide.swapaxes(-1, -2) @ (B.astype(np.uint32) << 16).view(np.float32)

    kernel = Kernel(
        "multiplies",
        args=("A", "B", "C", "batch"),
        dtype="bfloat16",
        out_dtype="float32",
        transa="T",
        batch=2,
        callable="x.py::multiplies",
    )
    result = run_case(Case(kernel, kernel.problem("48x40x24")), Scripted(), multiplies)
    assert result.outcome == "passed", result.message
    assert ((3, 37, 37), np.uint16, (3, 37, 37), (3, 37, 37), 3) in seen
    assert seen[-1] == ((2, 24, 48), np.uint16, (2, 24, 40), (2, 48, 40), 2)


def test_a_cold_case_is_timed_cold_and_is_another_benchmark() -> None:
    backend = Scripted()
    run(product, backend, timed=True, cold=True, time_cap=0.01)
    assert backend.cold
    assert case(cold=True).id == case().id + "-cold"


def test_a_kernel_that_stops_working_after_a_while_is_caught_after_timing() -> None:
    calls = []

    def tires(A: Any, B: Any, C: Any) -> None:
        calls.append(1)
        if len(calls) < 100:
            product(A, B, C)

    assert run(tires, Scripted()).outcome == "passed"
    calls.clear()
    result = run(tires, Scripted(), timed=True, time_cap=0.01)
    assert result.outcome == "failed"
    assert result.samples == ()


@pytest.mark.parametrize(
    ("limits", "settings", "word"),
    [
        ({"peak_flops": 1e6}, {}, "arithmetic"),
        ({"peak_bandwidth": 1e6}, {"cold": True}, "memory"),
    ],
)
def test_a_time_beyond_the_hardware_is_refused(
    limits: dict[str, float], settings: dict[str, bool], word: str
) -> None:
    result = run(product, Scripted(**limits), timed=True, time_cap=0.01, **settings)
    assert result.outcome == "failed"
    assert f"the device's {word} needs at least" in result.message


def test_a_hot_time_may_beat_the_memory() -> None:
    backend = Scripted(peak_bandwidth=1e6)
    assert run(product, backend, timed=True, time_cap=0.01).outcome == "passed"


@pytest.mark.parametrize("lie", [0.0, -1.0, float("nan"), float("inf")])
def test_a_clock_that_lies_fails_the_case(lie: float) -> None:
    result = run(product, Scripted(lie), timed=True, time_cap=0.01)
    assert result.outcome == "failed"
    assert result.message.startswith("product on 48x40x24: the device reported")


def test_a_fault_is_the_case_s_own_and_everything_is_freed() -> None:
    def faulty(A: Any, B: Any, C: Any) -> None:
        raise KernelFault("trap", "trapped")

    backend = Scripted()
    result = run(faulty, backend)
    assert result.outcome == "failed"
    assert result.message.startswith("product on ")
    assert backend.buffers == []


def test_a_device_that_cannot_be_used_is_said_once_by_its_own_error() -> None:
    class Missing(Scripted):
        @property
        def device(self) -> Device:
            raise BackendError("no compiler")

    with pytest.raises(BackendError, match="no compiler"):
        run(product, Missing())


def test_the_exact_suite_is_run_once_for_all_problems_of_a_kernel() -> None:
    known = Reuse()
    alone, after = Scripted(), Scripted()
    run_case(case(), alone, product, known)
    assert run_case(case(), after, product, known).outcome == "passed"
    assert len(after.launched) < len(alone.launched) / 2


def test_a_failure_of_the_exact_suite_is_remembered() -> None:
    known = Reuse()
    calls = []

    def wrong(A: Any, B: Any, C: Any) -> None:
        calls.append(1)
        C[:] = 0

    first = run_case(case(), Scripted(), wrong, known)
    count = len(calls)
    second = run_case(case(), Scripted(), wrong, known)
    assert first.outcome == second.outcome == "failed"
    assert first.message == second.message
    assert len(calls) == count


def test_another_source_of_the_same_name_has_its_own_exact_suite() -> None:
    known = Reuse()
    run_case(case(), Scripted(), product, known)
    other = case()
    other = replace(other, kernel=replace(other.kernel, source="def product(): ..."))

    def wrong(A: Any, B: Any, C: Any) -> None:
        C[:] = A @ B
        if C.shape != (48, 40):
            C[0, 0] = 0

    assert run_case(other, Scripted(), wrong, known).outcome == "failed"


def test_a_fault_of_the_first_launch_names_the_problem_that_ran() -> None:
    def faulty(A: Any, B: Any, C: Any) -> None:
        raise KernelFault("timeout", "endless")

    message = run(faulty, Scripted()).message
    assert message.startswith("product on ")
    assert not message.startswith("product on 48x40x24")


def test_no_memory_fails_the_case() -> None:
    result = run(product, MemoryBackendWith(1000))
    assert result.outcome == "failed"
    assert "no memory" in result.message


class MemoryBackendWith(Scripted):
    def __init__(self, capacity: int) -> None:
        super().__init__()
        self.capacity = capacity


def test_alpha_and_beta_reach_the_kernel() -> None:
    seen = set()

    def scaled(alpha: float, A: Any, B: Any, beta: float, C: Any) -> None:
        seen.add((alpha, beta))
        product = alpha * (A.astype(np.float64) @ B)
        C[:] = product + beta * C if beta else product

    kernel = Kernel(
        "scaled", args=("alpha", "A", "B", "beta", "C"), callable="x.py::scaled", path="x.py"
    )
    result = run_case(replace(case(), kernel=kernel), Scripted(), scaled)
    assert result.outcome == "passed", result.message
    assert {(1.0, 0.0), (2.0, -1.0)} <= seen


def test_a_case_and_its_result_survive_json() -> None:
    original = case(timed=True, time_cap=0.01)
    assert Case.from_dict(json.loads(json.dumps(original.to_dict()))) == original
    result = run(product, Scripted(), timed=True, time_cap=0.01)
    assert Result.from_dict(json.loads(json.dumps(result.to_dict()))) == result


def stored_as(kernel: Kernel) -> tuple[str, str]:
    """What a session is stored under: its source's hash and its program."""
    timed = replace(case(timed=True, time_cap=0.01), kernel=kernel)
    result = run_case(timed, Scripted(), product)
    session = session_of(timed, result, datetime.now(UTC), commit=None)
    return session.source, session.program


def test_a_new_size_is_no_new_program_but_a_new_parameter_is() -> None:
    """The block of front matter counts by what it says of the launch alone."""
    block = "// /// gemm\n// block = [16, 16]\n// grid = ['cdiv(N, TILE)']\n// ///\n"
    code = "__global__ void k(float* C) {}\n"
    kernel = Kernel(
        "k", args=("A", "B", "C"), source=block + code, filename="k.cu", params=(("TILE", 16),)
    )
    sized = replace(kernel, source=block.replace("// ///\n", "// sizes = ['64']\n// ///\n") + code)
    assert stored_as(sized) == stored_as(kernel)
    other = replace(kernel, params=(("TILE", 32),))
    assert stored_as(other)[0] == stored_as(kernel)[0]
    assert stored_as(other)[1] != stored_as(kernel)[1]
    changed = replace(kernel, source=block + code.replace("{}", "{ }"))
    assert stored_as(changed)[0] != stored_as(kernel)[0]
