// BLOCK comes from the build: nvcc -DBLOCK=16.
__global__ void built(const float *A, const float *B, float *C, int M, int N, int K)
{
    __shared__ float a[BLOCK][BLOCK + 1], b[BLOCK][BLOCK + 1];
    int x = threadIdx.x, y = threadIdx.y;
    int row = blockIdx.y * BLOCK + y, col = blockIdx.x * BLOCK + x;
    float sum = 0.0f;
    for (int k0 = 0; k0 < K; k0 += BLOCK) {
        a[y][x] = row < M && k0 + x < K ? A[row * K + k0 + x] : 0.0f;
        b[y][x] = k0 + y < K && col < N ? B[(k0 + y) * N + col] : 0.0f;
        __syncthreads();
        for (int k = 0; k < BLOCK; ++k)
            sum += a[y][k] * b[k][x];
        __syncthreads();
    }
    if (row < M && col < N)
        C[row * N + col] = sum;
}
