// Blocks go on by the size of the grid, along both axes; nothing is const, and names are a book's.
__global__ void product(float *P, float *M, float *N, int m, int n, int k)
{
    for (int row = blockIdx.y; row < m; row += gridDim.y)
        for (int col = blockIdx.x * blockDim.x + threadIdx.x; col < k; col += gridDim.x * blockDim.x) {
            float sum = 0;
            for (int i = 0; i < n; ++i)
                sum += M[row * n + i] * N[i * k + col];
            P[row * k + col] = sum;
        }
}
