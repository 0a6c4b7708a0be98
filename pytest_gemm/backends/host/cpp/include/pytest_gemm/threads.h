// Barriers, warp operations and fences.
#pragma once

#include <string.h>

#include <type_traits>

#include "pytest_gemm/abi.h"

// The caller's place, by default arguments: a fault names the user's line.
#define PYTEST_GEMM_PLACE const char *file = __builtin_FILE(), int line = __builtin_LINE()

static constexpr int warpSize = 32;

inline void __syncthreads(PYTEST_GEMM_PLACE) { pytest_gemm::barrier(0, file, line); }

inline int __syncthreads_count(int predicate, PYTEST_GEMM_PLACE) {
    return pytest_gemm::barrier(predicate, file, line);
}

inline int __syncthreads_or(int predicate, PYTEST_GEMM_PLACE) {
    return pytest_gemm::barrier(predicate, file, line) > 0;
}

inline int __syncthreads_and(int predicate, PYTEST_GEMM_PLACE) {
    return pytest_gemm::barrier(!predicate, file, line) == 0;
}

inline void __syncwarp(unsigned int mask = 0xffffffffu, PYTEST_GEMM_PLACE) {
    pytest_gemm::meet_warp(pytest_gemm::WarpOperation::sync, mask, 0, 0, file, line);
}

// One thread runs at a time and none is interrupted: memory is always in order.
#ifdef PYTEST_GEMM_CHECK
inline void __threadfence() { pytest_gemm::check_fence(true); }
inline void __threadfence_system() { pytest_gemm::check_fence(true); }
inline void __threadfence_block() { pytest_gemm::check_fence(false); }
#else
inline void __threadfence() {}
inline void __threadfence_system() {}
inline void __threadfence_block() {}
#endif
inline void __nanosleep(unsigned int) {}

namespace pytest_gemm {

inline unsigned int lane_id() {
    return ((threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x) % warp_size;
}

template <class T>
inline T shuffle(unsigned int mask, T value, unsigned int source, const char* file, int line) {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= sizeof(std::uint64_t),
                  "a shuffle moves values of at most 8 bytes");
    std::uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    bits = meet_warp(WarpOperation::shuffle, mask, bits, source, file, line);
    memcpy(&value, &bits, sizeof value);
    return value;
}

inline unsigned int vote(unsigned int mask, int predicate, const char* file, int line) {
    return unsigned(
        meet_warp(WarpOperation::vote, mask, predicate != 0, 0, file, line));
}

}  // namespace pytest_gemm

template <class T>
inline T __shfl_sync(unsigned int mask, T value, int lane, int width = warpSize,
                     PYTEST_GEMM_PLACE) {
    const unsigned int first = pytest_gemm::lane_id() & ~unsigned(width - 1);
    return pytest_gemm::shuffle(mask, value, first + (unsigned(lane) & unsigned(width - 1)), file,
                                line);
}

template <class T>
inline T __shfl_up_sync(unsigned int mask, T value, unsigned int delta, int width = warpSize,
                        PYTEST_GEMM_PLACE) {
    const unsigned int lane = pytest_gemm::lane_id();
    const bool inside = (lane & unsigned(width - 1)) >= delta;
    return pytest_gemm::shuffle(mask, value, inside ? lane - delta : lane, file, line);
}

template <class T>
inline T __shfl_down_sync(unsigned int mask, T value, unsigned int delta, int width = warpSize,
                          PYTEST_GEMM_PLACE) {
    const unsigned int lane = pytest_gemm::lane_id();
    const bool inside = (lane & unsigned(width - 1)) + delta < unsigned(width);
    return pytest_gemm::shuffle(mask, value, inside ? lane + delta : lane, file, line);
}

template <class T>
inline T __shfl_xor_sync(unsigned int mask, T value, int lane_mask, int width = warpSize,
                         PYTEST_GEMM_PLACE) {
    const unsigned int lane = pytest_gemm::lane_id();
    const unsigned int source = lane ^ unsigned(lane_mask);
    const unsigned int end = (lane & ~unsigned(width - 1)) + unsigned(width);
    return pytest_gemm::shuffle(mask, value, source < end ? source : lane, file, line);
}

inline unsigned int __ballot_sync(unsigned int mask, int predicate, PYTEST_GEMM_PLACE) {
    return pytest_gemm::vote(mask, predicate, file, line);
}

inline int __any_sync(unsigned int mask, int predicate, PYTEST_GEMM_PLACE) {
    return pytest_gemm::vote(mask, predicate, file, line) != 0;
}

inline int __all_sync(unsigned int mask, int predicate, PYTEST_GEMM_PLACE) {
    return pytest_gemm::vote(mask, !predicate, file, line) == 0;
}

#undef PYTEST_GEMM_PLACE
