"""Launches a kernel where its result can be judged: exactly, and on the data that is timed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from pytest_gemm.backends.base import Backend
from pytest_gemm.bits import Elements, rounded
from pytest_gemm.causes import Observation
from pytest_gemm.comparison import (
    Agreement,
    Mismatch,
    check_bounds,
    check_exact,
    digest,
    element_bounds,
    exact_bounds,
    number,
)
from pytest_gemm.device import Workspace, poisons
from pytest_gemm.diagnosis import (
    Diagnosis,
    describe_difference,
    describe_strays,
    diagnose,
    stray_texts,
)
from pytest_gemm.errors import KernelFault, WrongResultError
from pytest_gemm.kernelspec import Kernel
from pytest_gemm.matrices import Float64, Operands, operands, reference
from pytest_gemm.problem import STRIDES, Problem
from pytest_gemm.regions import ranges

Run = Callable[[Workspace], object]
"""Launches the kernel once on the workspace's matrices and waits for it."""

Sizes = Sequence[tuple[int, int, int]]
"""M, N and K of problems."""

TIMED = "operands: uniform in [-1, 1), as they are timed"
TIMED_INTEGERS = "operands: whole numbers, as they are timed"

DIAGNOSED = 2**30
"""M N K up to which a wrong C on timed data is compared with a whole float64 product."""

GEMM_SIZES = (
    (37, 37, 37),
    (35, 150, 33),
    (150, 35, 48),
    (5, 7, 3),
    (17, 33, 1),
    (33, 1, 17),
    (1, 33, 17),
    (1, 1, 1),
    (22, 38, 26),
    (44, 52, 20),
    (40, 72, 24),
    (48, 16, 80),
    (32, 32, 96),
    (64, 128, 192),
)
"""M, N, K of the exact check, the most telling first: a square; rectangles of several blocks each
way, with residues of 16, 32, 64 and 128, K an odd number of tiles; K, N or M = 1; a single
element; multiples of 2, 4, 8, 16 and 32, each of no higher power of two, so that a kernel that
requires multiples of one still meets residues of its larger tiles; and multiples of 64."""

ADD_SIZES = (
    (37, 37, 0),
    (35, 150, 0),
    (1, 1, 0),
    (1, 33, 0),
    (33, 1, 0),
    (22, 38, 0),
    (44, 52, 0),
    (40, 72, 0),
    (48, 16, 0),
    (32, 96, 0),
    (64, 128, 0),
)

SIZES: Mapping[str, Sizes] = {"gemm": GEMM_SIZES, "add": ADD_SIZES}

LARGE_SIZES: Mapping[str, Sizes] = {
    "gemm": ((256, 384, 24), (256, 128, 48), (128, 256, 96), (256, 512, 64), (128, 128, 128)),
    "add": ((256, 384, 0), (384, 128, 0), (128, 128, 0)),
}
"""What a kernel that is for none of those is checked on: multiples of 128, K of 8 and more."""

BATCHED = 3
"""Products at once, where a kernel is told how many there are."""

VARIED_SIZES: Mapping[str, Sizes] = {
    "gemm": ((19, 37, 33), (64, 128, 64)),
    "add": ((19, 37, 0), (64, 128, 0)),
}
LARGE_VARIED_SIZES: Mapping[str, Sizes] = {"gemm": ((256, 256, 64),), "add": ((256, 384, 0),)}
"""The sizes that are checked with alpha and beta, and with padded rows."""


def exact_problems(
    op: str,
    scalars: Collection[str] = (),
    uses_ld: Collection[str] = (),
    *,
    large: bool = False,
) -> tuple[Problem, ...]:
    """The small problems of the exact check, or the ``large`` ones that take their place.

    ``scalars`` names those of alpha and beta that the kernel takes, and adds problems with alpha
    = 2, with beta = -1 and with both: kernels treat 1 and 0 apart. ``uses_ld`` names those of
    lda, ldb and ldc, and adds problems with padded rows. Those that a kernel's ``requires``
    excludes are for the caller to leave out.
    """
    problems = [Problem(op, *size) for size in (LARGE_SIZES if large else SIZES)[op]]
    varied = [Problem(op, *size) for size in (LARGE_VARIED_SIZES if large else VARIED_SIZES)[op]]
    alphas = (2.0, 1.0) if "alpha" in scalars else (1.0,)
    betas = (-1.0, 0.0) if "beta" in scalars else (0.0,)
    for alpha, beta in product(alphas, betas):
        if (alpha, beta) != (1, 0):
            problems += [replace(p, alpha=alpha, beta=beta) for p in varied]
    if uses_ld:
        problems += [_padded(p, uses_ld) for p in varied]
    return tuple(problems)


def exact_suite(kernel: Kernel) -> tuple[Problem, ...]:
    """The problems of the exact check that a kernel is for, ``exact_problems`` of its kind.

    The large ones where it is for none of the small ones. A kernel that is told of a batch gets
    three products at once, and where it is told the distances between them, problems with more than
    they take. Alpha, beta and leading dimensions are those of its declaration where they are no
    arguments.
    """
    return _suite(kernel, large=False) or _suite(kernel, large=True)


def _suite(kernel: Kernel, *, large: bool) -> tuple[Problem, ...]:
    scalars, uses_ld = kernel.scalars, kernel.uses_ld
    strides = [name for name in kernel.uses_batch if name in STRIDES]
    problems = exact_problems(kernel.op, scalars, uses_ld, large=large)
    found = []
    for problem in problems:
        own = _of_kind(kernel, problem)
        own = replace(own, **{name: getattr(problem, name) for name in scalars})
        is_padded = problem.lda or problem.ldb or problem.ldc
        found.append(_padded(own, uses_ld) if is_padded else own)
    if strides:
        sizes = (LARGE_VARIED_SIZES if large else VARIED_SIZES)[kernel.op]
        varied = (_of_kind(kernel, Problem(kernel.op, *size)) for size in sizes)
        found += [_apart(own, strides) for own in varied]
    return tuple(own for own in found if not kernel.skip_reason(own))


def _of_kind(kernel: Kernel, problem: Problem) -> Problem:
    """The kernel's problem of such sizes, with the leading dimensions that it is told dense."""
    own = kernel.of_kind(replace(problem, lda=0, ldb=0, ldc=0), free=kernel.uses_ld)
    return replace(own, batch=BATCHED) if kernel.uses_batch else own


def _apart(problem: Problem, strides: Collection[str]) -> Problem:
    """The matrices of a batch further apart, each kind by another distance, all aligned."""
    gaps = {"strideA": 64, "strideB": 128, "strideC": 192}
    wider: dict[str, Any] = {
        name: problem.stride(name[-1]) + gap for name, gap in gaps.items() if name in strides
    }
    return replace(problem, **wider)


def _padded(problem: Problem, uses_ld: Collection[str]) -> Problem:
    """Pad rows differently for each matrix, keeping vectors of 16 bytes aligned."""

    def ld(name: str, padding: int) -> int:
        vector = max(4, 16 // problem.types[name].itemsize)
        columns = -(-problem.stored(name)[1] // vector) * vector
        return columns + padding * vector // 4 if f"ld{name.lower()}" in uses_ld else 0

    return replace(problem, lda=ld("A", 4), ldb=ld("B", 8), ldc=ld("C", 12))


def check_suite(
    run: Run, backend: Backend, problems: Sequence[Problem], seed: int = 0, *, kernel: str
) -> None:
    """``check_exactly`` on one problem after another; a failure also says which were right."""
    for index, problem in enumerate(problems):
        try:
            check_exactly(run, backend, problem, seed, kernel=kernel)
        except WrongResultError as error:
            if not index:
                raise
            right = ", ".join(p.id for p in problems[:index])
            raise WrongResultError(f"{error}\n  right on {right}") from error


def check_exactly(
    run: Run, backend: Backend, problem: Problem, seed: int = 0, *, kernel: str
) -> Agreement:
    """Launch on whole numbers, whose every partial sum is exact: C must equal the product.

    Launched twice: where C must not be read (beta = 0, an addition) it holds NaN (with ``finite_c``
    its operand), then a large number (see ``device.poisons``); else it holds its operand both
    times. A, B and all memory around the three matrices must stay as they were. What is not exact
    even so, such as a user's reference, may err by ``exact_bounds``. Raises WrongResultError, whose
    first line is complete in itself, and KernelFault.
    """
    data = operands(problem, seed, "integers")
    exact = reference(problem, data)
    bounds = exact_bounds(problem, data, exact)
    expected = exact if bounds.any() else rounded(exact, problem.out_dtype)
    with Workspace(backend, problem) as workspace:
        workspace.load(data)
        observations = [*_observe(run, workspace, data, kernel)]
    found = describe_strays(kernel, problem, observations)
    mismatches = (check_exact(o.after, expected, bounds) for o in observations)
    if mismatch := next(filter(None, mismatches), None):
        found = _diagnosed(kernel, problem, data, expected, observations, bounds, mismatch)
        found = found or Diagnosis(f"{kernel} on {problem.id}: {mismatch}")
    if found:
        raise _wrong(found, f"operands: integers, seed {seed}")
    return Agreement("exact", problem.id, _digest(problem, observations[0].after))


def check_timed(
    run: Run,
    workspace: Workspace,
    data: Operands,
    *,
    kernel: str,
    deterministic: bool = True,
    verified: Agreement | None = None,
) -> Agreement:
    """Launch on the data that is timed: C must be right within rounding errors.

    The workspace must hold ``data``; it is launched twice as in ``check_exactly``. Each C must
    pass ``check_bounds``, and both must have the same bits, as must the C that ``verified``
    describes, unless the kernel is not ``deterministic``. Raises WrongResultError, whose first
    line is complete in itself.
    """
    problem = workspace.problem
    observations = [*_observe(run, workspace, data, kernel)]
    results = {_digest(problem, o.after): o for o in observations}
    data_timed = TIMED_INTEGERS if problem.types["A"].is_integer else TIMED
    worst = 0.0
    for bits, observation in results.items():
        if verified and bits == verified.digest:
            worst = max(worst, verified.worst)
            continue
        result = check_bounds(problem, data, observation.after)
        if isinstance(result, Mismatch):
            raise _wrong(_explain(kernel, problem, data, observations, result), data_timed)
        worst = max(worst, result)
    found = describe_strays(kernel, problem, observations)
    if not found and deterministic and len(results) > 1:
        found = describe_difference(kernel, problem, observations)
    if found:
        raise _wrong(found, data_timed)
    (bits, *_) = results
    if verified and deterministic and bits != verified.digest:
        raise WrongResultError(
            f"{kernel} on {problem.id}: C has other bits than an earlier launch on the same data "
            f"({bits}, was {verified.digest})"
        )
    return Agreement("timed", problem.id, bits if deterministic else "", worst)


def _observe(run: Run, workspace: Workspace, data: Operands, kernel: str) -> Iterator[Observation]:
    """Launch once for each old C; the workspace holds ``data`` and does so again at the end.

    A KernelFault gets the kernel and the problem in front of its text.
    """
    problem = workspace.problem
    before: Elements
    olds = [("its operand", data.C)] * 2
    if not problem.reads_c:
        poisoned = [
            ("NaN" if np.isnan(old) else number(float(old)), np.broadcast_to(old, data.C.shape))
            for old in poisons(problem.out_dtype)
        ]
        olds = [olds[0], poisoned[1]] if problem.finite_c else poisoned
    for held, before in olds:
        workspace.fill(before)
        try:
            run(workspace)
        except KernelFault as fault:
            raise fault.titled(f"{kernel} on {problem.id}") from fault
        observation = Observation(held, before, workspace.read(), workspace.violations())
        if observation.violations:
            workspace.load(data)
        yield observation


def _explain(
    kernel: str,
    problem: Problem,
    data: Operands,
    observations: Sequence[Observation],
    mismatch: Mismatch,
) -> Diagnosis:
    """A diagnosis of single elements where that is affordable, else what the sums tell."""
    found = None
    if problem.M * problem.N * max(problem.K, 1) <= DIAGNOSED:
        found = _diagnosed(kernel, problem, data, None, observations, None, mismatch)
    if not found:
        facts = "; ".join([str(mismatch), *stray_texts(observations)])
        found = Diagnosis(f"{kernel} on {problem.id}: {facts}")
    where = [f"wrong rows of C: {ranges(mismatch.rows)}"] * bool(mismatch.rows)
    where += [f"wrong columns of C: {ranges(mismatch.columns)}"] * bool(mismatch.columns)
    return Diagnosis(found.headline, (*found.lines, *where))


def _diagnosed(
    kernel: str,
    problem: Problem,
    data: Operands,
    expected: Float64 | None,
    observations: Sequence[Observation],
    bounds: Float64 | None,
    mismatch: Mismatch,
) -> Diagnosis | None:
    """A diagnosis of the product that is wrong; of a batch, the one that the mismatch names."""
    index = mismatch.matrix
    if index is not None:
        problem, data = problem.single, data[index]
        expected = None if expected is None else expected[index]
        bounds = None if bounds is None else bounds[index]
        observations = [
            replace(o, before=o.before[index], after=o.after[index]) for o in observations
        ]
    if expected is None:
        expected = reference(problem, data)
    if bounds is None:
        bounds = element_bounds(problem, data)
    found = diagnose(kernel, problem, data, expected, observations, bounds)
    if found and index is not None:
        title = f"{kernel} on {problem.id}"
        rest = found.headline.removeprefix(title)
        return replace(found, headline=f"{title}, matrix {index} of the batch{rest}")
    return found


def _digest(problem: Problem, C: Elements) -> str:
    return digest(C, problem.out_dtype)


def _wrong(diagnosis: Diagnosis, data: str) -> WrongResultError:
    return WrongResultError(str(Diagnosis(diagnosis.headline, (*diagnosis.lines, data))))
