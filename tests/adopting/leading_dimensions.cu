// The whole of BLAS' arguments, row by row.
__global__ void sgemm(int m, int n, int k, float alpha, const float *a, int lda, const float *b,
                      int ldb, float beta, float *c, int ldc)
{
    int i = blockIdx.y * blockDim.y + threadIdx.y;
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= m || j >= n)
        return;
    float sum = 0.0f;
    for (int p = 0; p < k; ++p)
        sum += a[i * lda + p] * b[p * ldb + j];
    float old = beta != 0.0f ? beta * c[i * ldc + j] : 0.0f;
    c[i * ldc + j] = alpha * sum + old;
}
