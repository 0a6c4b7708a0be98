// Views of the operands are passed to device functions by value; tiles are members.

// /// gemm
// block = [16, 16]
// grid  = ["cdiv(N, 16)", "cdiv(M, 16)"]
// ///

struct View {
    const float* data;
    int rows, columns;
    __device__ float operator()(int row, int column) const
    {
        return row < rows && column < columns ? data[(size_t)row * columns + column] : 0.0f;
    }
};

struct Tiles {
    float a[16][16];
    float b[16][16];
};

__device__ void load(Tiles& tiles, View A, View B, int row, int col, int k0)
{
    tiles.a[threadIdx.y][threadIdx.x] = A(row, k0 + threadIdx.x);
    tiles.b[threadIdx.y][threadIdx.x] = B(k0 + threadIdx.y, col);
}

__device__ float multiply(const Tiles& tiles)
{
    float acc = 0.0f;
    for (int k = 0; k < 16; ++k)
        acc += tiles.a[threadIdx.y][k] * tiles.b[k][threadIdx.x];
    return acc;
}

__global__ void structs_by_value(const float* A, const float* B, float* C, int M, int N, int K)
{
    __shared__ Tiles tiles;
    const int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
    float acc = 0.0f;
    for (int k0 = 0; k0 < K; k0 += 16) {
        load(tiles, View{A, M, K}, View{B, K, N}, row, col, k0);
        __syncthreads();
        acc += multiply(tiles);
        __syncthreads();
    }
    if (row < M && col < N)
        C[row * N + col] = acc;
}
