"""Calls the part of the C++ runtime that watches a launch."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence

from pytest_gemm.backends.base import Argument, LaunchConfig, Matrix
from pytest_gemm.backends.host.check import (
    Accesses,
    CheckReport,
    Finding,
    ThreadOrder,
    Traffic,
)
from pytest_gemm.backends.host.debug_lines import DebugLines
from pytest_gemm.backends.host.faults import CHECK_STACK, Report, kernel_fault
from pytest_gemm.backends.host.findings import FindingReader, RawFinding, fault_finding
from pytest_gemm.backends.host.launch import LoadedKernel, Runtime
from pytest_gemm.backends.host.memory import HostBuffer
from pytest_gemm.errors import KernelFault
from pytest_gemm.problem import ITEMSIZE

MOST_FINDINGS = 64
"""Different ones, of all kinds together."""

_ORDERS = {"ascending": 0, "descending": 1, "random": 2}
_SEED_MASK = 2**64 - 1


class _Counters(ctypes.Structure):
    """``pytest_gemm::Counters`` of ``check.h``."""

    _fields_ = [
        ("loads", ctypes.c_uint64),
        ("load_bytes", ctypes.c_uint64),
        ("stores", ctypes.c_uint64),
        ("store_bytes", ctypes.c_uint64),
        ("atomics", ctypes.c_uint64),
        ("atomic_bytes", ctypes.c_uint64),
    ]

    @property
    def accesses(self) -> Accesses:
        return Accesses(
            self.loads,
            self.load_bytes,
            self.stores,
            self.store_bytes,
            self.atomics,
            self.atomic_bytes,
        )


class _Matrix(ctypes.Structure):
    """``pytest_gemm::CheckedMatrix`` of ``check.h``."""

    _fields_ = [
        ("span_begin", ctypes.c_uint64),
        ("span_end", ctypes.c_uint64),
        ("begin", ctypes.c_uint64),
        ("rows", ctypes.c_uint64),
        ("row_bytes", ctypes.c_uint64),
        ("ld_bytes", ctypes.c_uint64),
        ("batch", ctypes.c_uint64),
        ("stride_bytes", ctypes.c_uint64),
        ("counters", _Counters),
    ]


class _Request(ctypes.Structure):
    """``pytest_gemm::CheckRequest`` of ``check.h``."""

    _fields_ = [
        ("matrices", ctypes.POINTER(_Matrix)),
        ("findings", ctypes.POINTER(RawFinding)),
        ("seed", ctypes.c_uint64),
        ("matrix_count", ctypes.c_uint32),
        ("order", ctypes.c_uint32),
        ("allow_different_barriers", ctypes.c_uint32),
        ("finding_capacity", ctypes.c_uint32),
        ("finding_count", ctypes.c_uint32),
        ("lost_findings", ctypes.c_uint32),
        ("shared", _Counters),
        ("variables", _Counters),
        ("barriers", ctypes.c_uint64),
        ("pc", ctypes.c_uint64),
    ]


def check_launch(
    runtime: Runtime,
    kernel: LoadedKernel,
    lines: DebugLines,
    config: LaunchConfig,
    arguments: Sequence[Argument],
    where: str,
    *,
    order: ThreadOrder,
    timeout: float,
    names: Mapping[int, str],
    describe_address: Callable[[int], str],
) -> CheckReport:
    """Launch once and report. Raises CompileError where the arguments do not fit, BackendError."""
    values = kernel.pack(arguments, where)
    matrices = _distinct(arguments)
    checked = (_Matrix * max(len(matrices), 1))(*_extents(matrices))
    raw = (RawFinding * MOST_FINDINGS)()
    request = _Request(
        matrices=checked,
        findings=raw,
        seed=order.seed & _SEED_MASK,
        matrix_count=len(matrices),
        order=_ORDERS[order.kind],
        allow_different_barriers=config.different_barriers,
        finding_capacity=MOST_FINDINGS,
    )
    report = Report()
    failed = runtime.check(kernel, config, values, timeout, report, request)

    reader = FindingReader(lines, matrices, names, config.shared_mem)
    findings = reader.read(raw[: request.finding_count])
    fault = None
    if failed:
        fault = kernel_fault(
            report, timeout, config.shared_mem, describe_address, stack=CHECK_STACK
        )
        findings = _with_fault(findings, fault, report, request, reader)
    traffic = Traffic(
        {number: checked[i].counters.accesses for i, (number, _) in enumerate(matrices)},
        request.shared.accesses,
        request.variables.accesses,
        request.barriers,
    )
    return CheckReport(findings, traffic, fault, request.lost_findings)


def _with_fault(
    findings: tuple[Finding, ...],
    fault: KernelFault,
    report: Report,
    request: _Request,
    reader: FindingReader,
) -> tuple[Finding, ...]:
    place = reader.place(request.pc)
    finding = fault_finding(fault, report, place)
    if findings and findings[-1].kind in ("timeout", "block-wait"):
        return findings
    # What was found just before the processor refused to do it.
    known = {(f.kind, f.place) for f in findings} | {(f.kind, f.block, f.thread) for f in findings}
    if {(finding.kind, finding.place), (fault.kind, fault.block, fault.thread)} & known:
        return findings
    return (*findings, finding)


def _distinct(arguments: Sequence[Argument]) -> list[tuple[int, Matrix]]:
    """The matrices by their address, with their numbers; one that is given twice counts once."""
    found: dict[int, tuple[int, Matrix]] = {}
    for number, argument in enumerate(arguments, start=1):
        if isinstance(argument, Matrix):
            found.setdefault(_address(argument), (number, argument))
    return [found[address] for address in sorted(found)]


def _address(matrix: Matrix) -> int:
    assert isinstance(matrix.buffer, HostBuffer)
    return matrix.buffer.address + matrix.offset


def _extents(matrices: Sequence[tuple[int, Matrix]]) -> list[_Matrix]:
    """Where each may be accessed, and the memory around it: up to its neighbour in a buffer."""
    extents = []
    for index, (_, matrix) in enumerate(matrices):
        buffer = matrix.buffer
        assert isinstance(buffer, HostBuffer)
        begin, end = buffer.span
        if index and matrices[index - 1][1].buffer is buffer:
            begin = _address(matrix)
        if index + 1 < len(matrices) and matrices[index + 1][1].buffer is buffer:
            end = _address(matrices[index + 1][1])
        item = ITEMSIZE[matrix.dtype]
        extents.append(
            _Matrix(
                begin,
                end,
                _address(matrix),
                matrix.rows,
                matrix.columns * item,
                matrix.ld * item,
                matrix.batch,
                matrix.stride * item,
            )
        )
    return extents
