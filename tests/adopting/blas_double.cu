// BLAS' arguments and BLAS' columns, in double.
#include <cuda_runtime.h>
typedef double real;

extern "C" __global__ void dgemm_nt(int m, int n, int k, real alpha, const real *__restrict__ a, int lda,
                                    const real *__restrict__ b, int ldb, real beta,
                                    real *__restrict__ c, int ldc)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const int j = blockIdx.y * blockDim.y + threadIdx.y;
    if (i >= m || j >= n)
        return;
    real sum = 0;
    for (int p = 0; p < k; ++p)
        sum += a[i + p * lda] * b[j + p * ldb];
    if (beta == 0)
        c[i + j * ldc] = alpha * sum;
    else
        c[i + j * ldc] = alpha * sum + beta * c[i + j * ldc];
}
