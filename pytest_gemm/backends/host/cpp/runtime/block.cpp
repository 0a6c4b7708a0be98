// Running the threads of one block.
//
// A block starts as a plain loop over its threads on the caller's stack: a kernel without
// barriers never leaves it. The first thread that reaches a barrier or a warp operation makes
// the block cooperative: that thread stays on the caller's stack, and each one after it gets a
// stack of its own. Waiting threads hand over to the next in a ring, straight from stack to
// stack; whoever finds that nobody is left to wait for opens the gate.
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "check.h"
#include "context.h"
#include "runtime.h"

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace pytest_gemm {

bool block_is_cooperative;
unsigned char* dynamic_shared_memory;

std::uint32_t linear(uint3 index) {
    return (index.z * blockDim.y + index.y) * blockDim.x + index.x;
}

uint3 unravel(std::uint32_t thread) {
    return {thread % blockDim.x, thread / blockDim.x % blockDim.y,
            thread / blockDim.x / blockDim.y};
}

namespace {

struct Thread {
    void* stack_pointer;
    Thread *next, *previous;  // the ring of threads that have not exited
    uint3 index;
    Place place;  // where it waits or waited last
};

struct Warp {
    std::uint32_t waiting;  // lanes inside a warp operation
    std::uint32_t exited;
    std::uint32_t existing;
    std::uint32_t mask[warp_size];
    std::uint32_t source[warp_size];
    std::uint64_t value[warp_size];
    std::uint64_t result[warp_size];
};

const Kernel* kernel;
void** arguments;

Thread threads[max_threads];
Warp warps[max_warps];
Thread* current;
Thread* native;  // the one on the caller's stack
std::uint32_t thread_count, live;
const Thread* last_exited;

std::uint32_t at_barrier, in_warp_operation;
std::uint32_t barrier_generation;
const Thread* first_at_barrier;
int predicates, passed_predicates;

// Another order than the ascending one, where `is_ordered`.
bool is_ordered, allow_different_barriers;
std::uint32_t thread_order[max_threads];
std::uint32_t order_position;  // of the running thread, while they run one after another

std::uint32_t number(const Thread* thread) { return std::uint32_t(thread - threads); }

Warp& warp_of(const Thread* thread) { return warps[number(thread) / warp_size]; }

std::uint32_t lane_bit(const Thread* thread) { return 1u << number(thread) % warp_size; }

// ---- stacks -----------------------------------------------------------------------------

std::size_t stack_size;
char* stacks;
std::size_t guard_size;
std::uint32_t stack_count;

char* stack_top(std::uint32_t thread) {
    // Shifted a little from thread to thread: tops that share their low address bits would
    // all compete for one set of the first-level cache.
    return stacks + (thread + 1) * (guard_size + stack_size) - thread % 61 * 64;
}

[[gnu::always_inline]] inline void continue_with(Thread* thread) {
    Thread* self = current;
    current = thread;
    threadIdx = thread->index;
    switch_stack(&self->stack_pointer, thread->stack_pointer);
}

void exit_thread();

void start_thread() {
    kernel->run_threads(arguments);
    exit_thread();
    __builtin_unreachable();
}

// ---- faults of several threads ----------------------------------------------------------

const Thread* find_in_ring(const Thread* from, bool in_warp) {
    for (const Thread* t = from->next; t != from; t = t->next)
        if (bool(warp_of(t).waiting & lane_bit(t)) == in_warp) return t;
    return from;
}

[[noreturn]] void fail_exited(const Thread* exited, const Thread* waiting) {
    fail({Fault::barrier_divergence, exited_while_other_waits, exited->index, waiting->index,
          waiting->place, waiting->place});
}

[[noreturn]] void fail_lane_exited(const Thread* waiting, const Thread* exited) {
    fail({Fault::shuffle, lane_exited, waiting->index, exited->index, waiting->place, {}});
}

bool is_same(const Place& a, const Place& b) {
    return a.line == b.line && (a.file == b.file || std::strcmp(a.file, b.file) == 0);
}

// Every thread that has not exited waits, and not all of them for the same thing.
[[noreturn]] void fail_deadlock(const Thread* any) {
    const bool any_in_warp = warp_of(any).waiting & lane_bit(any);
    const Thread* lane = any_in_warp ? any : find_in_ring(any, true);
    if (at_barrier == 0) {
        const Thread* other = find_in_ring(lane, true);
        fail({Fault::shuffle, different_masks, lane->index, other->index, lane->place,
              other->place});
    }
    const Thread* waiter = any_in_warp ? find_in_ring(any, false) : any;
    fail({Fault::barrier_divergence, warp_against_barrier, lane->index, waiter->index,
          lane->place, waiter->place});
}

// ---- from a loop to cooperating threads -------------------------------------------------

// Links the threads from `first` on, a position in the order.
void link_in_order(std::uint32_t first) {
    for (std::uint32_t position = 0; position < thread_count; ++position) {
        const std::uint32_t t = thread_order[position];
        threads[t].index = unravel(t);
        if (position < first) {
            warp_of(&threads[t]).exited |= lane_bit(&threads[t]);
            continue;
        }
        const bool is_last = position + 1 == thread_count;
        threads[t].next = &threads[thread_order[is_last ? first : position + 1]];
        threads[t].next->previous = &threads[t];
        if (position != first) {
            threads[t].stack_pointer = prepare_stack(stack_top(t), start_thread);
        }
    }
    last_exited = first > 0 ? &threads[thread_order[first - 1]] : nullptr;
    current = native = &threads[thread_order[first]];
}

void make_cooperative() {
    const std::uint32_t first = is_ordered ? order_position : linear(threadIdx);
    block_is_cooperative = true;
    thread_count = blockDim.x * blockDim.y * blockDim.z;
    live = thread_count - first;
    at_barrier = in_warp_operation = 0;
    predicates = 0;

    for (std::uint32_t w = 0; w * warp_size < thread_count; ++w) {
        const std::uint32_t lanes = thread_count - w * warp_size;
        warps[w].existing = lanes >= warp_size ? ~0u : (1u << lanes) - 1;
        warps[w].waiting = warps[w].exited = 0;
    }
    if (is_ordered) return link_in_order(first);
    for (std::uint32_t t = 0; t < first; ++t) {
        threads[t].index = unravel(t);
        warp_of(&threads[t]).exited |= lane_bit(&threads[t]);
    }
    last_exited = first > 0 ? &threads[first - 1] : nullptr;

    uint3 index = threadIdx;
    for (std::uint32_t t = first; t < thread_count; ++t) {
        threads[t].index = index;
        threads[t].next = &threads[t + 1];
        threads[t].previous = &threads[t - 1];
        if (t != first) threads[t].stack_pointer = prepare_stack(stack_top(t), start_thread);
        if (++index.x == blockDim.x) {
            index.x = 0;
            if (++index.y == blockDim.y) index.y = 0, ++index.z;
        }
    }
    threads[thread_count - 1].next = &threads[first];
    threads[first].previous = &threads[thread_count - 1];
    current = native = &threads[first];
}

void exit_thread() {
    Thread* self = current;
    Warp& warp = warp_of(self);
    if (at_barrier > 0) fail_exited(self, first_at_barrier);
    warp.exited |= lane_bit(self);
    for (std::uint32_t lanes = warp.waiting; lanes; lanes &= lanes - 1) {
        const auto lane = std::uint32_t(__builtin_ctz(lanes));
        if (warp.mask[lane] & lane_bit(self))
            fail_lane_exited(&threads[number(self) / warp_size * warp_size + lane], self);
    }
    last_exited = self;
    self->previous->next = self->next;
    self->next->previous = self->previous;
    if (--live > 0) {
        if (in_warp_operation == live) fail_deadlock(self->next);
        continue_with(self->next);
    } else if (self != native) {
        continue_with(native);  // back into run_block
    }
}

}  // namespace

// ---- waiting ----------------------------------------------------------------------------

int barrier(int predicate, const char* file, int line) {
    if (!block_is_cooperative) make_cooperative();
    Thread* self = current;
    self->place = {file, line};
    if (live != thread_count) fail_exited(last_exited, self);
    if (at_barrier == 0) {
        first_at_barrier = self;
    } else if (!allow_different_barriers && !is_same(first_at_barrier->place, self->place)) {
        fail({Fault::barrier_divergence, different_barriers, self->index, first_at_barrier->index,
              self->place, first_at_barrier->place});
    }
    predicates += predicate != 0;
    ++at_barrier;
    if (at_barrier + in_warp_operation == live) {
        if (in_warp_operation > 0) fail_deadlock(self);
        at_barrier = 0;
        passed_predicates = predicates;
        predicates = 0;
        ++barrier_generation;
        if (checking) check_barrier();
    } else {
        const std::uint32_t generation = barrier_generation;
        do continue_with(self->next);
        while (barrier_generation == generation);
    }
    return passed_predicates;
}

std::uint64_t meet_warp(WarpOperation operation, std::uint32_t mask, std::uint64_t value,
                        std::uint32_t source, const char* file, int line) {
    if (!block_is_cooperative) make_cooperative();
    Thread* self = current;
    Warp& warp = warp_of(self);
    const std::uint32_t bit = lane_bit(self);
    const std::uint32_t lane = number(self) % warp_size;
    self->place = {file, line};

    mask &= warp.existing;
    if (!(mask & bit)) fail({Fault::shuffle, lane_not_in_mask, self->index, {}, self->place, {}});
    if (const std::uint32_t gone = mask & warp.exited) {
        const auto exited = std::uint32_t(__builtin_ctz(gone));
        fail_lane_exited(self, &threads[number(self) - lane + exited]);
    }
    warp.mask[lane] = mask;
    warp.value[lane] = value;
    warp.source[lane] = source;
    warp.waiting |= bit;
    ++in_warp_operation;

    bool complete = (warp.waiting & mask) == mask;
    std::uint32_t votes = 0;
    if (complete) {
        for (std::uint32_t lanes = mask; lanes; lanes &= lanes - 1) {
            const auto other = std::uint32_t(__builtin_ctz(lanes));
            if (warp.mask[other] != mask) complete = false;
            if (warp.value[other] != 0) votes |= 1u << other;
        }
    }
    if (complete) {
        // Each lane has a result of its own, so that one may run ahead into its next operation
        // before another has read this one's.
        for (std::uint32_t lanes = mask; lanes; lanes &= lanes - 1) {
            const auto other = std::uint32_t(__builtin_ctz(lanes));
            warp.result[other] = operation == WarpOperation::shuffle
                                     ? warp.value[warp.source[other]]
                                     : votes;
        }
        warp.waiting &= ~mask;
        if (checking) check_warp(number(self) / warp_size, mask);
        in_warp_operation -= std::uint32_t(__builtin_popcount(mask));
    } else {
        if (at_barrier + in_warp_operation == live) fail_deadlock(self);
        do continue_with(self->next);
        while (warp.waiting & bit);
    }
    return warp.result[lane];
}

// ---- the block --------------------------------------------------------------------------

void run_block(const Kernel& k, void** kernel_arguments) {
    kernel = &k;
    arguments = kernel_arguments;
    block_is_cooperative = false;
    order_position = 0;
    threadIdx = is_ordered ? unravel(thread_order[0]) : uint3{0, 0, 0};
    kernel->run_threads(arguments);
    if (block_is_cooperative) exit_thread();  // returns when the last thread has exited
}

void set_order(const Order* order, std::uint64_t block, bool allow_different) {
    is_ordered = order;
    allow_different_barriers = allow_different;
    if (order) order->fill(thread_order, blockDim.x * blockDim.y * blockDim.z, block);
}

bool next_in_order(uint3& thread) {
    if (++order_position == blockDim.x * blockDim.y * blockDim.z) return false;
    thread = unravel(thread_order[order_position]);
    return true;
}

bool prepare_stacks(std::uint32_t count, std::size_t size) {
    if (count <= stack_count && size == stack_size) return true;
    if (stacks) munmap(stacks, stack_count * (guard_size + stack_size));
    stack_size = size;
    stack_count = 0;
    guard_size = std::size_t(sysconf(_SC_PAGESIZE));
    const std::size_t bytes = count * (guard_size + stack_size);
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    stacks = memory == MAP_FAILED ? nullptr : static_cast<char*>(memory);
    if (!stacks) return false;
    for (std::uint32_t t = 0; t < count; ++t)
        if (mprotect(stacks + t * (guard_size + stack_size), guard_size, PROT_NONE) != 0) {
            munmap(stacks, bytes);
            stacks = nullptr;
            return false;
        }
    stack_count = count;
    return true;
}

void stack_range(std::uintptr_t& begin, std::uintptr_t& end) {
    begin = reinterpret_cast<std::uintptr_t>(stacks);
    end = begin + stack_count * (guard_size + stack_size);
}

bool is_stack_guard(std::uintptr_t address) {
    const std::uintptr_t offset = address - reinterpret_cast<std::uintptr_t>(stacks);
    return stacks && offset < stack_count * (guard_size + stack_size) &&
           offset % (guard_size + stack_size) < guard_size;
}

}  // namespace pytest_gemm
