"""Sentences on a reading that an author would want to know."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from pytest_gemm.adopt.found import Found
from pytest_gemm.adopt.prober import Prober
from pytest_gemm.adopt.reading import Reading
from pytest_gemm.adopt.refining import PADDING, distance_of, with_padding
from pytest_gemm.adopt.sizes import Sizes
from pytest_gemm.adopt.source import Source
from pytest_gemm.adopt.variant import Variant, hinted_grid, launch_texts, number_of
from pytest_gemm.kernelspec import SCALARS
from pytest_gemm.problem import BATCH, Problem


def on_keys(reading: Reading) -> Iterator[str]:
    """What keys mean that one does not expect."""
    own = [(name, value) for name, value in reading.more if name in SCALARS]
    if own == [("beta", 1)]:
        yield "it adds the product to what C holds, which is beta = 1"
    elif own:
        declared = ", ".join(f"{name} = {value}" for name, value in own)
        yield f"the kernel multiplies by constants, which are declared: {declared}"
    if ("different_barriers", True) in reading.more:
        yield "threads of a block pass one barrier in different lines, as a GPU allows"


def why_equal(prober: Prober, found: Found) -> Iterator[str]:
    """Why sizes must be equal: what the reading does where they are not."""
    ties = found.reading.requires
    if not ties:
        return
    what = "squares" if len(ties) > 1 or found.problem.op == "add" else ties[0]
    others = Sizes(found.problem, ()).with_residues()
    side = Sizes(found.problem, ()).side
    rectangle = replace(others, M=3 * side, N=2 * side, K=side if others.K else 0)
    attempt = prober.attempt(replace(found.reading, requires=()), rectangle)
    yield f"correct for {what} only: on {rectangle.id}, {attempt.first_fault}"


def on_launch(source: Source, prober: Prober, found: Found, reading: Reading) -> Iterator[str]:
    """Where the launch code in the file would not compute what this reading does."""
    launch = found.variant.launch
    hint = hinted_grid(source, found.variant, found.reading.args)
    if launch is None or not any(re.search(r"\b[MN]\b", text) for text in hint):
        return
    whole_tiles = any("%" in condition for condition in reading.requires)
    odd = Sizes(found.problem, found.reading.requires).with_residues()
    problem = found.problem if whole_tiles else odd
    if launch.has_equal_sizes:
        problem = replace(problem, M=problem.N, K=problem.N if problem.K else 0)
    values = {**problem.sizes, **found.variant.values}
    own = [number_of(text, values) for text in found.reading.grid]
    theirs = [number_of(text, values) for text in hint]
    if own == theirs or None in theirs:
        return
    attempt = prober.attempt(found.reading.with_grid(*hint), problem)
    if not attempt.is_exact:
        yield (
            f"the launch in line {launch.line} has another grid, [{', '.join(hint)}]: with it, on "
            f"{problem.id}, {attempt.first_fault}"
        )


def on_block(source: Source, variant: Variant) -> Iterator[str]:
    """Where the launch code has a block that grows with the problem."""
    launch = variant.launch
    texts = launch_texts(source, variant, launch.block) if launch else []
    if launch and any(re.search(r"\barg\d", text or "") for text in texts):
        yield (
            f"the launch in line {launch.line} has a block as long as an argument, which is not "
            "tried: declare it by hand"
        )


def on_layers(source: Source, reading: Reading) -> Iterator[str]:
    """Where a kernel tells blocks apart that the declared grid does not have."""
    if source.has_layers and len(reading.grid) < 3:
        yield (
            "it reads blockIdx.z, and the grid that is declared has one layer: if K is split "
            "between blocks, declare grid and args by hand"
        )


def on_rows(source: Source, prober: Prober, reading: Reading, problem: Problem) -> Iterator[str]:
    """Where what is called the distance between rows is right only without a gap between them."""
    for position in source.signature.integers:
        parameter = source.signature.names[position]
        if name := distance_of(parameter):
            other = with_padding(reading, problem, position, name)
            if other and not (attempt := prober.attempt(*other)).is_exact:
                size = reading.args[position]
                yield (
                    f"{parameter} gets {size}, as rows may have no gap: with {name} = {size} + "
                    f"{PADDING}, on {other[1].id}, {attempt.first_fault}"
                )


def on_ambiguity(source: Source, found: Found, reading: Reading) -> Iterator[str]:
    own = found.reading.args
    fixed = [i for i, arg in enumerate(own) if arg.isdecimal()]  # such as whether A is transposed
    batch = [i for i, arg in enumerate(reading.args) if arg in BATCH]  # which several products told
    others = [
        args
        for args in found.others
        if all(args[i] == own[i] for i in fixed)
        and any(args[i] != own[i] for i in range(len(own)) if i not in batch)
    ]
    if not others or own == tuple(source.signature.names):
        return
    texts = [f"[{', '.join(args)}]" for args in others]
    yield (
        f"other arguments are exact as well, and names decided: {' or '.join(texts)}; "
        "choose by what the author meant"
    )
