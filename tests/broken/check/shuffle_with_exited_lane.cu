// Broken: lanes without work leave before the others shuffle.

// /// gemm
// block = [32]
// grid  = ["N", "M"]
// ///

__global__ void shuffle_with_exited_lane(const float* A, const float* B, float* C, int M, int N, int K)
{
    const int lane = threadIdx.x;
    if (lane >= K)
        return;
    float acc = 0.0f;
    for (int k = lane; k < K; k += 32)
        acc += A[blockIdx.y * K + k] * B[k * N + blockIdx.x];
    for (int half = 16; half > 0; half /= 2)
        acc += __shfl_down_sync(0xffffffff, acc, half);  // finding: shuffle
    if (lane == 0)
        C[blockIdx.y * N + blockIdx.x] = acc;
}
