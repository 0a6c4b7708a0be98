// Two halves of the block pass their barriers at different lines.

// /// gemm
// block = [16, 16]
// grid  = ["cdiv(N, 16)", "cdiv(M, 16)"]
// different_barriers = true
// ///

__global__ void two_groups(const float* A, const float* B, float* C, int M, int N, int K)
{
    __shared__ float As[16][16], Bs[16][16];
    const int ty = threadIdx.y, tx = threadIdx.x;
    const int row = blockIdx.y * 16 + ty, col = blockIdx.x * 16 + tx;
    float acc = 0.0f;
    for (int k0 = 0; k0 < K; k0 += 16) {
        if (ty < 8) {
            for (int i = ty; i < 16; i += 8) {
                const int r = blockIdx.y * 16 + i;
                As[i][tx] = r < M && k0 + tx < K ? A[r * K + k0 + tx] : 0.0f;
            }
            __syncthreads();
        } else {
            for (int i = ty - 8; i < 16; i += 8)
                Bs[i][tx] = k0 + i < K && col < N ? B[(k0 + i) * N + col] : 0.0f;
            __syncthreads();
        }
        for (int k = 0; k < 16; ++k)
            acc += As[ty][k] * Bs[k][tx];
        __syncthreads();
    }
    if (row < M && col < N)
        C[row * N + col] = acc;
}
