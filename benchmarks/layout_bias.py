"""How much a kernel's time moves when only the place of its code in memory changes.

    python benchmarks/layout_bias.py [processes]

builds one C++ program 12 times with different padding before its functions, runs the builds
interleaved in fresh processes, and prints the spread between builds of the median CPU time. No
number of sessions of one build shows this shift: it is what the margin on a host must cover.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

PADDINGS = (1, 3, 5, 8, 13, 16, 21, 27, 32, 37, 48, 61)
KERNELS = ("naive", "register-blocked", "add")
FLAGS = ("-std=c++17", "-O3", "-fno-tree-vectorize", "-march=x86-64-v3", "-ffp-contract=fast")

SOURCE = """
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>

constexpr int N = 192, SAMPLES = 31;
alignas(256) float A[N * N], B[N * N], C[N * N];

extern "C" __attribute__((used, noinline)) void padding() {
    asm volatile(".skip %c0, 0x90" ::"i"(PADDING));
}

__attribute__((noinline)) void naive(int n) {
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            float acc = 0;
            for (int k = 0; k < n; k++) acc = fmaf(A[i * n + k], B[k * n + j], acc);
            C[i * n + j] = acc;
        }
}

__attribute__((noinline)) void register_blocked(int n) {
    for (int i = 0; i < n; i += 4)
        for (int j = 0; j < n; j += 4) {
            float acc[4][4] = {};
            for (int k = 0; k < n; k++)
                for (int r = 0; r < 4; r++)
                    for (int c = 0; c < 4; c++)
                        acc[r][c] = fmaf(A[(i + r) * n + k], B[k * n + j + c], acc[r][c]);
            for (int r = 0; r < 4; r++)
                for (int c = 0; c < 4; c++) C[(i + r) * n + j + c] = acc[r][c];
        }
}

__attribute__((noinline)) void add(int n) {
    for (int repeat = 0; repeat < 64; repeat++) {
        for (int i = 0; i < n * n; i++) C[i] = A[i] + B[i];
        asm volatile("" ::: "memory");
    }
}

double cpu_seconds() {
    timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec + 1e-9 * now.tv_nsec;
}

int main() {
    for (int i = 0; i < N * N; i++) A[i] = i % 7, B[i] = i % 5;
    for (auto kernel : {naive, register_blocked, add}) {
        double samples[SAMPLES];
        for (int warmup = 0; warmup < 3; warmup++) kernel(N);
        for (double& sample : samples) {
            double start = cpu_seconds();
            kernel(N);
            sample = cpu_seconds() - start;
        }
        std::sort(samples, samples + SAMPLES);
        std::printf("%.9g ", samples[SAMPLES / 2]);
    }
}
"""


def main(processes: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "kernels.cpp").write_text(SOURCE)
        for padding in PADDINGS:
            define = f"-DPADDING={padding}"
            command = ["g++", *FLAGS, define, "kernels.cpp", "-o", f"build{padding}"]
            subprocess.run(command, cwd=folder, check=True)
        logs = np.zeros((processes, len(PADDINGS), len(KERNELS)))
        rng = np.random.default_rng(0)
        for process in range(processes):
            for build in rng.permutation(len(PADDINGS)):
                command = [str(folder / f"build{PADDINGS[build]}")]
                run = subprocess.run(command, capture_output=True, text=True, check=True)
                logs[process, build] = [np.log(float(word)) for word in run.stdout.split()]
    builds = np.median(logs, axis=0)
    print("| kernel | sd between processes of a build | sd between builds | most |")
    print("|---|---|---|---|")
    for i, kernel in enumerate(KERNELS):
        within = np.median(logs[:, :, i].std(axis=0, ddof=1))
        spread, most = builds[:, i].std(ddof=1), np.ptp(builds[:, i])
        print(f"| {kernel} | {within:.2%} | {spread:.2%} | {most:.2%} |")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 8)
