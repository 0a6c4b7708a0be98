// /// gemm
// entry = "sgemm_v1"
// args = ["A", "B", "C", "M", "N", "K"]
// block = ["32 // 4", "32 // 4"]
// grid = ["cdiv(N, 32)", "cdiv(M, 32)"]
// requires = ["N % 4 == 0", "K % 8 == 0", "M % 32 == 0", "N % 32 == 0"]
// ///
#include <stdio.h>
#include <float.h>
#include <stdlib.h>
#include "cublas_v2.h"

#define OFFSET(row, col, ld) ((row) * (ld) + (col))
#define FLOAT4(pointer) (reinterpret_cast<float4*>(&(pointer))[0])
#define CFLOAT4(pointer) (reinterpret_cast<const float4*>(&(pointer))[0])
#define checkCudaErrors(func)                                       \
{                                                                   \
    cudaError_t e = (func);                                         \
    if (e != cudaSuccess)                                           \
        printf("%s %d CUDA: %s\n", __FILE__, __LINE__, cudaGetErrorString(e)); \
}
#define DEVICE_INLINE __device__ __forceinline__
#define DEFINE_REFERENCE(name, type) \
    void name(const type *a, const type *b, type *c, int n) { for (int i = 0; i < n; i++) c[i] = a[i] * b[i]; }

DEFINE_REFERENCE(reference_float, float)
DEFINE_REFERENCE(reference_double, double);

float testError(void);
float testPerformance(void (*gpuSgemm)(float *, float *, float *, const int, const int, const int),
                      dim3 gridDim, dim3 blockDim, const int M, const int N, const int K, const int repeat);

DEVICE_INLINE void load4(float (&to)[4], const float *from) {
    float4 v = CFLOAT4(*from);
    to[0] = v.x; to[1] = v.y; to[2] = v.z; to[3] = v.w;
}

__global__ void naive(float *a, float *b, float *c, const int M, const int N, const int K) {
    int n = blockIdx.x * blockDim.x + threadIdx.x, m = blockIdx.y * blockDim.y + threadIdx.y;
    if (m < M && n < N) {
        float psum = 0.0;
        #pragma unroll
        for (int k = 0; k < K; k++) psum += a[OFFSET(m, k, K)] * b[OFFSET(k, n, N)];
        c[OFFSET(m, n, N)] = psum;
    }
}

float testNaive(void) { float msec = 0; naive<<<1, 1>>>(NULL, NULL, NULL, 1, 1, 1); return msec; }

__global__ void sgemm_v1(const float * __restrict__ a, const float * __restrict__ b,
                         float * __restrict__ c, const int M, const int N, const int K) {
    const int BM = 32, BN = 32, BK = 8, TM = 4, TN = 4;
    __shared__ float s_a[BM][BK];
    __shared__ float s_b[BK][BN];
    float r_c[TM][TN] = {{0.0f}};
    const int tid = threadIdx.y * blockDim.x + threadIdx.x;
    for (int bk = 0; bk < K; bk += BK) {
        float a4[4], b4[4];
        load4(a4, &a[OFFSET(blockIdx.y * BM + tid / 2, bk + tid % 2 * 4, K)]);
        load4(b4, &b[OFFSET(bk + tid / 8, blockIdx.x * BN + tid % 8 * 4, N)]);
        FLOAT4(s_a[tid / 2][tid % 2 * 4]) = make_float4(a4[0], a4[1], a4[2], a4[3]);
        FLOAT4(s_b[tid / 8][tid % 8 * 4]) = make_float4(b4[0], b4[1], b4[2], b4[3]);
        __syncthreads();
        for (int k = 0; k < BK; k++)
            for (int m = 0; m < TM; m++)
                for (int n = 0; n < TN; n++)
                    r_c[m][n] += s_a[threadIdx.y * TM + m][k] * s_b[k][threadIdx.x * TN + n];
        __syncthreads();
    }
    for (int m = 0; m < TM; m++)
        for (int n = 0; n < TN; n++)
            c[OFFSET(blockIdx.y * BM + threadIdx.y * TM + m, blockIdx.x * BN + threadIdx.x * TN + n, N)] = r_c[m][n];
}

int main(void) {
    FILE *fp = fopen("result.csv", "w");
    const int M_list[15] = {128, 192, 256};
    for (int i = 0; i < 3; i++) {
        checkCudaErrors(cudaDeviceSynchronize());
        fprintf(fp, "%d,%f\n", M_list[i], testNaive());
    }
    fclose(fp);
    return 0;
}
