// Broken: the launch gives one float less than the tile takes.

// /// gemm
// block = [16, 16]
// grid  = ["cdiv(N, 16)", "cdiv(M, 16)"]
// shared_mem = "4 * (2 * 256 - 1)"
// ///

constexpr int TILE = 16;

__global__ void past_dynamic_shared(const float* A, const float* B, float* C, int M, int N, int K)
{
    extern __shared__ float tiles[];
    auto As = reinterpret_cast<float(*)[TILE]>(tiles);
    auto Bs = reinterpret_cast<float(*)[TILE]>(tiles + TILE * TILE);

    const int ty = threadIdx.y;
    const int tx = threadIdx.x;
    const int row = blockIdx.y * TILE + ty;
    const int col = blockIdx.x * TILE + tx;

    float acc = 0.0f;
    for (int k0 = 0; k0 < K; k0 += TILE) {
        As[ty][tx] = row < M && k0 + tx < K ? A[row * K + k0 + tx] : 0.0f;
        Bs[ty][tx] = k0 + ty < K && col < N ? B[(k0 + ty) * N + col] : 0.0f;  // finding: out-of-bounds
        __syncthreads();

        for (int k = 0; k < TILE; ++k)
            acc += As[ty][k] * Bs[k][tx];
        __syncthreads();
    }

    if (row < M && col < N)
        C[row * N + col] = acc;
}
