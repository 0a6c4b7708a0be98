"""How many mutations of the shipped kernels the checks find: docs/mutations.md has the table.

    python benchmarks/mutations.py [--seed 0] [--count 200]

Each mutant is a shipped kernel with one change, drawn with a seed from all that the six kinds of
change allow. All of them, and the originals, go through one pytest run as a user's kernels would,
in worker processes. A mutant that survives is equivalent only where a reason is written down here
AND nothing tells it from the original on many problems and orders of threads; else it was missed.
Exit code 1 where a mutant was missed, or one disturbed the run.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mutator import KINDS, Mutation, draw, mutations

from pytest_gemm.backends.base import CudaProgram, LaunchConfig
from pytest_gemm.backends.host import HostBackend
from pytest_gemm.backends.host.check import ASCENDING, DESCENDING, CheckReport, ThreadOrder
from pytest_gemm.backends.host.machine import core_count, cpu_model
from pytest_gemm.device import poisons
from pytest_gemm.errors import CompileError
from pytest_gemm.kernelspec import Kernel
from pytest_gemm.launching import arguments_of, loaded
from pytest_gemm.matrices import operands
from pytest_gemm.problem import Problem
from pytest_gemm.registry import load_registry

KERNELS = Path(__file__).parents[1] / "kernels"
SIZE = "64x48x80"
LAUNCH_TIMEOUT, CASE_TIMEOUT = 2, 60


# -------------------------------------------------------------------------- the run under pytest


@dataclass(frozen=True)
class Mutant:
    """A mutation under a name of its own, and what pytest said: ``caught_by`` is empty where it
    passed."""

    name: str
    mutation: Mutation
    caught_by: str = ""
    message: str = ""


@dataclass(frozen=True)
class Run:
    """One pytest run: ``complaints`` are what no run may show, whatever its kernels do."""

    mutants: tuple[Mutant, ...]
    cases: int
    seconds: float
    complaints: tuple[str, ...]


CAUGHT_BY = (
    (
        "out of bounds",
        "out-of-bounds|outside of an array|past the end of|read out of bounds",
    ),
    ("race", "race (in|between) block"),
    ("uninitialised", "which no thread of the block has written"),
    ("barrier divergence", "barrier divergence"),
    ("order of threads", "depends on the order of the threads"),
    ("arithmetic", "integer overflow|truncation|division by zero|shift by"),
    ("time-out", "took longer than|again and again"),
    ("lost worker", "its worker|its process"),
    ("declaration", "exceeds __launch_bounds__"),
    ("wrong result", "elements? of C wrong|row sums?|column sums?"),
)
"""How the first line of a failure tells what found the mutant; the first that fits counts."""


def caught_by(message: str) -> str:
    line = message.partition("\n")[0]
    return next((name for name, text in CAUGHT_BY if re.search(text, line)), "something else")


def run_pytest(drawn: Sequence[Mutation], sources: Mapping[str, str], folder: Path) -> Run:
    """Check all mutants, and the originals, in one pytest run with worker processes."""
    kernels = folder / "kernels"
    kernels.mkdir(parents=True)
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_kernels.py").write_text("def test_gemm(gemm):\n    gemm.check()\n")
    for file, source in sources.items():
        (kernels / file).write_text(source)
    names = {}
    for number, mutation in enumerate(drawn):
        names[f"{Path(mutation.file).stem}_m{number:03}"] = mutation
    for name, mutation in names.items():
        (kernels / f"{name}.cu").write_text(mutation.apply(sources[mutation.file]))
    errors = load_registry([kernels], folder).errors
    refused = {Path(error.path).stem: str(error) for error in errors}

    mark = f"mutations-{uuid.uuid4()}"
    command = [sys.executable, "-m", "pytest", "-q", "--tb=no", "-p", "no:cacheprovider"]
    command += ["--continue-on-collection-errors"]
    command += ["--gemm-device=host", f"--gemm-size={SIZE}", "--gemm-report=report.json"]
    command += ["-o", f"gemm_launch_timeout={LAUNCH_TIMEOUT}"]
    command += ["-o", f"gemm_case_timeout={CASE_TIMEOUT}"]
    started = time.monotonic()
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PYTEST_GEMM_MUTATIONS": mark},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=CASE_TIMEOUT * (6 * len(drawn) + 20),
        check=False,
    )
    seconds = time.monotonic() - started
    report = folder / "report.json"
    records = json.loads(report.read_text())["records"] if report.exists() else []
    mutants, complaints = read_records(names, records, sources, refused)
    if done.returncode != 1:
        complaints.append(f"pytest ended with {done.returncode}: {done.stdout[-2000:]}")
    complaints += [f"process {pid} outlives pytest" for pid in _processes_with(mark)]
    return Run(tuple(mutants), len(records), seconds, tuple(complaints))


def read_records(
    names: Mapping[str, Mutation],
    records: Iterable[Mapping[str, Any]],
    sources: Iterable[str],
    refused: Mapping[str, str],
) -> tuple[list[Mutant], list[str]]:
    """Each mutant with what came of its cases, and what is wrong with the run itself.

    ``refused`` are the mutants whose declaration contradicts their code, with the message.
    """
    found: dict[str, list[Mapping[str, Any]]] = {}
    for record in records:
        found.setdefault(record["case"]["kernel"]["name"], []).append(record)
    originals = {Path(file).stem for file in sources}
    complaints = [f"there is no record of {n}" for n in {*names, *originals} - {*found, *refused}]
    for record in (record for group in found.values() for record in group):
        if record["result"]["unchecked"]:
            complaints.append(f"{record['id']} was not checked: {record['result']['unchecked']}")
        if record["outcome"] not in ("passed", "failed"):
            complaints.append(f"{record['id']} was {record['outcome']}: {record['message']}")
        if record["outcome"] == "failed" and record["case"]["kernel"]["name"] in originals:
            complaints.append(f"the original fails: {record['message']}")
    mutants = []
    for name, mutation in names.items():
        failed = [r["message"] for r in found.get(name, ()) if r["outcome"] == "failed"]
        message = next(iter(failed), refused.get(name, ""))
        mutants.append(Mutant(name, mutation, caught_by(message) if message else "", message))
    return mutants, complaints


def _processes_with(mark: str) -> list[int]:
    """Processes whose environment has the mark: pytest's descendants, whoever their parent is."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark.encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:  # another user's, or it has ended
            continue
    return found


# --------------------------------------------------------------------------------- the survivors


def _commutes(mutation: Mutation) -> bool:
    parts = mutation.before.split(" * ")
    halves = ((" * ".join(parts[:i]), " * ".join(parts[i:])) for i in range(1, len(parts)))
    return any(mutation.after == f"{right} * {left}" for left, right in halves)


def _matches(pattern: str) -> Callable[[Mutation], bool]:
    return lambda m: bool(re.fullmatch(pattern, f"{m.file} {m.before} -> {m.after}"))


_TILED = r"(tiled|tiled32|register_blocked)\.cu"

EQUIVALENT: tuple[tuple[str, Callable[[Mutation], bool]], ...] = (
    ("multiplication commutes, also that of floats", _commutes),
    (
        "both constants have the same value (TM = TN = 4, ROWS = COLS = 8)",
        lambda m: (
            m.file == "register_blocked.cu"
            and {m.before, m.after} in ({"TM", "TN"}, {"ROWS", "COLS"}, {"[TM][TN]", "[TN][TM]"})
        ),
    ),
    (
        "the block is square",
        _matches(r"(naive|block_size)\.cu blockDim\.([xy]) -> blockDim\.(?!\2)[xy]"),
    ),
    ("a longer array, whose rest nobody uses", _matches(r".* (TILE|TM|TN) -> \1 \+ 1")),
    ("a looser promise", _matches(r".* ROWS \* COLS -> ROWS \* COLS \+ 1")),
    (
        "more tiles behind the last: they are loaded as zeros, and zeros are added",
        _matches(_TILED + r" k0 < K -> k0 (<= |< 2 \* )K"),
    ),
)
"""Why a mutant that survives can change no result and break no rule, for matrices below 4 GiB."""


@dataclass(frozen=True)
class Comparison:
    """What tells a mutant from its original, if anything, and whether it does the same work."""

    difference: str
    same_work: bool


class Twins:
    """Compares mutants with their originals on many small problems and orders of threads."""

    ORDERS = (ASCENDING, DESCENDING, ThreadOrder("random", 1), ThreadOrder("random", 2))

    def __init__(self, backend: HostBackend, seed: int, problems: int = 40) -> None:
        self._backend = backend
        rng = random.Random(seed)
        self._sizes = [(*(rng.randint(1, 40) for _ in range(3)),) for _ in range(problems)]
        # Whole tiles too: past the end of a matrix is then past the end of a tile.
        self._sizes += [(32, 32, 32), (16, 64, 48), (64, 16, 96), (33, 65, 97)]

    def compare(self, mutant: Kernel, original: Kernel) -> Comparison:
        """Launch both on operands whose rounding errors show the order of summation."""
        same_work = True
        for M, N, K in self._sizes:
            problem = Problem(mutant.op, M, N, K if mutant.op == "gemm" else 0)
            for order in self.ORDERS:
                report, C = self._launch(mutant, problem, order)
                model, expected = self._launch(original, problem, order)
                where = f"{problem.id} in {order.kind} order"
                if report.findings:
                    return Comparison(f"{where}: {report.findings[0]}", same_work=False)
                if expected != C:
                    return Comparison(f"{where}: C has other bits", same_work=False)
                same_work &= report.traffic == model.traffic
        return Comparison("", same_work)

    def _launch(
        self, kernel: Kernel, problem: Problem, order: ThreadOrder
    ) -> tuple[CheckReport, bytes]:
        with loaded(self._backend, problem, operands(problem)) as workspace:
            workspace.fill(poisons("float32")[1])
            report = self._backend.check(
                CudaProgram(*kernel.program_fields),
                LaunchConfig(*kernel.launch(problem)),
                arguments_of(kernel, workspace),
                order=order,
                timeout=LAUNCH_TIMEOUT,
            )
            return report, workspace.read().tobytes()


@dataclass(frozen=True)
class Survivor:
    """A mutant that passed, and why it may: ``reason`` is empty where it was missed."""

    mutant: Mutant
    reason: str
    comparison: Comparison


def judge(mutants: Iterable[Mutant], twins: Twins, folder: Path) -> Iterator[Survivor]:
    """Say of each survivor whether it is equivalent to its original in ``folder``."""
    kernels: dict[str, list[Kernel]] = {}
    for kernel in load_registry([folder], folder).kernels("host"):
        kernels.setdefault(kernel.name, []).append(kernel)
    for mutant in mutants:
        originals = kernels[Path(mutant.mutation.file).stem]
        pairs = zip(kernels[mutant.name], originals, strict=True)
        found = [twins.compare(*pair) for pair in pairs]
        worst = next((c for c in found if c.difference), None)
        same_work = all(c.same_work for c in found)
        reasons = (text for text, holds in EQUIVALENT if holds(mutant.mutation))
        reason = "" if worst else next(reasons, "")
        yield Survivor(mutant, reason, worst or Comparison("", same_work))


# ------------------------------------------------------------------------------------ the tables


def tables(mutants: Sequence[Mutant], survivors: Sequence[Survivor]) -> Iterator[str]:
    """What docs/mutations.md shows, in Markdown."""
    equivalent = {s.mutant.name for s in survivors if s.reason}
    yield "| kind | mutants | equivalent | can matter | caught |"
    yield "| --- | --- | --- | --- | --- |"
    for kind in (*KINDS, "all"):
        those = [m for m in mutants if kind in (m.mutation.kind, "all")]
        same = sum(m.name in equivalent for m in those)
        caught = sum(bool(m.caught_by) for m in those)
        yield f"| {kind} | {len(those)} | {same} | {len(those) - same} | {caught} |"
    yield ""
    yield "| caught as | mutants |"
    yield "| --- | --- |"
    for name, count in Counter(m.caught_by for m in mutants if m.caught_by).most_common():
        yield f"| {name} | {count} |"
    yield ""
    yield "| survivor | why it is no mistake | accesses and barriers |"
    yield "| --- | --- | --- |"
    for survivor in sorted(survivors, key=lambda s: (s.reason, str(s.mutant.mutation))):
        reason = survivor.reason or f"**missed** {survivor.comparison.difference}"
        work = "the same" if survivor.comparison.same_work else "more"
        change = str(survivor.mutant.mutation).replace("|", "\\|")
        yield f"| {change} | {reason} | {work} |"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=200)
    options = parser.parse_args()
    sources = {path.name: path.read_text() for path in sorted(KERNELS.glob("*.cu"))}
    backend = HostBackend(progress=print)

    def compiles(mutation: Mutation) -> bool:
        text = mutation.apply(sources[mutation.file])
        try:
            backend.compile(CudaProgram(text, mutation.file, Path(mutation.file).stem))
        except CompileError:
            return False
        return True

    drawn = draw(sources, options.seed, options.count, compiles)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run = run_pytest(drawn, sources, folder)
        passed = [mutant for mutant in run.mutants if not mutant.caught_by]
        survivors = [*judge(passed, Twins(backend, options.seed), folder / "kernels")]
    possible = sum(len(mutations(file, source)) for file, source in sources.items())
    print(f"{cpu_model()}, {core_count()} cores, {backend.device.environment['compiler_version']}")
    print(f"{len(drawn)} mutants of {possible} possible ones, seed {options.seed}")
    print(f"one pytest run: {run.cases} cases in {run.seconds:.0f} s, {SIZE}\n")
    print("\n".join(tables(run.mutants, survivors)))
    for complaint in run.complaints:
        print(f"ERROR: {complaint}")
    return int(bool(run.complaints) or not all(survivor.reason for survivor in survivors))


if __name__ == "__main__":
    sys.exit(main())
