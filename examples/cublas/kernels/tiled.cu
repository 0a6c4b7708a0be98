// /// gemm
// block = [16, 16]
// grid = ["cdiv(N, 16)", "cdiv(M, 16)"]
// derived_from = "cublas"
// change = "a tile in shared memory, written by hand"
// min_percent_of_cublas.cuda = 5
// [sizes]
// host = ["64", "67x45x33"]
// cuda = ["1024", "67x45x33"]
// ///

__global__ void tiled(const float* A, const float* B, float* C, int M, int N, int K)
{
    __shared__ float As[16][16];
    __shared__ float Bs[16][16];
    const int row = blockIdx.y * 16 + threadIdx.y;
    const int col = blockIdx.x * 16 + threadIdx.x;
    float acc = 0.0f;
    for (int start = 0; start < K; start += 16) {
        const int a_col = start + threadIdx.x;
        const int b_row = start + threadIdx.y;
        As[threadIdx.y][threadIdx.x] = row < M && a_col < K ? A[row * K + a_col] : 0.0f;
        Bs[threadIdx.y][threadIdx.x] = b_row < K && col < N ? B[b_row * N + col] : 0.0f;
        __syncthreads();
        for (int k = 0; k < 16; ++k)
            acc += As[threadIdx.y][k] * Bs[k][threadIdx.x];
        __syncthreads();
    }
    if (row < M && col < N)
        C[row * N + col] = acc;
}
