"""Tries readings of a kernel until one computes the product."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from pytest_gemm.adopt import tiling
from pytest_gemm.adopt.arguments import Arguments, arguments
from pytest_gemm.adopt.candidates import (
    Variant,
    blocks,
    launch_texts,
    number_of,
    variants,
)
from pytest_gemm.adopt.prober import Prober
from pytest_gemm.adopt.reading import Reading
from pytest_gemm.adopt.sizes import Sizes
from pytest_gemm.adopt.source import Source
from pytest_gemm.adopt.trial import Attempt
from pytest_gemm.errors import GemmError, SpecError
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

BUILD_VALUES = (16, 32, 8)
"""What is tried for a macro that the build defines."""

_UNKNOWN = re.compile(
    r"['\u2018](?P<gcc>\w+)['\u2019] was not declared"
    r"|undeclared identifier '(?P<clang>\w+)'|identifier \"(?P<nvrtc>\w+)\" is undefined"
)


class Uncompilable(GemmError):
    """The kernel does not compile, whatever it is given."""


@dataclass(frozen=True)
class Found:
    """A reading that was launched on ``problem``; ``others`` are arguments right as well."""

    reading: Reading
    problem: Problem
    attempt: Attempt
    variant: Variant
    others: tuple[tuple[str, ...], ...] = ()

    @property
    def is_exact(self) -> bool:
        return self.attempt.is_exact and not self.attempt.adds and self.attempt.is_clean

    @property
    def is_at_fault(self) -> bool:
        """Whether the kernel itself is wrong, whatever it is given: threads race, or it adds to C
        although it takes alpha or beta."""
        return self.attempt.races or (self.attempt.adds and self.attempt.is_right)

    @property
    def closeness(self) -> tuple[float, ...]:
        """Larger for a reading that comes closer: what misses its matrix is far off."""
        attempt, extent = self.attempt, self.attempt.extent
        total = max(1, self.problem.M * self.problem.N)
        return (
            -len(self.reading.requires),
            not attempt.fault,
            -attempt.strays,
            not extent.is_empty and (extent.is_block or bool(extent.run)),
            attempt.races,
            attempt.is_right,
            -len(attempt.seen),
            -attempt.wrong / total if self.reading.grid != ("1",) else -1.0,
        )


@dataclass
class Search:
    """Looks for the reading of a source's kernel; ``progress`` is told what is tried."""

    source: Source
    prober: Prober
    progress: Callable[[str], None]
    nearest: Found | None = None
    _rank: tuple[float, ...] = ()
    _known: dict[object, list[Arguments]] = field(default_factory=dict)

    def run(self) -> Found | None:
        """The first reading that is exact, on sizes that differ if there is one.

        Otherwise None, and ``nearest`` is what came closest. Raises Uncompilable.
        """
        own = list(self._compiling())
        if not any(self._every(variant, op) for variant in own for op in DIMENSIONS):
            raise self._without_product(own[0])
        for op in self._operations():
            found = self._of_operation(op, own)
            if found is not None:
                return found
            if self.prober.seconds_left < 0 or (self.nearest and self.nearest.is_at_fault):
                return None
        return None

    def _of_operation(self, op: str, own: Sequence[Variant]) -> Found | None:
        """What is not right for squares is right for nothing, and they leave little to try."""
        found = self._on_shape(op, DIFFERENT[op], own, FIRST_DEPTH)
        if found is not None:
            return found
        square = self._on_shape(op, SQUARE[op], own, WHOLE_DEPTH)
        if square is None:
            return None
        variant, block = square.variant, square.reading.block
        same = Depth(None, None, block)
        return (
            self._on_shape(op, DIFFERENT[op], [variant], same)
            or self._on_shape(op, DIFFERENT[op], own, WHOLE_DEPTH)
            or next(
                filter(None, (self._on_shape(op, tied, [variant], same) for tied in TIED[op])),
                square,
            )
        )

    def hinted_grid(self, variant: Variant, args: Sequence[str]) -> tuple[str, ...]:
        """The grid of the launch code, its variables by what the arguments mean."""
        if variant.launch is None:
            return ()
        found = []
        for text in launch_texts(self.source, variant, variant.launch.grid):
            if text is None:
                return ()
            found.append(by_meaning(text, args))
        while len(found) > 1 and found[-1] == "1":
            found.pop()
        return tuple(found)

    def grids(self, found: Found) -> Iterator[tuple[str, ...]]:
        """Grids that may cover C: measured, in the launch code's words where these say the same."""
        variant, problem = found.variant, found.problem
        hint = self.hinted_grid(variant, found.reading.args)
        strides = "gridDim" in self.source.words
        for grid in tiling.grids(self.prober, found.reading, problem, strides=strides):
            yield _in_words(grid, hint, variant, {**problem.sizes, **variant.values})
        if hint:
            yield hint

    def _operations(self) -> list[str]:
        """What the kernel is called decides which comes first."""
        name = self.source.function.name.lower()
        return sorted(DIMENSIONS, key=lambda op: (op == "add") != ("add" in name or "sum" in name))

    def _compiling(self) -> Iterator[Variant]:
        """The variants that compile, with values for macros that the file leaves to its build."""
        reason, count = "", 0
        todo = list(variants(self.source))
        while todo and self.prober.seconds_left > 0:
            this = todo.pop(0)
            self.progress(f"compiling {self._title(this)}")
            text = self._compile_error(this)
            if not text:
                count += 1
                yield this
                continue
            reason = reason or text
            missing = _UNKNOWN.search(text)
            name = next(filter(None, missing.groups()), "") if missing else ""
            if name.isupper() and len(name) > 1 and name not in this.values:
                todo += [this.with_macro(name, value) for value in BUILD_VALUES]
        if not count:
            raise Uncompilable(reason or "there was not enough time to compile the kernel")

    def _compile_error(self, variant: Variant) -> str:
        every = self._every(variant, "gemm") or self._every(variant, "add")
        if not every:
            return ""
        given = every[0]
        more = (*given.kind.keys, *given.keys)
        reading = Reading(variant.entry, given.args, ("1",), ("1",), "0", variant.params, (), more)
        attempt = self.prober.attempt(reading, Problem("gemm", 3, 2, 1))
        return attempt.impossible if attempt.does_not_compile else ""

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

    def _title(self, variant: Variant) -> str:
        values = ", ".join(f"{name} = {value}" for name, value in variant.params)
        return f"{self.source.function.name}" + (f" with {values}" if values else "")

    def _on_shape(
        self, op: str, shape: Shape, variants: Sequence[Variant], depth: Depth
    ) -> Found | None:
        for variant in variants:
            problem = self._problem(variant, op, shape)
            every = blocks(self.source, variant)[: depth.blocks]
            for block in [depth.block] if depth.block else every:
                self.progress(f"{self._title(variant)}: block {' x '.join(block)} on {problem.id}")
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
            if not attempt.is_right and rank >= HINTED:
                continue
            meaning = self._meaning(found, sizes)
            if meaning not in exact and (whole := self._whole(found)):
                exact[meaning] = whole
        if not exact:
            return None
        first, *rest = exact.values()
        return replace(first, others=tuple(self._others(first, rest)))

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
        """The reading with the first grid that makes it exact.

        Where one block alone is wrong, all together may be right: with the launch's grid.
        """
        hint = self.hinted_grid(one_block.variant, one_block.reading.args)
        grids = (
            self.grids(one_block) if one_block.attempt.is_right else iter([hint] if hint else [])
        )
        for grid in grids:
            reading = one_block.reading.with_grid(*grid)
            attempt = self.prober.attempt(reading, one_block.problem)
            found = replace(one_block, reading=reading, attempt=attempt)
            if attempt.adds and not self.source.signature.scalars:
                found = self._adding(found)
            self._note(found)
            if found.is_exact:
                return found
        return None

    def _adding(self, found: Found) -> Found:
        """The reading of a kernel that adds the product to C: it computes with beta = 1."""
        reading = replace(found.reading, more=(*found.reading.more, ("beta", 1)))
        return replace(found, reading=reading, attempt=self.prober.attempt(reading, found.problem))

    def _others(self, first: Found, rest: Sequence[Found]) -> Iterator[tuple[str, ...]]:
        """Arguments that are exact too, and are not the same in other words."""
        if not rest:
            return
        sizes = Sizes(first.problem, first.reading.requires)
        steps = [sizes.moved({group[0]: step}) for group in sizes.groups for step in (1, 8)]
        problems = [p for p in (sizes.with_residues(), *steps) if self._is_exact_on(first, p)]
        for found in rest:
            if all(self._is_exact_on(found, problem) for problem in problems):
                yield found.reading.args

    def _is_exact_on(self, found: Found, problem: Problem) -> bool:
        attempt = self.prober.attempt(found.reading, problem)
        return attempt.is_exact and attempt.is_clean

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
        values = {*variant.values.values()}
        values |= {v for n, v in self.source.constants.items() if n in self.source.words}
        if variant.launch is not None:
            texts = launch_texts(self.source, variant, variant.launch.block)
            values |= {number_of(text, variant.values) or 0 for text in texts}
        side = max([LEAST_SIDE, *(v for v in values if LEAST_SIDE < v <= MOST_SIDE)])
        M, N, K = (factor * side for factor in shape.sides)
        if not shape.requires:
            K = min(K, MOST_DEPTH)
        scalars = len(self.source.signature.scalars) if op == "gemm" else 0
        return Problem(
            op, M, N, K, alpha=2.0 if scalars else 1.0, beta=-1.0 if scalars == 2 else 0.0
        )

    def _note(self, found: Found) -> None:
        """Keep what comes closest; of equals the first, as the likeliest comes first."""
        if found.attempt.impossible:
            return
        primary = self._operations()[0]
        rank = (found.problem.op == primary, *found.closeness)
        if self.nearest is None or rank > self._rank:
            self.nearest, self._rank = found, rank


def by_meaning(text: str, args: Sequence[str]) -> str:
    """An expression of the launch code with what each argument means for its name."""

    def meant(match: re.Match[str]) -> str:
        role = args[int(match[1])]
        return role if role.isalnum() else f"({role})"

    return re.sub(r"\barg(\d+)\b", meant, text).replace("((M * N),", "(M * N,")


def _in_words(
    grid: tuple[str, ...], hint: tuple[str, ...], variant: Variant, values: dict[str, int]
) -> tuple[str, ...]:
    """The grid with parameters for numbers: as in the launch code, else where one has the value."""
    if len(hint) == len(grid) and any(name in " ".join(hint) for name in variant.values):
        other = {**values, "M": 1000, "N": 771, "K": 513}
        pairs = [(a, b, v) for a, b in zip(grid, hint, strict=True) for v in (values, other)]
        if all(number_of(a, known) == number_of(b, known) for a, b, known in pairs):
            return hint
    return tuple(_with_parameter(text, variant) for text in grid)


def _with_parameter(text: str, variant: Variant) -> str:
    def named(match: re.Match[str]) -> str:
        size, number = match[1], int(match[2])
        own = [name for name, value in variant.params if value == number]
        fits = [name for name in own if name.lower().endswith(size.lower())]
        close = fits or (own if len(own) == 1 else [])
        return f"cdiv({size}, {close[0]})" if close else match[0]

    return re.sub(r"cdiv\((M|N), (\d+)\)", named, text)
