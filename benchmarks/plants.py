"""Kernels with extra work, and how much slower that makes them: measured without the gate.

    python benchmarks/plants.py PROJECT --device cuda --levels 0.01,0.05 --cases ID,ID --out FILE

finds the steps of extra work that make each case slower by about each level, and writes them with
the slowdowns that they gave. With ``--steps FILE`` it measures those of another process' file. The
loop is its own: old and new take turns at several places in memory, and the median of the log
ratios counts. ``verdicts.py`` runs this in processes of their own and compares.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from pytest_gemm.backends import open_backend
from pytest_gemm.backends.base import Backend
from pytest_gemm.case import Case, Settings
from pytest_gemm.collection import DEFAULT_SIZES
from pytest_gemm.kernelspec import Kernel
from pytest_gemm.launching import Launcher, program_of, workspaces
from pytest_gemm.matrices import operands
from pytest_gemm.pipeline import TIMED_RECIPE
from pytest_gemm.problem import DIMENSIONS, Problem
from pytest_gemm.registry import load_registry

PLACES, PAIRS = 4, 12
WARM_UP, SAMPLE = 0.05, {"cuda": 1e-3, "host": 2e-3}
"""Seconds."""

TRIES, NEAR, FARTHEST = 4, 0.15, 8.0
"""Steps are changed so often, until the slowdown is that near its level, by that factor at most."""


@dataclass(frozen=True)
class Plant:
    """Extra work, before a statement that a kernel has once; it takes ``extra`` steps.

    Its result decides what is stored, as far as a compiler can tell, and never does. ``guess`` is
    about how many steps are as much as all that the kernel does, ``most`` how many it can take.
    """

    before: str
    code: str
    guess: Callable[[Problem], float]
    most: Callable[[Problem], float] = lambda problem: math.inf


NAIVE = Plant(
    "    C[(size_t)row * N + col] = acc;",
    """\
    float spare = 0.0f;
    for (int r = 0; r < extra; ++r)
        spare += A[(size_t)row * K + r] * B[(size_t)r * N + col];
    acc = spare == 1.0e30f ? spare : acc;
""",
    lambda problem: problem.K,
    lambda problem: problem.K,
)
TILED = Plant(
    "    if (row < M && col < N)\n        C[(size_t)row * N + col] = acc;",
    """\
    float spare = 0.0f;
    for (int r = 0; r < extra; ++r)
        spare += As[ty][r % TILE] * Bs[r % TILE][tx];
    acc = spare == 1.0e30f ? spare : acc;
""",
    lambda problem: problem.K,
)
REGISTER_BLOCKED = Plant(
    """\
    #pragma unroll
    for (int m = 0; m < TM; ++m) {
        #pragma unroll
        for (int n = 0; n < TN; ++n) {
            const int row = block_row + ty * TM + m;""",
    """\
    float spare = 0.0f;
    for (int r = 0; r < extra; ++r)
        spare += As[ty * TM][r % TILE] * Bs[r % TILE][tx * TN];
    acc[0][0] = spare == 1.0e30f ? spare : acc[0][0];
""",
    lambda problem: 4 * problem.K,
)
CHAIN = Plant(
    "    if (i < (size_t)M * N)\n        C[i] = A[i] + B[i];",
    """\
    float spare = threadIdx.x;
    for (int r = 0; r < extra; ++r)
        spare = 0.5f * spare + 0.25f;
    if (spare == 1.0e30f)
        C[0] = spare;
""",
    lambda problem: 400,
)
"""For a GPU: a chain of dependent steps before the first read, as there is time for all threads'
arithmetic while memory is waited for."""

BLOCKS = Plant(
    CHAIN.before,
    """\
    const size_t j = (size_t)M * N - 1 - i;
    if (blockIdx.x < extra && i <= j && A[j] + B[j] == 1.0e30f)
        C[0] = 1.0e30f;
""",
    lambda problem: 2 * problem.M * problem.N / 256,
    lambda problem: problem.M * problem.N / 256,
)
"""For a CPU, where a step in every thread would cost more than the sum itself: some blocks, one
after the other, read what others add."""

PLANTS: Mapping[str, Mapping[str, Plant]] = {
    kind: {"naive": NAIVE, "tiled": TILED, "register_blocked": REGISTER_BLOCKED, "add": add}
    for kind, add in (("cuda", CHAIN), ("host", BLOCKS))
}
"""By kind of device and kernel."""

Steps = Mapping[str, int]
"""By case id."""


def planted(source: str, plant: Plant, steps: Mapping[Problem, int]) -> str:
    """The source with so much extra work on each problem, and none on another.

    Raises ValueError where the statement is not there once.
    """
    if source.count(plant.before) != 1:
        raise ValueError(f"there is not one such statement in the kernel: {plant.before!r}")
    chosen = "".join(f"{_is(problem)} ? {n} : " for problem, n in steps.items())
    text = f"    const int extra = {chosen}0;\n{plant.code}"
    return source.replace(plant.before, text + plant.before)


def _is(problem: Problem) -> str:
    return " && ".join(f"{name} == {problem.sizes[name]}" for name in DIMENSIONS[problem.op])


Point = tuple[int, float]
"""Steps, and the slowdown that they gave."""


def next_steps(before: Point, last: Point, level: float, most: float) -> int:
    """How many steps to try after these, for a slowdown of ``level``: on the line through both."""
    (n0, found0), (n, found) = before, last
    if (found - found0) * (n - n0) > 0:
        wanted = n + (level - found) * (n - n0) / (found - found0)
    else:
        wanted = n * level / max(found, level / FARTHEST)
    return max(1, round(min(most, FARTHEST * n, max(n / FARTHEST, wanted))))


class Bench:
    """Times cases of one project against the same with extra work, in this process."""

    def __init__(self, backend: Backend, cases: Iterable[Case], seed: int = 0) -> None:
        self._backend = backend
        self._cases = {case.id: case for case in cases}
        self._seed = seed
        self._plants = PLANTS[backend.kind]
        self._data = {
            case.problem: operands(case.problem, 0, TIMED_RECIPE) for case in self._cases.values()
        }
        self._old = {case.kernel.name: self._launcher(case.kernel) for case in self._cases.values()}

    def tune(self, level: float, tries: int = TRIES) -> tuple[Steps, dict[str, list[float]]]:
        """Steps that make each case slower by about a level, and the log ratios they gave."""
        steps = {
            name: max(
                1, round(level * min(self._plant(case).guess(case.problem), self._most(case)))
            )
            for name, case in self._cases.items()
        }
        points: dict[str, list[Point]] = {name: [(0, 0.0)] for name in steps}
        best: dict[str, tuple[float, int, list[float]]] = {}
        for _ in range(tries):
            far = {name: n for name, n in steps.items() if name not in best or best[name][0] > NEAR}
            for name, logs in self.measure(far).items():
                points[name].append((steps[name], math.expm1(median(logs))))
                off = abs(points[name][-1][1] / level - 1)
                if name not in best or off < best[name][0]:
                    best[name] = off, steps[name], logs
                steps[name] = next_steps(*points[name][-2:], level, self._most(self._cases[name]))
        return (
            {name: n for name, (_, n, _) in best.items()},
            {name: logs for name, (*_, logs) in best.items()},
        )

    def measure(self, steps: Steps) -> dict[str, list[float]]:
        """log(new / old) of each case with so many steps, at each place in memory."""
        new = {
            name: self._launcher(
                replace(kernel.kernel, source=planted(kernel.kernel.source, plant, chosen))
            )
            for name, kernel in self._old.items()
            for plant in [self._plants[name]]
            if (
                chosen := {
                    self._cases[case].problem: n
                    for case, n in steps.items()
                    if self._cases[case].kernel.name == name
                }
            )
        }
        return {case: self._ratios(self._cases[case], new) for case in steps}

    def _ratios(self, case: Case, new: Mapping[str, Launcher]) -> list[float]:
        pair = self._old[case.kernel.name], new[case.kernel.name]
        found = []
        with workspaces(
            self._backend, case.problem, self._data[case.problem], self._seed
        ) as elsewhere:
            for _ in range(PLACES):
                workspace = elsewhere()
                turns = [partial(launcher.time, workspace) for launcher in pair]
                launches = _launches(turns, SAMPLE[self._backend.kind])
                found.append(median(_log_ratio(turns, launches, i) for i in range(PAIRS)))
        return found

    def _launcher(self, kernel: Kernel) -> Launcher:
        executable = self._backend.compile(program_of(kernel, None))
        return Launcher(kernel, self._backend, executable, 20.0)

    def _plant(self, case: Case) -> Plant:
        return self._plants[case.kernel.name]

    def _most(self, case: Case) -> float:
        return self._plant(case).most(case.problem)


def _launches(turns: Sequence[Callable[[int], float]], sample: float) -> int:
    """Warm up; the launches that take so many seconds."""
    start = time.perf_counter()
    launches = 2
    while True:
        seconds = max(turn(launches) for turn in turns) / launches
        launches = max(2, math.ceil(sample / seconds))
        if time.perf_counter() - start > WARM_UP:
            return launches


def _log_ratio(turns: Sequence[Callable[[int], float]], launches: int, number: int) -> float:
    if number % 2:
        new, old = turns[1](launches), turns[0](launches)
    else:
        old, new = turns[0](launches), turns[1](launches)
    return math.log(new / old)


def project_cases(project: Path, device: str) -> dict[str, Case]:
    """The timed cases of the kernels in a project's folder, by id."""
    kernels = load_registry([project / "kernels"], project).kernels(device)
    cases = [
        Case(kernel, Problem.parse(size, kernel.op), Settings(timed=True))
        for kernel in kernels
        for size in kernel.sizes(device) or DEFAULT_SIZES[device]
    ]
    return {case.id: case for case in cases}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("project", type=Path)
    parser.add_argument("--device", default="cuda", choices=("cuda", "host"))
    parser.add_argument("--levels", default="0.01,0.02,0.05", help="slowdowns, as fractions")
    parser.add_argument("--cases", required=True, help="their ids")
    parser.add_argument("--steps", type=Path, help="what another process wrote: measure only")
    parser.add_argument("--tries", type=int, default=TRIES)
    parser.add_argument("--seed", type=int, default=0, help="of the places in memory")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    every = project_cases(options.project, options.device)
    backend = open_backend(options.device, lambda _: None)
    bench = Bench(backend, [every[name] for name in options.cases.split(",")], options.seed)
    found: dict[str, Any] = {}
    if options.steps:
        for level, known in json.loads(options.steps.read_text()).items():
            found[level] = {"steps": known["steps"], "log_ratios": bench.measure(known["steps"])}
    else:
        for level in options.levels.split(","):
            steps, ratios = bench.tune(float(level), options.tries)
            found[level] = {"steps": steps, "log_ratios": ratios}
    options.out.write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
