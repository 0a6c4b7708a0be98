// BLAS' own arguments: column-major, leading dimensions, alpha and beta.

// /// gemm
// name = "blas_nn"
// entry = "gemm<float, float, false, false>"
// block = [16, 16]
// grid = ["cdiv(M, 16)", "cdiv(N, 16)"]
// layout = "column-major"
// lda = "M + 3"
// alpha = 1.5
// beta = 0.5
// ///

// /// gemm
// name = "blas_tn_double"
// entry = "gemm<double, double, true, false>"
// block = [16, 16]
// grid = ["cdiv(M, 16)", "cdiv(N, 16)"]
// layout = "column-major"
// transa = "T"
// dtype = "float64"
// ///

// /// gemm
// name = "blas_tt_int8"
// entry = "gemm<signed char, int, true, true>"
// block = [16, 16]
// grid = ["cdiv(M, 16)", "cdiv(N, 16)"]
// layout = "column-major"
// transa = "T"
// transb = "T"
// dtype = "int8"
// beta = 1
// ///

template <class In, class Out, bool transa, bool transb>
__global__ void gemm(int M, int N, int K, Out alpha, const In* A, int lda, const In* B, int ldb,
                     Out beta, Out* C, int ldc)
{
    const int row = blockIdx.x * 16 + threadIdx.x, col = blockIdx.y * 16 + threadIdx.y;
    if (row >= M || col >= N)
        return;
    Out acc = 0;
    for (int k = 0; k < K; ++k) {
        const Out a = A[transa ? row * lda + k : k * lda + row];
        acc += a * Out(B[transb ? k * ldb + col : col * ldb + k]);
    }
    C[col * ldc + row] = beta == 0 ? alpha * acc : alpha * acc + beta * C[col * ldc + row];
}
