from dataclasses import replace

import numpy as np
import pytest

from pytest_gemm import comparison, correctness
from pytest_gemm.bits import raw
from pytest_gemm.comparison import digest
from pytest_gemm.correctness import (
    Agreement,
    check_exactly,
    check_suite,
    check_timed,
    exact_problems,
    exact_suite,
)
from pytest_gemm.device import Workspace, poisons
from pytest_gemm.errors import KernelFault, WrongResultError
from pytest_gemm.kernelspec import Kernel
from pytest_gemm.matrices import integer_range, operands
from pytest_gemm.problem import Problem
from tests.memory_backend import MemoryBackend, launching, surroundings, view

FILL = poisons("float32")[1]

RECTANGLE = Problem.parse("37x35x33")
SCALED = replace(RECTANGLE, alpha=2.0, beta=-1.0)
EVERYTHING = ("alpha", "beta"), ("lda", "ldb", "ldc")


@pytest.fixture
def backend():
    backend = MemoryBackend()
    yield backend
    assert backend.buffers == [], "memory was not freed"


def solve(problem):
    """A right kernel for the problem, in float32 and in an order of its own."""

    def run(workspace):
        A, B, C = (view(workspace.matrix(name)) for name in "ABC")
        if problem.op == "add":
            C[...] = A + B
        else:
            product = np.float32(problem.alpha) * (A @ B)
            C[...] = product + np.float32(problem.beta) * C if problem.beta else product

    return run


@pytest.mark.parametrize(
    "problem", exact_problems("gemm", *EVERYTHING) + exact_problems("add", (), EVERYTHING[1])
)
def test_a_right_kernel_passes_the_whole_suite(problem, backend):
    assert integer_range(problem) == 8
    agreement = check_exactly(solve(problem), backend, problem, 7, kernel="right")
    assert (agreement.check, agreement.problem, agreement.worst) == ("exact", problem.id, 0)
    assert agreement.digest.startswith("sha256:")


def test_what_the_suite_holds():
    suite = exact_problems("gemm")
    assert all(p.alpha == 1 and p.beta == 0 and p.ld("A") == p.K for p in suite)
    assert any(p.M != p.N != p.K != p.M for p in suite)
    for tile in (16, 32):
        assert any(p.M % tile and p.N % tile and p.K % tile for p in suite)
        # A grid with swapped axes leaves columns, and rows, unwritten.
        assert any(tile < p.M and -(-p.M // tile) * tile < p.N for p in suite)
        assert any(tile < p.N and -(-p.N // tile) * tile < p.M for p in suite)
    assert any(p.K % 16 == 0 and p.K // 16 % 2 for p in suite)
    for size in ("M", "N", "K"):
        assert any(getattr(p, size) == 1 and p.M * p.N * p.K > 1 for p in suite)
    assert Problem("gemm", 1, 1, 1) in suite
    assert any(p.M % 64 == p.N % 64 == p.K % 64 == 0 and p.M != p.N != p.K for p in suite)
    assert sum(p.M * p.N * p.K for p in suite) < 2.4e6


@pytest.mark.parametrize("requires", [
    ("M % 128 == 0", "N % 128 == 0", "K % 8 == 0"),
    ("M % 128 == 0",),
    ("M % 256 == 0", "N % 128 == 0", "K % 16 == 0"),
    ("M == N", "N == K", "K % 128 == 0"),
])  # fmt: skip
def test_a_kernel_for_large_tiles_alone_has_a_suite_too(requires):
    args = ("A", "B", "C", "alpha", "beta", "lda")
    suite = exact_suite(kernel_of(args=args, requires=requires))
    assert {p.M % 128 for p in suite} == {0}
    if "M == N" in requires:
        assert {p.id for p in suite} == {"128x128x128"}
        return
    assert suite != exact_suite(kernel_of(args=args))
    assert {(p.alpha, p.beta) for p in suite} == {(1, 0), (2, 0), (1, -1), (2, -1)}
    assert any(p.lda > p.K for p in suite)
    assert any(p.M != p.N != p.K != p.M for p in suite)
    assert any(p.K % 32 for p in suite)


def test_large_problems_are_for_whole_tiles_of_128(backend):
    for op in ("gemm", "add"):
        suite = exact_problems(op, large=True)
        assert {(p.M % 128, p.N % 128) for p in suite} == {(0, 0)}
        for problem in suite:
            assert integer_range(problem) == 8
            check_exactly(solve(problem), backend, problem, kernel="right")
        assert sum(p.M * p.N * max(p.K, 1) for p in suite) < 20e6


@pytest.mark.parametrize("op", ["gemm", "add"])
@pytest.mark.parametrize("multiple", [1, 2, 4, 8, 16, 32])
def test_a_kernel_that_requires_multiples_still_meets_residues(op, multiple):
    suite = exact_problems(op)
    sizes = [tuple(filter(None, (p.M, p.N, p.K))) for p in suite]
    assert any(all(size % (2 * multiple) == multiple for size in s) for s in sizes)


def test_a_residue_is_forgotten_by_a_kernel_that_requires_multiples_of_four(backend):
    def whole_tiles_only(A, B, C):
        end = A.shape[1] // 16 * 16
        C[...] = A[:, :end] @ B[:end]

    suite = [p for p in exact_problems("gemm") if p.N % 4 == p.K % 4 == 0]
    with pytest.raises(WrongResultError, match=r"44x52x20.*K residue"):
        check_suite(launching(whole_tiles_only), backend, suite, kernel="k")


@pytest.mark.parametrize("wrong", [
    lambda alpha, beta, AB, C: AB if beta == 0 else alpha * AB + beta * C,
    lambda alpha, beta, AB, C: AB if alpha == 1 else alpha * AB + beta * C,
])  # fmt: skip
def test_special_cases_of_alpha_and_beta_are_met(wrong, backend):
    for problem in exact_problems("gemm", ("alpha", "beta")):

        def run(A, B, C, alpha=problem.alpha, beta=problem.beta):
            C[...] = wrong(alpha, beta, A @ B, C)

        try:
            check_exactly(launching(run), backend, problem, kernel="k")
        except WrongResultError:
            assert (problem.alpha, problem.beta) in {(2, 0), (1, -1)}
            return
    pytest.fail("nothing was wrong")


def test_what_a_kernel_takes_is_varied():
    plain = exact_problems("gemm")
    scaled = exact_problems("gemm", ("alpha", "beta"))
    assert scaled[: len(plain)] == plain
    assert {(p.alpha, p.beta) for p in scaled[len(plain) :]} == {(2, -1), (2, 0), (1, -1)}
    assert {(p.alpha, p.beta) for p in exact_problems("gemm", ("alpha",))} == {(1, 0), (2, 0)}
    assert {(p.alpha, p.beta) for p in exact_problems("gemm", ("beta",))} == {(1, 0), (1, -1)}
    padded = exact_problems("gemm", (), ("lda", "ldb", "ldc"))[len(plain) :]
    assert padded
    for problem in padded:
        paddings = {problem.ld(n) - problem.shapes[n][1] for n in "ABC"}
        assert min(paddings) > 0
        assert len(paddings) == 3
        assert {problem.ld(n) % 4 for n in "ABC"} == {0}
    (only_c, _) = exact_problems("gemm", (), ("ldc",))[len(plain) :]
    assert (only_c.lda, only_c.ldb) == (0, 0)
    assert only_c.ld("C") > only_c.N


def test_the_suite_stops_at_the_first_failure_and_says_what_was_right(backend):
    def squares_only(A, B, C):
        C[...] = A @ B if A.shape == B.shape else 0

    suite = exact_problems("gemm")
    with pytest.raises(WrongResultError) as caught:
        check_suite(launching(squares_only), backend, suite, 4, kernel="k")
    first, *_, last = str(caught.value).splitlines()
    assert first.startswith("k on 35x150x33: ")
    assert first.endswith(": C is all zeros")
    assert last == "  right on 37x37x37"

    def right(A, B, C):
        C[...] = A @ B

    check_suite(launching(right), backend, suite, 4, kernel="k")


def recording(seen, problem):
    def run(workspace):
        seen.append(view(workspace.matrix("C")).copy())
        solve(problem)(workspace)

    return run


def test_without_beta_c_holds_nan_and_then_a_finite_number(backend):
    seen = []
    check_exactly(recording(seen, RECTANGLE), backend, RECTANGLE, kernel="right")
    nans, numbers = seen
    assert (raw(nans) == raw(poisons("float32")[0])).all()
    assert (numbers == FILL).all()


def test_with_beta_c_holds_its_operand_both_times(backend):
    seen = []
    check_exactly(recording(seen, SCALED), backend, SCALED, 3, kernel="right")
    C = operands(SCALED, 3, "integers").C
    assert len(seen) == 2
    assert all(np.array_equal(old, C) for old in seen)


FINITE = replace(RECTANGLE, finite_c=True)


def test_a_c_that_is_declared_finite_holds_its_operand_and_then_a_number(backend):
    seen = []
    check_exactly(recording(seen, FINITE), backend, FINITE, 3, kernel="right")
    operand, numbers = seen
    assert np.array_equal(operand, operands(FINITE, 3, "integers").C)
    assert operand.all()
    assert (numbers == FILL).all()
    with_beta = replace(SCALED, finite_c=True)
    seen = []
    check_exactly(recording(seen, with_beta), backend, with_beta, 3, kernel="right")
    assert all(np.array_equal(old, operands(SCALED, 3, "integers").C) for old in seen)


def test_zero_times_a_finite_c_is_right_where_that_is_declared(backend):
    def multiplies(A, B, C):
        C[...] = A @ B + np.float32(0) * C

    check_exactly(launching(multiplies), backend, FINITE, kernel="k")
    data = operands(FINITE, 0, "uniform")
    with Workspace(backend, FINITE) as workspace:
        workspace.load(data)
        check_timed(launching(multiplies), workspace, data, kernel="k")
    with pytest.raises(WrongResultError, match="the old C is read although beta = 0"):
        check_exactly(launching(multiplies), backend, RECTANGLE, kernel="k")


@pytest.mark.parametrize("wrong", [
    lambda AB, C: AB + C,
    lambda AB, C: AB + np.float32(2.0**-20) * C,
    lambda AB, C: np.where(C == FILL, AB, C),
    lambda AB, C: np.where(C == FILL, C, AB),
])  # fmt: skip
def test_a_result_that_depends_on_a_finite_c_is_wrong_all_the_same(wrong, backend):
    def run(A, B, C):
        C[...] = wrong(A @ B, C)

    with pytest.raises(WrongResultError):
        check_exactly(launching(run), backend, FINITE, kernel="k")


def test_a_result_that_is_right_once_is_not_enough(backend):
    """Whatever the first launch leaves must not help the second."""

    def adds_to_what_is_not_nan(A, B, C):
        C[...] = A @ B + np.where(np.isnan(C), 0, C)

    with pytest.raises(WrongResultError, match="accumulated into the old C"):
        check_exactly(launching(adds_to_what_is_not_nan), backend, RECTANGLE, kernel="k")


def test_a_fault_is_told_with_kernel_and_problem_and_memory_is_freed(backend):
    def run(workspace):
        raise KernelFault("timeout", "took too long", block=(1, 2, 3), thread=(4, 5, 6))

    with pytest.raises(KernelFault, match=r"^k on 37x35x33: took too long$") as caught:
        check_exactly(run, backend, RECTANGLE, kernel="k")
    fault = caught.value
    assert (fault.kind, fault.block, fault.thread) == ("timeout", (1, 2, 3), (4, 5, 6))


def timed(run, backend, problem=RECTANGLE, **rest):
    data = operands(problem)
    with Workspace(backend, problem) as workspace:
        workspace.load(data)
        return check_timed(run, workspace, data, kernel="k", **rest)


@pytest.mark.parametrize(
    "problem", [RECTANGLE, SCALED, replace(RECTANGLE, ldc=50), Problem.parse("37x35", "add")]
)
def test_a_right_kernel_agrees_on_timed_data(problem, backend):
    agreement = timed(solve(problem), backend, problem)
    assert agreement.check == "timed"
    assert 0 <= agreement.worst < 1
    assert agreement.digest.startswith("sha256:")
    assert timed(solve(problem), backend, problem) == agreement


def test_the_digest_is_that_of_c(backend):
    data = operands(RECTANGLE)
    assert timed(solve(RECTANGLE), backend).digest == digest(data.A @ data.B)


def wrong_text(run, backend, problem=RECTANGLE, **rest):
    with pytest.raises(WrongResultError) as caught:
        timed(run, backend, problem, **rest)
    return str(caught.value)


def one_wrong(workspace):
    solve(RECTANGLE)(workspace)
    view(workspace.matrix("C"))[20, 30] += 1


def test_a_wrong_element_of_timed_data_is_named(backend):
    first, *rest = wrong_text(one_wrong, backend).splitlines()
    assert first.startswith("k on 37x35x33: 1 of 1295 elements of C wrong, first C[20, 30] = ")
    assert "  wrong rows of C: 20" in rest
    assert "  wrong columns of C: 30" in rest
    assert rest[-1] == "  operands: uniform in [-1, 1), as they are timed"


def test_a_large_c_is_judged_by_sums_and_sampled_rows(backend, monkeypatch):
    monkeypatch.setattr(comparison, "FULL_LIMIT", 0)
    monkeypatch.setattr(comparison, "SAMPLED_ROWS", 1)
    monkeypatch.setattr(correctness, "DIAGNOSED", 0)
    assert timed(solve(RECTANGLE), backend).worst < 1
    first, *rest = wrong_text(one_wrong, backend).splitlines()
    assert first.startswith("k on 37x35x33: 1 of 35 column sums of C wrong, first column 30: ")
    assert "  wrong rows of C: 20" in rest

    def wrong_and_stray(workspace):
        one_wrong(workspace)
        surroundings(workspace.matrix("C"))[37 * 35] = 1

    headline = wrong_text(wrong_and_stray, backend).splitlines()[0]
    assert headline.endswith("; 1 element written past the end of C, first right next to it")


def test_writes_elsewhere_fail_on_timed_data(backend):
    def run(workspace):
        solve(RECTANGLE)(workspace)
        surroundings(workspace.matrix("C"))[37 * 35 + 8] = 1

    assert wrong_text(run, backend).startswith(
        "k on 37x35x33: 1 element written past the end of C, first 8 elements away"
    )


def test_an_overwritten_operand_fails_and_is_renewed(backend):
    def run(workspace):
        solve(RECTANGLE)(workspace)
        view(workspace.matrix("B"))[0, 0] = 5

    assert wrong_text(run, backend) == (
        "k on 37x35x33: 1 element of B overwritten, first B[0, 0] (C itself is right)\n"
        "  operands: uniform in [-1, 1), as they are timed"
    )


def wobbling():
    """A kernel whose last bits change with every launch."""
    launches = iter(range(100))

    def run(workspace):
        solve(RECTANGLE)(workspace)
        view(workspace.matrix("C"))[3, 4] *= np.float32(1 + next(launches) * 2.0**-23)

    return run


def test_other_bits_in_the_second_launch_fail(backend):
    text = wrong_text(wobbling(), backend)
    assert text.startswith("k on 37x35x33: two launches differ in the bits of 1 of 1295 elements")
    assert "deterministic = false" in text


def test_other_bits_are_fine_where_they_are_declared(backend):
    agreement = timed(wobbling(), backend, deterministic=False)
    assert agreement.digest == ""
    assert timed(wobbling(), backend, deterministic=False, verified=agreement) == agreement


def test_bits_that_changed_since_they_were_verified_fail(backend):
    verified = timed(solve(RECTANGLE), backend)
    assert timed(solve(RECTANGLE), backend, verified=verified) == verified

    def drifted(workspace):
        solve(RECTANGLE)(workspace)
        C = view(workspace.matrix("C"))
        C[3, 4] = np.nextafter(C[3, 4], np.float32(9))

    text = wrong_text(drifted, backend, verified=verified)
    assert "C has other bits than an earlier launch on the same data" in text
    assert verified.digest in text


def test_verified_bits_are_not_compared_again(backend, monkeypatch):
    verified = timed(solve(RECTANGLE), backend)
    monkeypatch.setattr(correctness, "check_bounds", lambda *_: pytest.fail("compared again"))
    assert timed(solve(RECTANGLE), backend, verified=verified) == verified


def test_a_wrong_c_after_timing_is_diagnosed(backend):
    verified = Agreement("timed", RECTANGLE.id, "sha256:0")
    text = wrong_text(lambda workspace: None, backend, verified=verified)
    assert "never written: all of C" in text.splitlines()[0]


def kernel_of(**words):
    return Kernel("k", args=words.pop("args", ("A", "B", "C")), callable="x.py::k", **words)


def test_the_suite_is_of_the_kernels_kind():
    suite = exact_suite(kernel_of(dtype="int8", transb="T", alpha=3.0, requires=("K % 4 == 0",)))
    assert {(p.dtype, p.out_dtype, p.transb, p.alpha, p.batch) for p in suite} == {
        ("int8", "int32", "T", 3.0, 1)
    }
    assert suite
    assert {p.K % 4 for p in suite} == {0}
    assert exact_suite(kernel_of()) == exact_problems("gemm")


def test_what_is_an_argument_is_varied_whatever_is_declared():
    args = ("A", "B", "C", "alpha", "beta", "lda", "ldc")
    declared = kernel_of(args=args, alpha=0.3, beta=0.7, leading=(("lda", "K + 1"),))
    free = kernel_of(args=args)
    assert exact_suite(declared) == exact_suite(free)
    assert {(p.alpha, p.beta) for p in exact_suite(free)} == {(1, 0), (2, 0), (1, -1), (2, -1)}


def test_leading_dimensions_that_are_built_in_are_kept():
    suite = exact_suite(kernel_of(leading=(("lda", "cdiv(K, 32) * 32"), ("ldb", "64"))))
    assert suite
    assert {p.ld("A") % 32 for p in suite} == {0}
    assert {p.ld("B") for p in suite} == {64}
    assert max(p.N for p in suite) <= 64


def test_a_batch_is_of_three_and_its_strides_are_varied():
    plain = exact_suite(kernel_of(args=("A", "B", "C", "batch")))
    assert {p.batch for p in plain} == {3}
    assert exact_suite(kernel_of(batch=2))[0].batch == 2
    *dense, apart, also = exact_suite(kernel_of(args=("A", "B", "C", "strideA", "strideC")))
    assert tuple(dense) == plain
    for problem in (apart, also):
        single = problem.stored("A")[0] * problem.ld("A")
        assert problem.stride("A") == single + 64
        assert problem.strideB == 0
        assert problem.stride("C") % 4 == problem.stored("C")[0] * problem.ld("C") % 4


@pytest.mark.parametrize("dtype", ["float16", "float64", "int8"])
def test_padded_rows_keep_vectors_of_16_bytes_aligned(dtype):
    args = ("A", "B", "C", "lda", "ldb", "ldc")
    for problem in exact_suite(kernel_of(args=args, dtype=dtype, transa="T"))[-2:]:
        for name, kind in problem.types.items():
            assert problem.ld(name) * kind.itemsize % 16 == 0
            assert problem.ld(name) > problem.stored(name)[1]


def test_numbers_that_are_not_whole_may_round_in_the_exact_check(backend):
    problem = replace(RECTANGLE, alpha=0.3, beta=1.0)

    def scales(A, B, C):
        C[...] = np.float32(0.3) * (A @ B) + C

    check_exactly(launching(scales), backend, problem, kernel="right")

    def forgets_a_term(A, B, C):
        C[...] = np.float32(0.3) * (A[:, 1:] @ B[1:]) + C

    with pytest.raises(WrongResultError, match="short on 37x35x33: 1295 of 1295 elements of C"):
        check_exactly(launching(forgets_a_term), backend, problem, kernel="short")
