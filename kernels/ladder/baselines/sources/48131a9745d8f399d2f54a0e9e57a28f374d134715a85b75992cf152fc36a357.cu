// The 8 x 8 pipeline of k_major.cu with less beside its multiply-adds, for any rows and for any
// number of blocks.
//
// A multiprocessor runs RESIDENT blocks; with 132 of them there are SLOTS places. 1024 tiles of C
// take 3.88 rounds, so 4, and the last one leaves places empty. Here the tiles that would not fill
// a round (all of them, if there are few) are cut along K into as many equal parts as there are
// places (stream-K: Osama, Merrill, Cecka, Garland, Owens, "Stream-K: Work-centric parallel
// decomposition for dense matrix-matrix multiplication on the GPU", PPoPP 2023). A part begins in
// one tile and may end in the next. Sums of parts of a tile are left in memory; the block that
// finishes last adds them up in the order of K, so that the result does not depend on who it is.
// Nobody waits for anybody.








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


constexpr int LEAST = 128;    // steps of K that are worth a block
constexpr int MOST = 5 << 20; // elements of C in a round

// Sums of parts (of up to two tiles in each block), and how many parts of a tile have arrived.
template <int SLOTS> __device__ float left_over[SLOTS ? 2 * MOST : 1];
template <int SLOTS> __device__ unsigned int arrived[SLOTS ? SLOTS : 1];

template <int BM, int BN, int BK, int WM, int WN, int TM, int TN, int STAGES, int GROUP, int COLUMNS,
          int RESIDENT, int ANY, int SLOTS, int SPREAD, int INSIDE>
__global__ void __launch_bounds__(BM / WM * (BN / WN) * 32, RESIDENT)
gemm(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int M, int N,
     int K, float alpha)
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
    static_assert(SLOTS * BM * BN <= MOST, "parts have places");

    extern __shared__ float4 shared[];
    float* const stages = reinterpret_cast<float*>(shared);

    const int thread = threadIdx.x;
    const int warp = thread / 32, lane = thread % 32;
    const int row = warp / WARPS_N * WM + lane / LANES_N * 4;    // + m * LANES_M
    const int col = warp % WARPS_N * WN + lane % LANES_N * 4;    // + n * LANES_N
    const int a_row = thread / 8, a_col = thread % 8;
    const int b_row = thread / (BN / 4), b_col = thread % (BN / 4) * 4;
    const size_t a_stride = (size_t)A_ROWS * K, b_stride = (size_t)B_ROWS * N;

    // Steps of K (of BK each) are counted through the shared tiles of C, one tile after the other.
    const int block_cols = (N + BN - 1) / BN;
    const int block_rows = (M + BM - 1) / BM;
    const int steps = (K + BK - 1) / BK;
    const int shared_tiles = SLOTS ? block_rows * block_cols % SLOTS : 0;
    const long long shared_steps = (long long)shared_tiles * steps;
    // A round that is nearly full is left as it is.
    const int wanted = shared_tiles * 16 > SLOTS * 15 ? 0 : SLOTS;
    const int parts = max(shared_tiles, (int)min((long long)wanted, shared_steps * BK / LEAST));
    const auto part_of = [&](long long step) { return (int)(((step + 1) * parts - 1) / shared_steps); };

    // Steps of K from begin to end of one tile of C. A part of a tile has a place to leave its sums.
    const auto multiply = [&](int tile, int begin, int end, int place) {
        // GROUP rows of tiles, column by column.
        const int first = tile / (GROUP * block_cols) * GROUP;
        const int height = min(GROUP, block_rows - first);
        const int inside = tile % (GROUP * block_cols);
        const int block_row = (first + inside % height) * BM;
        const int block_col = inside / height * BN;
        const bool whole = block_row + BM <= M && block_col + BN <= N
                           && (ANY || (K % BK == 0 && N % 4 == 0));
        const int unguarded = whole ? K / BK : 0;    // steps

        const float* a_from = A + (size_t)(block_row + a_row) * K + a_col + begin * BK;
        const float* b_from = B + (size_t)(b_row + begin * BK) * N + block_col + b_col;
        const auto copy = [&](int step, float* stage) {
            float* const As = stage + a_col * PITCH + a_row;
            float* const Bs = stage + BK * PITCH + b_row * BN + b_col;
            if (step < unguarded) {
                const float* from = a_from;
                #pragma unroll
                for (int i = 0; i < BM; i += A_ROWS, from += a_stride)
                    #pragma unroll
                    for (int j = 0; j < BK; j += 8)
                        copy_async<4>(As + j * PITCH + i, from + j, true);
                a_from += BK;
                if (!ANY || N % 4 == 0) {
                    #pragma unroll
                    for (int i = 0; i < BK; i += B_ROWS, b_from += b_stride)
                        copy_async<16>(Bs + i * BN, b_from, true);
                } else {
                    #pragma unroll
                    for (int i = 0; i < BK; i += B_ROWS, b_from += b_stride)
                        #pragma unroll
                        for (int j = 0; j < 4; ++j)
                            copy_async<4>(Bs + i * BN + j, b_from + j, true);
                }
            } else {
                #pragma unroll 1
                for (int n = 0; n < BM / A_ROWS * BK / 8; ++n) {
                    const int i = n / (BK / 8) * A_ROWS, j = n % (BK / 8) * 8;
                    const int r = block_row + a_row + i, c = step * BK + a_col + j;
                    const bool is_in = r < M && c < K;
                    copy_async<4>(As + j * PITCH + i, is_in ? A + (size_t)r * K + c : A, is_in);
                }
                #pragma unroll 1
                for (int i = 0; i < BK; i += B_ROWS)
                    copy4_async(Bs + i * BN, B, step * BK + b_row + i, block_col + b_col, K, N);
            }
        };

        // What copy does for whole tiles with aligned rows, in BK portions.
        constexpr int A_COPIES = BM / A_ROWS * (BK / 8), COPIES = A_COPIES + BK / B_ROWS;
        float* a_to = stages + (STAGES - 1) * STAGE + a_col * PITCH + a_row;
        float* b_to = stages + (STAGES - 1) * STAGE + BK * PITCH + b_row * BN + b_col;
        const auto copy_some = [&](int k) {
            #pragma unroll
            for (int n = k * COPIES / BK; n < (k + 1) * COPIES / BK; ++n) {
                if (n < A_COPIES) {
                    const int i = n / (BK / 8), j = n % (BK / 8) * 8;
                    copy_async<4>(a_to + j * PITCH + i * A_ROWS, a_from + j, true);
                    if (j + 8 == BK)
                        a_from += n + 1 < A_COPIES ? a_stride : BK - (BM / A_ROWS - 1) * a_stride;
                } else {
                    copy_async<16>(b_to + (n - A_COPIES) * B_ROWS * BN, b_from, true);
                    b_from += b_stride;
                }
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
            for (int j = 0; j < (COLUMNS ? TN : TM); ++j)
                #pragma unroll
                for (int i = 0; i < (COLUMNS ? TM : TN); ++i) {
                    const int turned = j % 2 ? (COLUMNS ? TM : TN) - 1 - i : i;
                    const int m = COLUMNS ? turned : j, n = COLUMNS ? j : turned;
                    acc[m][n] += a_frag[k % 2][m] * b_frag[k % 2][n];
                }
        };

        // The first is read, the last written next.
        float* ring[STAGES];
        #pragma unroll
        for (int i = 0; i < STAGES; ++i)
            ring[i] = stages + i * STAGE;
        const auto await_step = [] {
            __pipeline_wait_prior(STAGES - 2);
            __syncthreads();
        };
        if (SLOTS)
            __syncthreads();    // nobody reads what the tile before left
        #pragma unroll
        for (int i = 0; i < STAGES - 1; ++i) {
            if (begin + i < end)
                copy(begin + i, ring[i]);
            __pipeline_commit();
        }
        await_step();
        load(0, ring[0]);
        const int spread_end = N % 4 == 0 ? min(end, unguarded) : 0;
        #pragma unroll 1
        for (int now = begin; now < end; ++now) {
            const int coming = now + STAGES - 1;
            const bool spread = SPREAD && coming < spread_end;
            if (!spread && coming < end)
                copy(coming, ring[STAGES - 1]);
            if (!SPREAD)
                __pipeline_commit();
            const float* const next = now + 1 < end ? ring[1] : ring[0];    // there is always one
            #pragma unroll
            for (int k = 0; k < BK; ++k) {
                if (SPREAD && k + 1 == BK)
                    __pipeline_commit();
                if (k + 1 == BK)
                    await_step();
                load(k + 1, k + 1 < BK ? ring[0] : next);
                if (spread)
                    copy_some(k);
                multiply_add(k);
            }
            float* const oldest = ring[0];
            #pragma unroll
            for (int i = 0; i + 1 < STAGES; ++i)
                ring[i] = ring[i + 1];
            ring[STAGES - 1] = oldest;
            if (SPREAD) {
                const int on = oldest == stages ? STAGE - STAGES * STAGE : STAGE;
                a_to += on;
                b_to += on;
            }
        }

        const auto store = [&](const float (&sums)[TM][TN], float factor) {
            #pragma unroll
            for (int m = 0; m < TM; ++m)
                #pragma unroll
                for (int n = 0; n < TN; n += 4)
                    store4(C, block_row + row + m / 4 * 4 * LANES_M + m % 4,
                           block_col + col + n * LANES_N, M, N,
                           make_float4(factor * sums[m][n], factor * sums[m][n + 1],
                                       factor * sums[m][n + 2], factor * sums[m][n + 3]));
        };
        if (!SLOTS || end - begin == steps) {
            store(acc, alpha);
            return;
        }

        float* const places = left_over<SLOTS> + thread;    // TM * TN * THREADS each
        #pragma unroll
        for (int m = 0; m < TM; ++m)
            #pragma unroll
            for (int n = 0; n < TN; ++n)
                places[((size_t)place * TM * TN + m * TN + n) * THREADS] = alpha * acc[m][n];
        const int low = part_of((long long)tile * steps);
        const int high = part_of((long long)tile * steps + steps - 1);
        const auto last_of = [&](bool& is_last) {
            __threadfence();
            __syncthreads();
            if (thread == 0) {
                is_last = atomicAdd(&arrived<SLOTS>[tile], 1) == high - low;
                if (is_last)
                    arrived<SLOTS>[tile] = 0;    // for the next launch
            }
            __syncthreads();
            return is_last;
        };
        if constexpr (INSIDE) {
            if (!last_of(*reinterpret_cast<bool*>(shared)))
                return;
        } else {
            __shared__ bool is_last;    // the stages begin 16 bytes behind it
            if (!last_of(is_last))
                return;
        }
        __threadfence();
        float sums[TM][TN] = {};
        #pragma unroll 1
        for (int part = low; part <= high; ++part) {
            const int first = shared_steps * part / parts / steps;    // tile of that block
            const size_t its = (size_t)(2 * part + tile - first) * TM * TN;
            #pragma unroll
            for (int m = 0; m < TM; ++m)
                #pragma unroll
                for (int n = 0; n < TN; ++n)
                    sums[m][n] += places[(its + m * TN + n) * THREADS];
        }
        store(sums, 1.0f);
    };

    if (!SLOTS) {
        multiply(blockIdx.x, 0, steps, 0);
        return;
    }
    long long at, end;
    if (blockIdx.x >= SLOTS) {
        at = (long long)(shared_tiles + blockIdx.x - SLOTS) * steps;
        end = at + steps;
    } else if (blockIdx.x < parts) {
        at = shared_steps * blockIdx.x / parts;
        end = shared_steps * (blockIdx.x + 1) / parts;
    } else {
        return;
    }
    #pragma unroll 1
    for (int place = 2 * blockIdx.x; at < end; ++place) {
        const int tile = at / steps;
        const long long first = (long long)tile * steps;
        const long long to = min(first + steps, end);
        multiply(tile, at - first, to - first, place);
        at = to;
    }
}
