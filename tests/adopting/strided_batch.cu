// Strides that are called otherwise; how many products there are is the grid's.
__global__ void bmm(const double* A, long long sA, const double* B, long long sB, double* C,
                    long long sC, int m, int n, int k)
{
    const double* a = A + blockIdx.z * sA;
    const double* b = B + blockIdx.z * sB;
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= m || col >= n)
        return;
    double sum = 0;
    for (int p = 0; p < k; ++p)
        sum += a[row * k + p] * b[p * n + col];
    C[blockIdx.z * sC + row * n + col] = sum;
}
