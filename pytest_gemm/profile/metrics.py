"""What ``ncu`` is asked for: a fixed list, the same for every kernel.

Names and meanings: Nsight Compute's documentation, "Metrics Reference" and "Metrics Decoder"
(https://docs.nvidia.com/nsight-compute/ProfilingGuide/#metrics-reference). They are those of
sm_70 and later; sm_80 and sm_90 have all of them but ``gmma``, which is sm_90's alone.
"""

from __future__ import annotations

from typing import NamedTuple


class Metric(NamedTuple):
    """A counter's name to ``ncu``, and what it counts. ``%`` in ``unit``: of the unit's peak."""

    ncu: str
    unit: str
    meaning: str


PEAK = "pct_of_peak_sustained_elapsed"

COUNTERS = {
    "time": Metric("gpu__time_duration.sum", "s", "duration of the launch under ncu"),
    "clock": Metric("gpc__cycles_elapsed.avg.per_second", "Hz", "clock of the multiprocessors"),
    "units": Metric("device__attribute_multiprocessor_count", "", "multiprocessors of the GPU"),
    "global_loads": Metric(
        "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum", "", "warps' loads from global memory"
    ),
    "global_load_sectors": Metric(
        "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum", "", "sectors of 32 bytes that these took"
    ),
    "shared_loads": Metric(
        "smsp__inst_executed_op_shared_ld.sum", "", "warps' loads from shared memory"
    ),
    "shared_waves": Metric(
        "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum", "", "cycles that shared memory served"
    ),
    "load_conflicts": Metric(
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
        "",
        "cycles more for bank conflicts of loads",
    ),
    "store_conflicts": Metric(
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
        "",
        "cycles more for bank conflicts of stores",
    ),
    "l1_bytes": Metric("l1tex__t_bytes.sum", "byte", "asked of L1, shared memory left out"),
    "l1_found": Metric("l1tex__t_sectors_lookup_hit.sum", "", "sectors of these that L1 had"),
    "l1_missed": Metric("l1tex__t_sectors_lookup_miss.sum", "", "sectors that it had not"),
    "l2_bytes": Metric("lts__t_bytes.sum", "byte", "asked of L2"),
    "l2_found": Metric("lts__t_sectors_lookup_hit.sum", "", "sectors of these that L2 had"),
    "l2_missed": Metric("lts__t_sectors_lookup_miss.sum", "", "sectors that it had not"),
    "dram_read": Metric("dram__bytes_read.sum", "byte", "read from DRAM"),
    "dram_written": Metric("dram__bytes_write.sum", "byte", "written to DRAM"),
    "instructions": Metric("smsp__inst_executed.sum", "", "warps' instructions"),
    "multiply_adds": Metric(
        "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum", "", "threads' float32 multiply-adds"
    ),
    "occupancy": Metric(
        "sm__warps_active.avg.pct_of_peak_sustained_active", "%", "resident warps, of the most"
    ),
    "dram": Metric(f"dram__throughput.avg.{PEAK}", "%", "how busy: DRAM"),
    "l2": Metric(f"lts__throughput.avg.{PEAK}", "%", "how busy: L2"),
    "l1": Metric(
        f"l1tex__throughput.avg.{PEAK}", "%", "how busy: L1 and shared memory, whichever part"
    ),
    "shared": Metric(
        f"l1tex__data_pipe_lsu_wavefronts.avg.{PEAK}",
        "%",
        "how busy: data banks of L1 and shared memory",
    ),
    "writeback": Metric(
        f"sm__mio2rf_writeback_active.avg.{PEAK}", "%", "how busy: way of loaded data to registers"
    ),
    "fma": Metric(f"sm__pipe_fma_cycles_active.avg.{PEAK}", "%", "how busy: float32 pipe"),
    "fp64": Metric(f"sm__pipe_fp64_cycles_active.avg.{PEAK}", "%", "how busy: float64 pipe"),
    "tensor": Metric(f"sm__pipe_tensor_cycles_active.avg.{PEAK}", "%", "how busy: tensor cores"),
    "issue": Metric(f"sm__issue_active.avg.{PEAK}", "%", "how busy: issue slots"),
}
"""By our names."""

STALLS = {
    "barrier": "a barrier of their block",
    "branch_resolving": "the target of a jump",
    "dispatch_stall": "the dispatcher",
    "drain": "their last stores to be written",
    "gmma": "a warpgroup's products",
    "imc_miss": "constants that are not in their cache",
    "lg_throttle": "a place in the queue to global and local memory",
    "long_scoreboard": "data from global or local memory",
    "math_pipe_throttle": "a pipe that computes",
    "membar": "a memory fence",
    "mio_throttle": "a place in the queue to shared memory",
    "misc": "other things",
    "no_instruction": "instructions to be fetched",
    "not_selected": "their turn, ready to go on",
    "selected": "nothing: they are issued",
    "short_scoreboard": "data from shared memory",
    "sleeping": "the end of a sleep",
    "tex_throttle": "a place in the queue to textures",
    "wait": "a fixed latency of their last instruction",
}
"""What a resident warp waits for, by the name that ``ncu`` has for it."""

ALTERNATIVES = {
    "dram__bytes_read.sum": "dram__bytes_op_read.sum",
    "dram__bytes_write.sum": "dram__bytes_op_write.sum",
    "sm__issue_active.avg.pct_of_peak_sustained_elapsed": (
        "smsp__issue_active.avg.pct_of_peak_sustained_elapsed"
    ),
}
"""Other names of the same, for where ``ncu`` does not know the first."""

STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"

NAMES = {metric.ncu: name for name, metric in COUNTERS.items()} | {
    STALL.format(reason): f"stall.{reason}" for reason in STALLS
}
"""Our names by ``ncu``'s: those of ``COUNTERS``, and ``stall.barrier`` and so on, which are the
warps of a scheduler that wait so, for each instruction that it issues."""

HOPPERS = {STALL.format("gmma")}
"""What sm_90 alone has."""

BY_NCU = NAMES | {other: NAMES[name] for name, other in ALTERNATIVES.items()}
"""The same with the other names."""
