// /// gemm
// block = [16, 8]
// grid = ["cdiv(N, 16)", "cdiv(M, 8)"]
// ///
#ifdef _WIN32
#include <windows.h>
#else
#include <sys/time.h>
#endif
#include <iostream>
#ifdef __cplusplus
extern "C" {
#endif
void reference(const float* A, const float* B, float* C, int M, int N, int K);
#ifdef __cplusplus
}
#endif

#ifdef USE_DOUBLE
typedef double real;
#else
typedef float real;
#endif

#if 0
This is an old attempt that doesn't compile {{{
#endif

static double now()
{
#ifdef _WIN32
    return GetTickCount() * 1e-3;
#else
    struct timeval t;
    gettimeofday(&t, NULL);
    return t.tv_sec + t.tv_usec * 1e-6;
#endif
}

#ifdef USE_LDG
#define LOAD(p) __ldg(&(p))
__device__ real fused(real a, real b, real c) {
#else
#define LOAD(p) (p)
__device__ real fused(real a, real b, real c) {
#endif
    return a * b + c;
}

#ifdef BATCHED
__global__ void mul(const real* A, const real* B, real* C, int M, int N, int K, int batch)
#else
__global__ void mul(const real* A, const real* B, real* C, int M, int N, int K)
#endif
{
    int i = blockIdx.y * blockDim.y + threadIdx.y;
    int j = blockIdx.x * blockDim.x + threadIdx.x;
#ifdef BATCHED
    if (blockIdx.z >= batch) return;
#endif
    if (i >= M || j >= N) return;
    real sum = 0;
    for (int k = 0; k < K; ++k) sum = fused(LOAD(A[i * K + k]), LOAD(B[k * N + j]), sum);
    C[i * N + j] = sum;
}

#if defined(WITH_ARGUMENTS)
int main(int argc, char** argv) {
    int n = atoi(argv[1]);
#else
int main() {
    int n = 1024;
#endif
    real *A, *B, *C;
    cudaMallocManaged(&A, n * n * sizeof(real));
    double start = now();
    mul<<<dim3(n / 16, n / 8), dim3(16, 8)>>>(A, B, C, n, n, n);
    std::cout << now() - start << std::endl;
}
