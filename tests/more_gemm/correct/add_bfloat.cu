// /// gemm
// op = "add"
// block = [256]
// grid = ["cdiv(M * N, 256)"]
// dtype = "bfloat16"
// layout = "column-major"
// args = ["A", "B", "C", "M * N"]
// ///
#include <cuda_bf16.h>

__global__ void add(const nv_bfloat16* A, const nv_bfloat16* B, nv_bfloat16* C, int n)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        C[i] = A[i] + B[i];
}
