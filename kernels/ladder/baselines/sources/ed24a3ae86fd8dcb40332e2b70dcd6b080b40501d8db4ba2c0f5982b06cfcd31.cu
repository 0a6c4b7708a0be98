// C = A B straight from the definition: one thread per element of C, no reuse on chip.
//
// Each thread reads a row of A and a column of B from global memory: 2 K loads per element.
// threadIdx.x runs along a row of C, so that a warp's loads of B and its stores are contiguous.


__global__ void naive(const float* __restrict__ A, const float* __restrict__ B,
                      float* __restrict__ C, int M, int N, int K)
{
    const int row = blockIdx.y * blockDim.y + threadIdx.y;
    const int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= M || col >= N)
        return;

    float acc = 0.0f;
    for (int k = 0; k < K; ++k)
        acc += A[(size_t)row * K + k] * B[(size_t)k * N + col];
    C[(size_t)row * N + col] = acc;
}
