"""What the runtime reports of a kernel's fault, as a sentence."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from pytest_gemm.backends.base import Dim3
from pytest_gemm.errors import KernelFault


class Index(ctypes.Structure):
    """``uint3`` of the C++ side."""

    _fields_ = [(axis, ctypes.c_uint32) for axis in "xyz"]

    @property
    def dim3(self) -> Dim3:
        """As a tuple."""
        return self.x, self.y, self.z


class Report(ctypes.Structure):
    """``pytest_gemm::Report`` of ``cpp/runtime/runtime.h``, field by field."""

    _fields_ = [
        ("fault", ctypes.c_int32),
        ("detail", ctypes.c_int32),
        ("block", Index),
        ("thread", Index),
        ("other_thread", Index),
        ("address", ctypes.c_uint64),
        ("is_write", ctypes.c_int32),
        ("line", ctypes.c_int32),
        ("other_line", ctypes.c_int32),
        ("file", ctypes.c_char * 512),
        ("other_file", ctypes.c_char * 512),
        ("text", ctypes.c_char * 512),
        ("pc", ctypes.c_uint64),
    ]


KINDS = (
    "none",
    "out-of-bounds",
    "barrier-divergence",
    "timeout",
    "division-by-zero",
    "misaligned",
    "assert",
    "trap",
    "stack-overflow",
    "shuffle",
    "interrupted",
    "exit",
)
"""By ``pytest_gemm::Fault``; all but ``none`` and ``interrupted`` are kinds of KernelFault."""

_DETAILS = {
    1: "thread {thread} exited while thread {other} waits at the barrier in {place}",
    2: "thread {thread} waits at the barrier in {place}, thread {other} at the one in"
    " {other_place}",
    3: "thread {thread} waits in the warp operation in {place} for lanes that never come, while"
    " thread {other} waits at the barrier in {other_place}",
    4: "thread {thread} waits in the warp operation in {place} for thread {other}, which exited",
    5: "thread {thread} calls the warp operation in {place} with a mask that leaves its own lane"
    " out",
    6: "thread {thread} waits in the warp operation in {place} for lanes that never come, thread"
    " {other} in the one in {other_place}",
}
_PAST_SHARED_MEMORY = 7

STACK, CHECK_STACK = 64, 256
"""KiB of a thread's stack: see ``cpp/runtime/launch.cpp``."""


def kernel_fault(
    report: Report,
    timeout: float,
    shared_bytes: int,
    describe_address: Callable[[int], str],
    *,
    stack: int = STACK,
) -> KernelFault:
    """The exception for a report; ``describe_address`` says where an address lies.

    ``stack`` is what a thread has for its local variables, in KiB.
    """
    kind = KINDS[report.fault]
    thread, block = report.thread.dim3, report.block.dim3
    place = f"{text_of(report.file)}:{report.line}"
    where = f"in block {block}, thread {thread}"
    if report.detail in _DETAILS:
        other_file = (
            "line " if report.other_file == report.file else f"{text_of(report.other_file)}:"
        )
        sentence = _DETAILS[report.detail].format(
            thread=thread,
            place=place,
            other=report.other_thread.dim3,
            other_place=f"{other_file}{report.other_line}",
        )
        message = f"{'barrier divergence' if kind == 'barrier-divergence' else 'warp fault'} in"
        message += f" block {block}: {sentence}"
    elif kind == "out-of-bounds":
        access = {0: "read", 1: "write"}.get(report.is_write, "access")
        if report.detail == _PAST_SHARED_MEMORY:
            past = report.address - shared_bytes
            address = f"{past} bytes past the end of dynamic shared memory ({shared_bytes} bytes)"
        else:
            address = describe_address(report.address)
        message = f"out-of-bounds {access} {where}: {address}"
    elif kind == "timeout":
        message = f"one launch took longer than {timeout:g} s: it was stopped {where}"
    elif kind == "division-by-zero":
        message = f"integer division by zero {where}"
    elif kind == "misaligned":
        message = f"misaligned vector access or wild pointer {where}"
    elif kind == "assert":
        message = f"{place}: assertion `{text_of(report.text)}` failed {where}"
    elif kind == "trap":
        message = f"{place}: __trap() {where}" if report.line else f"illegal instruction {where}"
    elif kind == "exit":
        message = (
            f"{text_of(report.text)}() would end the process {where}: a kernel must not call it"
        )
    else:
        message = f"stack overflow {where}: a thread has {stack} KiB for its local variables"
    return KernelFault(kind, message, block=block, thread=thread)


def text_of(value: bytes) -> str:
    """A text of the runtime's."""
    return value.decode(errors="replace")
