// The distance between the rows of C is taken, and N is used.
__global__ void mul(int m, int n, int k, const float* A, int lda, const float* B, int ldb, float* C,
                    int ldc)
{
    int col = blockIdx.x * blockDim.x + threadIdx.x;
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= m || col >= n)
        return;
    float sum = 0;
    for (int p = 0; p < k; ++p)
        sum += A[row * lda + p] * B[p * ldb + col];
    C[row * n + col] = sum;
}
