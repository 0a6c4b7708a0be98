"""What a kernel's machine code says, compiled as for a GPU, on a machine that need have none."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import prod

from pytest_gemm.backends.base import CudaProgram
from pytest_gemm.backends.cuda.compiler import Compiler
from pytest_gemm.errors import BackendError, SpecError
from pytest_gemm.kernelspec import Kernel
from pytest_gemm.static.assembler import resources
from pytest_gemm.static.occupancy import capability, occupancy
from pytest_gemm.static.problems import unlike_problems
from pytest_gemm.static.sass import Code, Instruction, assembler_version, read_code, without_inner
from pytest_gemm.static.toolchain import Toolchain

MULTIPLY_ADDS = (
    *("DFMA", "DMMA", "FFMA", "FFMA2", "HFMA2", "HGMMA", "HMMA", "IDP", "IGMMA", "IMMA"),
    *("OMMA", "QGMMA", "QMMA", "UTCHMMA", "UTCIMMA", "UTCQMMA"),
)
"""The opcodes that a product is made of, in float64, float32, half precision and on matrices."""

COUNTED_OPCODES = frozenset(
    {
        *MULTIPLY_ADDS,
        *("ATOM", "ATOMG", "ATOMS", "BAR", "RED", "SHFL"),
        *("LD", "LDG", "LDGSTS", "LDL", "LDS", "LDSM", "UBLKCP", "UTMALDG"),
        *("ST", "STG", "STL", "STS", "STSM", "UTMASTG"),
    }
)
"""What is counted by name beside the number of all instructions."""

Facts = Mapping[str, int]
"""Whole numbers by name.

``registers``, ``stack_bytes``, ``spill_store_bytes``, ``spill_load_bytes`` of a thread;
``static_shared_bytes`` and ``barriers`` of a block; ``threads`` and ``dynamic_shared_bytes`` of its
launch, and ``blocks_per_sm`` (see ``occupancy``), where these do not depend on the problem;
``instructions`` and, by opcode, those of ``COUNTED_OPCODES``; ``loops``; and of the inner loop
``loop.instructions``, ``loop.FFMA`` and so on: of the loop with most multiply-adds, each loop
without those within it. An opcode that does not occur is left out.
"""


@dataclass(frozen=True)
class MachineCode:
    """What was found: the facts, the toolchain that made them, and a digest.

    The toolchain is ``nvrtc 13.5.37`` with flags. The digest is of the facts and of all
    instructions: equal for equal code with an equal launch.
    """

    facts: Facts
    digest: str
    toolchain: str


class Inspector:
    """Compiles and reads each program once for each architecture.

    Sweeps often change the launch alone, and several kernels share a program.
    """

    def __init__(self, toolchain: Toolchain) -> None:
        self._toolchain = toolchain
        self._compilers: dict[str, Compiler] = {}
        self._known: dict[tuple[object, str], MachineCode] = {}

    def inspect(self, kernel: Kernel, architecture: str) -> MachineCode:
        """Compile a kernel of a ``.cu`` file for an architecture such as ``sm_90``.

        As on a GPU, it may use what only that very chip has (``sm_90a``). Raises CompileError, in
        whose first line stand file, line and error, and BackendError where the toolchain cannot be
        used.
        """
        key = tuple(kernel.program_fields), architecture
        if key not in self._known:
            program = CudaProgram(*kernel.program_fields)
            self._known[key] = self._inspect(program, architecture)
        code = self._known[key]
        facts = {**code.facts, **_launched(kernel, code.facts, architecture)}
        text = json.dumps([code.digest, facts], sort_keys=True)
        digest = f"sha256:{hashlib.sha256(text.encode()).hexdigest()[:32]}"
        return replace(code, facts=facts, digest=digest)

    def _inspect(self, program: CudaProgram, architecture: str) -> MachineCode:
        compiler = self._compiler(architecture)
        image = compiler.compile(program)
        needed = resources(self._toolchain.nvrtc.log, image.entry)
        disassembly = self._toolchain.disassembled(image.code)
        code = read_code(disassembly, image.entry)
        version = assembler_version(disassembly) or compiler.version
        flags = [flag for flag in compiler.flags if not flag.startswith("--gpu-architecture")]
        made_by = " ".join(("nvrtc", version, *flags))
        return MachineCode(asdict(needed) | _mix(code), code.digest, made_by)

    def _compiler(self, architecture: str) -> Compiler:
        if architecture not in self._compilers:
            compiler = Compiler(self._toolchain, *divmod(capability(architecture), 10))
            if not compiler.makes_machine_code:
                raise BackendError(
                    f"NVRTC {compiler.version} makes no machine code for {architecture}: take it "
                    "out of gemm_architectures"
                )
            self._compilers[architecture] = compiler
        return self._compilers[architecture]


def _launched(kernel: Kernel, facts: Facts, architecture: str) -> Facts:
    """What the launch adds, where it does not depend on the problem."""
    try:
        launches = [kernel.launch(problem) for problem in unlike_problems(kernel)]
    except SpecError:  # no GPU could launch it there
        return {}
    sizes = {(prod(launch.block), launch.shared_mem) for launch in launches}
    if len(sizes) > 1:
        return {}
    ((threads, dynamic),) = sizes
    shared = facts["static_shared_bytes"] + dynamic
    fitting = occupancy(architecture, threads, facts["registers"], shared, facts["barriers"])
    return {
        "threads": threads,
        "dynamic_shared_bytes": dynamic,
        "blocks_per_sm": fitting.blocks,
    }


def _mix(code: Code) -> dict[str, int]:
    loops = code.loops()
    bodies = [_counts([code.instructions[i] for i in loop]) for loop in without_inner(loops)]
    found = _counts(code.instructions) | {"loops": len(loops)}
    if bodies:
        # A kernel has other loops too, for copies and for what is left of K.
        inner = max(bodies, key=lambda body: (multiply_adds(body), body["instructions"]))
        found |= {f"loop.{name}": count for name, count in inner.items()}
    return found


def _counts(instructions: Sequence[Instruction]) -> dict[str, int]:
    named = Counter(
        i.name
        for i in instructions
        if i.name in COUNTED_OPCODES and (i.name not in MULTIPLY_ADDS or i.multiplies)
    )
    return {"instructions": len(instructions), **named}


def multiply_adds(facts: Facts, prefix: str = "") -> int:
    """How many instructions multiply and add; of the inner loop with the prefix ``loop.``."""
    return sum(facts.get(prefix + name, 0) for name in MULTIPLY_ADDS)
