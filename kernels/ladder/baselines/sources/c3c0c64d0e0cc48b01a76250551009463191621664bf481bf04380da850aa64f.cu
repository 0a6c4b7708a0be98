// A by rows in shared memory after all, read as float4 along K.
//
// A thread reads 4 steps of K at once: as many loads as from a transposed A, for which nothing has
// to be transposed. The rows of a warp's lanes are next to each other, so that with a pitch of BK
// + 4 floats they lie in different banks. It takes more registers.


#ifndef PYTEST_GEMM_ONCE_1
#define PYTEST_GEMM_ONCE_1
#line 1 "kernels/ladder/edges.cuh"
// Four neighbours of a row at once, and what to do where a matrix ends: zeros are read, nothing is
// written. Rows are read as float4 where all of them begin at multiples of 16 bytes.


#include <cuda_pipeline.h>

// Elements (row, col) to (row, col + 3) of a rows x cols matrix; col is a multiple of 4.
__device__ __forceinline__ float4 load4(const float* __restrict__ X, int row, int col, int rows,
                                        int cols)
{
    const float* from = X + (size_t)row * cols + col;
    if (row < rows && col < cols && cols % 4 == 0)
        return *reinterpret_cast<const float4*>(from);
    float4 x = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (row < rows) {
        if (col < cols) x.x = from[0];
        if (col + 1 < cols) x.y = from[1];
        if (col + 2 < cols) x.z = from[2];
        if (col + 3 < cols) x.w = from[3];
    }
    return x;
}

__device__ __forceinline__ void store4(float* __restrict__ X, int row, int col, int rows, int cols,
                                       float4 x)
{
    float* to = X + (size_t)row * cols + col;
    if (row < rows && col < cols && cols % 4 == 0) {
        *reinterpret_cast<float4*>(to) = x;
    } else if (row < rows) {
        if (col < cols) to[0] = x.x;
        if (col + 1 < cols) to[1] = x.y;
        if (col + 2 < cols) to[2] = x.z;
        if (col + 3 < cols) to[3] = x.w;
    }
}

// Four floats of shared memory, in one load.
__device__ __forceinline__ void unpack(float* to, const float* from)
{
    const float4 x = *reinterpret_cast<const float4*>(from);
    to[0] = x.x; to[1] = x.y; to[2] = x.z; to[3] = x.w;
}

// BYTES (4 or 16) to shared memory without a register between, or zeros.
template <int BYTES>
__device__ __forceinline__ void copy_async(float* to, const float* from, bool inside)
{
    __pipeline_memcpy_async(to, from, BYTES, inside ? 0 : BYTES);
}

// load4 to shared memory, asynchronously.
__device__ __forceinline__ void copy4_async(float* to, const float* __restrict__ X, int row,
                                            int col, int rows, int cols)
{
    const float* from = X + (size_t)row * cols + col;
    if (cols % 4 == 0) {
        const bool inside = row < rows && col < cols;
        copy_async<16>(to, inside ? from : X, inside);
    } else {
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
            const bool inside = row < rows && col + i < cols;
            copy_async<4>(to + i, inside ? from + i : X, inside);
        }
    }
}
#endif


constexpr int TILE = 128;       // rows and columns of C per block
constexpr int BK = 16;
constexpr int TM = 8;           // rows of C per thread
constexpr int TN = 8;           // columns of C per thread
constexpr int THREADS = 256;
constexpr int PITCH = BK + 4;   // of a row of A
constexpr int WM = 32;          // rows of C per warp
constexpr int WN = 64;          // columns of C per warp
constexpr int ROWS = WM / TM;   // rows of lanes
constexpr int COLS = WN / TN;   // columns of lanes

__global__ void __launch_bounds__(THREADS)
row_major_a(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int M,
            int N, int K)
{
    __shared__ alignas(16) float As[2][TILE][PITCH];
    __shared__ alignas(16) float Bs[2][BK][TILE];

    const int thread = threadIdx.x;
    const int warp = thread / 32, lane = thread % 32;
    const int row = warp / 2 * WM + lane / COLS;        // + m * ROWS, within the block
    const int col = warp % 2 * WN + lane % COLS * 4;    // + n * COLS
    const int block_row = blockIdx.y * TILE;
    const int block_col = blockIdx.x * TILE;
    const int a_row = thread / 4, a_col = thread % 4 * 4;
    const int b_row = thread / 32, b_col = lane * 4;

    // The two float4 of each operand that a thread copies.
    float4 a_next[2], b_next[2];
    const auto load = [&](int k0) {
        #pragma unroll
        for (int n = 0; n < 2; ++n) {
            a_next[n] = load4(A, block_row + a_row + n * 64, k0 + a_col, M, K);
            b_next[n] = load4(B, k0 + b_row + n * 8, block_col + b_col, K, N);
        }
    };
    const auto store = [&](int writing) {
        #pragma unroll
        for (int n = 0; n < 2; ++n) {
            *reinterpret_cast<float4*>(&As[writing][a_row + n * 64][a_col]) = a_next[n];
            *reinterpret_cast<float4*>(&Bs[writing][b_row + n * 8][b_col]) = b_next[n];
        }
    };

    load(0);
    store(0);
    __syncthreads();

    float acc[TM][TN] = {};
    int reading = 0;
    for (int k0 = 0; k0 < K; k0 += BK) {
        const bool is_more = k0 + BK < K;
        if (is_more)
            load(k0 + BK);

        #pragma unroll
        for (int k4 = 0; k4 < BK; k4 += 4) {
            float a_frag[TM][4];
            #pragma unroll
            for (int m = 0; m < TM; ++m)
                unpack(a_frag[m], &As[reading][row + m * ROWS][k4]);
            #pragma unroll
            for (int k = 0; k < 4; ++k) {
                float b_frag[TN];
                #pragma unroll
                for (int n = 0; n < TN; n += 4)
                    unpack(b_frag + n, &Bs[reading][k4 + k][col + n * COLS]);
                #pragma unroll
                for (int m = 0; m < TM; ++m)
                    #pragma unroll
                    for (int n = 0; n < TN; ++n)
                        acc[m][n] += a_frag[m][k] * b_frag[n];
            }
        }

        if (is_more)
            store(1 - reading);
        __syncthreads();
        reading = 1 - reading;
    }

    #pragma unroll
    for (int m = 0; m < TM; ++m)
        #pragma unroll
        for (int n = 0; n < TN; n += 4)
            store4(C, block_row + row + m * ROWS, block_col + col + n * COLS, M, N,
                   make_float4(acc[m][n], acc[m][n + 1], acc[m][n + 2], acc[m][n + 3]));
}
