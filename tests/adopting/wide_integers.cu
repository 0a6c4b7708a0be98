// Sizes of type size_t, in the order K, M, N.
#include <cstddef>

namespace linear {
__global__ void gemm_wide(float *__restrict__ out, const float *__restrict__ lhs,
                          const float *__restrict__ rhs, std::size_t k, std::size_t m, std::size_t n)
{
    const std::size_t row = (std::size_t)blockIdx.x * blockDim.x + threadIdx.x;
    const std::size_t col = (std::size_t)blockIdx.y * blockDim.y + threadIdx.y;
    if (row < m && col < n) {
        float acc = 0.0f;
        for (std::size_t i = 0; i < k; ++i)
            acc = fmaf(lhs[row * k + i], rhs[i * n + col], acc);
        out[row * n + col] = acc;
    }
}
}  // namespace linear
