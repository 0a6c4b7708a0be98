"""How many blocks of a kernel fit on a multiprocessor, by the rules that NVIDIA documents.

Limits: CUDA programming guide, "Compute Capabilities", table "Technical Specifications per Compute
Capability". Granularity of allocation and the blocks of 12.x: ``cuda_occupancy.h`` of the CUDA
toolkit. https://docs.nvidia.com/cuda/cuda-c-programming-guide/#compute-capabilities
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from pytest_gemm.errors import ConfigError

WARP = 32
REGISTERS = 65536
"""Of a multiprocessor, four bytes each; as many may one block have."""

PARTITIONS = 4
"""Parts of a multiprocessor; each has a quarter of its registers, and its own warps."""

REGISTER_UNIT = 256
"""Registers are given to warps in multiples of it."""

MOST_REGISTERS = 255
"""Of a thread."""

MOST_THREADS = 1024
"""Of a block."""


@dataclass(frozen=True)
class Multiprocessor:
    """What one has room for: threads, blocks, bytes of shared memory.

    ``barriers`` are there for each of its blocks, and may all be one block's; 0 where they never
    limit. ``reserved`` bytes of shared memory are taken for each block, which gets it in multiples
    of ``unit`` bytes.
    """

    threads: int
    blocks: int
    shared: int
    barriers: int = 0
    reserved: int = 1024
    unit: int = 128


_KIB = 1024

MULTIPROCESSORS = {
    70: Multiprocessor(2048, 32, 96 * _KIB, reserved=0, unit=256),
    72: Multiprocessor(2048, 32, 96 * _KIB, reserved=0, unit=256),
    75: Multiprocessor(1024, 16, 64 * _KIB, reserved=0, unit=256),
    80: Multiprocessor(2048, 32, 164 * _KIB),
    86: Multiprocessor(1536, 16, 100 * _KIB),
    87: Multiprocessor(1536, 16, 164 * _KIB),
    89: Multiprocessor(1536, 24, 100 * _KIB),
    90: Multiprocessor(2048, 32, 228 * _KIB, 2),
    100: Multiprocessor(2048, 32, 228 * _KIB, 2),
    103: Multiprocessor(2048, 32, 228 * _KIB, 1),
    110: Multiprocessor(1536, 24, 228 * _KIB, 1),
    120: Multiprocessor(1536, 24, 100 * _KIB, 1),
    121: Multiprocessor(1536, 24, 100 * _KIB, 1),
}
"""By compute capability, ten times major plus minor."""

_ARCHITECTURE = re.compile(r"sm_([0-9]{2,3})[af]?")


@dataclass(frozen=True)
class Occupancy:
    """How many blocks a multiprocessor holds, and the fraction of its warps that they fill.

    ``limiter`` says what holds more of them off: ``threads``, ``blocks``, ``registers``,
    ``shared memory`` or ``barriers``. Where ``blocks`` is 0 a launch fails.
    """

    blocks: int
    fraction: float
    limiter: str


def capability(architecture: str) -> int:
    """Ten times major plus minor: 90 for ``sm_90`` and ``sm_90a``. Raises ConfigError."""
    match = _ARCHITECTURE.fullmatch(architecture)
    if match is None or int(match[1]) not in MULTIPROCESSORS:
        known = ", ".join(f"sm_{number}" for number in MULTIPROCESSORS)
        raise ConfigError(f"the architecture {architecture!r} is none of {known}")
    return int(match[1])


def occupancy(
    architecture: str, threads: int, registers: int, shared_bytes: int, barriers: int = 0
) -> Occupancy:
    """The blocks that one multiprocessor of ``architecture`` (``sm_90``) holds at once.

    ``threads`` of a block (at least 1), ``registers`` of a thread, ``shared_bytes`` of a block,
    static and dynamic, ``barriers`` that the block names. Whole warps are resident; each gets
    registers for all its lanes, rounded up, from one of four equal parts of the multiprocessor.
    Where several limits are reached at once, the first in the order of ``Occupancy.limiter`` is
    named. Raises ConfigError for an architecture that is not known.
    """
    sm = MULTIPROCESSORS[capability(architecture)]
    warps = -(-threads // WARP)
    room = {
        "threads": sm.threads // WARP // warps if threads <= MOST_THREADS else 0,
        "blocks": sm.blocks,
        "registers": _by_registers(warps, registers),
        "shared memory": _by_shared(sm, shared_bytes),
        "barriers": sm.blocks * sm.barriers // barriers if sm.barriers and barriers else sm.blocks,
    }
    limiter = min(room, key=lambda name: room[name])
    blocks = room[limiter]
    return Occupancy(blocks, blocks * warps / (sm.threads // WARP), limiter)


def _by_registers(warps: int, registers: int) -> int:
    if registers <= 0:
        return REGISTERS
    of_warp = _rounded_up(registers * WARP, REGISTER_UNIT)
    # A block is refused as if its warps were spread evenly over the parts.
    if registers > MOST_REGISTERS or of_warp * _rounded_up(warps, PARTITIONS) > REGISTERS:
        return 0
    return REGISTERS // PARTITIONS // of_warp * PARTITIONS // warps


def _by_shared(sm: Multiprocessor, nbytes: int) -> int:
    needed = _rounded_up(nbytes + sm.reserved, sm.unit)
    return sm.shared // needed if needed else REGISTERS


def _rounded_up(number: int, unit: int) -> int:
    return -(-number // unit) * unit
