// /// gemm
// block = [32]
// grid = ["N // 16", "M // 16"]
// dtype = "float16"
// out_dtype = "float32"
// requires = ["M % 16 == 0", "N % 16 == 0", "K % 16 == 0"]
// ///
#include <mma.h>

using namespace nvcuda;

__global__ void tensor(const half* A, const half* B, float* C, int M, int N, int K)
{
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> a;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> b;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> c;
    wmma::fill_fragment(c, 0.0f);
    const int row = blockIdx.y * 16, col = blockIdx.x * 16;
    for (int k = 0; k < K; k += 16) {
        wmma::load_matrix_sync(a, A + row * K + k, K);
        wmma::load_matrix_sync(b, B + k * N + col, N);
        wmma::mma_sync(c, a, b, c);
    }
    wmma::store_matrix_sync(C + row * N + col, c, N, wmma::mem_row_major);
}
