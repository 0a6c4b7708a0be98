"""Python kernels that do to their process what no test run should suffer from."""

import ctypes
import os
import signal
import sys

import numpy as np

import pytest_gemm


@pytest_gemm.kernel(sizes=[64])
def aborts(A, B, C):
    """Calls abort()."""
    os.abort()


@pytest_gemm.kernel(sizes=[64])
def ends_the_process(A, B, C):
    """Ends its process with os._exit(3)."""
    os._exit(3)


@pytest_gemm.kernel(sizes=[64])
def is_killed(A, B, C):
    """Kills its process, as the system does for lack of memory."""
    os.kill(os.getpid(), signal.SIGKILL)


@pytest_gemm.kernel(sizes=[64])
def reads_address_zero(A, B, C):
    """Reads address 0 in C."""
    ctypes.string_at(0)


@pytest_gemm.kernel(sizes=[64])
def calls_sys_exit(A, B, C):
    """Calls sys.exit()."""
    sys.exit("goodbye")


@pytest_gemm.kernel(sizes=[64])
def sleeps_forever(A, B, C):
    """Never returns from Python."""
    while True:
        pass


@pytest_gemm.kernel(sizes=[64])
def wants_all_memory(A, B, C):
    """Allocates more memory than there is."""
    np.empty_like(C, shape=(2**48,))


@pytest_gemm.kernel(sizes=["64", "8000000x8000000x1"], deterministic=False)
def too_large_a_problem(A, B, C):
    C[:] = A @ B
