#pragma once
#include <cstdlib>
#include <vector>

namespace tools {

inline std::vector<float> random_matrix(int rows, int columns)
{
    std::vector<float> matrix(rows * columns);
    for (auto& value : matrix) value = std::rand() % 10;
    return matrix;
}

template <typename T>
__host__ __device__ T cdiv(T a, T b) { return (a + b - 1) / b; }

struct Error { std::string text; };

static __device__ __forceinline__ bool inside(int i, int n) { return i >= 0 && i < n; }

inline void check(cudaError_t status) { if (status != cudaSuccess) throw Error{"CUDA"}; }

}  // namespace tools
