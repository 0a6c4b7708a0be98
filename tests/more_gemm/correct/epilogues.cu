// /// gemm
// name = "relu"
// entry = "gemm<float, 0>"
// block = [16, 16]
// grid = ["cdiv(N, 16)", "cdiv(M, 16)"]
// reference = "../refs.py:relu"
// ///

// /// gemm
// name = "gelu_half"
// entry = "gemm<half, 1>"
// block = [16, 16]
// grid = ["cdiv(N, 16)", "cdiv(M, 16)"]
// dtype = "float16"
// reference = "../refs.py:gelu"
// ///

// /// gemm
// name = "residual"
// entry = "gemm<float, 2>"
// block = [16, 16]
// grid = ["cdiv(N, 16)", "cdiv(M, 16)"]
// alpha = 0.5
// reference = "../refs.py:residual"
// ///

#include <cuda_fp16.h>

template <class T, int epilogue>
__global__ void gemm(const T* A, const T* B, T* C, int M, int N, int K, float alpha)
{
    const int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
    if (row >= M || col >= N)
        return;
    float x = 0;
    for (int k = 0; k < K; ++k)
        x += float(A[row * K + k]) * float(B[k * N + col]);
    T& c = C[row * N + col];
    if (epilogue == 0)
        c = T(fmaxf(alpha * x, 0.0f));
    else if (epilogue == 1)
        c = T(0.5f * x * (1.0f + tanhf(0.7978845608f * (x + 0.044715f * x * x * x))));
    else
        c = T(fmaxf(alpha * x + float(c), 0.0f) + 0.25f * float(c));
}
