// LOSES: the naive product, with the threads of a warp down a column of C.
//
// The arithmetic and the number of loads are naive.cu's. But in every step the 32 lanes of a warp
// read 16 different rows of A, one float of each sector of 32 bytes, and store to 16 different
// rows of C.


__global__ void uncoalesced(const float* __restrict__ A, const float* __restrict__ B,
                            float* __restrict__ C, int M, int N, int K)
{
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    const int col = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= M || col >= N)
        return;

    float acc = 0.0f;
    for (int k = 0; k < K; ++k)
        acc += A[(size_t)row * K + k] * B[(size_t)k * N + col];
    C[(size_t)row * N + col] = acc;
}
