// /// gemm
// block = [32, 2]
// grid = ["cdiv(N, 32)", "cdiv(M, 16)"]
// ///
#include <mma.h>
#include <cuda_fp16.h>

using namespace nvcuda;

__global__ void mul(const float* A, const float* B, float* C, int M, int N, int K)
{
    __shared__ __align__(32) half As[16][16];
    __shared__ __align__(32) half Bs[16][32 + 8];
    __shared__ __align__(32) float Cs[2][16 * 16];
    const int thread = threadIdx.y * 32 + threadIdx.x, warp = threadIdx.y;
    const int first_row = blockIdx.y * 16, first_col = blockIdx.x * 32;

    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> a;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> b;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> acc;
    wmma::fill_fragment(acc, 0.0f);
    for (int k0 = 0; k0 < K; k0 += 16) {
        for (int i = thread; i < 16 * 16; i += 64) {
            const int row = first_row + i / 16, k = k0 + i % 16;
            As[i / 16][i % 16] = __float2half(row < M && k < K ? A[row * K + k] : 0.0f);
        }
        for (int i = thread; i < 16 * 32; i += 64) {
            const int k = k0 + i / 32, col = first_col + i % 32;
            Bs[i / 32][i % 32] = __float2half(k < K && col < N ? B[k * N + col] : 0.0f);
        }
        __syncthreads();
        wmma::load_matrix_sync(a, &As[0][0], 16);
        wmma::load_matrix_sync(b, &Bs[0][16 * warp], 32 + 8);
        wmma::mma_sync(acc, a, b, acc);
        __syncthreads();  // before the next tile
    }
    wmma::store_matrix_sync(Cs[warp], acc, 16, wmma::mem_row_major);
    __syncwarp();
    for (int i = threadIdx.x; i < 16 * 16; i += 32) {
        const int row = first_row + i / 16, col = first_col + 16 * warp + i % 16;
        if (row < M && col < N) C[row * N + col] = Cs[warp][i];
    }
}
