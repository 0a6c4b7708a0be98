"""How often the verdict errs, beside other rules on the same samples: simulated and resampled.

    python benchmarks/simulate_verdict.py [--runs 2000] [--only PART]

prints the tables in docs/verdict.md. A suite is a number of benchmarks; a run of it has an alarm
if it calls any of them slower though nothing changed.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.stats import beta, mannwhitneyu

from pytest_gemm.duet import USUAL, Duet, DuetOutcome, order_of, worker_ratio
from pytest_gemm.margin import EXPECTED
from pytest_gemm.screen import Screen, device_spread, screen

Array = npt.NDArray[np.float64]
Draw = Callable[[np.random.Generator, tuple[int, ...]], Array]

ROOT = Path(__file__).parents[1]
DATA, RESULTS = ROOT / "tests" / "data", ROOT / "benchmarks" / "gpu" / "results"
SUITE = 100
"""Benchmarks that are stored, where only one is looked at."""

LAUNCHES = 40
"""Samples of one session in the simulation."""


# Shapes of noise, all with a standard deviation of 1.


def normal(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return rng.standard_normal(shape)


def heavy(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Student's t with three degrees of freedom."""
    return np.asarray(rng.standard_t(3, shape)) / 3**0.5


def bimodal(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """One of two levels, with a little noise around them."""
    return np.asarray(0.98 * rng.choice([-1.0, 1.0], shape) + 0.2 * rng.standard_normal(shape))


@dataclass(frozen=True)
class World:
    """How times scatter, in log seconds.

    ``session_sd`` is the median over benchmarks of the deviation of sessions, ``varied`` how much
    its logarithm varies between benchmarks; ``launch_sd`` that inside a session, where 1 % of the
    launches are up to 20 % slow; ``duet_sd`` that of a worker's log ratio. ``disturbed`` is the
    chance that a session as a whole is 10 to 60 % slow, ``odd_stored`` that a stored one is 2 to
    20 times slow.
    """

    kind: str = "cuda"
    draw: Draw = normal
    session_sd: float = 0.002
    varied: float = 0.5
    launch_sd: float = 0.003
    duet_sd: float = 0.002
    disturbed: float = 0.0
    odd_stored: float = 0.0

    def sds(self, rng: np.random.Generator, benchmarks: int) -> Array:
        """The deviation of each benchmark's sessions."""
        return self.session_sd * np.exp(self.varied * rng.standard_normal(benchmarks))

    def sessions(self, rng: np.random.Generator, sds: Array, count: int) -> Array:
        """Log-medians: benchmarks x sessions."""
        shape = (len(sds), count)
        hit = rng.random(shape) < self.disturbed
        slow = np.log1p(rng.uniform(0.1, 0.6, shape))
        return sds[:, None] * self.draw(rng, shape) + hit * slow

    def stored(self, rng: np.random.Generator, sds: Array, count: int) -> Array:
        hit = rng.random((len(sds), count)) < self.odd_stored
        slow = rng.uniform(np.log(2.0), np.log(20.0), hit.shape)
        return self.sessions(rng, sds, count) + hit * slow

    def launches(self, rng: np.random.Generator, levels: Array) -> Array:
        """Log times of the launches of sessions with these log-medians."""
        shape = (*levels.shape, LAUNCHES)
        slow = (rng.random(shape) < 0.01) * rng.uniform(0.0, 0.2, shape)
        return levels[..., None] + self.launch_sd * rng.standard_normal(shape) + slow

    def worker_ratios(self, rng: np.random.Generator, count: int) -> list[float]:
        return [float(x) for x in self.duet_sd * self.draw(rng, (count,))]


# Other rules, on seconds: benchmarks x sessions x launches stored, benchmarks x launches new.


def mean_5(old: Array, new: Array) -> npt.NDArray[np.bool_]:
    """pytest-benchmark's ``--benchmark-compare-fail=mean:5%``: against the run before."""
    return new.mean(axis=-1) > 1.05 * old[:, -1].mean(axis=-1)


def median_5(old: Array, new: Array) -> npt.NDArray[np.bool_]:
    """pytest-benchmark's ``median:5%``."""
    return np.median(new, axis=-1) > 1.05 * np.median(old[:, -1], axis=-1)


def mann_whitney(old: Array, new: Array) -> npt.NDArray[np.bool_]:
    """p < 0.05 on all launches, those of the stored sessions pooled, and slower."""
    pooled = old.reshape(len(old), -1)
    p = mannwhitneyu(new, pooled, axis=-1, method="asymptotic").pvalue
    return (p < 0.05) & (np.median(new, axis=-1) > np.median(pooled, axis=-1))


def nvbench_noise(old: Array, new: Array) -> npt.NDArray[np.bool_]:
    """nvbench-compare: the means differ by more than the smaller relative standard deviation."""
    before = old[:, -1]
    noise = [x.std(axis=-1, ddof=1) / x.mean(axis=-1) for x in (before, new)]
    return new.mean(axis=-1) / before.mean(axis=-1) - 1 > np.minimum(*noise)


def nvbench_gap(old: Array, new: Array) -> npt.NDArray[np.bool_]:
    """nvbench-compare-robust: 0.5 % between the intervals from minimum to upper quartile."""
    upper = np.quantile(old[:, -1], 0.75, axis=-1)
    return new.min(axis=-1) > 1.005 * upper


OTHERS: Mapping[str, Callable[[Array, Array], npt.NDArray[np.bool_]]] = {
    "pytest-benchmark `mean:5%`": mean_5,
    "pytest-benchmark `median:5%`": median_5,
    "Mann-Whitney, launches pooled": mann_whitney,
    "NVBench, noise": nvbench_noise,
    "NVBench, gap of intervals": nvbench_gap,
}


# Ours


def screened(kind: str, new: Array, old: Array, device_wide: bool = True) -> list[Screen]:
    """The screen's answer for each benchmark, from log-medians."""
    expected = EXPECTED[kind]
    prior = device_spread(old.tolist(), expected) if device_wide else None
    return [
        screen(
            float(np.exp(x)),
            np.exp(row).tolist(),
            expected=expected,
            margin=expected.margin,
            benchmarks=len(old),
            prior=prior,
        )
        for x, row in zip(new, old, strict=True)
    ]


def dueted(
    kind: str, benchmarks: int, ratios: Callable[[int], list[float]], workers: int = 0
) -> tuple[DuetOutcome, int]:
    """Drive a duet to its end; ``ratios`` gives that many workers' log ratios."""
    duet = Duet.on(kind, margin=EXPECTED[kind].margin, benchmarks=benchmarks, seconds=1e-3)
    if workers:
        duet = replace(duet, size=replace(duet.size, workers=workers))
    while wanted := duet.next_round:
        duet = replace(duet, rounds=(*duet.rounds, tuple(ratios(wanted.workers))))
    return duet.finding.outcome, len(duet.rounds)


@dataclass
class Tally:
    """What came of a number of suite runs."""

    runs: int = 0
    alarms: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    duets: int = 0
    second_rounds: int = 0

    @property
    def found(self) -> float:
        """The part of all benchmarks that was called slower."""
        return self.outcomes["slower"] / self.outcomes.total()

    @property
    def bound(self) -> float:
        """Clopper-Pearson's upper 95 % bound of the chance that a run has an alarm."""
        if self.alarms == self.runs:
            return 1.0
        return float(beta.ppf(0.95, self.alarms + 1, self.runs - self.alarms))

    def add(self, outcomes: Sequence[str]) -> None:
        self.runs += 1
        self.alarms += "slower" in outcomes
        self.outcomes.update(outcomes)


def simulate(
    world: World,
    benchmarks: int,
    stored: int,
    runs: int,
    *,
    slowdown: float = 0.0,
    duets: bool = True,
    device_wide: bool = True,
    attempts: int = 1,
    seed: int = 0,
) -> Tally:
    """Runs of a suite of which every kernel became that much slower.

    Of ``attempts`` at the new session the fastest counts.
    """
    rng = np.random.default_rng([seed, benchmarks, stored])
    tally = Tally()
    loss = float(np.log1p(slowdown))
    for _ in range(runs):
        sds = world.sds(rng, benchmarks)
        old = world.stored(rng, sds, stored)
        new = world.sessions(rng, sds, attempts).min(axis=1) + loss
        outcomes: list[str] = []
        for found in screened(world.kind, new, old, device_wide):
            if not (duets and found.suspicious):
                outcomes.append(found.outcome)
                continue
            outcome, rounds = dueted(
                world.kind,
                benchmarks,
                lambda n: [loss + x for x in world.worker_ratios(rng, n)],
            )
            outcomes.append(outcome)
            tally.duets += 1
            tally.second_rounds += rounds > 1
        tally.add(outcomes)
    return tally


def simulate_others(
    world: World, benchmarks: int, stored: int, runs: int, *, slowdown: float = 0.0, seed: int = 0
) -> dict[str, Tally]:
    """The other rules on launches of sessions of the same world."""
    rng = np.random.default_rng([seed, benchmarks, stored])
    tallies = {name: Tally() for name in OTHERS}
    for _ in range(runs):
        sds = world.sds(rng, benchmarks)
        old = np.exp(world.launches(rng, world.stored(rng, sds, stored)))
        new = np.exp(world.launches(rng, world.sessions(rng, sds, 1)[:, 0])) * (1 + slowdown)
        for name, rule in OTHERS.items():
            tallies[name].add(["slower" if slow else "same" for slow in rule(old, new)])
    return tallies


def duets(world: World, workers: int, runs: int, *, slowdown: float = 0.0, seed: int = 0) -> Tally:
    """Duets of one of 100 benchmarks, with another number of workers in a round."""
    rng = np.random.default_rng([seed, workers])
    loss = float(np.log1p(slowdown))
    tally = Tally()
    for _ in range(runs):
        outcome, rounds = dueted(
            world.kind, SUITE, lambda n: [loss + x for x in world.worker_ratios(rng, n)], workers
        )
        tally.add([outcome])
        tally.second_rounds += rounds > 1
    return tally


# Recorded sessions


@dataclass(frozen=True)
class Recording:
    """What processes measured: a session of each case in each process, in seconds.

    ``sessions`` are, by case, processes x allocations x samples in the order they were taken.
    ``ratios`` are each process' log(new / old) of duets of two equal builds, where there were
    such duets: else a process' samples are cut into one.
    """

    kind: str
    sessions: Mapping[str, Array]
    ratios: Mapping[str, Array] = field(default_factory=dict)

    @property
    def processes(self) -> int:
        return min(map(len, self.sessions.values()))

    def worker_ratios(
        self, case: str, rng: np.random.Generator, slowdown: float
    ) -> Callable[[int], list[float]]:
        """Gives so many workers' log ratios of a case.

        Any of the recorded ones, as often as chance has it, spread about their mean so that their
        variance is the one that a sample of so many is a sample of.
        """
        if case in self.ratios:
            d = self.ratios[case]
            wide = d.mean() + (d - d.mean()) * (len(d) / (len(d) - 1)) ** 0.5 + np.log1p(slowdown)
            return lambda count: rng.choice(wide, count).tolist()
        processes = self.sessions[case]
        return lambda count: [
            resampled_ratio(processes[i % len(processes)], rng, slowdown) for i in range(count)
        ]


def recorded(name: str) -> Recording:
    """Sessions of one H200."""
    with np.load(DATA / name) as file:
        cases = {case: np.asarray(file[case], np.float64) for case in file.files}
    return Recording(
        "cuda", {name: x if x.ndim == 3 else x[:, None, :] for name, x in cases.items()}
    )


def recorded_duets(path: Path) -> Recording:
    """What ``verdicts.py --parts duets`` wrote: the old builds' times are the sessions."""
    found = json.loads(path.read_text(encoding="utf-8"))
    times = {case: np.asarray(workers) for case, workers in found["cases"].items()}
    is_old = np.array([[k == "A" for k in order_of(i)] for i in range(USUAL.blocks)])
    return Recording(
        found["kind"],
        {case: x[:, :, is_old[: x.shape[2]]] for case, x in times.items()},
        {case: np.array([worker_ratio(w.tolist()) for w in x]) for case, x in times.items()},
    )


def duet_files() -> list[Path]:
    """Every recording of duets that there is."""
    return sorted([*DATA.glob("*duet_pairs.json"), *RESULTS.glob("*/duet_pairs.json")])


def judged(recording: Recording, case: str, runs: int, slowdown: float, seed: int = 0) -> Tally:
    """Duets of one case, of recorded workers; it is one of ``SUITE`` stored ones."""
    rng = np.random.default_rng(seed)
    tally = Tally()
    for _ in range(runs):
        ratios = recording.worker_ratios(case, rng, slowdown)
        outcome, rounds = dueted(recording.kind, SUITE, ratios)
        tally.add([outcome])
        tally.second_rounds += rounds > 1
    return tally


def resampled_ratio(process: Array, rng: np.random.Generator, slowdown: float) -> float:
    """What a worker would have measured whose kernels are the recorded one, B slower.

    A block is any four consecutive samples of any allocation of the process.
    """
    size = USUAL
    placements = []
    for _ in range(size.placements):
        samples = process[rng.integers(len(process))]
        starts = 4 * rng.integers(len(samples) // 4, size=size.blocks)
        taken = []
        for i, start in enumerate(starts):
            is_new = np.array([kernel == "B" for kernel in order_of(i)])
            taken.append((samples[start : start + 4] * np.where(is_new, 1 + slowdown, 1)).tolist())
        placements.append(taken)
    return worker_ratio(placements)


def resample(
    recording: Recording, stored: int, runs: int, *, slowdown: float = 0.0, seed: int = 0
) -> tuple[Tally, dict[str, Tally]]:
    """Suite runs of recorded sessions: any one of a case is new, any others are stored.

    A duet's workers are recorded processes. Ours, and the other rules.
    """
    rng = np.random.default_rng([seed, stored])
    ours, others = Tally(), {name: Tally() for name in OTHERS}
    cases = recording.sessions
    for _ in range(runs):
        chosen = {name: rng.permutation(len(case))[: stored + 1] for name, case in cases.items()}
        old = [cases[name][order[1:]].reshape(stored, -1) for name, order in chosen.items()]
        new = [cases[name][order[0]].ravel() * (1 + slowdown) for name, order in chosen.items()]
        medians = np.array([np.median(np.log(x), axis=-1) for x in old])
        answers = screened(recording.kind, np.array([np.median(np.log(x)) for x in new]), medians)
        outcomes: list[str] = []
        for name, found in zip(cases, answers, strict=True):
            if not found.suspicious:
                outcomes.append(found.outcome)
                continue
            ratios = recording.worker_ratios(name, rng, slowdown)
            outcome, rounds = dueted(recording.kind, len(cases), ratios)
            outcomes.append(outcome)
            ours.duets += 1
            ours.second_rounds += rounds > 1
        ours.add(outcomes)
        for name, rule in OTHERS.items():
            slow = [bool(rule(a[None], b[None])[0]) for a, b in zip(old, new, strict=True)]
            others[name].add(["slower" if s else "same" for s in slow])
    return ours, others


# A clock that ramps


def ramp(order: str, climb: float, runs: int, *, slowdown: float = 0.0, seed: int = 0) -> Tally:
    """Duets while every worker's kernels become slower by ``climb`` over its measurements.

    ``order`` is ``interleaved``, or ``one after the other``: all old, then all new.
    """
    rng = np.random.default_rng(seed)
    size = USUAL
    count = 4 * size.placements * size.blocks
    drift = climb * np.arange(count) / count
    tally = Tally()
    for _ in range(runs):

        def ratios(workers: int) -> list[float]:
            found = []
            for _ in range(workers):
                noise = 0.0005 * rng.standard_normal(count)
                if order == "interleaved":
                    is_new = np.array(
                        [k == "B" for i in range(count // 4) for k in order_of(i % size.blocks)]
                    )
                else:
                    is_new = np.arange(count) >= count // 2
                times = np.exp(drift + noise) * np.where(is_new, 1 + slowdown, 1.0)
                if order == "interleaved":
                    shape = (size.placements, size.blocks, 4)
                    found.append(worker_ratio(times.reshape(shape).tolist()))
                else:
                    old, new = np.log(times[~is_new]), np.log(times[is_new])
                    found.append(float(np.median(new) - np.median(old)))
            return found

        tally.add([dueted("cuda", SUITE, ratios)[0]])
    return tally


# The tables

WORLDS: Mapping[str, World] = {
    "sessions 0.2 %": World(),
    "sessions 0.5 %": World(session_sd=0.005),
    "0.2 %, heavy tails": World(draw=heavy),
    "0.2 %, bimodal": World(draw=bimodal),
    "0.2 %, one session in 50 is 10-60 % slow": World(disturbed=0.02),
    "CPU: sessions 2.5 %": World("host", session_sd=0.025, launch_sd=0.02, duet_sd=0.01),
    "CPU: one session in 50 is 10-60 % slow": World(
        "host", session_sd=0.025, launch_sd=0.02, duet_sd=0.01, disturbed=0.02
    ),
}


def heading(*cells: str) -> None:
    print(f"| {' | '.join(cells)} |\n|{'---|' * len(cells)}", flush=True)


def row(*cells: str) -> None:
    print(f"| {' | '.join(cells)} |", flush=True)


def share(value: float) -> str:
    """In percent, never rounded up to all or down to nothing."""
    if value in (0.0, 1.0):
        return f"{100 * value:.0f} %"
    return f"{100 * value:.2f} %" if value < 0.1 else f"{min(100 * value, 99.9):.1f} %"


def alarms(tally: Tally) -> str:
    return f"{share(tally.alarms / tally.runs)} (< {share(tally.bound)})"


def print_simulated(runs: int) -> None:
    some = max(10, runs // 40)
    for kind, slow in SLOW.items():
        found = (f"{100 * x:.0f} % found" for x in slow)
        heading(f"{kind}, 100 benchmarks", "S", "runs with an alarm (bound)", *found, "duets")
        for name, world in WORLDS.items():
            if world.kind != kind:
                continue
            for S in (1, 2, 3, 5, 20):
                same = simulate(world, 100, S, runs)
                found = (share(simulate(world, 100, S, some, slowdown=x).found) for x in slow)
                row(name, str(S), alarms(same), *found, f"{same.duets / same.runs:.1f}")
        print()
    heading("100 benchmarks, S = 10", "rule", "runs with an alarm", "1 %", "2 %", "5 %")
    for name in ("sessions 0.2 %", "sessions 0.5 %", "0.2 %, heavy tails", "0.2 %, bimodal"):
        world = WORLDS[name]
        others = simulate_others(world, 100, 10, max(10, runs // 10))
        slow = [simulate_others(world, 100, 10, 10, slowdown=x) for x in (0.01, 0.02, 0.05)]
        for rule, tally in others.items():
            found = [share(s[rule].found) for s in slow]
            row(name, rule, share(tally.alarms / tally.runs), *found)


def print_duets(runs: int) -> None:
    heading(
        "workers in a round", "scatter of d", "unchanged: slower", "inconclusive", "second rounds",
        "1 %", "2 %",
    )  # fmt: skip
    for workers in (4, 6, 8):
        for draw in (normal, heavy, bimodal) if workers == USUAL.workers else (normal,):
            for sd in (0.001, 0.002, 0.004, 0.008):
                world = World(draw=draw, duet_sd=sd)
                same, *slow = (duets(world, workers, runs, slowdown=x) for x in (0.0, 0.01, 0.02))
                unclear = same.outcomes["inconclusive"] / same.runs
                second = same.second_rounds / same.runs
                found = [share(s.found) for s in slow]
                scatter = f"{share(sd)}, {draw.__name__}"
                rates = map(share, (same.found, unclear, second))
                row(str(workers), scatter, *rates, *found)


def print_fallback(runs: int) -> None:
    heading("no duets: 100 benchmarks", "S", "runs with an alarm", "2 %", "5 %", "20 %", "30 %")
    for name, world in WORLDS.items():
        for S in (1, 3, 10):
            same = simulate(world, 100, S, runs, duets=False, attempts=2)
            some = max(10, runs // 40)
            found = [
                simulate(world, 100, S, some, duets=False, attempts=2, slowdown=x).found
                for x in (0.02, 0.05, 0.2, 0.3)
            ]
            row(name, str(S), alarms(same), *map(share, found))


SLOW = {"cuda": (0.01, 0.02, 0.05), "host": (0.05, 0.1, 0.2)}
"""Slowdowns of the tables."""


def print_resampled(runs: int) -> None:
    """Per rule: runs with an alarm; and what is found of each slowdown."""
    heading("recorded", "S", "ours (bound)", *OTHERS, "duets")
    for name in ("replays", "placements", "events"):
        print_recording(name, recorded(f"h200_{name}.npz"), runs)


def print_recording(title: str, recording: Recording, runs: int) -> None:
    for S in (1, 2, 3, 5):
        if recording.processes <= S:
            continue
        ours, others = resample(recording, S, runs)
        slow = [
            resample(recording, S, max(10, runs // 10), slowdown=x) for x in SLOW[recording.kind]
        ]
        cells = [f"{alarms(ours)}; {', '.join(share(s[0].found) for s in slow)}"]
        for rule, tally in others.items():
            found = ", ".join(share(s[1][rule].found) for s in slow)
            cells.append(f"{share(tally.alarms / tally.runs)}; {found}")
        row(title, str(S), *cells, f"{ours.duets / ours.runs:.1f}")


def print_recorded_duets(runs: int) -> None:
    """Each case by itself, then suites of them, from every recording that there is."""
    for path in duet_files():
        recording = recorded_duets(path)
        slow = SLOW[recording.kind][:2]
        found = [f"{100 * x:.0f} % found" for x in slow]
        print(f"{path.relative_to(ROOT)}\n")
        heading("case", "us", "d: mean", "sd", "unchanged: slower", "inconclusive", *found)
        for case, d in recording.ratios.items():
            same = judged(recording, case, runs, 0.0)
            unclear = same.outcomes["inconclusive"] / same.runs
            row(
                *(
                    case,
                    f"{1e6 * np.median(recording.sessions[case]):.4g}",
                    f"{100 * d.mean():+.2f} %",
                ),
                *(f"{100 * d.std(ddof=1):.2f} %", share(same.found), share(unclear)),
                *(share(judged(recording, case, runs, x).found) for x in slow),
            )
        print()
        heading("recorded duets", "S", "ours (bound)", *OTHERS, "duets")
        print_recording(recording.kind, recording, runs)
        print()


def print_ramp(runs: int) -> None:
    heading("order", "ramp", "unchanged, called slower", "2 % slower, found")
    for order in ("interleaved", "one after the other"):
        for climb in (0.02, 0.1):
            same, slow = (ramp(order, climb, runs, slowdown=x) for x in (0.0, 0.02))
            row(order, share(climb), share(same.found), share(slow.found))


PARTS: Mapping[str, tuple[Callable[[int], None], float]] = {
    "simulated": (print_simulated, 1.0),
    "duets": (print_duets, 2.5),
    "fallback": (print_fallback, 0.25),
    "resampled": (print_resampled, 0.5),
    "recorded": (print_recorded_duets, 0.5),
    "ramp": (print_ramp, 0.1),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--only", choices=PARTS)
    args = parser.parse_args()
    for name, (show, part) in PARTS.items():
        if args.only in (None, name):
            show(max(10, round(part * args.runs)))
            print()


if __name__ == "__main__":
    main()
