"""Tries readings of a kernel until one computes the product."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import NamedTuple

from pytest_gemm.adopt.arguments import Arguments, arguments
from pytest_gemm.adopt.blocks import blocks
from pytest_gemm.adopt.found import Found
from pytest_gemm.adopt.grids import grids
from pytest_gemm.adopt.prober import Prober
from pytest_gemm.adopt.reading import Reading
from pytest_gemm.adopt.sizes import Sizes
from pytest_gemm.adopt.source import Source
from pytest_gemm.adopt.variant import Variant, launch_texts, number_of
from pytest_gemm.adopt.variants import compiling
from pytest_gemm.errors import SpecError
from pytest_gemm.kernelspec import MAX_SHARED_MEM
from pytest_gemm.problem import DIMENSIONS, Problem

LEAST_SIDE, MOST_SIDE = 32, 128
"""Sides of the tiles that problems are made of."""

MOST_DEPTH = 64
"""The largest K of sizes that differ: tiles are not as deep as they are wide."""


class Shape(NamedTuple):
    """M, N and K in tiles, and what they have in common."""

    sides: tuple[int, int, int]
    requires: tuple[str, ...] = ()


DIFFERENT = {"gemm": Shape((3, 2, 1)), "add": Shape((3, 2, 0))}
SQUARE = {
    "gemm": Shape((2, 2, 2), ("M == N", "N == K")),
    "add": Shape((2, 2, 0), ("M == N",)),
}
TIED = {
    "gemm": (
        Shape((2, 2, 1), ("M == N",)),
        Shape((2, 1, 1), ("N == K",)),
        Shape((1, 2, 1), ("M == K",)),
    ),
    "add": (),
}
"""By operation: sizes that all differ, equal ones, and what lies between."""


class Depth(NamedTuple):
    """How many blocks, and arguments for each, are tried, None for all; or one block."""

    blocks: int | None
    arguments: int | None
    block: tuple[str, ...] = ()


FIRST_DEPTH, WHOLE_DEPTH = Depth(4, 48), Depth(None, None)

MOST_SLOW = 12
"""How many readings of one block may run into the time limit."""

MORE_TRIED = 60
"""How many further arguments are tried, once some are exact, to see whether they alone are."""

MOST_MISFITS = 2
"""How many readings of one block may miss the kernel's own arrays: no arguments mend that."""

LIKELY = 24
"""How many arguments are tried with each block once a kernel was seen to be at fault."""

HINTED = 6
"""How many are tried with the launch's grid although one block alone is wrong."""


@dataclass
class Search:
    """Looks for the reading of a source's kernel; ``progress`` is told what is tried.

    ``together`` says that tiles may be as large as two constants multiplied.
    """

    source: Source
    prober: Prober
    progress: Callable[[str], None]
    nearest: Found | None = None
    impossible: str = ""
    together: bool = False
    _rank: tuple[float, ...] = ()
    _known: dict[object, list[Arguments]] = field(default_factory=dict)

    def run(self) -> Found | None:
        """The first reading that is exact, on sizes that differ if there is one.

        Otherwise None, and ``nearest`` is what came closest, or ``impossible`` why nothing could be
        launched. Raises Uncompilable.
        """
        own = list(compiling(self.source, self.prober, self.progress))
        if not any(self._every(variant, op) for variant in own for op in DIMENSIONS):
            raise self._without_product(own[0])
        found = self._of_tiles(own)
        wider = [v for v in own if self._side(v, together=True) > self._side(v)]
        if found is None and wider:
            self.together = True
            found = self._of_tiles(wider)
        return found

    def _of_tiles(self, own: Sequence[Variant]) -> Found | None:
        for op in self._operations():
            found = self._of_operation(op, own)
            if found is not None:
                return found
            if self.prober.seconds_left < 0 or (self.nearest and self.nearest.is_at_fault):
                return None
        return None

    def _of_operation(self, op: str, own: Sequence[Variant]) -> Found | None:
        """What is not right for squares is right for nothing, and they leave little to try."""
        # A product's rows have two lengths: one size alone cannot tell them.
        different = (
            [DIFFERENT[op]] if op == "add" or len(self.source.signature.integers) > 1 else []
        )
        for shape in different:
            found = self._on_shape(op, shape, own, FIRST_DEPTH)
            if found is not None:
                return found
        square = self._on_shape(op, SQUARE[op], own, WHOLE_DEPTH)
        if square is None:
            return None
        variant, block = square.variant, square.reading.block
        same = Depth(None, None, block)
        tries = [
            *(
                (shape, tried, depth)
                for shape in different
                for tried, depth in (([variant], same), (own, WHOLE_DEPTH))
            ),
            *((tied, [variant], same) for tied in TIED[op]),
        ]
        return next(filter(None, (self._on_shape(op, *each) for each in tries)), square)

    def _operations(self) -> list[str]:
        """What the kernel is called decides which comes first, and what has no loop is a sum."""
        name = self.source.function.name.lower()
        adds = "add" in name or "sum" in name or not self.source.has_loops
        return sorted(DIMENSIONS, key=lambda op: (op == "add") != adds)

    def _without_product(self, variant: Variant) -> SpecError:
        function = self.source.function
        elements = self.source.signature.elements(dict(variant.types))
        types = [f"{function.parameters[i].name}: {dtype}" for i, dtype in elements.items()]
        return SpecError(
            f"{function.name} takes matrices of {', '.join(types)}, and there is neither a product "
            "nor a sum of such: see 'Types' in docs/kernels.md for those there are",
            path=function.file or self.source.shown,
            line=function.line,
        )

    def _on_shape(
        self, op: str, shape: Shape, variants: Sequence[Variant], depth: Depth
    ) -> Found | None:
        for variant in variants:
            problem = self._problem(variant, op, shape)
            every = blocks(self.source, variant)[: depth.blocks]
            for block in [depth.block] if depth.block else every:
                self.progress(
                    f"{variant.title(self.source)}: block {' x '.join(block)} on {problem.id}"
                )
                found = self._with_block(variant, block, problem, shape.requires, depth.arguments)
                if found is not None:
                    return found
                if self.prober.seconds_left < 0:
                    return None
        return None

    def _with_block(
        self,
        variant: Variant,
        block: tuple[str, ...],
        problem: Problem,
        requires: tuple[str, ...],
        most: int | None,
    ) -> Found | None:
        """The first exact reading with a block, and the arguments of others that are."""
        # As much as a kernel can need; how much it does need is seen when all else is known.
        shared = str(MAX_SHARED_MEM if self.source.has_dynamic_shared_memory else 0)
        sizes = Sizes(problem, requires)
        exact: dict[tuple[object, ...], Found] = {}
        hinted = HINTED if self._is_launched(variant, block) else 0
        slow, misfits, left = 0, 0, MORE_TRIED
        for rank, given in enumerate(self._arguments(variant, sizes)[:most]):
            more = (*given.kind.keys, *given.keys)
            reading = Reading(
                variant.entry, given.args, block, ("1",), shared, variant.params, requires, more
            )
            attempt = self.prober.attempt(reading, problem)
            if attempt.diverges:
                reading = replace(reading, more=(*more, ("different_barriers", True)))
                attempt = self.prober.attempt(reading, problem)
            found = Found(reading, problem, attempt, variant)
            self._note(found)
            slow, misfits, left = (
                slow + attempt.is_slow,
                misfits + attempt.is_misfit,
                left - bool(exact),
            )
            spent = slow > MOST_SLOW or misfits > MOST_MISFITS or left < 0
            if self.prober.seconds_left < 0 or (spent and not attempt.is_right):
                break
            # More blocks do not mend a race within one.
            if attempt.races or not (attempt.is_right or rank < hinted):
                continue
            meaning = self._meaning(found, sizes)
            if meaning not in exact and (whole := self._whole(found)):
                exact[meaning] = whole
        if not exact:
            return None
        first, *rest = exact.values()
        return replace(first, others=tuple(self._others(first, rest)))

    def _is_launched(self, variant: Variant, block: tuple[str, ...]) -> bool:
        """Whether the launch code may have this block: it has, or has one that cannot be read."""
        if variant.launch is None:
            return False
        texts = launch_texts(self.source, variant, variant.launch.block)
        return None in texts or block == blocks(self.source, variant)[0]

    def _arguments(self, variant: Variant, sizes: Sizes) -> list[Arguments]:
        """All that there are, each launch once, until a kernel is known to be at fault itself."""
        key = (variant, sizes.problem.op, sizes.requires)
        if key not in self._known:
            every = self._every(variant, sizes.problem.op)
            first: dict[object, Arguments] = {}
            for given in every:
                op, transa, transb, args = given.kind.in_memory(given.args)
                tied = tuple(sizes.group_of(a)[0] if a in ("M", "N", "K") else a for a in args)
                first.setdefault((op, transa, transb, tied, given.keys), given)
            self._known[key] = list(first.values())
        found = self._known[key]
        if self.nearest is None or not self.nearest.is_at_fault:
            return found
        known = self.nearest.reading.args
        return [given for i, given in enumerate(found) if i < LIKELY or given.args == known]

    def _every(self, variant: Variant, op: str) -> list[Arguments]:
        batched = self.source.has_layers
        return arguments(
            self.source.signature, op, variant.launch, dict(variant.types), batched=batched
        )

    def _whole(self, one_block: Found) -> Found | None:
        """The reading with the first grid that makes it exact."""
        for grid in grids(self.source, self.prober, one_block):
            reading = one_block.reading.with_grid(*grid)
            attempt = self.prober.attempt(reading, one_block.problem)
            found = replace(one_block, reading=reading, attempt=attempt)
            if attempt.scalars and not self.source.signature.scalars:
                found = self._scaled(found)
            self._note(found)
            if found.is_exact:
                return found
        return None

    def _scaled(self, found: Found) -> Found:
        """The reading of a kernel with an alpha and a beta of its own, as 1 where it adds to C."""
        reading = replace(found.reading, more=(*found.reading.more, *found.attempt.scalars))
        return replace(found, reading=reading, attempt=self.prober.attempt(reading, found.problem))

    def _others(self, first: Found, rest: Sequence[Found]) -> Iterator[tuple[str, ...]]:
        """Arguments that are exact too, and are not the same in other words."""
        if not rest:
            return
        sizes = Sizes(first.problem, first.reading.requires)
        steps = [sizes.moved({group[0]: step}) for group in sizes.groups for step in (1, 8, 16)]
        problems = [p for p in (sizes.with_residues(), *steps) if self._is_exact_on(first, p)]
        for found in rest:
            if all(self._is_exact_on(found, problem) for problem in problems):
                yield found.reading.args

    def _is_exact_on(self, found: Found, problem: Problem) -> bool:
        return self.prober.attempt(found.reading, problem).is_exact

    def _meaning(self, found: Found, sizes: Sizes) -> tuple[object, ...]:
        """The arguments, less what makes no difference."""
        keys = [(key, value) for key, value in found.reading.more if key != "acc_dtype"]
        meaning: list[object] = [*keys]
        for name, role in zip(self.source.signature.names, found.reading.args, strict=True):
            if name and name not in self.source.used:
                role = ""
            elif role in ("M", "N", "K"):
                role = sizes.group_of(role)[0]
            elif found.problem.op == "add" and role in ("A", "B"):
                role = "A"
            meaning.append(role)
        return tuple(meaning)

    def _problem(self, variant: Variant, op: str, shape: Shape) -> Problem:
        """Whole tiles, as far as constants say how large these are."""
        side = self._side(variant, together=self.together)
        M, N, K = (factor * side for factor in shape.sides)
        if not shape.requires:
            K = min(K, MOST_DEPTH)
        scalars = len(self.source.signature.scalars) if op == "gemm" else 0
        return Problem(
            op, M, N, K, alpha=2.0 if scalars else 1.0, beta=-1.0 if scalars == 2 else 0.0
        )

    def _side(self, variant: Variant, *, together: bool = False) -> int:
        """The largest side of a tile that constants tell, or ``together`` two of them, as where a
        thread computes several elements that are a tile apart."""
        known = {n: v for n, v in self.source.constants.items() if n in self.source.words}
        known |= variant.values
        values = [*known.values()]
        if together:
            values += [a * b for a, b in combinations(known.values(), 2)]
        if variant.launch is not None:
            texts = launch_texts(self.source, variant, variant.launch.block)
            values += [number_of(text, variant.values) or 0 for text in texts]
        return max([LEAST_SIDE, *(v for v in values if LEAST_SIDE < v <= MOST_SIDE)])

    def _note(self, found: Found) -> None:
        """Keep what comes closest; of equals the first, as the likeliest comes first."""
        if found.attempt.impossible:
            self.impossible = self.impossible or found.attempt.impossible
            return
        primary = self._operations()[0]
        rank = (found.problem.op == primary, *found.closeness)
        if self.nearest is None or rank > self._rank:
            self.nearest, self._rank = found, rank
