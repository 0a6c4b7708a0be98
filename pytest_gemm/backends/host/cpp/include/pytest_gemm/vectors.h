// float4 and its kin: plain structs with CUDA's sizes and alignments.
#pragma once

#include "pytest_gemm/abi.h"

// clang takes copies of structs apart before it instruments them, and g++ does not instrument those
// that are made for a call. In a build for checking, vectors are therefore copied as a whole: one
// access of their size and alignment.
#if defined(PYTEST_GEMM_CHECK) && !defined(PYTEST_GEMM_PLAIN_VECTORS)
namespace pytest_gemm {

template <class T>
__attribute__((always_inline)) inline void copy_whole(T* to, const T* from) {
    constexpr int size = sizeof(T) < 16 ? sizeof(T) : 16;
    typedef unsigned char Part __attribute__((vector_size(size), may_alias, aligned(alignof(T))));
    for (unsigned i = 0; i < sizeof(T) / size; ++i)
        reinterpret_cast<Part*>(to)[i] = reinterpret_cast<const Part*>(from)[i];
}

}  // namespace pytest_gemm

#define PYTEST_GEMM_WHOLE(name)                                                             \
    name() = default;                                                                       \
    __attribute__((always_inline)) name(const name& other) {                                \
        pytest_gemm::copy_whole(this, &other);                                              \
    }                                                                                       \
    __attribute__((always_inline)) name& operator=(const name& other) {                     \
        pytest_gemm::copy_whole(this, &other);                                              \
        return *this;                                                                       \
    }
#define PYTEST_GEMM_WHOLE2(name, T) \
    PYTEST_GEMM_WHOLE(name)         \
    constexpr name(T x, T y = 0) : x(x), y(y) {}
#define PYTEST_GEMM_WHOLE4(name, T) \
    PYTEST_GEMM_WHOLE(name)         \
    constexpr name(T x, T y = 0, T z = 0, T w = 0) : x(x), y(y), z(z), w(w) {}
#else
#define PYTEST_GEMM_WHOLE(name) name() = default;
#define PYTEST_GEMM_WHOLE2(name, T)
#define PYTEST_GEMM_WHOLE4(name, T)
#endif

#define PYTEST_GEMM_VECTORS(name, T, align2, align4)                                        \
    struct name##1 {                                                                        \
        T x;                                                                                \
    };                                                                                      \
    struct alignas(align2) name##2 {                                                        \
        T x, y;                                                                             \
        PYTEST_GEMM_WHOLE2(name##2, T)                                                      \
    };                                                                                      \
    PYTEST_GEMM_VECTOR3(name, T)                                                            \
    struct alignas(align4) name##4 {                                                        \
        T x, y, z, w;                                                                       \
        PYTEST_GEMM_WHOLE4(name##4, T)                                                      \
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
#undef PYTEST_GEMM_WHOLE2
#undef PYTEST_GEMM_WHOLE4
