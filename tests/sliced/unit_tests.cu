// /// gemm
// entry = "kernels::v1::mul_columns"
// block = [128]
// grid = ["cdiv(N, 128)", "M"]
// ///
#include <gtest/gtest.h>
#include <benchmark/benchmark.h>
#include <Eigen/Dense>
#include <tuple>
#include <array>
#include <string_view>

namespace kernels {

namespace {
int helper(int n) { return n / 2; }
constexpr std::array<int, 3> kSizes = {64, 128, 256};
constexpr std::string_view kName = "columns";
constexpr std::string_view name() { return kName; }
__device__ inline float multiply_add(float a, float b, float c) { return fmaf(a, b, c); }
}  // namespace

inline namespace v1 {
__global__ void mul_columns(const float* A, const float* B, float* C, int M, int N, int K) {
    for (int col = blockIdx.x * blockDim.x + threadIdx.x; col < N; col += gridDim.x * blockDim.x) {
        float sum = 0;
        for (int k = 0; k < K; ++k) sum = multiply_add(A[blockIdx.y * K + k], B[k * N + col], sum);
        C[blockIdx.y * N + col] = sum;
    }
}
}  // namespace v1

using Case = std::tuple<int, int, int>;
std::array<Case, 2> cases{Case{1, 2, 3}, Case{4, 5, 6}};

}  // namespace kernels

class GemmTest : public ::testing::TestWithParam<kernels::Case> {
protected:
    void SetUp() override { std::tie(m, n, k) = GetParam(); }
    int m, n, k;
};

TEST_P(GemmTest, Matches) {
    Eigen::MatrixXf A(m, k), B(k, n);
    kernels::mul_columns<<<dim3(1, m), 128>>>(A.data(), B.data(), nullptr, m, n, k);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess) << R"(braces } } in a raw string)";
}
INSTANTIATE_TEST_SUITE_P(All, GemmTest, ::testing::ValuesIn(kernels::cases));

static void BM_Gemm(benchmark::State& state) {
    for (auto _ : state) kernels::mul_columns<<<1, 128>>>(nullptr, nullptr, nullptr, 0, 0, 0);
}
BENCHMARK(BM_Gemm)->RangeMultiplier(2)->Range(8, 8 << 10);
BENCHMARK_MAIN();
