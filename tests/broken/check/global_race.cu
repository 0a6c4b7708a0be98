// Broken: every thread of a row of threads adds to the same element of C.

// /// gemm
// block = [16, 16]
// grid  = ["cdiv(N, 16)", "cdiv(M, 16)"]
// ///

__global__ void global_race(const float* A, const float* B, float* C, int M, int N, int K)
{
    const int row = blockIdx.y * 16 + threadIdx.y;
    const int col = blockIdx.x * 16;
    if (row >= M)
        return;
    for (int k = threadIdx.x; k < K; k += 16)
        C[row * N + col] += A[row * K + k] * B[k * N + col];  // finding: race
}
