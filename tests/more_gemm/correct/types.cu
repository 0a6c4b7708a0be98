// One kernel for all types and transpositions.

// /// gemm
// name = "half_nn"
// entry = "gemm<half, half, float, false, false>"
// block = [16, 16]
// grid = ["cdiv(N, 16)", "cdiv(M, 16)"]
// dtype = "float16"
// ///

// /// gemm
// name = "half_float_nt"
// entry = "gemm<half, float, float, false, true>"
// block = [16, 16]
// grid = ["cdiv(N, 16)", "cdiv(M, 16)"]
// dtype = "float16"
// out_dtype = "float32"
// transb = "T"
// ///

// /// gemm
// name = "half_sums"
// entry = "gemm<half, half, half, false, false>"
// block = [16, 16]
// grid = ["cdiv(N, 16)", "cdiv(M, 16)"]
// dtype = "float16"
// acc_dtype = "float16"
// ///

// /// gemm
// name = "bfloat_nn"
// entry = "gemm<__nv_bfloat16, __nv_bfloat16, float, false, false>"
// block = [16, 16]
// grid = ["cdiv(N, 16)", "cdiv(M, 16)"]
// dtype = "bfloat16"
// ///

// /// gemm
// name = "bfloat_float_tt"
// entry = "gemm<__nv_bfloat16, float, float, true, true>"
// block = [16, 16]
// grid = ["cdiv(N, 16)", "cdiv(M, 16)"]
// dtype = "bfloat16"
// out_dtype = "float32"
// transa = "T"
// transb = "T"
// ///

// /// gemm
// name = "double_nt"
// entry = "gemm<double, double, double, false, true>"
// block = [16, 16]
// grid = ["cdiv(N, 16)", "cdiv(M, 16)"]
// dtype = "float64"
// transb = "T"
// ///

// /// gemm
// name = "int8_tn"
// entry = "gemm<signed char, int, int, true, false>"
// block = [16, 16]
// grid = ["cdiv(N, 16)", "cdiv(M, 16)"]
// dtype = "int8"
// transa = "T"
// ///

#include <cuda_bf16.h>
#include <cuda_fp16.h>

template <class In, class Out, class Sum, bool transa, bool transb>
__global__ void gemm(const In* A, const In* B, Out* C, int M, int N, int K)
{
    __shared__ In As[16][17], Bs[16][17];
    const int x = threadIdx.x, y = threadIdx.y;
    const int row = blockIdx.y * 16 + y, col = blockIdx.x * 16 + x;
    Sum acc = Sum(0.0f);
    for (int k = 0; k < K; k += 16) {
        As[y][x] = row < M && k + x < K ? A[transa ? (k + x) * M + row : row * K + k + x] : In(0.0f);
        Bs[y][x] = k + y < K && col < N ? B[transb ? col * K + k + y : (k + y) * N + col] : In(0.0f);
        __syncthreads();
        for (int i = 0; i < 16; ++i)
            acc += Sum(As[y][i]) * Sum(Bs[i][x]);
        __syncthreads();
    }
    if (row < M && col < N)
        C[row * N + col] = Out(acc);
}
