"""Machine code as ``nvdisasm -json`` shows it: instructions, and the loops that they form."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from pytest_gemm.errors import BackendError

BYTES = 16
"""Of an instruction, from Volta on."""

_ENDS = frozenset({"EXIT", "RET", "BRX", "BRXU", "JMX", "JMXU", "KILL"})
"""What nothing follows, unless there is a condition. Where BRX and JMX lead is not known."""

_TARGET = re.compile(r"(?:.*,)?0x(?P<address>[0-9a-f]+)")


@dataclass(frozen=True)
class Instruction:
    """One instruction: ``FFMA.FTZ``, its operands, and whether there is a condition to it."""

    opcode: str
    operands: tuple[str, ...]
    conditional: bool

    @property
    def name(self) -> str:
        """The opcode without its modifiers."""
        return self.opcode.partition(".")[0]

    @property
    def multiplies(self) -> bool:
        """Whether something is multiplied, and not by RZ, as where a register is only set."""
        return not any(operand.lstrip("-|") == "RZ" for operand in self.operands[1:3])

    @property
    def target(self) -> int | None:
        """The index of the instruction that a branch goes to."""
        if self.name not in ("BRA", "JMP"):
            return None
        match = _TARGET.fullmatch(",".join(self.operands))
        return int(match["address"], 16) // BYTES if match else None

    @property
    def goes_on(self) -> bool:
        """Whether the next instruction may follow."""
        if self.name in ("BRA", "JMP"):
            return self.conditional or self.opcode not in ("BRA", "JMP") or len(self.operands) > 1
        return self.conditional or self.name not in _ENDS


@dataclass(frozen=True)
class Code:
    """The instructions of a kernel with all that lies beside it, without the padding."""

    instructions: tuple[Instruction, ...]

    @property
    def digest(self) -> str:
        """The same for the same instructions in the same order."""
        text = "\n".join(f"{i.conditional} {i.opcode} {i.operands}" for i in self.instructions)
        return hashlib.sha256(text.encode()).hexdigest()

    def loops(self) -> list[frozenset[int]]:
        """The indices of each loop's instructions, by where it begins; inner ones by themselves."""
        graph = _Graph.of(self.instructions)
        return [
            frozenset(i for block in body for i in graph.blocks[block]) for body in graph.loops()
        ]


def read_code(disassembly: Any, entry: str) -> Code:
    """The code of an entry, given as it is mangled. Raises BackendError."""
    try:
        _, functions = disassembly
        (function,) = (f for f in functions if f["function-name"] == entry)
        found = [_instruction(entry) for entry in function["sass-instructions"]]
    except (KeyError, TypeError, ValueError, AttributeError):
        raise BackendError(f"nvdisasm shows {entry} in a form that is not known") from None
    # Behind the end stands a jump to itself, then nothing.
    while found and (found[-1].name == "NOP" or found[-1].target == len(found) - 1):
        found.pop()
    return Code(tuple(found))


def assembler_version(disassembly: Any) -> str:
    """``13.5.37``, of the assembler that wrote the code; empty where that is not noted."""
    try:
        noted = disassembly[0][".note.nv.tkinfo"]["tki_toolVersion"]
    except (KeyError, TypeError, IndexError):
        return ""
    match = re.search(r"V([0-9.]+)", noted)
    return match[1] if match else ""


def _instruction(entry: Mapping[str, str]) -> Instruction:
    operands = entry.get("operands", "")
    predicate = entry.get("predicate", "")
    return Instruction(entry["opcode"], tuple(operands.split(",")), predicate.startswith("@"))


@dataclass(frozen=True)
class _Graph:
    """Basic blocks (ranges of indices) with the blocks that may follow each.

    The last block has no instructions. The first one follows it, and so does the first of whatever
    else cannot be reached: a function that is called.
    """

    blocks: Sequence[range]
    followers: Sequence[frozenset[int]]

    @classmethod
    def of(cls, instructions: Sequence[Instruction]) -> _Graph:
        count = len(instructions)
        starts = {0}
        for index, instruction in enumerate(instructions):
            target = instruction.target
            if target is not None or not instruction.goes_on:
                starts.add(index + 1)
            if target is not None:
                starts.add(target)
        bounds = [*sorted(start for start in starts if 0 <= start < count), count]
        blocks = [range(start, end) for start, end in pairwise(bounds)]
        number = {block.start: i for i, block in enumerate(blocks)}
        followers = []
        for i, block in enumerate(blocks):
            last = instructions[block[-1]]
            after = {number[last.target]} if last.target in number else set()
            if last.goes_on and i + 1 < len(blocks):
                after.add(i + 1)
            followers.append(frozenset(after))
        roots, reached = set(), set()
        for i in range(len(blocks)):
            if i not in reached:
                roots.add(i)
                reached.update(_order(followers, i))
        return cls([*blocks, range(0)], [*followers, frozenset(roots)])

    def loops(self) -> list[frozenset[int]]:
        """The blocks of every natural loop: what can come back to a block that leads to them all.

        Aho, Lam, Sethi, Ullman: Compilers, 9.6.6.
        """
        dominators = self._dominators()
        before: dict[int, set[int]] = {}
        for block, after in enumerate(self.followers):
            for follower in after:
                before.setdefault(follower, set()).add(block)
        bodies: dict[int, set[int]] = {}
        for block, after in enumerate(self.followers):
            for head in after & dominators[block]:
                body = bodies.setdefault(head, {head})
                waiting = [block]
                while waiting:
                    member = waiting.pop()
                    if member not in body:
                        body.add(member)
                        waiting += before.get(member, ())
        return [frozenset(bodies[head]) for head in sorted(bodies)]

    def _dominators(self) -> list[frozenset[int]]:
        """For each block those that every way to it from the last one leads through."""
        root = len(self.blocks) - 1
        order = _order(self.followers, root)
        before: dict[int, list[int]] = {block: [] for block in order}
        for block in order:
            for follower in self.followers[block]:
                before[follower].append(block)
        everything = frozenset(order)
        found = [everything] * (root + 1)
        found[root] = frozenset({root})
        changed = True
        while changed:
            changed = False
            for block in order[1:]:
                own = everything.intersection(*(found[b] for b in before[block])) | {block}
                changed |= own != found[block]
                found[block] = own
        return found


def _order(followers: Sequence[frozenset[int]], root: int) -> list[int]:
    """All blocks that can be reached from one, each before most of its followers."""
    done: list[int] = []
    seen = {root}
    stack = [(root, iter(sorted(followers[root])))]
    while stack:
        block, rest = stack[-1]
        follower = next((f for f in rest if f not in seen), None)
        if follower is None:
            done.append(block)
            stack.pop()
        else:
            seen.add(follower)
            stack.append((follower, iter(sorted(followers[follower]))))
    return done[::-1]


def without_inner(loops: Iterable[frozenset[int]]) -> list[frozenset[int]]:
    """Each loop without what belongs to loops within it."""
    known = list(loops)
    return [loop.difference(*(other for other in known if other < loop)) for loop in known]
