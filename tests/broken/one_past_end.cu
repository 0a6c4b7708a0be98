// Broken: <= for <, so the thread behind the last one stores an element, too.

// /// gemm
// block = [256]
// grid  = ["cdiv(M * N + 1, 256)"]
// ///

__global__ void one_past_end(const float* A, const float* B, float* C, int M, int N, int K)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i <= M * N) {
        float acc = 0.0f;
        for (int k = 0; k < K; ++k)
            acc += A[i / N * K + k] * B[k * N + i % N];
        C[i] = acc;
    }
}
