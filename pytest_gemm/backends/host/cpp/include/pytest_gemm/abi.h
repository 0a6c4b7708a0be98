// What a compiled kernel and the runtime know of each other.
//
// The runtime is one shared library per compiler; each kernel is another that links to it. One
// launch runs at a time in a process, on the calling thread, so all state is plain globals.
#pragma once

#include <cstddef>
#include <cstdint>

#define PYTEST_GEMM_EXPORT __attribute__((visibility("default")))

struct uint3 {
    unsigned int x, y, z;
};

struct dim3 {
    unsigned int x, y, z;
    constexpr dim3(unsigned int x = 1, unsigned int y = 1, unsigned int z = 1) : x(x), y(y), z(z) {}
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
    constexpr operator uint3() const { return uint3{x, y, z}; }
};

// CUDA's built-in variables. The runtime writes them; a kernel only reads.
extern PYTEST_GEMM_EXPORT uint3 threadIdx, blockIdx;
extern PYTEST_GEMM_EXPORT dim3 blockDim, gridDim;

namespace pytest_gemm {

constexpr std::uint32_t max_threads = 1024;
constexpr std::uint32_t warp_size = 32;
constexpr std::uint32_t max_warps = max_threads / warp_size;

// A place in the user's source; the file's name is a string literal.
struct Place {
    const char* file;
    int line;
};

// Read by Python: see launch.py.
struct Parameter {
    char kind;           // 'p' pointer, 'i' signed, 'u' unsigned, 'b' bool, 'f' floating, 's' struct
    char pointee_kind;   // of a pointer: the same letters, 'v' for void
    std::uint16_t pointee_size;
    std::uint32_t size;
};

// A __shared__ variable with static storage; in a build for checking also a __device__ one.
struct SharedVariable {
    void* address;
    std::size_t size;
    SharedVariable* next;
    // In a build for checking only:
    const char* name;
    std::uint32_t element_size;
    std::uint32_t extents[4];  // of an array; 0 ends them
    std::size_t red_zone;      // bytes before and after it that nobody may touch
};

// Read by Python: see launch.py.
struct Kernel {
    std::uint32_t parameter_count;
    const Parameter* parameters;
    // Runs threads one after another from `threadIdx` on, until the block is done or cooperative.
    void (*run_threads)(void** arguments);
    SharedVariable* const* shared_variables;
    SharedVariable* const* device_variables;  // in a build for checking
};

enum class Fault : std::int32_t {
    none = 0,
    out_of_bounds,
    barrier_divergence,
    timeout,
    division_by_zero,
    misaligned,
    assertion,
    trap,
    stack_overflow,
    shuffle,
    interrupted,
    process_exit,
};

enum class WarpOperation : std::int32_t { shuffle, vote, sync };

// True once a thread of the running block has reached a barrier or a warp operation: from then
// on each thread has a stack of its own (see block.cpp).
extern PYTEST_GEMM_EXPORT bool block_is_cooperative;

// The block's dynamic shared memory, flush to a guard page within its 16-byte alignment.
extern PYTEST_GEMM_EXPORT unsigned char* dynamic_shared_memory;

// Waits for all threads of the block; returns how many of them passed a predicate other than 0.
PYTEST_GEMM_EXPORT int barrier(int predicate, const char* file, int line);

// In a build for checking: the thread that runs after `thread`; false behind the last.
PYTEST_GEMM_EXPORT bool next_in_order(uint3& thread);

// In a build for checking: an atomic operation, called for at `pc`; a fence; a copy.
PYTEST_GEMM_EXPORT void check_atomic(const volatile void* address, std::size_t size,
                                     const void* pc);
PYTEST_GEMM_EXPORT void check_fence(bool is_for_all_blocks);
extern "C" {
PYTEST_GEMM_EXPORT void* pytest_gemm_memcpy(void* to, const void* from, std::size_t size);
PYTEST_GEMM_EXPORT void* pytest_gemm_memmove(void* to, const void* from, std::size_t size);
PYTEST_GEMM_EXPORT void* pytest_gemm_memset(void* to, int value, std::size_t size);
PYTEST_GEMM_EXPORT void* pytest_gemm_memmove_at(void* to, const void* from, std::size_t size,
                                                const void* pc);
}

// Waits for the lanes named in `mask`. A shuffle returns the value of lane `source`; a vote the
// mask of those lanes whose value is not 0.
PYTEST_GEMM_EXPORT std::uint64_t meet_warp(WarpOperation operation, std::uint32_t mask,
                                           std::uint64_t value, std::uint32_t source,
                                           const char* file, int line);

// End the launch with a fault of the running thread.
[[noreturn]] PYTEST_GEMM_EXPORT void fail_assertion(const char* expression, const char* file,
                                                    int line);
[[noreturn]] PYTEST_GEMM_EXPORT void fail_trap(const char* file, int line);
[[noreturn]] PYTEST_GEMM_EXPORT void fail_exit(const char* function, const void* pc);

__attribute__((format(printf, 1, 2))) PYTEST_GEMM_EXPORT int print(const char* format, ...);

}  // namespace pytest_gemm
