// /// gemm
// name = "half_sums_undeclared"
// entry = "gemm<half, half, half>"
// block = [16, 16]
// grid = ["cdiv(N, 16)", "cdiv(M, 16)"]
// dtype = "float16"
// ///

// /// gemm
// name = "half_sums_to_float"
// entry = "gemm<half, float, half>"
// block = [16, 16]
// grid = ["cdiv(N, 16)", "cdiv(M, 16)"]
// dtype = "float16"
// out_dtype = "float32"
// ///

// /// gemm
// name = "double_in_float"
// entry = "gemm<double, double, float>"
// block = [16, 16]
// grid = ["cdiv(N, 16)", "cdiv(M, 16)"]
// dtype = "float64"
// ///

// /// gemm
// name = "int8_overflows"
// entry = "gemm<signed char, int, short>"
// block = [16, 16]
// grid = ["cdiv(N, 16)", "cdiv(M, 16)"]
// dtype = "int8"
// ///

// /// gemm
// name = "bfloat_as_half"
// entry = "gemm<half, float, float>"
// block = [16, 16]
// grid = ["cdiv(N, 16)", "cdiv(M, 16)"]
// dtype = "bfloat16"
// out_dtype = "float32"
// ///

#include <cuda_fp16.h>

template <class In, class Out, class Sum>
__global__ void gemm(const In* A, const In* B, Out* C, int M, int N, int K)
{
    const int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
    if (row >= M || col >= N)
        return;
    Sum acc = Sum(0.0f);
    for (int k = 0; k < K; ++k)
        acc = Sum(acc + Sum(A[row * K + k]) * Sum(B[k * N + col]));
    C[row * N + col] = Out(acc);
}
