// Lanes exchange through shared memory with __syncwarp, whole warps and parts of them.

// /// gemm
// block = [64]
// grid  = ["cdiv(N, 2)", "M"]
// ///

__global__ void warp_synchronous(const float* A, const float* B, float* C, int M, int N, int K)
{
    __shared__ float sums[2][32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int row = blockIdx.y, col = blockIdx.x * 2 + warp;
    float acc = 0.0f;
    if (col < N)
        for (int k = lane; k < K; k += 32)
            acc += A[row * K + k] * B[k * N + col];
    sums[warp][lane] = acc;
    __syncwarp();
    for (int half = 16; half > 4; half /= 2) {
        const float other = sums[warp][lane ^ half];
        __syncwarp();
        sums[warp][lane] += other;
        __syncwarp();
    }
    // Eight lanes at a time from here on.
    const unsigned eight = 0xffu << lane / 8 * 8;
    for (int half = 4; half > 0; half /= 2) {
        const float other = sums[warp][lane ^ half];
        __syncwarp(eight);
        sums[warp][lane] += other;
        __syncwarp(eight);
    }
    if (lane == 0 && col < N)
        C[row * N + col] = sums[warp][0];
}
