/* Addition and multiplication as anybody would write them in C: what a GPU is compared with.
   Row-major, without gaps: A is M x K, B is K x N, C is M x N; all three M x N for add. */

#include <stddef.h>

void add(const float *A, const float *B, float *C, int M, int N, int K)
{
    (void)K;
    for (size_t i = 0; i < (size_t)M * N; ++i)
        C[i] = A[i] + B[i];
}

void multiply(const float *A, const float *B, float *C, int M, int N, int K)
{
    for (int row = 0; row < M; ++row) {
        for (int col = 0; col < N; ++col) {
            float acc = 0.0f;
            for (int k = 0; k < K; ++k)
                acc += A[(size_t)row * K + k] * B[(size_t)k * N + col];
            C[(size_t)row * N + col] = acc;
        }
    }
}
