// /// gemm
// entry = "kernel"
// block = ["BLOCK_SIZE", "BLOCK_SIZE"]
// grid = ["cdiv(N, BLOCK_SIZE)", "cdiv(M, BLOCK_SIZE)"]
// params.BLOCK_SIZE = 8
// ///
#include <iostream>
#include <ostream>

// Row-major: M(row, col) = *(M.elements + row * M.stride + col)
typedef struct {
    int width, height;
    int stride;
    const float* elements;
} Matrix;

struct Options {
    std::string name;
    int repeats;
} options = {"structs", 3};

struct Tile {
    float value[BLOCK_SIZE][BLOCK_SIZE];
    Tile() {}
    __device__ float* row(int i) { return value[i]; }
    friend std::ostream& operator<<(std::ostream& out, const Tile& tile) {
        return out << tile.value[0][0];
    }
    bool operator==(const Tile& other) const { return std::equal(value[0], value[8], other.value[0]); }
};

__device__ float get(const Matrix A, int row, int col)
{
    return row < A.height && col < A.width ? A.elements[row * A.stride + col] : 0.0f;
}

__host__ __device__ inline Matrix matrix(const float* elements, int height, int width)
{
    return Matrix{width, height, width, elements};
}

void multiply(const Matrix A, const Matrix B, Matrix C);

__global__ void kernel(const float* A, const float* B, float* C, int M, int N, int K)
{
    __shared__ float As[BLOCK_SIZE][BLOCK_SIZE], Bs[BLOCK_SIZE][BLOCK_SIZE];
    const Matrix a = matrix(A, M, K), b = matrix(B, K, N);
    int row = blockIdx.y * BLOCK_SIZE + threadIdx.y, col = blockIdx.x * BLOCK_SIZE + threadIdx.x;
    float sum = 0;
    for (int m = 0; m < K; m += BLOCK_SIZE) {
        As[threadIdx.y][threadIdx.x] = get(a, row, m + threadIdx.x);
        Bs[threadIdx.y][threadIdx.x] = get(b, m + threadIdx.y, col);
        __syncthreads();
        for (int e = 0; e < BLOCK_SIZE; ++e) sum += As[threadIdx.y][e] * Bs[e][threadIdx.x];
        __syncthreads();
    }
    if (row < M && col < N) C[row * N + col] = sum;
}

void multiply(const Matrix A, const Matrix B, Matrix C)
{
    Matrix d_A = matrix(nullptr, A.height, A.width);
    cudaMalloc((void**)&d_A.elements, A.width * A.height * sizeof(float));
    dim3 dimBlock(BLOCK_SIZE, BLOCK_SIZE);
    kernel<<<dim3(B.width / dimBlock.x, A.height / dimBlock.y), dimBlock>>>(
        A.elements, B.elements, const_cast<float*>(C.elements), A.height, B.width, A.width);
    std::cout << options.name << "\n";
}
