// A warp for each element of C: lanes share K and add up by shuffles, in two steps.

// /// gemm
// block = [32, 4]
// grid  = ["cdiv(N, 4)", "M"]
// ///

__device__ float sum_of_halves(float value)
{
    for (int half = 8; half > 0; half /= 2)
        value += __shfl_xor_sync(0xffffffff, value, half, 16);
    return value;
}

__global__ void warp_shuffles(const float* A, const float* B, float* C, int M, int N, int K)
{
    const int lane = threadIdx.x, row = blockIdx.y, col = blockIdx.x * 4 + threadIdx.y;
    float acc = 0.0f;
    if (col < N)
        for (int k = lane; k < K; k += warpSize)
            acc += A[row * K + k] * B[k * N + col];
    acc = sum_of_halves(acc);
    acc += __shfl_down_sync(0xffffffff, acc, 16);
    if (lane == 0 && col < N)
        C[row * N + col] = acc;
}
