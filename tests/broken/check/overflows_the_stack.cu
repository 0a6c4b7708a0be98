// Broken: a recursion as deep as the matrix, with an array in each step.

// /// gemm
// block = [16, 16]
// grid  = ["cdiv(N, 16)", "cdiv(M, 16)"]
// ///

__device__ __noinline__ float dot(const float* a, const float* b, int N, int K)  // finding: stack-overflow
{  // finding: stack-overflow
    volatile float products[1024];
    if (K == 0)
        return 0.0f;
    products[K % 1024] = a[0] * b[0];
    return dot(a, b, N, K - 1) + products[K % 1024];
}

__global__ void overflows_the_stack(const float* A, const float* B, float* C, int M, int N, int K)
{
    const int row = blockIdx.y * blockDim.y + threadIdx.y;
    const int col = blockIdx.x * blockDim.x + threadIdx.x;
    __syncthreads();
    if (row >= M || col >= N)
        return;

    C[row * N + col] = dot(A + row * K, B + col, N, 1000 * K);
}
