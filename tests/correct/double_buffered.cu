// Two tiles of each operand: one is used while the next is loaded, with one barrier a step.

// /// gemm
// block = [16, 16]
// grid  = ["cdiv(N, 16)", "cdiv(M, 16)"]
// ///

constexpr int TILE = 16;

__global__ void double_buffered(const float* __restrict__ A, const float* __restrict__ B,
                                float* __restrict__ C, int M, int N, int K)
{
    __shared__ float As[2][TILE][TILE], Bs[2][TILE][TILE + 1];
    const int ty = threadIdx.y, tx = threadIdx.x;
    const int row = blockIdx.y * TILE + ty, col = blockIdx.x * TILE + tx;
    const auto load = [&](int buffer, int k0) {
        As[buffer][ty][tx] = row < M && k0 + tx < K ? __ldg(&A[row * K + k0 + tx]) : 0.0f;
        Bs[buffer][ty][tx] = k0 + ty < K && col < N ? __ldg(B + (k0 + ty) * N + col) : 0.0f;
    };

    load(0, 0);
    __syncthreads();
    float acc = 0.0f;
    int buffer = 0;
    for (int k0 = 0; k0 < K; k0 += TILE) {
        if (k0 + TILE < K)
            load(buffer ^ 1, k0 + TILE);
        for (int k = 0; k < TILE; ++k)
            acc += As[buffer][ty][k] * Bs[buffer][k][tx];
        __syncthreads();
        buffer ^= 1;
    }
    if (row < M && col < N)
        C[row * N + col] = acc;
}
