// Cooperative groups: a block, and its tiles of at most a warp.
#pragma once

#include "pytest_gemm/threads.h"

#define PYTEST_GEMM_PLACE const char *file = __builtin_FILE(), int line = __builtin_LINE()

namespace cooperative_groups {

class thread_block {
public:
    static void sync(PYTEST_GEMM_PLACE) { __syncthreads(file, line); }
    static unsigned int thread_rank() {
        return (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    }
    static unsigned int num_threads() { return blockDim.x * blockDim.y * blockDim.z; }
    static unsigned int size() { return num_threads(); }
    static dim3 group_index() { return blockIdx; }
    static dim3 thread_index() { return threadIdx; }
    static dim3 dim_threads() { return blockDim; }
    static dim3 group_dim() { return blockDim; }
};

inline thread_block this_thread_block() { return {}; }

template <unsigned int threads, class Parent = thread_block>
class thread_block_tile {
    static_assert(threads >= 1 && threads <= 32 && (threads & (threads - 1)) == 0,
                  "a tile of more than 32 threads is not supported on the CPU back end, and its "
                  "size is a power of 2");

public:
    static void sync(PYTEST_GEMM_PLACE) { __syncwarp(mask(), file, line); }
    static unsigned int thread_rank() { return thread_block::thread_rank() % threads; }
    static constexpr unsigned int num_threads() { return threads; }
    static constexpr unsigned int size() { return threads; }
    static unsigned int meta_group_rank() { return Parent::thread_rank() / threads; }
    static unsigned int meta_group_size() { return (Parent::size() + threads - 1) / threads; }

    template <class T>
    static T shfl(T value, int rank, PYTEST_GEMM_PLACE) {
        return __shfl_sync(mask(), value, rank, int(threads), file, line);
    }
    template <class T>
    static T shfl_up(T value, unsigned int delta, PYTEST_GEMM_PLACE) {
        return __shfl_up_sync(mask(), value, delta, int(threads), file, line);
    }
    template <class T>
    static T shfl_down(T value, unsigned int delta, PYTEST_GEMM_PLACE) {
        return __shfl_down_sync(mask(), value, delta, int(threads), file, line);
    }
    template <class T>
    static T shfl_xor(T value, unsigned int lane_mask, PYTEST_GEMM_PLACE) {
        return __shfl_xor_sync(mask(), value, int(lane_mask), int(threads), file, line);
    }
    static int any(int predicate, PYTEST_GEMM_PLACE) {
        return __any_sync(mask(), predicate, file, line);
    }
    static int all(int predicate, PYTEST_GEMM_PLACE) {
        return __all_sync(mask(), predicate, file, line);
    }
    static unsigned int ballot(int predicate, PYTEST_GEMM_PLACE) {
        return __ballot_sync(mask(), predicate, file, line) >> first();
    }

private:
    static unsigned int first() { return pytest_gemm::lane_id() & ~(threads - 1); }
    static unsigned int mask() { return (~0u >> (32 - threads)) << first(); }
};

template <unsigned int threads>
inline thread_block_tile<threads> tiled_partition(const thread_block&) {
    return {};
}

template <unsigned int threads, unsigned int parent_threads, class Parent>
inline thread_block_tile<threads, thread_block_tile<parent_threads, Parent>> tiled_partition(
    const thread_block_tile<parent_threads, Parent>&) {
    static_assert(threads < parent_threads, "a tile is smaller than its parent");
    return {};
}

template <class Group>
inline void sync(const Group&, PYTEST_GEMM_PLACE) {
    Group::sync(file, line);
}
template <class Group>
inline unsigned int thread_rank(const Group&) {
    return Group::thread_rank();
}
template <class Group>
inline unsigned int group_size(const Group&) {
    return Group::size();
}

}  // namespace cooperative_groups

#undef PYTEST_GEMM_PLACE
