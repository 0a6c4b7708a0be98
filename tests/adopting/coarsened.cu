// A thread computes elements that are a tile apart.
#define TILE 16
#define COARSE 4

__global__ void mul(const float* A, const float* B, float* C, int M, int N, int K)
{
    __shared__ float a[TILE][TILE], b[TILE][TILE];
    int row = blockIdx.y * TILE + threadIdx.y;
    int first = blockIdx.x * TILE * COARSE + threadIdx.x;
    float sums[COARSE] = {};
    for (int k0 = 0; k0 < K; k0 += TILE) {
        a[threadIdx.y][threadIdx.x] = A[row * K + k0 + threadIdx.x];
        for (int c = 0; c < COARSE; ++c) {
            b[threadIdx.y][threadIdx.x] = B[(k0 + threadIdx.y) * N + first + c * TILE];
            __syncthreads();
            for (int k = 0; k < TILE; ++k)
                sums[c] += a[threadIdx.y][k] * b[k][threadIdx.x];
            __syncthreads();
        }
    }
    for (int c = 0; c < COARSE; ++c)
        C[row * N + first + c * TILE] = sums[c];
}
