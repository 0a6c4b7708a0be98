// Several products at once, one for each layer of blocks.
__global__ void many(const float *A, const float *B, float *C, int M, int N, int K, int strideA,
                     int strideB, int strideC)
{
    const int row = blockIdx.y * blockDim.y + threadIdx.y;
    const int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= M || col >= N)
        return;
    const float *a = A + blockIdx.z * strideA, *b = B + blockIdx.z * strideB;
    float sum = 0.0f;
    for (int k = 0; k < K; ++k)
        sum += a[row * K + k] * b[k * N + col];
    C[blockIdx.z * strideC + row * N + col] = sum;
}
