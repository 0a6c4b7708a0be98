"""The kernel ladder: its machine code on any machine, its times on a GPU, and the table of both.

    python benchmarks/gpu/ladder.py FOLDER --compile           anywhere: pytest-gemm[static], C++
    python benchmarks/gpu/ladder.py FOLDER [--seconds 250]     on the GPU that was compiled for
    python benchmarks/gpu/ladder.py FOLDER --table
    python benchmarks/gpu/ladder.py FOLDER --once 4096         under a profiler
    python benchmarks/gpu/ladder.py FOLDER --counted CSV ...   what Nsight Compute wrote meanwhile

The first writes ``facts.json`` and the machine code of every rung and of every variant of the last
ones. The second loads that code, checks each kernel exactly, and times all of them in turns with
cuBLAS (float32 without TF32), a copy of memory and additions; ``times.json`` is written after each
problem. Kernels without machine code in the folder are compiled there; with ``--nvrtc`` all are,
by the NVRTC of that machine. A kernel that fails a check is not timed, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from math import ceil
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.ladder_tables import COPY, LIBRARY, read, static_cells, tables  # noqa: E402
from pytest_gemm.backends import open_backend  # noqa: E402
from pytest_gemm.backends.base import CudaProgram, LaunchConfig, PythonProgram  # noqa: E402
from pytest_gemm.backends.cuda.compiler import Image  # noqa: E402
from pytest_gemm.backends.cuda.kernel import CudaExecutable  # noqa: E402
from pytest_gemm.backends.cuda.reference import copy_program, cublas_program  # noqa: E402
from pytest_gemm.backends.host import HostBackend  # noqa: E402
from pytest_gemm.backends.host.check import ASCENDING  # noqa: E402
from pytest_gemm.correctness import check_exactly, exact_suite  # noqa: E402
from pytest_gemm.errors import GemmError  # noqa: E402
from pytest_gemm.kernelspec import Kernel  # noqa: E402
from pytest_gemm.launching import Launcher, arguments_of, loaded, program_of  # noqa: E402
from pytest_gemm.matrices import operands  # noqa: E402
from pytest_gemm.pipeline import TIMED_RECIPE  # noqa: E402
from pytest_gemm.problem import Problem  # noqa: E402
from pytest_gemm.profile.metrics import BY_NCU  # noqa: E402
from pytest_gemm.registry import load_registry  # noqa: E402

ARCHITECTURE = "sm_90"

PROBLEMS = ("4096", "8192", "2048", "1024", "8192x256x4096", "256x8192x4096", "4095x4097x4099")
"""The ones that count first. At the end tall and skinny, wide, and residues everywhere."""

ADDED = ("8192", "16384")
LARGE_CHECKS = ("768x640x544", "513x770x259", "1024x256x1")
"""Beside the exact suite: whole blocks and several tiles; residues; a K of one."""

SHARED_CHECK = "2305x2177x321"
"""For kernels that share tiles: more than a round of blocks, residues, parts that end in tiles."""

COUNTED = Problem("gemm", 768, 256, 32)
"""Where loads are counted: whole blocks of every rung."""

LEAST = 5e-3
"""Seconds of one sample: as many launches as that takes."""

ROUNDS, SLOW = 20, 6
"""Samples of a kernel on a problem, and of one that takes five times as long as cuBLAS."""

DUELS = {"4096": (8, 360), "8192": (8, 45)}
DUELLISTS, COMPARED = 3, ("spread_deep", "moved_edges", "thread_tile_12x8")
"""The fastest kernels of each of these problems, others to compare with, and cuBLAS, under a load
that lasts: how often, and launches each (a second of them: the energy is counted rarely)."""

SWEPT: dict[str, tuple[dict[str, int], ...]] = {
    "serpentine": (
        {"BK": 16},
        {"BK": 16, "STAGES": 4},
        {"BK": 16, "GROUP": 1},
        {"BK": 16, "GROUP": 16},
        {"BK": 8, "STAGES": 4},
        {"BK": 16, "BM": 256},
        {"BK": 16, "BN": 256},
        {"BK": 32, "BM": 256},
        {"BK": 16, "BM": 256, "STAGES": 4},
        {"BK": 16, "TM": 8, "TN": 16},
        {"BK": 16, "TM": 8, "WM": 32},
        {"BK": 16, "WM": 128, "WN": 32},
    ),
    "short_loop": (
        {"AHEAD": 0},
        {"SERPENTINE": 0},
        {"BK": 8, "STAGES": 4},
    ),
    "ring": (
        {"SPREAD": 1},
        {"SPREAD": 1, "BK": 32},
        {"BK": 32},
        {"BM": 64, "RESIDENT": 4},
        {"BM": 64, "RESIDENT": 4, "SPREAD": 1},
    ),
    "any_rows": ({"SPREAD": 1, "BK": 32},),
    "stream_k": (
        {"SPREAD": 1, "BK": 32},
        {"STAGES": 4},
        {"STAGES": 2},
        {"GROUP": 1},
        {"GROUP": 4},
        {"GROUP": 16},
        {"WM": 64, "WN": 32},
        {"BK": 8, "STAGES": 4},
        {"BK": 32},
        {"COLUMNS": 1},
        {"COLUMNS": 1, "BK": 32},
        *(
            {**blocks, **depth}
            for blocks in (
                {"BM": 64, "RESIDENT": 4, "SLOTS": 528},
                {"BN": 64, "RESIDENT": 4, "SLOTS": 528},
                {"BM": 256, "RESIDENT": 1, "SLOTS": 132},
                {"BN": 256, "RESIDENT": 1, "SLOTS": 132},
                {"BM": 96, "WM": 48, "TM": 12, "RESIDENT": 3, "SLOTS": 396},
            )
            for depth in ({}, {"BK": 32, "STAGES": 2})
        ),
        {"TM": 16, "WM": 64, "BK": 8, "STAGES": 4},
        {"TN": 16, "WM": 64},
        {"TN": 16, "WM": 64, "BK": 8, "STAGES": 4},
        {"INSIDE": 1},
        {"INSIDE": 1, "BK": 32},
    ),
    "small_block": (
        {"INSIDE": 1},
        {"INSIDE": 1, "SPREAD": 1},
        {"INSIDE": 1, "SPREAD": 1, "BK": 32, "STAGES": 2},
        {"INSIDE": 1, "ANY": 0},
        {"INSIDE": 1, "ANY": 0, "SPREAD": 1},
    ),
    "turned_rows": ({"TURNED": 0, "KEPT": 0, "STAGES": 2},),
    "two_stages": (
        {"GROUP": 4},
        {"GROUP": 32},
        {"BK": 24},
        {"BK": 8, "STAGES": 4},
        {"BM": 64, "WM": 32, "TM": 8, "RESIDENT": 4, "SLOTS": 528},
    ),
}
"""Variants: the parameters of a rung that are changed."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--nvrtc", action="store_true")
    parser.add_argument("--seconds", type=float, default=250.0)
    parser.add_argument("--only", default="", help="kernels whose id matches this expression")
    parser.add_argument("--once", metavar="SIZE", help="launch each once, for a profiler")
    parser.add_argument("--counted", metavar="CSV", type=Path, nargs="+", help="keep counters")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.compile:
        return compile_all(options)
    if options.table:
        print("\n".join(tables(options.folder)))
        return 0
    if options.counted:
        known = read(options.folder / "counters.json")
        for path in options.counted:
            for name, counters in counted(path.read_text(encoding="utf-8")).items():
                known[name] = known.get(name, {}) | counters
        write(options.folder / "counters.json", known)
        return 0
    bench = Bench(options)
    if options.once:
        bench.once(options.once)
        return 0
    return bench.run()


def rungs() -> list[Kernel]:
    """Every kernel of the ladder; what leads no further stands right after its parent."""
    registry = load_registry([ROOT / "kernels" / "ladder"], ROOT)
    if registry.errors:
        raise SystemExit("\n".join(map(str, registry.errors)))
    kernels = registry.kernels("cuda")

    def above(name: str) -> Iterator[Kernel]:
        derived = [kernel for kernel in kernels if kernel.derived_from == name]
        parents = {kernel.derived_from for kernel in kernels}
        for kernel in sorted(derived, key=lambda kernel: kernel.name in parents):
            yield kernel
            yield from above(kernel.name)

    return list(above(""))


def variants() -> list[Kernel]:
    """Rungs with other parameters."""
    specs = load_registry([ROOT / "kernels" / "ladder"], ROOT).specs
    found = []
    for rung, changes in SWEPT.items():
        for changed in changes:
            title = "+".join(f"{name}:{value}" for name, value in changed.items())
            params = tuple((dict(specs[rung].params) | changed).items())
            variant = replace(specs[rung], name=f"{rung}[{title}]", params=params)
            found += variant.kernels("cuda")
    return found


def chosen(options: argparse.Namespace) -> list[Kernel]:
    return [k for k in (*rungs(), *variants()) if re.search(options.only, k.id)]


def file_name(kernel: Kernel) -> str:
    return re.sub(r"[^\w.]+", "_", kernel.id).strip("_") + ".cubin"


# --- machine code ---------------------------------------------------------------------------------


def compile_all(options: argparse.Namespace) -> int:
    """Write machine code and facts. The exit code is 1 where a rung spills registers."""
    kernels = chosen(options)
    known = read(options.folder / "facts.json")
    work = partial(compiled, options.folder)
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        for kernel, found in zip(kernels, pool.map(work, kernels), strict=True):
            known[kernel.id] = found
            write(options.folder / "facts.json", known)
            print(row(kernel.id, found), flush=True)
    spilling = [k.id for k in kernels if known[k.id].get("facts", {}).get("spill_store_bytes")]
    if spilling:
        print("spills: " + ", ".join(spilling))
    return bool(set(spilling) & {k.id for k in rungs()})


def compiled(folder: Path, kernel: Kernel) -> dict[str, Any]:
    """Compile one kernel into the folder; what its machine code says."""
    from pytest_gemm.static import inspection
    from pytest_gemm.static.sass import Code, read_code, without_inner
    from pytest_gemm.static.toolchain import find_toolchain

    inspector = inspection.Inspector(find_toolchain())
    compiler = inspector._compiler(ARCHITECTURE)
    images: list[Image] = []
    codes: list[Code] = []
    build = compiler.compile

    def compile_and_keep(program: CudaProgram) -> Image:
        images.append(build(program))
        return images[-1]

    def read_and_keep(disassembly: Any, entry: str) -> Code:
        codes.append(read_code(disassembly, entry))
        return codes[-1]

    compiler.compile = compile_and_keep  # type: ignore[method-assign]
    inspection.read_code = read_and_keep
    try:
        machine_code = inspector.inspect(kernel, ARCHITECTURE)
    except GemmError as error:
        return {"error": str(error).partition("\n")[0]}
    (folder / file_name(kernel)).write_bytes(images[0].code)
    code = codes[0]
    bodies = [sorted(loop) for loop in without_inner(code.loops())]
    parsed = [
        [(i.name, i.operands[1:4]) for i in map(code.instructions.__getitem__, b)] for b in bodies
    ]
    inner = max(parsed, key=lambda body: sum(n == "FFMA" for n, _ in body), default=[])
    return {
        "entry": images[0].entry,
        "toolchain": machine_code.toolchain,
        "params": dict(kernel.params),
        "facts": dict(machine_code.facts),
        "reads": register_reads(inner),
        "loads": loads(kernel),
    }


def register_reads(body: Sequence[tuple[str, Sequence[str]]]) -> dict[str, float]:
    """What the multiply-adds of a loop read of the two register banks: a model.

    ``cycles`` is how many a multiply-add takes if each bank gives one register a cycle, and what
    the multiply-add before kept in the same place (``.reuse``) need not be read; ``reuse`` is the
    share of multiply-adds that keep something. See NOTES.md in the ladder's folder.
    """
    count = cycles = kept = 0
    cache: dict[int, str] = {}
    for name, places in body:
        if name != "FFMA":
            continue
        reads: Counter[int] = Counter()
        keeping: dict[int, str] = {}
        for place, text in enumerate(places):
            register = re.search(r"\bR(\d+)", text)
            if register is None:
                continue
            if cache.get(place) != register[1]:
                reads[int(register[1]) % 2] += 1
            if "reuse" in text:
                keeping[place] = register[1]
        cache = keeping
        count += 1
        kept += bool(keeping)
        cycles += max(1, *reads.values()) if reads else 1
    return {"cycles": round(cycles / count, 3), "reuse": round(kept / count, 3)} if count else {}


def loads(kernel: Kernel) -> float:
    """Words of global memory read per element of C and step of K, counted on a CPU."""
    problem = kernel.of_kind(COUNTED if kernel.op == "gemm" else Problem("add", 64, 64, 0))
    backend = HostBackend()
    with loaded(backend, problem, operands(problem, 0)) as workspace:
        report = backend.check(
            CudaProgram(*kernel.program_fields),
            LaunchConfig(*kernel.launch(problem)),
            arguments_of(kernel, workspace),
            order=ASCENDING,
            timeout=60.0,
        )
    return report.traffic.matrices.load_words / (problem.M * problem.N * (problem.K or 1))


# --- times ----------------------------------------------------------------------------------------


class Bench:
    """Checks and times on the GPU."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.folder: Path = options.folder
        self.facts = read(self.folder / "facts.json")
        self.backend: Any = open_backend("cuda", lambda line: print(line, file=sys.stderr))
        self.started = time.monotonic()
        device = self.backend.device
        environment = {key: value for key, value in device.environment.items() if key != "uuid"}
        self.found: dict[str, Any] = {
            "device": {"description": device.description, **environment},
            "compiled": {},
            "failures": {},
            "times": {},
            "duels": {},
        }

    @property
    def left(self) -> float:
        return self.options.seconds - (time.monotonic() - self.started)

    def run(self) -> int:
        launchers = self._checked(chosen(self.options))
        self._save()
        gemm = [launcher for launcher in launchers if launcher.kernel.op == "gemm"]
        add = [launcher for launcher in launchers if launcher.kernel.op == "add"]
        for sizes, timed in ((PROBLEMS, gemm), (ADDED, add)):
            for size in sizes:
                if timed and self.left > 0:
                    self._time(size, timed)
                    self._save()
        self._duel(gemm)
        self._save()
        print("\n".join(tables(self.folder)))
        return bool(self.found["failures"])

    def _save(self) -> None:
        write(self.folder / "times.json", self.found)

    def _checked(self, kernels: Sequence[Kernel]) -> list[Launcher]:
        """Those that load and are exact."""
        right = []
        for kernel in kernels:
            try:
                launcher = Launcher(kernel, self.backend, self._executable(kernel), 20.0)
                large = LARGE_CHECKS if kernel.op == "gemm" else ("1024", "333x777")
                if dict(kernel.params).get("SLOTS"):
                    large = (*large, SHARED_CHECK)
                problems = [kernel.of_kind(Problem.parse(size, kernel.op)) for size in large]
                for problem in (*exact_suite(kernel), *problems):
                    check_exactly(launcher.once, self.backend, problem, kernel=kernel.id)
            except GemmError as error:
                self.found["failures"][kernel.id] = str(error)[:2000]
                print(f"FAIL {kernel.id}: {str(error).partition(chr(10))[0]}", flush=True)
                if self.backend.lost:
                    raise
                continue
            right.append(launcher)
        took = time.monotonic() - self.started
        print(f"{len(right)} of {len(kernels)} kernels are exact [{took:.0f} s]", flush=True)
        return right

    def _executable(self, kernel: Kernel) -> Any:
        path = self.folder / file_name(kernel)
        known = self.facts.get(kernel.id, {})
        if not self.options.nvrtc and "entry" in known and path.is_file():
            backend, program = self.backend, CudaProgram(*kernel.program_fields)
            image = Image(path.read_bytes(), known["entry"], 0.0)
            try:
                return CudaExecutable(backend._api, backend._queue, backend._limits, program, image)
            except GemmError as error:  # a driver older than the compiler may refuse its code
                print(f"{kernel.id} is compiled here: {error}", file=sys.stderr)
        executable = self.backend.compile(program_of(kernel, None))
        self.found["compiled"][kernel.id] = dict(executable.facts)
        return executable

    def _library(self, op: str) -> Launcher:
        program: PythonProgram = cublas_program() if op == "gemm" else copy_program()
        name = LIBRARY if op == "gemm" else COPY
        kernel = Kernel(name, op=op, args=program.parameters, callable=name)
        return Launcher(kernel, self.backend, self.backend.compile(program), 20.0)

    def _time(self, size: str, launchers: Sequence[Launcher]) -> None:
        """Every kernel and cuBLAS (or a copy) once in each round, each time in another order."""
        op = launchers[0].kernel.op
        library = self._library(op)
        problem = Problem.parse(size, op)
        samples: dict[str, list[float]] = {}
        with loaded(self.backend, problem, operands(problem, 0, TIMED_RECIPE)) as workspace:
            for _ in range(20):  # the clocks climb
                library.once(workspace)
            yardstick = min(library.time(workspace, 1) for _ in range(5))
            expected = {}
            for launcher in launchers:
                launcher.once(workspace)
                expected[launcher.kernel.id] = launcher.time(workspace, 1)
            for turn in range(ROUNDS):
                for launcher in shuffled([library, *launchers], turn):
                    name = launcher.kernel.id
                    seconds = expected.get(name, yardstick)
                    if self.left < 0 or (turn >= SLOW and seconds > 5 * yardstick):
                        continue
                    launches = ceil(LEAST / seconds)
                    taken = launcher.time(workspace, launches) / launches
                    samples.setdefault(name, []).append(float(f"{taken:.6g}"))
            after = self.backend.conditions()
        self.found["times"][f"{op} {size}"] = {"samples": samples, "after": dict(after)}
        best = sorted((median(times), name) for name, times in samples.items())[:4]
        shown = ", ".join(f"{name} {seconds * 1e6:.1f} us" for seconds, name in best)
        print(f"{op} {size}: {shown} [{time.monotonic() - self.started:.0f} s]", flush=True)

    def _duel(self, launchers: Sequence[Launcher]) -> None:
        """The fastest and cuBLAS, many launches in a row each."""
        fastest: dict[str, Launcher] = {}
        for size in DUELS:
            samples = self.found["times"].get(f"gemm {size}", {}).get("samples", {})
            timed = [launcher for launcher in launchers if launcher.kernel.id in samples]
            timed.sort(key=lambda launcher: median(samples[launcher.kernel.id]))
            own = [*timed[:DUELLISTS], *(x for x in timed if x.kernel.id in COMPARED)]
            fastest |= {launcher.kernel.id: launcher for launcher in own}
        for size, (rounds, launches) in DUELS.items():
            if self.left < 0 or not fastest:
                return
            problem = Problem.parse(size)
            contenders = [self._library("gemm"), *fastest.values()]
            found: dict[str, list[float]] = {x.kernel.id: [] for x in contenders}
            joules: dict[str, list[float]] = {x.kernel.id: [] for x in contenders}
            after: list[Any] = []
            with loaded(self.backend, problem, operands(problem, 0, TIMED_RECIPE)) as workspace:
                for turn in range(rounds):
                    if self.left < 0:
                        break
                    for launcher in shuffled(contenders, turn):
                        before = self._energy()
                        taken = launcher.time(workspace, launches) / launches
                        spent = (self._energy() - before) / launches
                        found[launcher.kernel.id].append(float(f"{taken:.6g}"))
                        joules[launcher.kernel.id].append(float(f"{spent:.4g}"))
                    after.append(dict(self.backend.conditions()))
            self.found["duels"][size] = {"samples": found, "joules": joules, "after": after}

    def _energy(self) -> float:
        """Joules that the GPU has spent so far; 0 where they are not counted."""
        nvml = getattr(self.backend, "_nvml", None)
        millijoules = nvml and nvml._read(lambda n, h: n.nvmlDeviceGetTotalEnergyConsumption(h))
        return (millijoules or 0) / 1e3

    def once(self, size: str) -> None:
        """Launch cuBLAS and each kernel once, unchecked, for a profiler that looks on."""
        problem = Problem.parse(size)
        kernels = [kernel for kernel in chosen(self.options) if kernel.op == "gemm"]
        launchers = [
            Launcher(kernel, self.backend, self._executable(kernel), 60.0) for kernel in kernels
        ]
        with loaded(self.backend, problem, operands(problem, 0, TIMED_RECIPE)) as workspace:
            for launcher in (self._library("gemm"), *launchers):
                launcher.once(workspace)
                print(launcher.kernel.id, flush=True)


def shuffled(launchers: Sequence[Launcher], turn: int) -> list[Launcher]:
    return random.Random(turn).sample(launchers, len(launchers))


# --- counters -------------------------------------------------------------------------------------

KEPT = {
    *BY_NCU,
    "launch__grid_size",
    "sm__cycles_active.avg",
    "sm__cycles_elapsed.max",
    "sm__icc_request_hit_rate.pct",
    "sm__icc_requests.sum",
    "sm__icc_requests_lookup_miss.sum",
    "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_active",
    "sm__sass_inst_executed_op_ldgsts_cache_access.sum",
    "sm__sass_inst_executed_op_ldgsts_cache_bypass.sum",
    "sm__sass_l1tex_m_xbar2l1tex_read_bytes_mem_global_op_ldgsts_cache_bypass.sum",
    "smsp__inst_executed_op_ldgsts.sum",
    "smsp__issue_active.avg.pct_of_peak_sustained_active",
    "smsp__warps_eligible.avg.per_cycle_active",
}
"""Counters that are kept: those that ``profile`` reads, and what they leave open."""


def counted(text: str) -> dict[str, dict[str, float]]:
    """By kernel and ``ncu``'s names, from ``ncu --csv --page raw`` around ``--once``.

    What ``--once`` prints stands between the lines of ``ncu``, in the order of the launches.
    """
    lines = text.splitlines()
    head, _, *launches = csv.reader(line for line in lines if line.startswith('"'))
    names = [line for line in lines if line and line[:1] != '"' and line[:2] != "=="]
    return {
        name: {
            metric: float(value.replace(",", ""))
            for metric, value in zip(head, values, strict=True)
            if metric in KEPT and value
        }
        for name, values in zip(names, launches, strict=True)
    }


# --- what is written ------------------------------------------------------------------------------


def row(name: str, found: dict[str, Any]) -> str:
    """What the machine code says of one kernel, in one line."""
    if "error" in found:
        return f"{name}: {found['error']}"
    cells = [f"{name:<44}", *static_cells(found)]
    spills = found["facts"]["spill_store_bytes"]
    return " | ".join([*cells, f"spills {spills}" if spills else ""])


def write(path: Path, value: Any) -> None:
    """JSON with one line for each list of numbers."""
    text = json.dumps(value, indent=1)
    numbers = re.compile(r"\[\s+([-+.\de,\s]+?)\s+\]")
    joined = numbers.sub(lambda found: f"[{' '.join(found[1].split())}]", text)
    path.write_text(joined + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
