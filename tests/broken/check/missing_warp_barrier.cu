// Broken: a warp adds up through shared memory without __syncwarp.

// /// gemm
// block = [32]
// grid  = ["N", "M"]
// ///

__global__ void missing_warp_barrier(const float* A, const float* B, float* C, int M, int N, int K)
{
    __shared__ float sums[32];
    const int lane = threadIdx.x;
    float acc = 0.0f;
    for (int k = lane; k < K; k += 32)
        acc += A[blockIdx.y * K + k] * B[k * N + blockIdx.x];
    sums[lane] = acc;
    __syncwarp();
    for (int half = 16; half > 0; half /= 2) {
        if (lane < half)
            sums[lane] += sums[lane + half];  // finding: race
    }
    if (lane == 0)
        C[blockIdx.y * N + blockIdx.x] = sums[0];
}
