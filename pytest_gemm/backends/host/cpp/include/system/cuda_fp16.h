// half and half2.
#pragma once

#include "pytest_gemm/small_float.h"
#include "pytest_gemm/vectors.h"

using __half = pytest_gemm::SmallFloat<pytest_gemm::Binary16>;
using __half2 = pytest_gemm::SmallPair<pytest_gemm::Binary16>;
using half = __half;
using half2 = __half2;
using nv_half = __half;
using nv_half2 = __half2;

inline float __half2float(__half a) { return a; }
inline __half __float2half(float a) { return a; }
inline __half __float2half_rn(float a) { return a; }
inline __half __float2half_rz(float a) { return __half::rounded(a, pytest_gemm::Rounding::zero); }
inline __half __float2half_rd(float a) { return __half::rounded(a, pytest_gemm::Rounding::down); }
inline __half __float2half_ru(float a) { return __half::rounded(a, pytest_gemm::Rounding::up); }
inline __half __double2half(double a) { return a; }

inline __half __int2half_rn(int a) { return a; }
inline __half __uint2half_rn(unsigned int a) { return a; }
inline __half __short2half_rn(short a) { return a; }
inline __half __ushort2half_rn(unsigned short a) { return a; }
inline __half __ll2half_rn(long long a) { return a; }
inline int __half2int_rn(__half a) { return int(rintf(a)); }
inline int __half2int_rz(__half a) { return int(float(a)); }
inline int __half2int_rd(__half a) { return int(floorf(a)); }
inline int __half2int_ru(__half a) { return int(ceilf(a)); }
inline unsigned int __half2uint_rn(__half a) { return unsigned(rintf(a)); }
inline unsigned int __half2uint_rz(__half a) { return unsigned(float(a)); }
inline short __half2short_rn(__half a) { return short(rintf(a)); }
inline short __half2short_rz(__half a) { return short(float(a)); }

inline unsigned short __half_as_ushort(__half a) { return a.bits; }
inline short __half_as_short(__half a) { return short(a.bits); }
inline __half __ushort_as_half(unsigned short a) { return __half::from_bits(a); }
inline __half __short_as_half(short a) { return __half::from_bits(static_cast<unsigned short>(a)); }

inline __half2 make_half2(__half x, __half y) { return {x, y}; }
inline __half2 __halves2half2(__half x, __half y) { return {x, y}; }
inline __half2 __half2half2(__half a) { return {a, a}; }
inline __half2 __float2half2_rn(float a) { return {a, a}; }
inline __half2 __floats2half2_rn(float x, float y) { return {x, y}; }
inline __half2 __float22half2_rn(float2 a) { return {a.x, a.y}; }
inline float2 __half22float2(__half2 a) { return {float(a.x), float(a.y)}; }
inline __half __low2half(__half2 a) { return a.x; }
inline __half __high2half(__half2 a) { return a.y; }
inline __half2 __low2half2(__half2 a) { return {a.x, a.x}; }
inline __half2 __high2half2(__half2 a) { return {a.y, a.y}; }
inline __half2 __lowhigh2highlow(__half2 a) { return {a.y, a.x}; }
inline __half2 __lows2half2(__half2 a, __half2 b) { return {a.x, b.x}; }
inline __half2 __highs2half2(__half2 a, __half2 b) { return {a.y, b.y}; }
