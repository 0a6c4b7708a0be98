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

// /// gemm
// name         = "k_major"
// entry        = "gemm<BM, BN, BK, WM, WN, TM, TN, STAGES, GROUP, AHEAD, SERPENTINE>"
// block        = ["BM // WM * (BN // WN) * 32"]
// grid         = ["cdiv(N, BN) * cdiv(M, BM)"]
// shared_mem   = "4 * STAGES * BK * (BM + 4 + BN)"
// params       = { BM=128, BN=128, BK=32, WM=64, WN=64, TM=16, TN=8, STAGES=3, GROUP=8, AHEAD=0, SERPENTINE=0 }
// derived_from = "raster"
// change       = "LOSES: A transposed in shared memory by asynchronous copies of 4 bytes"
// ///

// /// gemm
// name         = "fragments"
// entry        = "gemm<BM, BN, BK, WM, WN, TM, TN, STAGES, GROUP, AHEAD, SERPENTINE>"
// block        = ["BM // WM * (BN // WN) * 32"]
// grid         = ["cdiv(N, BN) * cdiv(M, BM)"]
// shared_mem   = "4 * STAGES * BK * (BM + 4 + BN)"
// params       = { BM=128, BN=128, BK=32, WM=64, WN=64, TM=16, TN=8, STAGES=3, GROUP=8, AHEAD=1, SERPENTINE=0 }
// derived_from = "k_major"
// change       = "values for the next step are read during the multiply-adds of this one"
// ///

// /// gemm
// name         = "alpha"
// entry        = "scaled_gemm<BM, BN, BK, WM, WN, TM, TN, STAGES, GROUP, AHEAD, SERPENTINE>"
// block        = ["BM // WM * (BN // WN) * 32"]
// grid         = ["cdiv(N, BN) * cdiv(M, BM)"]
// shared_mem   = "4 * STAGES * BK * (BM + 4 + BN)"
// params       = { BM=128, BN=128, BK=32, WM=64, WN=64, TM=16, TN=8, STAGES=3, GROUP=8, AHEAD=1, SERPENTINE=0 }
// derived_from = "fragments"
// change       = "C = alpha A B: what is stored lies in other registers than the sums"
// ///

// /// gemm
// name         = "serpentine"
// entry        = "scaled_gemm<BM, BN, BK, WM, WN, TM, TN, STAGES, GROUP, AHEAD, SERPENTINE>"
// block        = ["BM // WM * (BN // WN) * 32"]
// grid         = ["cdiv(N, BN) * cdiv(M, BM)"]
// shared_mem   = "4 * STAGES * BK * (BM + 4 + BN)"
// params       = { BM=128, BN=128, BK=32, WM=64, WN=64, TM=16, TN=8, STAGES=3, GROUP=8, AHEAD=1, SERPENTINE=1 }
// derived_from = "alpha"
// change       = "every other row of multiply-adds runs backwards"
// ///

// /// gemm
// name         = "more_warps"
// entry        = "scaled_gemm<BM, BN, BK, WM, WN, TM, TN, STAGES, GROUP, AHEAD, SERPENTINE>"
// block        = ["BM // WM * (BN // WN) * 32"]
// grid         = ["cdiv(N, BN) * cdiv(M, BM)"]
// shared_mem   = "4 * STAGES * BK * (BM + 4 + BN)"
// params       = { BM=128, BN=128, BK=32, WM=32, WN=64, TM=8, TN=8, STAGES=3, GROUP=8, AHEAD=1, SERPENTINE=1 }
// derived_from = "serpentine"
// change       = "8 x 8 elements of C per thread instead of 16 x 8, by twice as many threads"
// ///

// /// gemm
// name         = "short_loop"
// entry        = "scaled_gemm<BM, BN, BK, WM, WN, TM, TN, STAGES, GROUP, AHEAD, SERPENTINE>"
// block        = ["BM // WM * (BN // WN) * 32"]
// grid         = ["cdiv(N, BN) * cdiv(M, BM)"]
// shared_mem   = "4 * STAGES * BK * (BM + 4 + BN)"
// params       = { BM=128, BN=128, BK=16, WM=32, WN=64, TM=8, TN=8, STAGES=3, GROUP=8, AHEAD=1, SERPENTINE=1 }
// derived_from = "more_warps"
// change       = "tiles 16 deep instead of 32: half the code"
// ///

#include "edges.cuh"

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
