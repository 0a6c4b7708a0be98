// Blocks go on by the size of the grid, along both axes; nothing is const, and names are a book's.
__global__ void product(float *P, float *M, float *N, int m, int k, int n)
{
    for (int row = blockIdx.y; row < m; row += gridDim.y)
        for (int col = blockIdx.x * blockDim.x + threadIdx.x; col < n; col += gridDim.x * blockDim.x) {
            float sum = 0;
            for (int i = 0; i < k; ++i)
                sum += M[row * k + i] * N[i * n + col];
            P[row * n + col] = sum;
        }
}
