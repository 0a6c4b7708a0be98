// Broken: every block waits until the one after it has written its part of C.

// /// gemm
// block = [16, 16]
// grid  = ["cdiv(N, 16)", "cdiv(M, 16)"]
// ///

__global__ void waits_for_a_block(const float* A, const float* B, float* C, int M, int N, int K)
{
    const int row = blockIdx.y * blockDim.y + threadIdx.y;
    const int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= M || col >= N)
        return;

    float acc = 0.0f;
    for (int k = 0; k < K; ++k)
        acc += A[row * K + k] * B[k * N + col];
    volatile float* next = C + row * N + col + 16;
    while (col + 16 < N && *next == 0.0f) {  // finding: block-wait
    }
    C[row * N + col] = acc;
}
