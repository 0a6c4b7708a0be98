// bfloat16 and pairs of it.
#pragma once

#include "pytest_gemm/small_float.h"
#include "pytest_gemm/vectors.h"

using __nv_bfloat16 = pytest_gemm::SmallFloat<pytest_gemm::Bfloat16>;
using __nv_bfloat162 = pytest_gemm::SmallPair<pytest_gemm::Bfloat16>;
using nv_bfloat16 = __nv_bfloat16;
using nv_bfloat162 = __nv_bfloat162;

inline float __bfloat162float(__nv_bfloat16 a) { return a; }
inline __nv_bfloat16 __float2bfloat16(float a) { return a; }
inline __nv_bfloat16 __float2bfloat16_rn(float a) { return a; }
inline __nv_bfloat16 __float2bfloat16_rz(float a) {
    return __nv_bfloat16::rounded(a, pytest_gemm::Rounding::zero);
}
inline __nv_bfloat16 __float2bfloat16_rd(float a) {
    return __nv_bfloat16::rounded(a, pytest_gemm::Rounding::down);
}
inline __nv_bfloat16 __float2bfloat16_ru(float a) {
    return __nv_bfloat16::rounded(a, pytest_gemm::Rounding::up);
}
inline __nv_bfloat16 __double2bfloat16(double a) { return a; }
inline __nv_bfloat16 __int2bfloat16_rn(int a) { return a; }
inline int __bfloat162int_rn(__nv_bfloat16 a) { return int(rintf(a)); }
inline int __bfloat162int_rz(__nv_bfloat16 a) { return int(float(a)); }

inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 a) { return a.bits; }
inline short __bfloat16_as_short(__nv_bfloat16 a) { return short(a.bits); }
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short a) { return __nv_bfloat16::from_bits(a); }
inline __nv_bfloat16 __short_as_bfloat16(short a) {
    return __nv_bfloat16::from_bits(static_cast<unsigned short>(a));
}

inline __nv_bfloat162 make_bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }
inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }
inline __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 a) { return {a, a}; }
inline __nv_bfloat162 __float2bfloat162_rn(float a) { return {a, a}; }
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) { return {x, y}; }
inline __nv_bfloat162 __float22bfloat162_rn(float2 a) { return {a.x, a.y}; }
inline float2 __bfloat1622float2(__nv_bfloat162 a) { return {float(a.x), float(a.y)}; }
inline __nv_bfloat16 __low2bfloat16(__nv_bfloat162 a) { return a.x; }
inline __nv_bfloat16 __high2bfloat16(__nv_bfloat162 a) { return a.y; }
inline __nv_bfloat162 __low2bfloat162(__nv_bfloat162 a) { return {a.x, a.x}; }
inline __nv_bfloat162 __high2bfloat162(__nv_bfloat162 a) { return {a.y, a.y}; }
inline __nv_bfloat162 __lowhigh2highlow(__nv_bfloat162 a) { return {a.y, a.x}; }
