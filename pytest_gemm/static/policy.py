"""Facts of old and new machine code side by side: what changed, and what of that is worse."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pytest_gemm.static.inspection import COUNTED_OPCODES, MULTIPLY_ADDS, Facts, multiply_adds
from pytest_gemm.static.occupancy import WARP

SPILLS = {
    "spill_store_bytes": "bytes of spill stores",
    "spill_load_bytes": "bytes of spill loads",
    "stack_bytes": "bytes of stack",
}
SIZES = {
    "registers": "registers",
    "threads": "threads of a block",
    "static_shared_bytes": "bytes of static shared memory",
    "dynamic_shared_bytes": "bytes of dynamic shared memory",
    "barriers": "barriers",
}
"""What decides how many blocks fit."""

BLOCKS = {"blocks_per_sm": "blocks per multiprocessor"}
LOOP = {
    "loops": "loops",
    "loop.instructions": "instructions of the inner loop",
    **{f"loop.{name}": f"{name} of the inner loop" for name in sorted(COUNTED_OPCODES)},
}
WHOLE = {"instructions": "instructions", **{name: name for name in sorted(COUNTED_OPCODES)}}

STEP = 0.01
"""The part of the inner loop that its multiply-adds may lose."""


def changes(old: Facts, new: Facts) -> list[str]:
    """``registers 168 -> 184`` and so on, the most telling first; empty where all are the same."""
    return [
        *_moved(SPILLS | SIZES | BLOCKS, old, new),
        *_share_moved(old, new),
        *_moved(LOOP | WHOLE, old, new),
    ]


def worsened(old: Facts, new: Facts) -> list[str]:
    """What of the changes costs time as a rule, a phrase each.

    More local memory (spills, stack); fewer warps on a multiprocessor; an inner loop of which more
    than ``STEP`` less multiplies and adds, or that is unrolled less.
    """
    return [
        *_moved([name for name in SPILLS if new[name] > old[name]], old, new),
        *_fewer_warps(old, new),
        *_poorer_loop(old, new),
    ]


def share(facts: Facts) -> float | None:
    """The part of the inner loop's instructions that multiply and add; None without a loop."""
    count = facts.get("loop.instructions")
    return multiply_adds(facts, "loop.") / count if count else None


def _moved(names: Iterable[str], old: Facts, new: Facts) -> Iterator[str]:
    for name in names:
        if old.get(name, 0) != new.get(name, 0):
            yield f"{_LABELS[name]} {old.get(name, 0)} -> {new.get(name, 0)}"


def _share_moved(old: Facts, new: Facts) -> Iterator[str]:
    before, now = _percent(share(old)), _percent(share(new))
    if before != now:
        yield f"{_product(old, new)} share of the inner loop {before} -> {now}"


def _fewer_warps(old: Facts, new: Facts) -> Iterator[str]:
    before, now = _resident_warps(old), _resident_warps(new)
    if before is not None and now is not None and now < before:
        why = "; ".join(_moved(SIZES, old, new))
        yield f"warps per multiprocessor {before} -> {now} ({why})"


def _resident_warps(facts: Facts) -> int | None:
    if "blocks_per_sm" not in facts:
        return None
    return facts["blocks_per_sm"] * -(-facts["threads"] // WARP)


def _poorer_loop(old: Facts, new: Facts) -> Iterator[str]:
    before, now = share(old), share(new)
    if before is None or now is None:
        return
    if now < before - STEP:
        yield from _share_moved(old, new)
    turns = multiply_adds(old, "loop."), multiply_adds(new, "loop.")
    if turns[1] < turns[0] and (now < before or new["loops"] > old["loops"]):
        loops = "".join(f", {text}" for text in _moved(["loops"], old, new))
        yield (
            f"less is unrolled: {_product(old, new)} in a turn of the inner loop "
            f"{turns[0]} -> {turns[1]}{loops}"
        )


def _product(*all_facts: Facts) -> str:
    """``FFMA``, or what else the inner loops multiply and add with."""
    found = [n for n in MULTIPLY_ADDS if any(facts.get(f"loop.{n}") for facts in all_facts)]
    return " + ".join(found) or "multiply-add"


def _percent(part: float | None) -> str:
    return "none" if part is None else f"{100 * part:.1f} %"


_LABELS = SPILLS | SIZES | BLOCKS | LOOP | WHOLE
