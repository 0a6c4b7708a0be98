"""Fill docs/profile.md with the tables of stored profiles and of stored machine code.

    python benchmarks/profile_tables.py

Nothing is written by hand between a line that says what belongs there and the next end:
``<!-- profile FILE.json -->`` is the report of that profile, a path in the repository;
``<!-- code ARCHITECTURE DEVICE KERNEL... -->`` what the stored machine code and times say of those
kernels; ``<!-- metrics -->`` what ncu is asked for. Where a file is not there, that is said.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from pytest_gemm.baselines import BaselineStore
from pytest_gemm.exact import TRAFFIC
from pytest_gemm.markdown import code, table
from pytest_gemm.profile.document import read
from pytest_gemm.profile.metrics import COUNTERS, STALL, STALLS
from pytest_gemm.profile.report import tables
from pytest_gemm.report.text import seconds
from pytest_gemm.static.inspection import Facts, multiply_adds
from pytest_gemm.traffic import loads_per_element

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "profile.md"
STORE = BaselineStore(ROOT / "baselines")
PROBLEM = "1024x1024x1024-float32"

_PLACE = re.compile(
    r"(?P<begin><!-- (?P<kind>profile|code|metrics)(?P<words>[^>]*?) -->\n).*?"
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
    lines: Iterator[str] = KINDS[place["kind"]](*words)
    return place["begin"] + "\n".join(["", *lines]) + place["end"]


def _profile(name: str) -> Iterator[str]:
    path = ROOT / name
    if not path.exists():
        yield f"Not measured yet: `{name}` is not there."
        yield ""
        yield ""
        return
    profile = read(path)
    yield f"{profile.device['description']}; {profile.date[:10]}."
    yield ""
    yield from tables(profile)
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


KINDS = {"profile": _profile, "code": _code, "metrics": _metrics}


def main() -> None:
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
