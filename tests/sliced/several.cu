/* Three versions in one file, host code between them. */
// /// gemm
// name = "one_thread_per_row"
// entry = "rows"
// block = [32]
// grid = ["cdiv(M, 32)"]
// ///
// /// gemm
// name = "warp_per_element"
// entry = "warps"
// block = [32, 4]
// grid = ["N", "cdiv(M, 4)"]
// ///
#include <cuda_runtime.h>
#include <cmath>
#include <ctime>
#include <fstream>
#include <mpi.h>
#define KERNEL(name) __global__ void name(const float *A, const float *B, float *C, int M, int N, int K)

static int rank_;

__global__ void rows(const float *A, const float *B, float *C, int M, int N, int K)
{
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < M)
        for (int col = 0; col < N; ++col) {
            float sum = 0;
            for (int k = 0; k < K; ++k) sum += A[row * K + k] * B[k * N + col];
            C[row * N + col] = sum;
        }
}

void run_rows(const float *A, const float *B, float *C) { rows<<<1, 32>>>(A, B, C, 32, 32, 32); }

__device__ float warp_sum(float value)
{
    for (int offset = 16; offset; offset >>= 1) value += __shfl_xor_sync(0xffffffffu, value, offset);
    return value;
}

__global__ void warps(const float *A, const float *B, float *C, int M, int N, int K)
{
    int row = blockIdx.y * blockDim.y + threadIdx.y, col = blockIdx.x;
    if (row >= M) return;
    float sum = 0;
    for (int k = threadIdx.x; k < K; k += 32) sum += A[row * K + k] * B[k * N + col];
    sum = warp_sum(sum);
    if (threadIdx.x == 0) C[row * N + col] = sum;
}

KERNEL(unused) { if (M + N + K == 0) C[0] = A[0] + B[0]; }

void run_warps(const float *A, const float *B, float *C) { warps<<<dim3(32, 8), dim3(32, 4)>>>(A, B, C, 32, 32, 32); }

std::ofstream log_file("times.csv");
int main(int argc, char **argv) { MPI_Init(&argc, &argv); MPI_Comm_rank(MPI_COMM_WORLD, &rank_); run_rows(0, 0, 0); return MPI_Finalize(); }
