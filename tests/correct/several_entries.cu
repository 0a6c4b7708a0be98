// Two kernels in one file, one of them with helper functions that take shared memory as pointers.

// /// gemm
// entry = "rows"
// block = [32]
// grid  = ["M"]
// ///

// /// gemm
// entry = "flat"
// block = [256]
// grid  = ["cdiv(N, 16)", "cdiv(M, 16)"]
// ///

// One block computes a row of C: it keeps the row of A.
__global__ void rows(const float* A, const float* B, float* C, int M, int N, int K)
{
    __shared__ float a[64];
    const int row = blockIdx.x;
    for (int col = threadIdx.x; col < (N + 31) / 32 * 32; col += 32) {
        float acc = 0.0f;
        for (int k0 = 0; k0 < K; k0 += 64) {
            __syncthreads();
            for (int k = threadIdx.x; k < 64 && k0 + k < K; k += 32)
                a[k] = A[row * K + k0 + k];
            __syncthreads();
            for (int k = 0; col < N && k < 64 && k0 + k < K; ++k)
                acc += a[k] * B[(k0 + k) * N + col];
        }
        if (col < N)
            C[row * N + col] = acc;
    }
}

static __device__ void load(float* tile, const float* from, int row, int rows, int col, int cols)
{
    const int i = threadIdx.x / 16, j = threadIdx.x % 16;
    tile[threadIdx.x] = row + i < rows && col + j < cols ? from[(row + i) * cols + col + j] : 0.0f;
}

static __device__ float dot(const float* a, const float* b)
{
    float acc = 0.0f;
    for (int k = 0; k < 16; ++k)
        acc += a[k] * b[16 * k];
    return acc;
}

// A block of 256 threads in one dimension for a tile in two.
__global__ void flat(const float* A, const float* B, float* C, int M, int N, int K)
{
    __shared__ float a[256], b[256];
    const int i = threadIdx.x / 16, j = threadIdx.x % 16;
    const int row = blockIdx.y * 16, col = blockIdx.x * 16;
    float acc = 0.0f;
    for (int k0 = 0; k0 < K; k0 += 16) {
        load(a, A, row, M, k0, K);
        load(b, B, k0, K, col, N);
        __syncthreads();
        acc += dot(a + 16 * i, b + j);
        __syncthreads();
    }
    if (row + i < M && col + j < N)
        C[(row + i) * N + col + j] = acc;
}
