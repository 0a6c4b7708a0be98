"""What the runtime reports of a checked launch, as findings with lines and sentences."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pytest_gemm.backends.base import Matrix
from pytest_gemm.backends.host.check import Finding, Place
from pytest_gemm.backends.host.debug_lines import DebugLines
from pytest_gemm.backends.host.faults import Index, Report, text_of
from pytest_gemm.errors import KernelFault
from pytest_gemm.problem import ITEMSIZE

_OWN_HEADERS = str(Path(__file__).parent / "cpp")
_DYNAMIC, _STATIC, _WILD, _VARIABLE = -2, -3, -4, -5

_ALIAS = re.compile(r"'[^']*' \(aka ('[^']*')\)")
"""How clang names a type: by its alias first."""

_KINDS = (
    "none",
    "out-of-bounds",
    "race",
    "uninitialized",
    "misaligned",
    "array-index",
    "overflow",
    "division-by-zero",
    "shift",
    "truncation",
    "waiting",
)
"""By ``pytest_gemm::FindingKind``."""


class RawFinding(ctypes.Structure):
    """``pytest_gemm::Finding`` of ``cpp/runtime/check.h``, field by field."""

    _fields_ = [
        ("kind", ctypes.c_int32),
        ("is_write", ctypes.c_int32),
        ("other_is_write", ctypes.c_int32),
        ("region", ctypes.c_int32),
        ("offset", ctypes.c_int64),
        ("address", ctypes.c_uint64),
        ("size", ctypes.c_uint32),
        ("count", ctypes.c_uint32),
        ("pc", ctypes.c_uint64),
        ("other_pc", ctypes.c_uint64),
        ("block", Index),
        ("thread", Index),
        ("other_block", Index),
        ("other_thread", Index),
        ("line", ctypes.c_int32),
        ("element_size", ctypes.c_uint32),
        ("extents", ctypes.c_uint32 * 4),
        ("values", ctypes.c_int64 * 2),
        ("text", ctypes.c_char * 128),
        ("name", ctypes.c_char * 64),
        ("file", ctypes.c_char * 512),
    ]


@dataclass(frozen=True)
class _Target:
    """What an access meant: ``name`` with the element, ``outside`` how it misses."""

    name: str = ""
    outside: str = ""
    argument: int | None = None
    row: int | None = None
    column: int | None = None
    shared: str | None = None
    variable: str | None = None
    index: tuple[int, ...] = ()


class FindingReader:
    """Turns the runtime's findings of one launch into sentences.

    ``matrices`` are the arguments that are matrices, in the runtime's order, with their numbers
    (from 1); ``names`` what an argument is called.
    """

    def __init__(
        self,
        lines: DebugLines,
        matrices: Sequence[tuple[int, Matrix]],
        names: Mapping[int, str],
        shared_bytes: int,
    ) -> None:
        self._lines = lines
        self._matrices = matrices
        self._names = names
        self._shared_bytes = shared_bytes

    def read(self, raw: Sequence[RawFinding]) -> tuple[Finding, ...]:
        """The first finding of each kind and line; ``count`` is that of all of them."""
        found: dict[tuple[str, Place], Finding] = {}
        for item in raw:
            finding = self._read(item)
            key = (finding.kind, finding.place)
            if key in found:
                finding = _joined(found[key], finding)
            found[key] = finding
        return tuple(found.values())

    def place(self, pc: int) -> Place:
        """The user's line of an instruction: where its function came from a header of ours and
        was inlined, that of the call."""
        # It is where a call of the runtime returns to, and the call itself is wanted.
        frames = self._lines.frames(pc - 1) if pc else []
        for frame in frames:
            if not frame.file.startswith(_OWN_HEADERS):
                return Place(frame.file, frame.line)
        return Place()

    def _read(self, raw: RawFinding) -> Finding:
        kind = _KINDS[raw.kind]
        if kind == "waiting":
            is_global = raw.region >= 0 or raw.region == _VARIABLE
            kind = "block-wait" if is_global else "timeout"
        target = self._target(raw)
        place = self.place(raw.pc)
        file = text_of(raw.file)
        if raw.line and (not place.line or not file.startswith(_OWN_HEADERS)):
            place = Place(file, raw.line)
        other_place = self.place(raw.other_pc)
        finding = Finding(
            kind,
            "",
            place,
            other_place,
            raw.block.dim3,
            raw.thread.dim3,
            argument=target.argument,
            row=target.row,
            column=target.column,
            shared=target.shared,
            variable=target.variable,
            index=target.index,
            count=raw.count,
        )
        if kind == "race":
            finding = replace(
                finding, other_block=raw.other_block.dim3, other_thread=raw.other_thread.dim3
            )
        return replace(finding, message=_sentence(finding, raw, target))

    def _target(self, raw: RawFinding) -> _Target:
        if raw.region >= 0:
            return self._element(raw)
        if raw.region in (_STATIC, _VARIABLE):
            return _array_element(raw)
        if raw.region == _DYNAMIC:
            index = raw.offset // 4
            where = _distance(raw.offset, self._shared_bytes)
            outside = f"{where} of dynamic shared memory, which has {self._shared_bytes} bytes"
            name = f"dynamic shared memory at byte {raw.offset}"
            return _Target(name, outside, shared="dynamic shared memory", index=(index,))
        if raw.region == _WILD:
            near = "a null pointer" if raw.address < 4096 else f"address {raw.address:#x}"
            return _Target(near, f"{near}, which is near no argument and no shared array")
        return _Target()

    def _element(self, raw: RawFinding) -> _Target:
        number, matrix = self._matrices[raw.region]
        name = self._names.get(number) or f"argument {number}"
        item = ITEMSIZE[matrix.dtype]
        index, inner = (
            divmod(raw.offset, matrix.stride * item) if matrix.batch > 1 else (0, raw.offset)
        )
        row, byte = divmod(inner, matrix.ld * item)
        column = byte // item
        used = (matrix.elements - matrix.ld + matrix.columns) * item
        sides = [matrix.rows, matrix.columns]
        place = [row, column]
        if matrix.by_columns:
            sides, place = sides[::-1], place[::-1]
        if matrix.batch > 1:
            sides, place = [matrix.batch, *sides], [index, *place]
        shape = f"which has {' x '.join(map(str, sides))} elements"
        at = f"{name}{place}"
        if 0 <= raw.offset < used:
            outside = f"{at}, {shape}"
        else:
            outside = f"{_distance(raw.offset, used)} of {name}, {shape}"
        return _Target(at, outside, number, *place[-2:])


def _joined(first: Finding, second: Finding) -> Finding:
    """The first, unless only the second knows what was accessed."""
    known = next((f for f in (first, second) if f.argument or f.shared or f.variable), first)
    return replace(known, count=first.count + second.count)


def _array_element(raw: RawFinding) -> _Target:
    name = text_of(raw.name)
    extents = [extent for extent in raw.extents if extent]
    total = raw.element_size
    for extent in extents:
        total *= extent
    flat = raw.offset // raw.element_size
    index = []
    for extent in reversed(extents[1:]):
        flat, last = divmod(flat, extent)
        index.append(last)
    place = (flat, *reversed(index)) if extents else ()
    shown = name + "".join(f"[{i}]" for i in place)
    declared = name + "".join(f"[{extent}]" for extent in extents)
    outside = f"{_distance(raw.offset, total)} of {declared}"
    if raw.region == _VARIABLE:
        return _Target(shown, outside, variable=name, index=place)
    return _Target(shown, outside, shared=name, index=place)


def _distance(offset: int, size: int) -> str:
    """``4 bytes past the end``, from a byte's offset and the size of what it misses."""
    if offset < 0:
        return f"{-offset} bytes before the start"
    return f"{offset - size} bytes past the end"


def _sentence(finding: Finding, raw: RawFinding, target: _Target) -> str:
    kind = finding.kind
    who = f"thread {finding.thread} of block {finding.block}"
    verb = {0: "reads", 1: "writes"}.get(raw.is_write, "accesses")
    text = _ALIAS.sub(r"\1", text_of(raw.text).strip())
    a, b = raw.values
    if kind == "out-of-bounds":
        access = {0: "read", 1: "write"}.get(raw.is_write, "access")
        size = f" of {raw.size} bytes" if raw.size else ""
        return f"out-of-bounds {access}{size}: {who} {verb} {target.outside}"
    if kind == "race":
        other_verb = "writes" if raw.other_is_write else "reads"
        other_line = f" in {_beside(finding)}" if finding.other_place.line else ""
        if finding.block == finding.other_block:
            return (
                f"race in block {finding.block}: thread {finding.thread} {verb} {target.name}, "
                f"thread {finding.other_thread} {other_verb} it{other_line}, and no barrier is "
                "between them"
            )
        return (
            f"race between blocks: {who} {verb} {target.name}, thread {finding.other_thread} of "
            f"block {finding.other_block} {other_verb} it{other_line}, and blocks run in any order"
        )
    if kind == "uninitialized":
        return f"{who} reads {target.name}, which no thread of the block has written"
    if kind == "block-wait":
        return (
            f"{who} reads {target.name} again and again: it waits for another block, and blocks "
            "need not run at the same time"
        )
    if kind == "timeout":
        return (
            f"{who} reads {target.name} again and again: it waits for another thread without a "
            "barrier"
        )
    if kind == "misaligned":
        if raw.region != -1:
            return (
                f"misaligned vector access: {who} {verb} {raw.size} bytes at {target.name}, whose "
                f"address is no multiple of {raw.size}"
            )
        return f"misaligned access: {who} uses an address as {text} that is no multiple of {b}"
    if kind == "array-index":
        return f"index {a} is outside of an array of type {text}: {who}"
    if kind == "overflow":
        operation, _, name = text.partition(" ")
        return f"integer overflow: {a} {operation} {b} does not fit in {name}: {who}"
    if kind == "truncation":
        return f"truncation: {a} does not fit in {text} and becomes {b}: {who}"
    if kind == "shift":
        _, _, name = text.partition(" ")
        return f"shift by {b} of a value of type {name}: {who}"
    return f"integer division by zero: {a} / {b}: {who}"


def _beside(finding: Finding) -> str:
    if finding.other_place.file == finding.place.file:
        return f"line {finding.other_place.line}"
    return str(finding.other_place)


def fault_finding(fault: KernelFault, report: Report, place: Place) -> Finding:
    """The finding of a fault that ended the launch; ``place`` is where the program stood."""
    message = str(fault)
    other = Place()
    if report.line:
        place = Place(text_of(report.file), report.line)
        message = message.removeprefix(f"{place}: ")
    if report.other_line:
        other = Place(text_of(report.other_file), report.other_line)
    return Finding(
        fault.kind,
        message,
        place,
        other,
        fault.block,
        fault.thread,
        other_thread=report.other_thread.dim3 if report.detail else None,
    )
