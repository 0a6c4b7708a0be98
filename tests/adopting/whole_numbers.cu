// Matrices of int.
__global__ void mul(const int *a, const int *b, int *c, int m, int k, int n)
{
    int row = blockIdx.y * blockDim.y + threadIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < m && col < n) {
        int sum = 0;
        for (int i = 0; i < k; ++i)
            sum += a[row * k + i] * b[i * n + col];
        c[row * n + col] = sum;
    }
}
