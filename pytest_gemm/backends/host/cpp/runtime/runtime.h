// What the parts of the runtime know of each other.
#pragma once

#include <cstddef>
#include <cstdint>

#include "order.h"
#include "pytest_gemm/abi.h"

namespace pytest_gemm {

// What went wrong, for Python: see faults.py. Texts are copied; `place` is where the faulting
// thread stood, `other_*` another thread that explains the fault.
struct Report {
    Fault fault;
    std::int32_t detail;  // which sentence (see faults.py), of the faults that have several
    uint3 block, thread, other_thread;
    std::uint64_t address;
    std::int32_t is_write;  // 1 write, 0 read, -1 unknown
    std::int32_t line, other_line;
    char file[512], other_file[512];
    char text[512];
    std::uint64_t pc;  // where the program stood, for faults that come as a signal
};

// Which sentence; the thread at fault is `thread`.
enum Detail : std::int32_t {
    exited_while_other_waits = 1,  // `thread` exited, `other_thread` waits at a barrier
    different_barriers,            // both wait, at different barriers
    warp_against_barrier,          // `thread` waits in a warp operation, `other` at a barrier
    lane_exited,                   // `thread` waits for a lane that exited: `other_thread`
    lane_not_in_mask,              // `thread` calls a warp operation without being in its mask
    different_masks,               // lanes wait for each other with masks that never match
    past_shared_memory,            // `address` counts from the start of dynamic shared memory
};

struct Mistake {
    Fault fault;
    Detail detail;
    uint3 thread, other_thread;
    Place place, other_place;
};

// block.cpp
bool prepare_stacks(std::uint32_t threads, std::size_t stack_size);  // false: no memory
void set_order(const Order* order, std::uint64_t block, bool allow_different_barriers);
void run_block(const Kernel& kernel, void** arguments);
bool is_stack_guard(std::uintptr_t address);

// launch.cpp: both end the launch, the second one as too long.
[[noreturn]] void fail(const Mistake& mistake);
[[noreturn]] void stop_launch();

// Where dynamic shared memory may lie, where it does, and the end of the guard page behind.
void shared_memory_range(std::uintptr_t& begin, std::uintptr_t& data, std::size_t& bytes,
                         std::uintptr_t& end);

// While one of these lives, a time-out or Ctrl-C waits: the thread may hold a lock of libc.
struct Uninterruptible {
    Uninterruptible();
    ~Uninterruptible();
};

// print.cpp
void clear_printed();

}  // namespace pytest_gemm
