"""What the assembler says that a kernel takes: the lines that ``ptxas -v`` writes into a log."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pytest_gemm.errors import BackendError

_ENTRY = re.compile(r"Compiling entry function '(?P<name>[^']*)' for")
_SPILLS = re.compile(
    r"(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, "
    r"(?P<loads>\d+) bytes spill loads"
)
_REGISTERS = re.compile(r"Used (?P<registers>\d+) registers")
_OTHERS = {
    "barriers": re.compile(r"used (\d+) barriers"),
    "stack_bytes": re.compile(r"(\d+) bytes cumulative stack size"),
    "static_shared_bytes": re.compile(r"\b(\d+) bytes smem"),
}


@dataclass(frozen=True)
class Resources:
    """What a thread takes (registers, bytes of stack and of spills), and a block (the rest)."""

    registers: int
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int
    static_shared_bytes: int
    barriers: int


def resources(log: str, entry: str) -> Resources:
    """What the log says of an entry, given as it is mangled, and of the functions it calls.

    Raises BackendError where the log does not say it: a missing number is never taken for zero.
    """
    part = _part(log, entry)
    spills = [match for line in part if (match := _SPILLS.search(line))]
    used = next((line for line in part if _REGISTERS.search(line)), "")
    if not used or not spills:
        raise BackendError(f"NVRTC's log has no lines of ptxas -v about {entry}")
    others = {name: pattern.search(used) for name, pattern in _OTHERS.items()}
    # Each of these stands in the line only where it is not zero.
    numbers = {name: int(match[1]) if match else 0 for name, match in others.items()}
    numbers["stack_bytes"] = max(numbers["stack_bytes"], int(spills[0]["stack"]))
    match = _REGISTERS.search(used)
    assert match is not None
    return Resources(
        registers=int(match["registers"]),
        spill_store_bytes=sum(int(spill["stores"]) for spill in spills),
        spill_load_bytes=sum(int(spill["loads"]) for spill in spills),
        **numbers,
    )


def _part(log: str, entry: str) -> list[str]:
    """The lines about an entry: from where it is named to the next one."""
    part: list[str] = []
    inside = False
    for line in log.splitlines():
        if match := _ENTRY.search(line):
            inside = match["name"] == entry
        elif inside:
            part.append(line)
    return part
