"""How often the screen errs: suites of benchmarks simulated session by session.

    python benchmarks/simulate_verdict.py [runs]

prints the table in docs/baselines.md (2,000 runs of each suite unless told otherwise).
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_gemm.verdict import PRIORS, screen

Settings = dict[str, Any]
Draw = Callable[[np.random.Generator, tuple[int, ...]], npt.NDArray[np.float64]]


def normal(rng: np.random.Generator, shape: tuple[int, ...]) -> npt.NDArray[np.float64]:
    return rng.standard_normal(shape)


def heavy(rng: np.random.Generator, shape: tuple[int, ...]) -> npt.NDArray[np.float64]:
    """Student's t with three degrees of freedom, scaled to a standard deviation of 1."""
    return np.asarray(rng.standard_t(3, shape)) / 3**0.5


def simulate(
    kind: str,
    benchmarks: int,
    stored: int,
    runs: int,
    *,
    draw: Draw = normal,
    sd: float = 1.0,
    slowdown: float = 0.0,
    odd_stored: float = 0.0,
    disturbed: float = 0.0,
    attempts: int = 1,
    seed: int = 0,
) -> tuple[float, Counter[str]]:
    """The part of suite runs with an alarm, and how often each outcome was given.

    ``sd`` is the standard deviation of sessions in units of the prior's; ``slowdown`` is what
    every new session has lost; ``odd_stored`` is the chance that a stored session was slow by
    a factor of 2 to 20; ``disturbed`` the chance that any session, the new one too, was slow by
    10 to 60 %. Of ``attempts`` at the new session the fastest counts.
    """
    rng = np.random.default_rng([seed, benchmarks, stored])
    prior = PRIORS[kind]
    spread = sd * prior.sd
    outcomes: Counter[str] = Counter()
    alarms = 0
    for _ in range(runs):
        old = spread * draw(rng, (benchmarks, stored))
        old += (rng.random(old.shape) < odd_stored) * rng.uniform(
            np.log(2.0), np.log(20.0), old.shape
        )
        new = spread * draw(rng, (benchmarks, attempts)) + np.log1p(slowdown)
        for sessions in (old, new):
            hit = rng.random(sessions.shape) < disturbed
            sessions += hit * np.log1p(rng.uniform(0.1, 0.6, sessions.shape))
        given = [
            screen(x, row, prior=prior, benchmarks=benchmarks).outcome
            for x, row in zip(np.exp(new.min(axis=1)).tolist(), np.exp(old).tolist(), strict=True)
        ]
        outcomes.update(given)
        alarms += "slower" in given
    return alarms / runs, outcomes


def main(runs: int) -> None:
    disturbed = "one session in 50, new ones too, is 10 to 60 % slow"
    unchanged: list[tuple[str, Settings]] = [
        ("sessions as the prior expects", {}),
        ("heavy tails (t, 3 df)", {"draw": heavy}),
        ("sessions 1.5 times as noisy", {"sd": 1.5}),
        ("one stored session in ten is 2 to 20x slow", {"odd_stored": 0.1}),
        (disturbed, {"disturbed": 0.02}),
        (f"{disturbed}; the faster of two attempts", {"disturbed": 0.02, "attempts": 2}),
    ]
    sizes = (1, 2, 3, 5, 10)
    heading = " | ".join(f"S = {S}" for S in sizes)
    rule = "|---" * (len(sizes) + 3) + "|"
    print(f"| unchanged suites with an alarm | device | benchmarks | {heading} |\n{rule}")
    for name, settings in unchanged:
        for kind, benchmarks in (("host", 21), ("host", 100), ("cuda", 21), ("cuda", 100)):
            rates = [simulate(kind, benchmarks, S, runs, **settings)[0] for S in sizes]
            cells = " | ".join(f"{rate:.2%}" for rate in rates)
            print(f"| {name} | {kind} | {benchmarks} | {cells} |", flush=True)
    print(f"\n| slowdowns found | device | benchmarks | {heading} |\n{rule}")
    slowdowns = (("host", 0.1), ("host", 0.2), ("host", 0.3), ("cuda", 0.02), ("cuda", 0.05))
    for kind, slowdown in slowdowns:
        for benchmarks in (21, 100):
            found = []
            for S in sizes:
                _, outcomes = simulate(kind, benchmarks, S, runs // 20 or 1, slowdown=slowdown)
                found.append(f"{outcomes['slower'] / outcomes.total():.1%}")
            print(f"| {slowdown:.0%} | {kind} | {benchmarks} | {' | '.join(found)} |", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000)
