// Both tiles in one piece of dynamic shared memory.

// /// gemm
// block = [16, 16]
// grid  = ["cdiv(N, 16)", "cdiv(M, 16)"]
// shared_mem = "4 * 2 * 16 * 16"
// ///

__global__ void dynamic_shared(const float* A, const float* B, float* C, int M, int N, int K)
{
    extern __shared__ __align__(16) unsigned char memory[];
    const int tile = blockDim.x, ty = threadIdx.y, tx = threadIdx.x;
    float* As = reinterpret_cast<float*>(memory);
    float* Bs = As + tile * tile;
    const int row = blockIdx.y * tile + ty, col = blockIdx.x * tile + tx;

    float acc = 0.0f;
    for (int k0 = 0; k0 < K; k0 += tile) {
        As[ty * tile + tx] = row < M && k0 + tx < K ? A[row * K + k0 + tx] : 0.0f;
        Bs[ty * tile + tx] = k0 + ty < K && col < N ? B[(k0 + ty) * N + col] : 0.0f;
        __syncthreads();
        for (int k = 0; k < tile; ++k)
            acc += As[ty * tile + k] * Bs[k * tile + tx];
        __syncthreads();
    }
    if (row < M && col < N)
        C[row * N + col] = acc;
}
