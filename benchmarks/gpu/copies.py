"""What a device copies in a second: CUDA's own copy, in a graph and not, and a kernel in one.

    python benchmarks/gpu/copies.py [--out FILE.txt]

Prints the table in docs/gpu.md. Needs CuPy, an NVIDIA GPU and 6 GiB of its memory. Copies as many
as 2 ms take are a sample, of which there are seven; the rate is twice the bytes over the median.
Outside of a graph small copies would wait for the CPU: they are left out.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import cupy

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from pytest_gemm.backends.cuda import reference

KIB, MIB = 2**10, 2**20
SIZES = (
    *(16 * KIB, 256 * KIB, 4 * MIB, 64 * MIB, 256 * MIB, 448 * MIB, 511 * MIB, 512 * MIB),
    *(513 * MIB, 520 * MIB, 576 * MIB, 640 * MIB, 700 * MIB, 768 * MIB, 1023 * MIB, 1024 * MIB),
    *(1025 * MIB, 1536 * MIB, 1792 * MIB, 2048 * MIB, 3071 * MIB),
)
LEAST, SAMPLES, QUEUED = 2e-3, 7, 64 * MIB


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--out", type=Path)
    out = parser.parse_args().out
    properties = cupy.cuda.runtime.getDeviceProperties(0)
    version = cupy.cuda.runtime.driverGetVersion()
    lines = [
        f"{properties['name'].decode()}, CUDA {version // 1000}.{version % 1000 // 10}",
        "",
        "| bytes | a graph's copy, TB/s | outside of a graph | a kernel in a graph |",
        "| ---: | ---: | ---: | ---: |",
    ]
    lines += [row(nbytes) for nbytes in SIZES]
    text = "\n".join(lines)
    print(text)
    if out:
        out.write_text(f"{text}\n", encoding="utf-8")
    return 0


def row(nbytes: int) -> str:
    """The rates of copying so many bytes."""
    A, C = (cupy.zeros(nbytes // 4, "float32") for _ in range(2))
    vectors = nbytes // reference.VECTOR
    blocks = -(-vectors // reference.THREADS)

    def node(stream: Any) -> None:
        C.data.copy_from_device_async(A.data, nbytes, stream)

    def kernel(stream: Any) -> None:
        launch = (blocks,), (reference.THREADS,), (A, C, vectors)
        reference._copier()(*launch, stream=stream)

    named = f"{nbytes // MIB} MiB" if nbytes >= MIB else f"{nbytes // KIB} KiB"
    ways = (node, True), (node, False), (kernel, True)
    rates = [
        f"{2 * nbytes / seconds(copy, nbytes, captured) / 1e12:#.3g}"
        if captured or nbytes >= QUEUED
        else ""
        for copy, captured in ways
    ]
    return f"| {named} | {' | '.join(rates)} |"


def seconds(copy: Callable[[Any], None], nbytes: int, captured: bool) -> float:
    """The median over samples, of one copy."""
    stream = cupy.cuda.Stream(non_blocking=True)
    count = max(1, min(1000, round(LEAST / (1e-6 + nbytes / 2e12))))
    with stream:
        copy(stream)
        stream.synchronize()
        if captured:
            stream.begin_capture()
        repeat(copy, stream, count)
        sample = partial(repeat, copy, stream, count)
        if captured:
            sample = partial(stream.end_capture().launch, stream)
            sample()
        return statistics.median(timed(sample, stream) for _ in range(SAMPLES)) / count


def repeat(copy: Callable[[Any], None], stream: Any, count: int) -> None:
    for _ in range(count):
        copy(stream)


def timed(sample: Callable[[], None], stream: Any) -> float:
    start, end = cupy.cuda.Event(), cupy.cuda.Event()
    start.record(stream)
    sample()
    end.record(stream)
    end.synchronize()
    return float(cupy.cuda.get_elapsed_time(start, end)) / 1e3


if __name__ == "__main__":
    sys.exit(main())
