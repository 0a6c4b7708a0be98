// /// gemm
// entry = "bench::detail::mul<float>"
// block = [32, 4]
// grid = ["cdiv(N, 32)", "cdiv(M, 4)"]
// ///
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <utility>
#include <cuda.h>
#include <nvtx3/nvToolsExt.h>

#define THROW_IF(status) \
    if (auto s = (status); s != cudaSuccess) throw bench::Error(cudaGetErrorString(s))

namespace bench {

class Error : public std::runtime_error {
public:
    explicit Error(const std::string& what) : std::runtime_error(what) {}
    ~Error() override = default;
};

enum class Layout : int { row = 0, column };
union Bits { float f; unsigned u; };

template <typename T>
class Buffer {
public:
    explicit Buffer(std::size_t size) : size_{size}, data_(nullptr) { THROW_IF(cudaMalloc(&data_, size * sizeof(T))); }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    ~Buffer() { cudaFree(data_); }
    T* get() const noexcept { return data_; }
    T& operator[](std::size_t i) { return data_[i]; }

private:
    std::size_t size_;
    T* data_;
};

class Timer {
    cudaEvent_t start_, stop_;
    static int count;

public:
    Timer() { cudaEventCreate(&start_); cudaEventCreate(&stop_); }
    float elapsed() const {
        float ms = 0;
        cudaEventElapsedTime(&ms, start_, stop_);
        return ms;
    }
};
int Timer::count = 0;

struct Session { Timer timer; std::map<std::string, float> results; };

namespace detail {

template <typename T>
__global__ void __launch_bounds__(128) mul(const T* A, const T* B, T* C, int M, int N, int K) {
    const int row = blockIdx.y * blockDim.y + threadIdx.y;
    const int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= M || col >= N) return;
    T acc{};
    for (int k = 0; k < K; ++k) acc += A[row * K + k] * B[k * N + col];
    Bits bits;
    bits.f = acc;
    C[row * N + col] = Layout::row == Layout{} ? bits.f : T{};
}

}  // namespace detail

template <typename T>
void run(Session& session, int n) {
    Buffer<T> a(n * n), b(n * n), c(n * n);
    detail::mul<T><<<dim3(n / 32, n / 4), dim3(32, 4)>>>(a.get(), b.get(), c.get(), n, n, n);
    THROW_IF(cudaGetLastError());
    session.results["mul"] = session.timer.elapsed();
}

}  // namespace bench

auto main() -> int try {
    auto session = std::make_unique<bench::Session>();
    bench::run<float>(*session, 256);
} catch (const bench::Error& error) {
    return 1;
}
