// /// gemm
// block = [64]
// grid = ["N", "cdiv(M, 4)"]
// ///
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

namespace cg = cooperative_groups;

// Sixteen lanes add up one element; the block writes four.
__global__ void mul(const float* A, const float* B, float* C, int M, int N, int K)
{
    __shared__ float sums[4];
    cg::thread_block block = cg::this_thread_block();
    auto tile = cg::tiled_partition<16>(block);
    const int first = blockIdx.y * 4, row = first + tile.meta_group_rank(), col = blockIdx.x;
    float sum = 0.0f;
    for (int k = tile.thread_rank(); k < K; k += tile.size())
        if (row < M) sum += A[row * K + k] * B[k * N + col];
    sum = cg::reduce(tile, sum, cg::plus<float>());
    if (tile.thread_rank() == 0) sums[tile.meta_group_rank()] = sum;
    block.sync();
    const int own = block.thread_rank();
    if (own < 4 && first + own < M) C[(first + own) * N + col] = sums[own];
}
