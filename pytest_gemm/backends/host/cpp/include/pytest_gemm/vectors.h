// float4 and its kin: plain structs with CUDA's sizes and alignments.
#pragma once

#include "pytest_gemm/abi.h"

#define PYTEST_GEMM_VECTORS(name, T, align2, align4)                                        \
    struct name##1 {                                                                        \
        T x;                                                                                \
    };                                                                                      \
    struct alignas(align2) name##2 {                                                        \
        T x, y;                                                                             \
    };                                                                                      \
    PYTEST_GEMM_VECTOR3(name, T)                                                            \
    struct alignas(align4) name##4 {                                                        \
        T x, y, z, w;                                                                       \
    };                                                                                      \
    constexpr name##1 make_##name##1(T x) { return {x}; }                                   \
    constexpr name##2 make_##name##2(T x, T y) { return {x, y}; }                           \
    constexpr name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; }                   \
    constexpr name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }

#define PYTEST_GEMM_VECTOR3(name, T) \
    struct name##3 {                 \
        T x, y, z;                   \
    };

PYTEST_GEMM_VECTORS(char, signed char, 2, 4)
PYTEST_GEMM_VECTORS(uchar, unsigned char, 2, 4)
PYTEST_GEMM_VECTORS(short, short, 4, 8)
PYTEST_GEMM_VECTORS(ushort, unsigned short, 4, 8)
PYTEST_GEMM_VECTORS(int, int, 8, 16)
PYTEST_GEMM_VECTORS(long, long, 16, 16)
PYTEST_GEMM_VECTORS(ulong, unsigned long, 16, 16)
PYTEST_GEMM_VECTORS(longlong, long long, 16, 16)
PYTEST_GEMM_VECTORS(ulonglong, unsigned long long, 16, 16)
PYTEST_GEMM_VECTORS(float, float, 8, 16)
PYTEST_GEMM_VECTORS(double, double, 16, 16)

// uint3 is the type of threadIdx: abi.h has it.
#undef PYTEST_GEMM_VECTOR3
#define PYTEST_GEMM_VECTOR3(name, T)
PYTEST_GEMM_VECTORS(uint, unsigned int, 8, 16)

#undef PYTEST_GEMM_VECTOR3
#undef PYTEST_GEMM_VECTORS
