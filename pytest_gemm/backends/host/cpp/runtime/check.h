// Watching every access of a kernel that was built for checking.
//
// Such a kernel is compiled with the instrumentation of the thread sanitizer, and calls what
// accesses.cpp and arithmetic.cpp define instead of the sanitizer's own library. What is known of
// each word of memory lies in a cell of its own: who wrote and who read it last, and when.
#pragma once

#include <cstddef>
#include <cstdint>

#include "pytest_gemm/abi.h"

namespace pytest_gemm {

// What a kernel does to one argument or to shared memory; `bytes` are those of all accesses.
struct Counters {
    std::uint64_t loads, load_bytes, stores, store_bytes, atomics, atomic_bytes;
};

// A matrix that the kernel was given, or a batch of them. `span_*` is the memory around it in which
// a stray access is still blamed on it. Read and written by Python: see check_runtime.py.
struct CheckedMatrix {
    std::uint64_t span_begin, span_end, begin;
    std::uint64_t rows, row_bytes, ld_bytes, batch, stride_bytes;
    Counters counters;
};

enum class FindingKind : std::int32_t {
    none = 0,
    out_of_bounds,
    race,
    uninitialized,
    misaligned,
    array_index,
    overflow,
    division_by_zero,
    shift,
    truncation,
    waiting,  // the last one of a launch that was too long: what it read again and again
};

// Read by Python: see check_runtime.py.
struct Finding {
    FindingKind kind;
    std::int32_t is_write, other_is_write;
    std::int32_t region;  // a matrix's number; one of the numbers below
    std::int64_t offset;  // bytes from the start of the region
    std::uint64_t address;
    std::uint32_t size;
    std::uint32_t count;         // of the same mistake at the same place
    std::uint64_t pc, other_pc;  // within the kernel's library; 0 where not known
    uint3 block, thread, other_block, other_thread;
    std::int32_t line;                 // 0: the line of `pc`
    std::uint32_t element_size;        // of an array
    std::uint32_t extents[4];          // of an array; 0 ends them
    std::int64_t values[2];            // operands, or an index
    char text[128];                    // operation and type
    char name[64];                     // of a shared or a global variable
    char file[512];
};

enum : std::int32_t {
    no_region = -1,
    dynamic_region = -2,
    static_region = -3,
    wild_region = -4,
    variable_region = -5,
};

struct CheckRequest {
    CheckedMatrix* matrices;
    Finding* findings;
    std::uint64_t seed;
    std::uint32_t matrix_count;
    std::uint32_t order;  // 0 ascending, 1 descending, 2 random
    std::uint32_t allow_different_barriers;
    std::uint32_t finding_capacity, finding_count;
    std::uint32_t lost_findings;  // beyond the capacity
    Counters shared, variables;
    std::uint64_t barriers;
    std::uint64_t pc;  // where the program stood, of a launch that a signal ended
};

extern bool checking;  // a launch is being checked

bool check_begin(const Kernel& kernel, CheckRequest& request);  // false: no memory
void check_end(bool is_complete);
void check_begin_block();
void check_end_block();
void check_barrier();
void check_warp(std::uint32_t warp, std::uint32_t mask);

// From a signal handler: remembers where the program stood. `probe_spinning` is called when the
// time is over, and returns false the first time: the accesses that follow are then sampled.
void check_note_place(std::uintptr_t pc);
bool probe_spinning();

void add_finding(Finding& finding);
Finding new_finding(FindingKind kind, std::uintptr_t pc);

// block.cpp
std::uint32_t linear(uint3 index);
uint3 unravel(std::uint32_t thread);
void stack_range(std::uintptr_t& begin, std::uintptr_t& end);

}  // namespace pytest_gemm
