// Each warp has a part of the tile, each lane a part of the warp's.

// /// gemm
// block = [128]
// grid  = ["cdiv(N, 32)", "cdiv(M, 32)"]
// ///

constexpr int BM = 32, BN = 32, BK = 8, WM = 16, WN = 16, TM = 2, TN = 4;

__global__ void warp_tiled(const float* __restrict__ A, const float* __restrict__ B,
                           float* __restrict__ C, int M, int N, int K)
{
    __shared__ float As[BK][BM + 4];
    __shared__ float Bs[BK][BN];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int warp_row = warp / (BN / WN) * WM, warp_col = warp % (BN / WN) * WN;
    const int row = warp_row + lane / (WN / TN) * TM, col = warp_col + lane % (WN / TN) * TN;
    const int block_row = blockIdx.y * BM, block_col = blockIdx.x * BN;

    float acc[TM][TN] = {};
    for (int k0 = 0; k0 < K; k0 += BK) {
        for (int i = threadIdx.x; i < BM * BK; i += 128) {
            const int r = block_row + i / BK, k = k0 + i % BK;
            As[i % BK][i / BK] = r < M && k < K ? A[r * K + k] : 0.0f;
        }
        for (int i = threadIdx.x; i < BK * BN; i += 128) {
            const int k = k0 + i / BN, n = block_col + i % BN;
            Bs[i / BN][i % BN] = k < K && n < N ? B[k * N + n] : 0.0f;
        }
        __syncthreads();
        for (int k = 0; k < BK; ++k) {
            float a_frag[TM], b_frag[TN];
            for (int i = 0; i < TM; ++i)
                a_frag[i] = As[k][row + i];
            for (int j = 0; j < TN; ++j)
                b_frag[j] = Bs[k][col + j];
            for (int i = 0; i < TM; ++i)
                for (int j = 0; j < TN; ++j)
                    acc[i][j] += a_frag[i] * b_frag[j];
        }
        __syncthreads();
    }
    for (int i = 0; i < TM; ++i)
        for (int j = 0; j < TN; ++j)
            if (block_row + row + i < M && block_col + col + j < N)
                C[(block_row + row + i) * N + block_col + col + j] = acc[i][j];
}
