// Intrinsics and the functions that CUDA has without a header.
#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include <type_traits>

// ---- min and max of mixed arithmetic types ---------------------------------------------------

namespace pytest_gemm {

template <class A, class B>
using Common = std::enable_if_t<std::is_arithmetic_v<A> && std::is_arithmetic_v<B>,
                                std::common_type_t<A, B>>;

// A value of which the compiler knows nothing. With one as operand and one as result, a product
// is rounded before it is used: otherwise __fadd_rn(__fmul_rn(a, b), c) would be fused, which
// CUDA promises not to do, or a plain `a * b + c` beside it would share the product.
template <class T>
inline T opaque(T value) {
#if defined(__x86_64__)
    __asm__("" : "+x"(value));
#elif defined(__aarch64__)
    __asm__("" : "+w"(value));
#endif
    return value;
}

template <class T>
inline T rounded_sum(T a, T b) {
    return opaque(opaque(a) + b);
}

template <class T>
inline T rounded_product(T a, T b) {
    return opaque(opaque(a) * b);
}

template <class To, class From>
inline To bit_cast(From from) {
    static_assert(sizeof(To) == sizeof(From), "");
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}

}  // namespace pytest_gemm

template <class A, class B>
constexpr pytest_gemm::Common<A, B> min(A a, B b) {
    using T = pytest_gemm::Common<A, B>;
    if constexpr (std::is_floating_point_v<T>) {
        return T(a) != T(a) || T(b) < T(a) ? T(b) : T(a);  // as fmin: the one that is no NaN
    } else {
        return T(b) < T(a) ? T(b) : T(a);
    }
}

template <class A, class B>
constexpr pytest_gemm::Common<A, B> max(A a, B b) {
    using T = pytest_gemm::Common<A, B>;
    if constexpr (std::is_floating_point_v<T>) {
        return T(a) != T(a) || T(a) < T(b) ? T(b) : T(a);
    } else {
        return T(a) < T(b) ? T(b) : T(a);
    }
}

// ---- loads and stores with cache hints -------------------------------------------------------

#define PYTEST_GEMM_LOAD(name)               \
    template <class T>                       \
    inline T name(const T* address) {        \
        return *address;                     \
    }
PYTEST_GEMM_LOAD(__ldg)
PYTEST_GEMM_LOAD(__ldca)
PYTEST_GEMM_LOAD(__ldcg)
PYTEST_GEMM_LOAD(__ldcs)
PYTEST_GEMM_LOAD(__ldcv)
PYTEST_GEMM_LOAD(__ldlu)
#undef PYTEST_GEMM_LOAD

#define PYTEST_GEMM_STORE(name)                                          \
    template <class T>                                                   \
    inline void name(T* address, std::enable_if_t<true, T> value) {      \
        *address = value;                                                \
    }
PYTEST_GEMM_STORE(__stcg)
PYTEST_GEMM_STORE(__stcs)
PYTEST_GEMM_STORE(__stwb)
PYTEST_GEMM_STORE(__stwt)
#undef PYTEST_GEMM_STORE

// ---- arithmetic with the rounding in the name ------------------------------------------------

inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline float __fadd_rn(float a, float b) { return pytest_gemm::rounded_sum(a, b); }
inline float __fsub_rn(float a, float b) { return pytest_gemm::rounded_sum(a, -b); }
inline float __fmul_rn(float a, float b) { return pytest_gemm::rounded_product(a, b); }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __frcp_rn(float a) { return 1.0f / a; }
inline float __fsqrt_rn(float a) { return sqrtf(a); }
inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
inline double __dadd_rn(double a, double b) { return pytest_gemm::rounded_sum(a, b); }
inline double __dmul_rn(double a, double b) { return pytest_gemm::rounded_product(a, b); }

inline float __saturatef(float a) { return a >= 1.0f ? 1.0f : a > 0.0f ? a : 0.0f; }

// The fast approximations. Macros, because the C library declares some of these names itself.
#define __expf(x) expf(x)
#define __exp10f(x) exp10f(x)
#define __logf(x) logf(x)
#define __log2f(x) log2f(x)
#define __log10f(x) log10f(x)
#define __powf(x, y) powf(x, y)
#define __sinf(x) sinf(x)
#define __cosf(x) cosf(x)
#define __tanf(x) tanf(x)
#define __sincosf(x, s, c) sincosf(x, s, c)
#define __fdividef(x, y) ((x) / (y))
#define fdividef(x, y) ((x) / (y))
#define rsqrtf(x) (1.0f / sqrtf(x))
#define __frsqrt_rn(x) (1.0f / sqrtf(x))
#define rsqrt(x) (1.0 / sqrt(double(x)))

// ---- integers --------------------------------------------------------------------------------

inline int __popc(unsigned int a) { return __builtin_popcount(a); }
inline int __popcll(unsigned long long a) { return __builtin_popcountll(a); }
inline int __clz(int a) { return a == 0 ? 32 : __builtin_clz(unsigned(a)); }
inline int __clzll(long long a) { return a == 0 ? 64 : __builtin_clzll((unsigned long long)a); }
inline int __ffs(int a) { return __builtin_ffs(a); }
inline int __ffsll(long long a) { return __builtin_ffsll(a); }

inline unsigned int __brev(unsigned int a) {
    unsigned int reversed = 0;
    for (int bit = 0; bit < 32; ++bit) reversed |= (a >> bit & 1u) << (31 - bit);
    return reversed;
}

inline int __mul24(int a, int b) {
    return (int(unsigned(a) << 8) >> 8) * (int(unsigned(b) << 8) >> 8);
}
inline unsigned int __umul24(unsigned int a, unsigned int b) {
    return (a & 0xffffffu) * (b & 0xffffffu);
}
inline int __mulhi(int a, int b) { return int((long long)a * b >> 32); }
inline unsigned int __umulhi(unsigned int a, unsigned int b) {
    return unsigned((unsigned long long)a * b >> 32);
}

inline unsigned int __funnelshift_l(unsigned int low, unsigned int high, unsigned int shift) {
    return unsigned((((unsigned long long)high << 32 | low) << (shift & 31)) >> 32);
}
inline unsigned int __funnelshift_r(unsigned int low, unsigned int high, unsigned int shift) {
    return unsigned(((unsigned long long)high << 32 | low) >> (shift & 31));
}

inline int __dp4a(int a, int b, int c) {
    for (int byte = 0; byte < 4; ++byte) c += int8_t(a >> 8 * byte) * int8_t(b >> 8 * byte);
    return c;
}
inline unsigned int __dp4a(unsigned int a, unsigned int b, unsigned int c) {
    for (int byte = 0; byte < 4; ++byte) c += uint8_t(a >> 8 * byte) * uint8_t(b >> 8 * byte);
    return c;
}

// ---- conversions -----------------------------------------------------------------------------

inline int __float_as_int(float a) { return pytest_gemm::bit_cast<int>(a); }
inline unsigned int __float_as_uint(float a) { return pytest_gemm::bit_cast<unsigned int>(a); }
inline float __int_as_float(int a) { return pytest_gemm::bit_cast<float>(a); }
inline float __uint_as_float(unsigned int a) { return pytest_gemm::bit_cast<float>(a); }
inline long long __double_as_longlong(double a) { return pytest_gemm::bit_cast<long long>(a); }
inline double __longlong_as_double(long long a) { return pytest_gemm::bit_cast<double>(a); }

inline int __float2int_rn(float a) { return int(rintf(a)); }
inline int __float2int_rz(float a) { return int(a); }
inline int __float2int_rd(float a) { return int(floorf(a)); }
inline int __float2int_ru(float a) { return int(ceilf(a)); }
inline unsigned int __float2uint_rn(float a) { return unsigned(rintf(a)); }
inline unsigned int __float2uint_rz(float a) { return unsigned(a); }
inline float __int2float_rn(int a) { return float(a); }
inline float __uint2float_rn(unsigned int a) { return float(a); }
inline float __double2float_rn(double a) { return float(a); }

// ---- time ------------------------------------------------------------------------------------

namespace pytest_gemm {

// Nanoseconds, not cycles.
inline long long ticks() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ll + now.tv_nsec;
}

}  // namespace pytest_gemm

inline long long clock64() { return pytest_gemm::ticks(); }
