"""Holds ``pytest_gemm.static.occupancy`` against NVIDIA's own ``cuda_occupancy.h``.

    python benchmarks/occupancy.py FOLDER

FOLDER holds the header (``.../nvidia/cu13/include`` where ``pytest-gemm[static]`` is installed). It
is compiled with g++, and 70000 to 250000 launches on each architecture are compared.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from pytest_gemm.static.occupancy import MULTIPROCESSORS, occupancy

NAMES = {"threads": 1, "registers": 2, "shared memory": 4, "blocks": 8, "barriers": 16}
"""What limits, as the bit that the header gives it."""

SOURCE = r"""
#include <climits>
#include <cstdio>
#include <cstring>
#include <cuda_occupancy.h>

int main()
{
    int cc, threads_per_sm, shared, reserved, threads, registers, bytes, barriers;
    while (scanf("%d %d %d %d %d %d %d %d", &cc, &threads_per_sm, &shared, &reserved, &threads,
                 &registers, &bytes, &barriers) == 8) {
        cudaOccDeviceProp device = {};
        device.computeMajor = cc / 10;
        device.computeMinor = cc % 10;
        device.maxThreadsPerBlock = 1024;
        device.maxThreadsPerMultiprocessor = threads_per_sm;
        device.regsPerBlock = device.regsPerMultiprocessor = 65536;
        device.warpSize = 32;
        device.sharedMemPerBlock = 49152;
        device.sharedMemPerMultiprocessor = shared;
        device.sharedMemPerBlockOptin = shared - reserved;
        device.reservedSharedMemPerBlock = reserved;
        device.numSms = 1;
        cudaOccFuncAttributes kernel = {};
        kernel.maxThreadsPerBlock = 1024;
        kernel.numRegs = registers;
        kernel.partitionedGCConfig = PARTITIONED_GC_OFF;
        kernel.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
        kernel.maxDynamicSharedSizeBytes = bytes;
        kernel.numBlockBarriers = barriers;
        cudaOccDeviceState state = {};
        state.carveoutConfig = SHAREDMEM_CARVEOUT_MAX_SHARED;
        cudaOccResult result;
        const int status = cudaOccMaxActiveBlocksPerMultiprocessor(&result, &device, &kernel,
                                                                   &state, threads, bytes);
        printf("%d %u\n", status ? -1 : result.activeBlocksPerMultiprocessor,
               result.limitingFactors);
    }
}
"""

Launch = tuple[int, int, int, int, int]


def launches() -> list[Launch]:
    """Capability, threads, registers, shared bytes, barriers: all threads and registers."""
    return [
        (cc, threads, registers, (31 * threads + 997 * registers) % 240 * 1000, registers % 17)
        for cc, sm in MULTIPROCESSORS.items()
        for threads in range(1, 1025)
        for registers in range(1, 256)
        if (31 * threads + 997 * registers) % 240 * 1000 <= sm.shared - sm.reserved
    ]


def answers(folder: Path, asked: list[Launch]) -> list[tuple[int, int]]:
    """Blocks and bits of what limits, by the header."""
    with tempfile.TemporaryDirectory() as place:
        source, program = Path(place) / "occupancy.cpp", Path(place) / "occupancy"
        source.write_text(SOURCE)
        subprocess.run(["g++", "-O1", f"-I{folder}", source, "-o", program], check=True)
        lines = []
        for cc, *launch in asked:
            sm = MULTIPROCESSORS[cc]
            lines.append(" ".join(map(str, (cc, sm.threads, sm.shared, sm.reserved, *launch))))
        run = subprocess.run([program], input="\n".join(lines), capture_output=True, text=True)
    pairs = (line.split() for line in run.stdout.splitlines())
    return [(int(blocks), int(limits)) for blocks, limits in pairs]


def main() -> int:
    asked = launches()
    compared, differ = Counter[int](), Counter[int]()
    for launch, (blocks, limits) in zip(asked, answers(Path(sys.argv[1]), asked), strict=True):
        cc, threads, registers, nbytes, barriers = launch
        ours = occupancy(f"sm_{cc}", threads, registers, nbytes, barriers)
        compared[cc] += 1
        if ours.blocks != blocks or not NAMES[ours.limiter] & limits:
            differ[cc] += 1
            print(launch, ours, blocks, limits)
    for cc, count in compared.items():
        print(f"sm_{cc}: {count} launches, {differ[cc]} differ")
    return bool(differ)


if __name__ == "__main__":
    sys.exit(main())
