// /// gemm
// entry = "tiles<BM, BN, BK>"
// args = ["M", "N", "K", "A", "B", "C"]
// block = ["BN", "BM"]
// grid = ["cdiv(N, BN)", "cdiv(M, BM)"]
// shared_mem = "4 * BK * (BM + BN)"
// sweep.BM = [4, 8]
// sweep.BN = [16]
// params.BK = 12
// ///
#include <cstdio>
#include <vector>
#include <cuda_runtime_api.h>

extern __shared__ float storage[];

template <int BM, int BN, int BK>
struct Smem {
    static constexpr int bytes = BK * (BM + BN) * sizeof(float);
    float* a;
    float* b;
    __device__ explicit Smem(float* base) : a(base), b{base + BM * BK} {}
    __device__ Smem(const Smem&) = default;
    static cudaError_t allow()
    {
        return cudaFuncSetAttribute(nullptr, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    }
};

template <int BM, int BN, int BK>
__global__ __launch_bounds__(BM * BN) void tiles(int M, int N, int K, const float* A, const float* B, float* C)
{
    Smem<BM, BN, BK> s(storage);
    const int row = blockIdx.y * BM + threadIdx.y, col = blockIdx.x * BN + threadIdx.x;
    const int thread = threadIdx.y * BN + threadIdx.x;
    float sum = 0;
    for (int k0 = 0; k0 < K; k0 += BK) {
        for (int i = thread; i < BM * BK; i += BM * BN) {
            int r = blockIdx.y * BM + i / BK, c = k0 + i % BK;
            s.a[i] = r < M && c < K ? A[r * K + c] : 0;
        }
        for (int i = thread; i < BK * BN; i += BM * BN) {
            int r = k0 + i / BN, c = blockIdx.x * BN + i % BN;
            s.b[i] = r < K && c < N ? B[r * N + c] : 0;
        }
        __syncthreads();
        for (int k = 0; k < BK; ++k) sum += s.a[threadIdx.y * BK + k] * s.b[k * BN + threadIdx.x];
        __syncthreads();
    }
    if (row < M && col < N) C[row * N + col] = sum;
}

template <int BM, int BN>
std::vector<float> run(int n, cudaStream_t stream = nullptr)
{
    Smem<BM, BN, 12>::allow();
    int blocks = 0;
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, tiles<BM, BN, 12>, BM * BN, 0);
    tiles<BM, BN, 12><<<dim3(n / BN, n / BM), dim3(BN, BM), Smem<BM, BN, 12>::bytes, stream>>>(
        n, n, n, nullptr, nullptr, nullptr);
    return std::vector<float>(blocks);
}
template std::vector<float> run<8, 16>(int, cudaStream_t);

struct Runner {
    const char* name;
    std::vector<float> (*run)(int, cudaStream_t);
};
static const Runner runners[] = {{"4x16", run<4, 16>}, {"8x16", run<8, 16>}};

int main(int, char* []) { for (const auto& [name, run] : runners) printf("%s %zu\n", name, run(64, {}).size()); }
