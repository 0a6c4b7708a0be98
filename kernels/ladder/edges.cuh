// Four neighbours of a row at once, and what to do where a matrix ends: zeros are read, nothing is
// written. Rows are read as float4 where all of them begin at multiples of 16 bytes.
#pragma once

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
