"""Times two kernels side by side: one process' part of a duet."""

from __future__ import annotations

from functools import partial

from pytest_gemm.backends.base import Backend
from pytest_gemm.device import Workspace
from pytest_gemm.duet import Round, order_of
from pytest_gemm.function import Runnable
from pytest_gemm.launching import Launcher, workspaces
from pytest_gemm.pipeline import TIMED_RECIPE, verified_launcher
from pytest_gemm.reuse import Reuse
from pytest_gemm.timing import PLANS, seconds_per_launch, warm_up

Times = list[list[list[float]]]
"""Seconds per launch: of each placement its blocks, of each block its four (``duet``)."""


def duet_times(
    old: Runnable, new: Runnable, backend: Backend, round_: Round, *, worker: int, reuse: Reuse
) -> Times:
    """Verify both kernels, then time them in the blocks of a round, on the same operands.

    ``worker`` numbers the processes of a round: every other one loads the new kernel first, and
    each puts the operands at places of its own. Raises BackendError where one of the kernels does
    not pass its checks.
    """
    kernels = [("A", old), ("B", new)]
    if worker % 2:
        kernels.reverse()
    launchers = {
        letter: verified_launcher(kernel.case, backend, kernel.load(), reuse)
        for letter, kernel in kernels
    }
    case = new.case
    data = reuse.operands(case.problem, case.settings.seed, TIMED_RECIPE)
    plan = PLANS[backend.kind]
    seed = case.settings.seed + 1000 * round_.number + worker
    with workspaces(backend, case.problem, data, seed) as elsewhere:
        workspace = elsewhere()
        launches = max(
            warm_up(partial(launcher.time, workspace), plan) for launcher in launchers.values()
        )
        return [
            _blocks(launchers, elsewhere(), launches, round_.blocks)
            for _ in range(round_.placements)
        ]


def _blocks(
    launchers: dict[str, Launcher], workspace: Workspace, launches: int, count: int
) -> list[list[float]]:
    times = {name: partial(launcher.time, workspace) for name, launcher in launchers.items()}
    for time_launches in times.values():
        seconds_per_launch(time_launches, launches)
    return [
        [seconds_per_launch(times[name], launches) for name in order_of(block)]
        for block in range(count)
    ]
