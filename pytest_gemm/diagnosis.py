"""What is wrong with C, where, and why: the text of a failure, made from observations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pytest_gemm.bits import raw
from pytest_gemm.causes import Evidence, Observation, find_cause, origins_of_nan
from pytest_gemm.comparison import number
from pytest_gemm.matrices import Float64, Operands
from pytest_gemm.problem import Problem
from pytest_gemm.regions import Region

_SHOWN = 4


@dataclass(frozen=True)
class Diagnosis:
    """``headline`` is complete in itself; ``lines`` hold the details."""

    headline: str
    lines: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n".join([self.headline, *(f"  {line}" for line in self.lines)])


def diagnose(
    kernel: str,
    problem: Problem,
    operands: Operands,
    expected: Float64,
    observations: Sequence[Observation],
    tolerance: Float64 | float = 0.0,
) -> Diagnosis | None:
    """Describe what is wrong with launches on the same operands, or return None if nothing is.

    ``expected`` is the true C and ``tolerance`` the error that each element may have. More can be
    told the more the observations differ in what C held before.
    """
    bounds = np.broadcast_to(np.asarray(tolerance, np.float64), expected.shape)
    seen = [Evidence(problem, operands, expected, bounds, o) for o in observations]
    wrong = [e for e in seen if len(e.at)]
    if not wrong:
        return describe_strays(kernel, problem, observations)
    shown = wrong[0]
    first, *others = (shown.element(i, j) for i, j in shown.at[:_SHOWN])
    count = f"{len(shown.at)} of {expected.size} elements of C wrong"
    facts = [find_cause(wrong, seen), *origins_of_nan(wrong), *stray_texts(observations)]
    why = "; ".join(filter(None, facts))
    headline = f"{kernel} on {problem.id}: {count}, first {first}" + (f": {why}" if why else "")
    where = f"wrong: {Region.of(shown.wrong)}; before the launch C held {shown.held}"
    return Diagnosis(headline, (where, *others))


def describe_strays(
    kernel: str, problem: Problem, observations: Sequence[Observation]
) -> Diagnosis | None:
    """What launches with a right C changed elsewhere, or None."""
    strays = stray_texts(observations)
    if not strays:
        return None
    return Diagnosis(f"{kernel} on {problem.id}: {'; '.join(strays)} (C itself is right)")


def describe_difference(
    kernel: str, problem: Problem, observations: Sequence[Observation]
) -> Diagnosis | None:
    """Where two launches on the same operands left different bits in C, or None."""
    first, second = (o.after for o in observations)
    differs = raw(first) != raw(second)
    if not differs.any():
        return None
    title = f"{kernel} on {problem.id}"
    if differs.ndim > 2:
        index = int(np.argwhere(differs)[0][0])
        title += f", matrix {index} of the batch"
        first, second, differs = first[index], second[index], differs[index]
    row, column = np.argwhere(differs)[0]
    values = f"{number(first[row, column])} then {number(second[row, column])}"
    held = " and ".join(o.held for o in observations)
    return Diagnosis(
        f"{title}: two launches differ in the bits of {differs.sum()} of "
        f"{differs.size} elements of C, first C[{row}, {column}] = {values}",
        (
            f"differing: {Region.of(differs)}; before the launches C held {held}",
            "if the order of additions is meant to vary, declare the kernel deterministic = false",
        ),
    )


def stray_texts(observations: Sequence[Observation]) -> list[str]:
    """Each way in which launches changed what is not theirs, once."""
    return list(dict.fromkeys(str(v) for o in observations for v in o.violations))
