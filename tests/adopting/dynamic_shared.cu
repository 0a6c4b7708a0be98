// The tiles' memory is given at the launch, and the launch is not in this file.
__global__ void dynamic_tiles(const float *A, const float *B, float *C, int M, int N, int K)
{
    extern __shared__ float tiles[];
    const int side = blockDim.x;
    float *As = tiles, *Bs = tiles + side * side;
    int tx = threadIdx.x, ty = threadIdx.y;
    int row = blockIdx.y * side + ty, col = blockIdx.x * side + tx;
    float acc = 0.0f;
    for (int k0 = 0; k0 < K; k0 += side) {
        As[ty * side + tx] = row < M && k0 + tx < K ? A[row * K + k0 + tx] : 0.0f;
        Bs[ty * side + tx] = k0 + ty < K && col < N ? B[(k0 + ty) * N + col] : 0.0f;
        __syncthreads();
        for (int k = 0; k < side; ++k)
            acc += As[ty * side + k] * Bs[k * side + tx];
        __syncthreads();
    }
    if (row < M && col < N)
        C[row * N + col] = acc;
}
