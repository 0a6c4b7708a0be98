// A whole program, as it stands in a blog.
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <vector>
#include <cuda_runtime.h>

#define CHECK(call)                                                                      \
    do {                                                                                 \
        cudaError_t status = (call);                                                     \
        if (status != cudaSuccess) {                                                     \
            std::cerr << cudaGetErrorString(status) << std::endl;                        \
            std::exit(1);                                                                \
        }                                                                                \
    } while (0)

__global__ void matmul(const float *a, const float *b, float *c, int n)
{
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < n && col < n) {
        float sum = 0.0f;
        for (int k = 0; k < n; ++k)
            sum += a[row * n + k] * b[k * n + col];
        c[row * n + col] = sum;
    }
}

static bool verify(const std::vector<float> &a, const std::vector<float> &b,
                   const std::vector<float> &c, int n)
{
    for (int i = 0; i < n; ++i)
        for (int j = 0; j < n; ++j) {
            double sum = 0;
            for (int k = 0; k < n; ++k)
                sum += a[i * n + k] * b[k * n + j];
            if (std::fabs(sum - c[i * n + j]) > 1e-3)
                return false;
        }
    return true;
}

int main(int argc, char **argv)
{
    const int n = argc > 1 ? std::atoi(argv[1]) : 1 << 10;
    std::vector<float> a(n * n), b(n * n), c(n * n);
    for (auto &x : a) x = std::rand() % 10;
    for (auto &x : b) x = std::rand() % 10;
    float *d_a, *d_b, *d_c;
    CHECK(cudaMalloc(&d_a, n * n * sizeof(float)));
    CHECK(cudaMalloc(&d_b, n * n * sizeof(float)));
    CHECK(cudaMalloc(&d_c, n * n * sizeof(float)));
    CHECK(cudaMemcpy(d_a, a.data(), n * n * sizeof(float), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(d_b, b.data(), n * n * sizeof(float), cudaMemcpyHostToDevice));
    int threads = 16;
    int blocks = (n + threads - 1) / threads;
    dim3 block_size(threads, threads), grid_size(blocks, blocks);
    auto start = std::chrono::steady_clock::now();
    matmul<<<grid_size, block_size>>>(d_a, d_b, d_c, n);
    CHECK(cudaDeviceSynchronize());
    std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    CHECK(cudaMemcpy(c.data(), d_c, n * n * sizeof(float), cudaMemcpyDeviceToHost));
    std::cout << took.count() << (verify(a, b, c, n) ? " ok" : " wrong") << std::endl;
}
