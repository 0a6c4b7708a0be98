// Fewer threads than elements: each takes every so manieth, with 64-bit indices.

// /// gemm
// block = [128]
// grid  = [3]
// ///

__constant__ float one[1] = {1.0f};

__global__ void grid_stride(const float* A, const float* B, float* C, int M, int N, int K)
{
    const long long count = (long long)M * N;
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < count;
         i += (long long)gridDim.x * blockDim.x) {
        const int row = int(i / N), col = int(i % N);
        float acc = 0.0f;
        for (int k = 0; k < K; ++k)
            acc = fmaf(A[(size_t)row * K + k], B[(size_t)k * N + col], acc);
        C[i] = one[0] * acc;
    }
}
