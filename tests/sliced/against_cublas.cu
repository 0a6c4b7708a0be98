// /// gemm
// entry = "tiled<16>"
// args = ["M", "N", "K", "alpha", "A", "B", "beta", "C"]
// block = [16, 16]
// grid = ["cdiv(N, 16)", "cdiv(M, 16)"]
// ///
#include <algorithm>
#include <chrono>
#include <cublas_v2.h>
#include <cuda_runtime.h>
#include <functional>
#include <iomanip>
#include <iostream>
#include <random>
#include <string>
#include <vector>

using namespace std;
using Clock = std::chrono::high_resolution_clock;
typedef std::vector<float> Host;

cublasHandle_t handle;
static std::mt19937 generator{42};
const std::string title = "tiled";

template <int T>
__global__ void tiled(int M, int N, int K, float alpha, const float* __restrict__ A,
                      const float* __restrict__ B, float beta, float* __restrict__ C) {
    __shared__ float As[T][T], Bs[T][T];
    const int row = blockIdx.y * T + threadIdx.y, col = blockIdx.x * T + threadIdx.x;
    float acc = 0.f;
    for (int k0 = 0; k0 < K; k0 += T) {
        As[threadIdx.y][threadIdx.x] =
            row < M && k0 + threadIdx.x < K ? A[row * K + k0 + threadIdx.x] : 0.f;
        Bs[threadIdx.y][threadIdx.x] =
            k0 + threadIdx.y < K && col < N ? B[(k0 + threadIdx.y) * N + col] : 0.f;
        __syncthreads();
#pragma unroll
        for (int k = 0; k < T; ++k) acc += As[threadIdx.y][k] * Bs[k][threadIdx.x];
        __syncthreads();
    }
    if (row < M && col < N)
        C[row * N + col] = beta == 0.f ? alpha * acc : alpha * acc + beta * C[row * N + col];
}

template <int T>
void launch(int M, int N, int K, const float* A, const float* B, float* C) {
    tiled<T><<<dim3((N + T - 1) / T, (M + T - 1) / T), dim3(T, T)>>>(M, N, K, 1, A, B, 0, C);
}
template void launch<16>(int, int, int, const float*, const float*, float*);
template __global__ void tiled<32>(int, int, int, float, const float*, const float*, float, float*);

double seconds(const std::function<void()>& f, int repeats = 10) {
    auto begin = Clock::now();
    for (int i = 0; i < repeats; ++i) f();
    cudaDeviceSynchronize();
    return std::chrono::duration<double>(Clock::now() - begin).count() / repeats;
}

int main() {
    const int n = 1024;
    Host a(n * n), b(n * n);
    std::generate(a.begin(), a.end(), [] { return std::uniform_real_distribution<float>{}(generator); });
    float *A, *B, *C, one = 1, zero = 0;
    cudaMalloc(&A, n * n * 4); cudaMalloc(&B, n * n * 4); cudaMalloc(&C, n * n * 4);
    cublasCreate(&handle);
    auto own = seconds([=] { launch<16>(n, n, n, A, B, C); });
    auto library = seconds([&] {
        cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, n, n, n, &one, B, n, A, n, &zero, C, n);
    });
    cout << setprecision(3) << title << " " << own << " s, cuBLAS " << library << " s" << endl;
}
