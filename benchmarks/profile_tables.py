"""Fill docs/profile.md and docs/static.md with what stored profiles and machine code say.

    python benchmarks/profile_tables.py

Nothing is written by hand between a line that says what belongs there and the next end:
``<!-- profile FILE.json -->`` is the report of that profile, a path in the repository, and
``<!-- answer FILE.json -->`` what it says of the page's question;
``<!-- code ARCHITECTURE DEVICE KERNEL... -->`` what the stored machine code and times say of those
kernels; ``<!-- metrics -->`` what ncu is asked for; ``<!-- text FILE.txt -->`` what a program
printed. Where a file is not there, that is said.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pytest_gemm.baselines import BaselineStore
from pytest_gemm.exact import TRAFFIC
from pytest_gemm.markdown import code, digits, table
from pytest_gemm.profile.document import Profiled, read
from pytest_gemm.profile.facts import stalls
from pytest_gemm.profile.metrics import COUNTERS, STALL, STALLS
from pytest_gemm.profile.report import tables
from pytest_gemm.report.text import seconds
from pytest_gemm.static.inspection import Facts, multiply_adds
from pytest_gemm.traffic import loads_per_element

ROOT = Path(__file__).parent.parent
PAGES = tuple(ROOT / "docs" / name for name in ("profile.md", "static.md"))
STORE = BaselineStore(ROOT / "baselines")
PROBLEM = "1024x1024x1024-float32"
QUESTION = "4096x4096x4096"
"""The problem of the answer, that of the note which asked."""

_PLACE = re.compile(
    r"(?P<begin><!-- (?P<kind>profile|answer|code|metrics|text)(?P<words>[^>]*?) -->\n).*?"
    r"(?P<end><!-- end -->)",
    re.DOTALL,
)


class Kernel(NamedTuple):
    """``loads`` per element of C, facts of the machine code, seconds of the newest session."""

    name: str
    loads: str
    code: Facts
    seconds: float


def filled(text: str) -> str:
    """The page with every place filled anew."""
    return _PLACE.sub(_fill, text)


def _fill(place: re.Match[str]) -> str:
    words = place["words"].split()
    lines = KINDS[place["kind"]](*words)
    return place["begin"] + "\n".join(["", *lines]) + place["end"]


def _profile(name: str) -> Iterator[str]:
    path = ROOT / name
    if not path.exists():
        yield from _not_measured(name)
        return
    profile = read(path)
    yield f"{profile.device['description']}; {profile.date[:10]}."
    yield ""
    yield from tables(profile)
    yield ""


def _text(name: str) -> Iterator[str]:
    path = ROOT / name
    if not path.exists():
        yield from _not_measured(name)
        return
    yield "```text"
    yield path.read_text(encoding="utf-8").strip()
    yield "```"
    yield ""
    yield ""


def _not_measured(name: str) -> Iterator[str]:
    yield f"Not measured yet: `{name}` is not there."
    yield ""
    yield ""


@dataclass(frozen=True)
class Seen:
    """A kernel on ``QUESTION``: what ncu counted and what follows, and its time without ncu."""

    case: Profiled

    @property
    def seconds(self) -> float:
        assert self.case.seconds is not None
        return self.case.seconds

    @property
    def bank_cycles(self) -> float:
        return float(self.case.derived["bank_cycles_per_multiply_add"])

    def each(self, what: str) -> str:
        """For each multiply-add of a warp."""
        return digits(self.case.derived[f"{what}_per_multiply_add"])

    def asked(self, cache: str) -> str:
        return f"{digits(self.case.counters[f'{cache}_bytes'] / 1e9)} GB"

    def busy(self, unit: str) -> str:
        return f"{self.case.counters[unit]:.1f} %"

    def waits(self, reason: str) -> str:
        waits = {stall.reason: stall.share for stall in stalls(self.case.counters)}
        return f"{100 * waits.get(reason, 0):.0f} %"

    def fewer(self, other: Seen) -> str:
        return digits(other.bank_cycles / self.bank_cycles)

    def faster(self, other: Seen) -> str:
        return digits(other.seconds / self.seconds)


def _answer(name: str) -> Iterator[str]:
    path = ROOT / name
    if not path.exists():
        yield from _not_measured(name)
        return
    cases = {case.kernel: Seen(case) for case in read(path).cases if case.problem.id == QUESTION}
    naive, tiled, blocked = (cases[kernel] for kernel in ("naive", "tiled", "register_blocked"))
    larger = cases["tiled32"]
    dram = {k: f"{digits(s.case.derived['dram_bytes'] / 1e9)} GB" for k, s in cases.items()}
    yield (
        f"- **The loads that were saved had been answered by L1.** naive asks L1 for "
        f"{naive.asked('l1')}; L2 is asked for {naive.asked('l2')} then, and DRAM moves "
        f"{dram['naive']}. tiled asks L1 for {tiled.asked('l1')}, L2 for {tiled.asked('l2')}, and "
        f"DRAM moves {dram['tiled']}. In neither is DRAM the limit: it is {naive.busy('dram')} "
        f"and {tiled.busy('dram')} busy."
    )
    yield (
        "- **The same unit limits both.** L1 and shared memory are one memory with one set of "
        f"data banks, which are {naive.busy('shared')} busy in naive and {tiled.busy('shared')} "
        "in tiled."
    )
    yield (
        "- **The tile is read from these banks, too.** All loads together fall from "
        f"{naive.each('loads')} for each multiply-add of a warp to {tiled.each('loads')}, not by "
        f"16; the cycles that the banks are busy for it fall from {naive.each('bank_cycles')} to "
        f"{tiled.each('bank_cycles')}, by {tiled.fewer(naive)}; and the time by "
        f"{tiled.faster(naive)}. What is between the two is what tiled leaves the banks idle: its "
        f"warps wait {tiled.waits('barrier')} of their time for a barrier, of which naive has none."
    )
    yield (
        "- **A larger tile alone helps little.** tiled32 has half of tiled's global loads, and "
        f"{larger.each('loads')} loads in all, as the tile is read as often as before. The banks "
        f"need {larger.each('bank_cycles')} cycles, and are {larger.busy('shared')} busy; it is "
        f"{larger.faster(naive)} times as fast as naive."
    )
    yield (
        "- **The rest is in the registers.** With a block of C there, register_blocked has "
        f"{blocked.each('loads')} loads for each multiply-add and {blocked.each('bank_cycles')} "
        f"cycles of the banks: {blocked.fewer(naive)} times fewer than naive, and it is "
        f"{blocked.faster(naive)} times as fast. The banks are the limit still "
        f"({blocked.busy('shared')}), as conflicts take "
        f"{100 * blocked.case.derived['conflicts']:.1f} % of shared memory's cycles; the float32 "
        f"pipe is {blocked.busy('fma')} busy. [The ladder](ladder.md) goes on from there."
    )
    yield (
        "- **It is not the instructions.** There are "
        f"{naive.each('instructions')}, {tiled.each('instructions')} and "
        f"{blocked.each('instructions')} for each multiply-add in naive, tiled and "
        f"register_blocked, and the issue slots are only {naive.busy('issue')}, "
        f"{tiled.busy('issue')} and {blocked.busy('issue')} busy."
    )
    yield ""
    yield ""


def _code(architecture: str, device: str, *names: str) -> Iterator[str]:
    kernels = [_kernel(name, architecture, device) for name in names]
    heading = ["kernel", "loads per element of C", "multiply-adds of the inner loop"]
    heading += ["instructions each", "loads each, global and shared", "time", "speed-up"]
    yield from table(heading, _rows(kernels))
    yield ""


def _rows(kernels: Sequence[Kernel]) -> Iterator[list[str]]:
    for kernel in kernels:
        products, total = multiply_adds(kernel.code, "loop."), kernel.code["loop.instructions"]
        loads = kernel.code.get("loop.LDG", 0) + kernel.code.get("loop.LDS", 0)
        yield [
            *(code(kernel.name), kernel.loads, f"{products} of {total}"),
            *(f"{total / products:.2f}", f"{loads / products:.2f}", seconds(kernel.seconds)),
            f"{kernels[0].seconds / kernel.seconds:.2f}",
        ]


def _kernel(name: str, architecture: str, device: str) -> Kernel:
    facts = STORE.load_exact(name).values()
    traffic = next(fact.counters for fact in facts if fact.recipe == TRAFFIC)
    counts = {key: int(value) for key, value in traffic.items()}
    machine = next(f.counters for f in facts if f.benchmark == f"{name}-{architecture}")
    session = max(STORE.sessions(device, name, f"{name}-{PROBLEM}"), key=lambda s: s.date)
    return Kernel(
        name,
        loads_per_element("gemm", counts),
        {key: int(value) for key, value in machine.items()},
        session.estimate.median,
    )


def _metrics() -> Iterator[str]:
    rows = [[code(metric.ncu), metric.meaning, metric.unit] for metric in COUNTERS.values()]
    reasons = ", ".join(code(reason) for reason in STALLS)
    rows.append([code(STALL.format("...")), f"warps that wait for each issue: {reasons}", ""])
    yield from table(["metric", "what it counts", "unit"], rows)
    yield ""


KINDS: Mapping[str, Callable[..., Iterator[str]]] = {
    "profile": _profile,
    "answer": _answer,
    "code": _code,
    "metrics": _metrics,
    "text": _text,
}


def main() -> None:
    for page in PAGES:
        page.write_text(filled(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
