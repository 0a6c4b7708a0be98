// /// gemm
// block = [16, 16]
// grid = ["cdiv(N, 16)", "cdiv(M, 16)"]
// ///
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <cuda_runtime.h>

#define BLOCK 16
#define CHECK(call)                                                                     \
    do {                                                                                \
        cudaError_t status = (call);                                                    \
        if (status != cudaSuccess) {                                                    \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(status)); \
            exit(EXIT_FAILURE);                                                         \
        }                                                                               \
    } while (0)

int M = 512, N = 256, K = 128;

void fill(float *x, int n)
{
    for (int i = 0; i < n; i++)
        x[i] = (float)rand() / RAND_MAX;
}

__global__ void mul(const float *A, const float *B, float *C, int M, int N, int K)
{
    int col = blockIdx.x * BLOCK + threadIdx.x;
    int row = blockIdx.y * BLOCK + threadIdx.y;
    if (row < M && col < N) {
        float sum = 0.0f;
        for (int k = 0; k < K; k++)
            sum += A[row * K + k] * B[k * N + col];
        C[row * N + col] = sum;
    }
}

/* On the CPU: { braces in a comment. */
static int verify(const float *A, const float *B, const float *C)
{
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) {
            float sum = 0.0f;
            for (int k = 0; k < K; k++) sum += A[i * K + k] * B[k * N + j];
            if (abs(sum - C[i * N + j]) > 1e-3f) return 0;
        }
    return 1;
}

int main(int argc, char **argv)
{
    float *a, *b, *c, *h = (float *)malloc(M * N * sizeof(float)), ms;
    if (argc > 1) M = atoi(argv[1]);
    srand(time(NULL));
    CHECK(cudaMalloc(&a, M * K * sizeof(float)));
    CHECK(cudaMalloc(&b, K * N * sizeof(float)));
    CHECK(cudaMalloc(&c, M * N * sizeof(float)));
    cudaEvent_t start, stop;
    cudaEventCreate(&start); cudaEventCreate(&stop);
    dim3 block(BLOCK, BLOCK), grid((N + BLOCK - 1) / BLOCK, (M + BLOCK - 1) / BLOCK);
    cudaEventRecord(start);
    mul<<<grid, block>>>(a, b, c, M, N, K);
    cudaEventRecord(stop);
    cudaEventElapsedTime(&ms, start, stop);
    printf("%f ms } {\n", ms);
    return verify(a, b, h) ? 0 : 1;
}
