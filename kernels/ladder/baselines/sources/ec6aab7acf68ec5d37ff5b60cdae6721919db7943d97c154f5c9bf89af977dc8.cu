// The pipeline of multistage.cu with A transposed in shared memory, and what its registers do.
//
// 24 registers hold the values of a step, where reading A along K takes 72: that leaves room to
// read those of the next step during the multiply-adds of this one. Then it matters how fast a
// multiply-add gets its operands. The registers of a thread lie in two banks, the even and the odd
// ones. In the model that NOTES.md puts to the test, a multiply-add starts in every cycle in which
// each bank has to give one register at most; what the one before has left in the operand cache
// (".reuse" in the code) is free. So a sum and the factor that is new must lie in different banks.
//
// Sums that are stored as float4 must lie in four registers from a multiple of four on, and so
// must the four values of B that they are sums with: such a pair is in the same bank, always.
// After a multiplication by alpha they lie elsewhere, and the compiler may place the sums as it
// likes. A row that runs backwards begins with the value of B that the row before it ended with.







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


// C = alpha A B. SERPENTINE and AHEAD are 0 or 1.
template <int BM, int BN, int BK, int WM, int WN, int TM, int TN, int STAGES, int GROUP, int AHEAD,
          int SERPENTINE>
__device__ __forceinline__ void
multiply(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int M,
         int N, int K, float alpha)
{
    constexpr int WARPS_N = BN / WN;
    constexpr int THREADS = BM / WM * WARPS_N * 32;
    constexpr int LANES_M = WM / TM;               // rows of lanes
    constexpr int LANES_N = WN / TN;               // columns of lanes
    constexpr int PITCH = BM + 4;                  // of a column of A
    constexpr int STAGE = BK * (PITCH + BN);
    constexpr int A_ROWS = THREADS / 8;            // that all threads copy at once
    constexpr int B_ROWS = THREADS / (BN / 4);
    static_assert(LANES_M * LANES_N == 32, "a warp has 32 lanes");
    static_assert(BM % A_ROWS == 0 && BK % 8 == 0 && BK % B_ROWS == 0, "all threads copy");

    extern __shared__ float4 shared[];
    float* const stages = reinterpret_cast<float*>(shared);
    float* const end = stages + STAGES * STAGE;

    // GROUP rows of blocks, column by column.
    const int block_cols = (N + BN - 1) / BN;
    const int block_rows = (M + BM - 1) / BM;
    const int first = blockIdx.x / (GROUP * block_cols) * GROUP;
    const int height = min(GROUP, block_rows - first);
    const int inside = blockIdx.x % (GROUP * block_cols);
    const int block_row = (first + inside % height) * BM;
    const int block_col = inside / height * BN;
    const bool whole = block_row + BM <= M && block_col + BN <= N && K % BK == 0 && N % 4 == 0;

    const int thread = threadIdx.x;
    const int warp = thread / 32, lane = thread % 32;
    const int row = warp / WARPS_N * WM + lane / LANES_N * 4;    // + m * LANES_M
    const int col = warp % WARPS_N * WN + lane % LANES_N * 4;    // + n * LANES_N

    // A warp copies 8 columns of 4 rows of A: whole sectors of global memory, and with this pitch
    // 32 different banks of shared memory.
    const int a_row = thread / 8, a_col = thread % 8;
    const int b_row = thread / (BN / 4), b_col = thread % (BN / 4) * 4;
    const float* a_from = A + (size_t)(block_row + a_row) * K + a_col;
    const float* b_from = B + (size_t)b_row * N + block_col + b_col;

    const auto copy = [&](int tile, float* stage) {
        float* const As = stage + a_col * PITCH + a_row;
        float* const Bs = stage + BK * PITCH + b_row * BN + b_col;
        if (whole) {
            #pragma unroll
            for (int i = 0; i < BM; i += A_ROWS)
                #pragma unroll
                for (int j = 0; j < BK; j += 8)
                    copy_async<4>(As + j * PITCH + i, a_from + (size_t)i * K + j, true);
            #pragma unroll
            for (int i = 0; i < BK; i += B_ROWS)
                copy_async<16>(Bs + i * BN, b_from + (size_t)i * N, true);
            a_from += BK;
            b_from += (size_t)BK * N;
        } else {
            #pragma unroll 1
            for (int n = 0; n < BM / A_ROWS * BK / 8; ++n) {
                const int i = n / (BK / 8) * A_ROWS, j = n % (BK / 8) * 8;
                const int r = block_row + a_row + i, c = tile * BK + a_col + j;
                const bool is_in = r < M && c < K;
                copy_async<4>(As + j * PITCH + i, is_in ? A + (size_t)r * K + c : A, is_in);
            }
            #pragma unroll 1
            for (int i = 0; i < BK; i += B_ROWS)
                copy4_async(Bs + i * BN, B, tile * BK + b_row + i, block_col + b_col, K, N);
        }
    };

    float acc[TM][TN] = {};
    float a_frag[2][TM], b_frag[2][TN];
    const auto load = [&](int k, const float* stage) {
        #pragma unroll
        for (int m = 0; m < TM; m += 4)
            unpack(a_frag[k % 2] + m, stage + k % BK * PITCH + row + m * LANES_M);
        #pragma unroll
        for (int n = 0; n < TN; n += 4)
            unpack(b_frag[k % 2] + n, stage + BK * PITCH + k % BK * BN + col + n * LANES_N);
    };
    const auto multiply_add = [&](int k) {
        #pragma unroll
        for (int m = 0; m < TM; ++m)
            #pragma unroll
            for (int i = 0; i < TN; ++i) {
                const int n = SERPENTINE && m % 2 ? TN - 1 - i : i;
                acc[m][n] += a_frag[k % 2][m] * b_frag[k % 2][n];
            }
    };

    const int tiles = (K + BK - 1) / BK;
    const float* reading = stages;
    float* writing = stages;
    const auto copy_next = [&](int tile) {
        if (tile < tiles)
            copy(tile, writing);
        __pipeline_commit();
        writing = writing + STAGE == end ? stages : writing + STAGE;
    };
    const auto await_tile = [&] {
        __pipeline_wait_prior(STAGES - 2);
        __syncthreads();
    };

    #pragma unroll 1
    for (int tile = 0; tile < STAGES - 1; ++tile)
        copy_next(tile);
    await_tile();
    if (AHEAD)
        load(0, reading);
    #pragma unroll 1
    for (int tile = 0; tile < tiles; ++tile) {
        copy_next(tile + STAGES - 1);
        const float* const after = reading + STAGE == end ? stages : reading + STAGE;
        const float* const next = tile + 1 < tiles ? after : reading;    // there is always one
        #pragma unroll
        for (int k = 0; k < BK; ++k) {
            if (AHEAD && k + 1 == BK)
                await_tile();
            if (AHEAD)
                load(k + 1, k + 1 < BK ? reading : next);
            else
                load(k, reading);
            multiply_add(k);
        }
        if (!AHEAD)
            await_tile();
        reading = next;
    }

    #pragma unroll
    for (int m = 0; m < TM; ++m)
        #pragma unroll
        for (int n = 0; n < TN; n += 4)
            store4(C, block_row + row + m / 4 * 4 * LANES_M + m % 4, block_col + col + n * LANES_N,
                   M, N, make_float4(alpha * acc[m][n], alpha * acc[m][n + 1],
                                     alpha * acc[m][n + 2], alpha * acc[m][n + 3]));
}

template <int BM, int BN, int BK, int WM, int WN, int TM, int TN, int STAGES, int GROUP, int AHEAD,
          int SERPENTINE>
__global__ void __launch_bounds__(BM / WM * (BN / WN) * 32)
gemm(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int M, int N,
     int K)
{
    multiply<BM, BN, BK, WM, WN, TM, TN, STAGES, GROUP, AHEAD, SERPENTINE>(A, B, C, M, N, K, 1.0f);
}

template <int BM, int BN, int BK, int WM, int WN, int TM, int TN, int STAGES, int GROUP, int AHEAD,
          int SERPENTINE>
__global__ void __launch_bounds__(BM / WM * (BN / WN) * 32)
scaled_gemm(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int M,
            int N, int K, float alpha)
{
    multiply<BM, BN, BK, WM, WN, TM, TN, STAGES, GROUP, AHEAD, SERPENTINE>(A, B, C, M, N, K, alpha);
}
