// /// gemm
// entry = "matmul"
// args = ["A", "B", "C", "M", "N", "K"]
// block = [8, 8]
// grid = ["cdiv(N, 8)", "cdiv(M, 8)"]
// ///
#include<cstdio>
#include<ctime>
#include "device_launch_parameters.h"
#include "cuda_runtime.h"

#define N 1024
#define THREADS 8
float h_A[N * N], h_B[N][N];
float *d_A, *d_B, *d_C = NULL;
double (*clock_function)(void);
volatile int done = 0;
extern int verbose;
const char *names[] = {"naive", "tiled"};
static struct { int block, time; } results[4];
struct timespec begin_time, end_time;
enum { WIDTH = 4, HEIGHT = 2 * WIDTH };
#undef N

__constant__ float one = 1.0f;
__device__ __constant__ int offsets[2] = {0, 1};
__device__ unsigned long long calls;
const float zero = 0.0f;
const int half_block = THREADS / 2, full_block = 2 * half_block;
static __shared__ float tile[full_block][full_block + 1];

__global__ void warmup() {}

__global__
void
matmul(const float *A, const float *B, float *C, unsigned M, unsigned N, unsigned K)
{
    const unsigned row = blockIdx.y * THREADS + threadIdx.y;
    const unsigned col = blockIdx.x * THREADS + threadIdx.x;
    float sum = zero;
    for (unsigned k0 = offsets[0]; k0 < K; k0 += THREADS) {
        tile[threadIdx.y][threadIdx.x] =
            row < M && k0 + threadIdx.x < K ? A[row * K + k0 + threadIdx.x] : zero;
        __syncthreads();
        for (unsigned k = 0; k < THREADS && k0 + k < K; ++k)
            if (col < N) sum += one * tile[threadIdx.y][k] * B[(k0 + k) * N + col];
        __syncthreads();
    }
    if (row < M && col < N)
        C[row * N + col] = sum;
    if (WIDTH + HEIGHT == 12 && threadIdx.x == 0) atomicAdd(&calls, 1ull);
}

int compare(const void *x, const void *y) { return *(const int *)x - *(const int *)y; }

int main()
{
    cudaMemcpyToSymbol(one, h_A, sizeof(float));
    for (int i = 0; i < 1024; i++)
    {
        h_A[i] = rand() / 2;
    }
    clock_gettime(CLOCK_MONOTONIC, &begin_time);
    warmup<<<1, 1>>>();
    matmul<<<dim3(128, 128), dim3(THREADS, THREADS)>>>(d_A, d_B, d_C, 1024, 1024, 1024);
    printf("%s %d\n", names[0], done);
    return 0;
}
