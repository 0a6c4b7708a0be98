"""What a failed CUDA call says of the kernel, as a KernelFault."""

from __future__ import annotations

from pytest_gemm.errors import KernelFault

LOST = "no other kernel can run in its process"

_SENTENCES = {
    "illegaladdress": ("out-of-bounds", "out-of-bounds access to memory"),
    "misalignedaddress": ("misaligned", "misaligned access to memory"),
    "assert": ("assert", "an assertion failed (its text is in the captured output)"),
    "illegalinstruction": ("trap", "illegal instruction"),
    "hardwarestackerror": ("stack-overflow", "stack overflow, or a corrupted stack"),
    "launchtimeout": ("timeout", "the launch was stopped by the display driver's time limit"),
    "launchfailure": ("cuda", "the kernel failed, as after __trap()"),
    "launchfailed": ("cuda", "the kernel failed, as after __trap()"),
    "launchoutofresources": ("cuda", "the block needs more registers or memory than there are"),
}


def error_name(error: Exception) -> str:
    """``cudaErrorIllegalAddress`` or ``CUDA_ERROR_ILLEGAL_ADDRESS``."""
    return str(error).partition(":")[0]


def kernel_fault(error: Exception, *, lost: bool) -> KernelFault:
    """The exception for a CUDA error; ``lost`` says that nothing works after it."""
    name = error_name(error)
    key = name.removeprefix("cudaError").removeprefix("CUDA_ERROR_").replace("_", "").lower()
    if key in _SENTENCES:
        kind, sentence = _SENTENCES[key]
        text = f"{sentence} ({name})"
    else:
        kind, text = "cuda", str(error)
    return KernelFault(kind, f"{text}; {LOST}" if lost else text)
