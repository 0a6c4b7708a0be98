// /// gemm
// entry = "gemm<Tile<16, 4>, Fma, float>"
// args = ["A", "B", "C", "M", "N", "K"]
// block = [16, 4]
// grid = ["cdiv(N, 16)", "cdiv(M, 4)"]
// ///
#include <cassert>
#include <cstdint>
#include <iostream>
#include <limits>
#include <numeric>
#include <thrust/device_vector.h>
#include <thrust/host_vector.h>
#include <type_traits>

#define HOST_DEVICE __host__ __device__

constexpr int divide_up(int a, int b) { return (a + b - 1) / b; }
constexpr int kWarp = 32;
static_assert(divide_up(33, kWarp) == 2, "rounds up");
const int limits[] = {1, 2, 3};

template <int COLUMNS, int ROWS>
struct Tile {
    static constexpr int columns = COLUMNS, rows = ROWS;
    using index_t = std::conditional_t<(COLUMNS * ROWS > 1024), std::int64_t, int>;
    static_assert(std::is_same_v<index_t, int>, "small");
    static int count() { return columns * rows; }
    static dim3 grid(int M, int N) { return dim3(divide_up(N, columns), divide_up(M, rows)); }
};

struct Fma {
    template <typename T>
    HOST_DEVICE T operator()(T a, T b, T c) const
    {
        return a * b + c;
    }
    HOST_DEVICE Fma() : zero{0}, one(1) {}
    int zero, one;
};

struct HostFma {
    float operator()(float a, float b) const { return std::inner_product(&a, &a + 1, &b, 0.0f); }
};

template <typename Tile, typename Op, typename T>
__global__ void gemm(const T* A, const T* B, T* C, int M, int N, int K)
{
    assert(blockDim.x == Tile::columns && blockDim.y == Tile::rows);
    Op op;
    typename Tile::index_t col = blockIdx.x * Tile::columns + threadIdx.x;
    typename Tile::index_t row = blockIdx.y * Tile::rows + threadIdx.y;
    if (row >= M || col >= N) return;
    auto load = [&] (const T* x, int at) { return x[at]; };
    T sum = std::numeric_limits<T>::max();
    sum = op.zero;
    for (int k = 0; k < K; ++k) sum = op(load(A, row * K + k), load(B, k * N + col), sum);
    C[row * N + col] = sum * op.one;
}
template __global__ void gemm<Tile<16, 4>, Fma>(const float*, const float*, float*, int, int, int);

auto host_kernel = [](float a, float b) { return HostFma{}(a, b); };

int main()
{
    thrust::host_vector<float> h(64 * 64, 1.0f);
    thrust::device_vector<float> A = h, B = h, C = h;
    gemm<Tile<16, 4>, Fma><<<Tile<16, 4>::grid(64, 64), dim3(16, 4)>>>(
        thrust::raw_pointer_cast(A.data()), thrust::raw_pointer_cast(B.data()),
        thrust::raw_pointer_cast(C.data()), 64, 64, 64);
    std::cout << C[0] << host_kernel(1, 2) << "\n";
}
