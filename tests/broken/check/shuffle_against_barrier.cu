// Broken: one thread waits at a barrier, the rest of its warp in a shuffle.

// /// gemm
// block = [32]
// grid  = ["N", "M"]
// ///

__global__ void shuffle_against_barrier(const float* A, const float* B, float* C, int M, int N, int K)
{
    const int lane = threadIdx.x;
    float acc = 0.0f;
    for (int k = lane; k < K; k += 32)
        acc += A[blockIdx.y * K + k] * B[k * N + blockIdx.x];
    if (lane == 9)
        __syncthreads();  // other
    for (int half = 16; half > 0; half /= 2)
        acc += __shfl_down_sync(0xffffffff, acc, half);  // finding: barrier-divergence
    if (lane == 0)
        C[blockIdx.y * N + blockIdx.x] = acc;
}
