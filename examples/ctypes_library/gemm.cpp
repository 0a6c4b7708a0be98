// C = A B on a CPU, rows of A and C one after another.
extern "C" void gemm(const float* A, const float* B, float* C, int M, int N, int K)
{
    for (int row = 0; row < M; ++row) {
        for (int col = 0; col < N; ++col)
            C[row * N + col] = 0.0f;
        for (int k = 0; k < K; ++k)
            for (int col = 0; col < N; ++col)
                C[row * N + col] += A[row * K + k] * B[k * N + col];
    }
}
