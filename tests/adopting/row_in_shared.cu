// A block keeps a row of A, however long it is.
__global__ void by_rows(const float *A, const float *B, float *C, int M, int N, int K)
{
    extern __shared__ float row[];
    for (int k = threadIdx.x; k < K; k += blockDim.x)
        row[k] = A[blockIdx.y * K + k];
    __syncthreads();
    const int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (col >= N)
        return;
    float sum = 0.0f;
    for (int k = 0; k < K; ++k)
        sum += row[k] * B[k * N + col];
    C[blockIdx.y * N + col] = sum;
}
