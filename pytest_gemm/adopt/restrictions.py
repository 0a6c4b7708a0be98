"""For which sizes a reading is exact, and what goes wrong for the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pytest_gemm.adopt.prober import Prober
from pytest_gemm.adopt.reading import Reading
from pytest_gemm.adopt.sizes import Sizes
from pytest_gemm.problem import Problem

MULTIPLES = (1, 2, 4, 8, 16, 32, 64, 128)


@dataclass(frozen=True)
class Restriction:
    """The number of which sizes (``M``, or ``M = N`` that are equal) must be multiples, and what
    happens where they are not."""

    sizes: tuple[str, ...]
    multiple: int
    fault: str

    @property
    def condition(self) -> str:
        return f"{self.sizes[0]} % {self.multiple} == 0"


def restrictions(prober: Prober, reading: Reading, problem: Problem) -> list[Restriction]:
    """What ``requires`` must hold beside what it holds, for a reading exact on ``problem``."""
    sizes = Sizes(problem, reading.requires)
    odd = sizes.with_residues()
    if _is_exact(prober, reading, odd):
        return []
    found = {group: _multiple(prober, reading, sizes, group) for group in sizes.groups}
    fault = f"on {odd.id}, {prober.attempt(reading, odd).first_fault}"
    for least in (2, 1):
        together = sizes.moved({group[0]: multiple for group, (multiple, _) in found.items()})
        if _is_exact(prober, reading, together):
            break
        # They depend on each other: whole tiles are what is known to be right.
        found = {
            group: (sizes.tile(group), why or fault) if multiple >= least else (multiple, why)
            for group, (multiple, why) in found.items()
        }
    return [
        Restriction(group, multiple, why)
        for group, (multiple, why) in found.items()
        if multiple > 1
    ]


def sentences(found: Sequence[Restriction]) -> Iterator[str]:
    """What restrictions mean, each multiple once."""
    for multiple in dict.fromkeys(item.multiple for item in found):
        own = [item for item in found if item.multiple == multiple]
        yield f"exact for multiples of {multiple} only, in {_listed(own)}"
        for item in own:
            yield f"  {item.sizes[0]} % {multiple} != 0: {item.fault}"


def _listed(found: Sequence[Restriction]) -> str:
    texts = [" = ".join(item.sizes) for item in found]
    return " and ".join([", ".join(texts[:-1]), texts[-1]] if len(texts) > 1 else texts)


def _multiple(
    prober: Prober, reading: Reading, sizes: Sizes, group: Sequence[str]
) -> tuple[int, str]:
    """The number of which a size must be a multiple, and what a size does that is none."""
    why, tile = "", sizes.tile(group)
    for step in MULTIPLES:
        if step > getattr(sizes.problem, group[0]):
            break
        problem = sizes.moved({group[0]: step})
        attempt = prober.attempt(reading, problem)
        if attempt.is_exact:
            return step, why
        if not why:
            why = f"on {problem.id}, {attempt.first_fault}"
    return tile, why


def _is_exact(prober: Prober, reading: Reading, problem: Problem) -> bool:
    return prober.attempt(reading, problem).is_exact
