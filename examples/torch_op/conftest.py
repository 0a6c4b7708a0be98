"""PyTorch: the operands by DLPack, and the stream made the current one.

On a CPU the arrays are NumPy's, which DLPack takes as well, and one thread is to do the work: the
seconds of several would be added up.
"""

from contextlib import nullcontext

import torch

import pytest_gemm

torch.set_num_threads(1)


@pytest_gemm.kernel(sizes={"host": ["128", "67x45x33"], "cuda": ["1024", "67x45x33"]})
def torch_mm(A, B, C, stream):
    on_gpu = stream is not None
    with torch.cuda.stream(torch.cuda.ExternalStream(stream.ptr)) if on_gpu else nullcontext():
        a, b, c = (torch.from_dlpack(matrix) for matrix in (A, B, C))
        torch.mm(a, b, out=c)
