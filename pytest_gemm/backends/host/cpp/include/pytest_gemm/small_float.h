// 16-bit floating-point types: stored in 16 bits, computed with in float.
//
// A float has more than twice the bits of either format, and two more: to round a sum, product,
// quotient or square root to float first changes nothing.
#pragma once

#include <math.h>
#include <stdint.h>

#include <type_traits>

#include "pytest_gemm/math.h"
#include "pytest_gemm/vectors.h"

namespace pytest_gemm {

enum class Rounding { nearest, zero, down, up };

// IEEE 754's way to fewer bits; NaN becomes the one that CUDA has.
template <int mantissa_bits>
inline uint16_t encode(double value, Rounding rounding = Rounding::nearest) {
    constexpr int bias = (1 << (14 - mantissa_bits)) - 1, least = 1 - bias;
    constexpr unsigned infinity = 0x7fffu >> mantissa_bits << mantissa_bits;
    const auto bits = bit_cast<uint64_t>(value);
    const bool is_negative = bits >> 63;
    const unsigned sign = is_negative ? 0x8000 : 0;
    const int exponent = int(bits >> 52 & 0x7ff) - 1023;
    const uint64_t fraction = bits & 0xfffffffffffffull;
    if (exponent == 1024) return uint16_t(fraction ? 0x7fff : sign | infinity);

    const uint64_t significand = fraction | (exponent == -1023 ? 0 : 1ull << 52);
    const bool is_subnormal = exponent < least;
    const int wanted = 52 - mantissa_bits + (is_subnormal ? least - exponent : 0);
    const int shift = wanted < 63 ? wanted : 63;
    const uint64_t rest = significand & ((1ull << shift) - 1), half = 1ull << (shift - 1);
    uint64_t kept = significand >> shift;
    if (rounding == Rounding::nearest) kept += rest > half || (rest == half && (kept & 1));
    if (rounding == Rounding::down) kept += is_negative && rest != 0;
    if (rounding == Rounding::up) kept += !is_negative && rest != 0;
    // The leading 1 of `kept` adds one to the exponent.
    uint64_t result = kept + (is_subnormal ? 0 : uint64_t(exponent - least) << mantissa_bits);
    if (result >= infinity) {
        const bool is_away = rounding == Rounding::nearest ||
                             rounding == (is_negative ? Rounding::down : Rounding::up);
        result = is_away ? infinity : infinity - 1;
    }
    return uint16_t(sign | result);
}

struct Binary16 {
    static constexpr int mantissa_bits = 10;
#if defined(__F16C__)
    using Vector = int __attribute__((vector_size(16)));
    static uint16_t from_float(float value) {
        if (value != value) return 0x7fff;
        Vector result;
        __asm__("vcvtps2ph $0, %1, %0" : "=x"(result) : "x"(value));
        return uint16_t(result[0]);
    }
    static float to_float(uint16_t bits) {
        float result;
        const Vector source = {bits};
        __asm__("vcvtph2ps %1, %0" : "=x"(result) : "x"(source));
        return result;
    }
#else
    static uint16_t from_float(float value) { return encode<mantissa_bits>(value); }
    static float to_float(uint16_t bits) {
        const uint32_t sign = uint32_t(bits & 0x8000) << 16, rest = bits & 0x7fff;
        if (rest < 0x400) return bit_cast<float>(sign | bit_cast<uint32_t>(float(rest) * 0x1p-24f));
        const uint32_t exponent = rest < 0x7c00 ? (127 - 15) << 23 : (255 - 31) << 23;
        return bit_cast<float>(sign | (exponent + (rest << 13)));
    }
#endif
};

struct Bfloat16 {
    static constexpr int mantissa_bits = 7;
    static uint16_t from_float(float value) {
        const auto bits = bit_cast<uint32_t>(value);
        if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fff;
        return uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
    static float to_float(uint16_t bits) { return bit_cast<float>(uint32_t(bits) << 16); }
};

#define PYTEST_GEMM_UNARY(T, name, expression) \
    friend T name(T a) { return T(expression); }
#define PYTEST_GEMM_BINARY(T, name, expression) \
    friend T name(T a, T b) { return T(expression); }
#define PYTEST_GEMM_COMPARISON(T, name, expression) \
    friend bool name(T a, T b) { return expression; }

template <class Format>
struct SmallFloat {
    uint16_t bits;

    PYTEST_GEMM_WHOLE(SmallFloat)
    SmallFloat(float value) : bits(Format::from_float(value)) {}
    SmallFloat(double value) : bits(encode<Format::mantissa_bits>(value)) {}
    template <class T, class = std::enable_if_t<std::is_integral_v<T>>>
    SmallFloat(T value) : SmallFloat(double(value)) {}
    operator float() const { return Format::to_float(bits); }

    static SmallFloat from_bits(unsigned int bits) {
        SmallFloat result;
        result.bits = uint16_t(bits);
        return result;
    }
    static SmallFloat rounded(double value, Rounding rounding) {
        return from_bits(encode<Format::mantissa_bits>(value, rounding));
    }

    SmallFloat& operator+=(SmallFloat b) { return *this = *this + b; }
    SmallFloat& operator-=(SmallFloat b) { return *this = *this - b; }
    SmallFloat& operator*=(SmallFloat b) { return *this = *this * b; }
    SmallFloat& operator/=(SmallFloat b) { return *this = *this / b; }
    SmallFloat& operator++() { return *this += SmallFloat(1.0f); }
    SmallFloat& operator--() { return *this -= SmallFloat(1.0f); }

    friend SmallFloat operator+(SmallFloat a) { return a; }
    friend SmallFloat operator-(SmallFloat a) { return from_bits(a.bits ^ 0x8000u); }
    friend SmallFloat __hneg(SmallFloat a) { return -a; }
    friend SmallFloat __habs(SmallFloat a) { return from_bits(a.bits & 0x7fffu); }
    // The product is exact in double, and the sum far enough from a tie.
    friend SmallFloat __hfma(SmallFloat a, SmallFloat b, SmallFloat c) {
        return SmallFloat(fma(double(float(a)), double(float(b)), double(float(c))));
    }
    friend SmallFloat __hfma_sat(SmallFloat a, SmallFloat b, SmallFloat c) {
        return SmallFloat(__saturatef(__hfma(a, b, c)));
    }
    friend SmallFloat __hfma_relu(SmallFloat a, SmallFloat b, SmallFloat c) {
        const SmallFloat result = __hfma(a, b, c);
        return float(result) < 0.0f ? SmallFloat(0.0f) : result;
    }

#define PYTEST_GEMM_ARITHMETIC(symbol, name)                                                     \
    PYTEST_GEMM_BINARY(SmallFloat, operator symbol, opaque(float(a) symbol float(b)))            \
    PYTEST_GEMM_BINARY(SmallFloat, __h##name, a symbol b)                                        \
    PYTEST_GEMM_BINARY(SmallFloat, __h##name##_rn, a symbol b)                                   \
    PYTEST_GEMM_BINARY(SmallFloat, __h##name##_sat, __saturatef(a symbol b))
    PYTEST_GEMM_ARITHMETIC(+, add)
    PYTEST_GEMM_ARITHMETIC(-, sub)
    PYTEST_GEMM_ARITHMETIC(*, mul)
    PYTEST_GEMM_ARITHMETIC(/, div)
#undef PYTEST_GEMM_ARITHMETIC

    // The one with u is true where an operand is NaN.
#define PYTEST_GEMM_COMPARE(symbol, name)                                                        \
    PYTEST_GEMM_COMPARISON(SmallFloat, operator symbol, float(a) symbol float(b))                \
    PYTEST_GEMM_COMPARISON(SmallFloat, __h##name, a symbol b)                                    \
    PYTEST_GEMM_COMPARISON(SmallFloat, __h##name##u, __hisnan(a) || __hisnan(b) || a symbol b)
    PYTEST_GEMM_COMPARE(==, eq)
    PYTEST_GEMM_COMPARE(<, lt)
    PYTEST_GEMM_COMPARE(<=, le)
    PYTEST_GEMM_COMPARE(>, gt)
    PYTEST_GEMM_COMPARE(>=, ge)
#undef PYTEST_GEMM_COMPARE
    PYTEST_GEMM_COMPARISON(SmallFloat, operator!=, float(a) != float(b))
    PYTEST_GEMM_COMPARISON(SmallFloat, __hne, !__hisnan(a) && !__hisnan(b) && a != b)
    PYTEST_GEMM_COMPARISON(SmallFloat, __hneu, a != b)

    friend bool __hisnan(SmallFloat a) { return float(a) != float(a); }
    friend int __hisinf(SmallFloat a) {
        const float value = a;
        return isinf(value) ? (value < 0 ? -1 : 1) : 0;
    }
    PYTEST_GEMM_BINARY(SmallFloat, __hmax, __hisnan(a) || (!__hisnan(b) && less(a, b)) ? b : a)
    PYTEST_GEMM_BINARY(SmallFloat, __hmin, __hisnan(a) || (!__hisnan(b) && less(b, a)) ? b : a)
    PYTEST_GEMM_BINARY(SmallFloat, __hmax_nan, __hisnan(a) || !(__hisnan(b) || less(a, b)) ? a : b)
    PYTEST_GEMM_BINARY(SmallFloat, __hmin_nan, __hisnan(a) || !(__hisnan(b) || less(b, a)) ? a : b)

    PYTEST_GEMM_UNARY(SmallFloat, hsqrt, sqrtf(a))
    PYTEST_GEMM_UNARY(SmallFloat, hrsqrt, 1.0 / sqrt(double(float(a))))
    PYTEST_GEMM_UNARY(SmallFloat, hrcp, 1.0f / float(a))
    PYTEST_GEMM_UNARY(SmallFloat, hexp, expf(a))
    PYTEST_GEMM_UNARY(SmallFloat, hexp2, exp2f(a))
    PYTEST_GEMM_UNARY(SmallFloat, hexp10, exp10f(a))
    PYTEST_GEMM_UNARY(SmallFloat, hlog, logf(a))
    PYTEST_GEMM_UNARY(SmallFloat, hlog2, log2f(a))
    PYTEST_GEMM_UNARY(SmallFloat, hlog10, log10f(a))
    PYTEST_GEMM_UNARY(SmallFloat, hsin, sinf(a))
    PYTEST_GEMM_UNARY(SmallFloat, hcos, cosf(a))
    PYTEST_GEMM_UNARY(SmallFloat, htanh, tanhf(a))
    PYTEST_GEMM_UNARY(SmallFloat, hfloor, floorf(a))
    PYTEST_GEMM_UNARY(SmallFloat, hceil, ceilf(a))
    PYTEST_GEMM_UNARY(SmallFloat, htrunc, truncf(a))
    PYTEST_GEMM_UNARY(SmallFloat, hrint, rintf(a))

private:
    static bool less(SmallFloat a, SmallFloat b) {  // -0 is less than +0
        return a < b || (a == b && a.bits > b.bits);
    }
};

template <class Format>
struct alignas(4) SmallPair {
    using Element = SmallFloat<Format>;
    Element x, y;

    PYTEST_GEMM_WHOLE(SmallPair)
    SmallPair(Element x, Element y) : x(x), y(y) {}

    SmallPair& operator+=(SmallPair b) { return *this = *this + b; }
    SmallPair& operator-=(SmallPair b) { return *this = *this - b; }
    SmallPair& operator*=(SmallPair b) { return *this = *this * b; }
    SmallPair& operator/=(SmallPair b) { return *this = *this / b; }

    friend SmallPair operator+(SmallPair a) { return a; }
    friend SmallPair operator-(SmallPair a) { return {-a.x, -a.y}; }
    friend SmallPair __hneg2(SmallPair a) { return -a; }
    friend SmallPair __habs2(SmallPair a) { return {__habs(a.x), __habs(a.y)}; }
    friend float __low2float(SmallPair a) { return a.x; }
    friend float __high2float(SmallPair a) { return a.y; }

#define PYTEST_GEMM_FMA(name)                                                                    \
    friend SmallPair __hfma2##name(SmallPair a, SmallPair b, SmallPair c) {                      \
        return {__hfma##name(a.x, b.x, c.x), __hfma##name(a.y, b.y, c.y)};                       \
    }
    PYTEST_GEMM_FMA()
    PYTEST_GEMM_FMA(_sat)
    PYTEST_GEMM_FMA(_relu)
#undef PYTEST_GEMM_FMA

#define PYTEST_GEMM_BOTH(name, function) \
    friend SmallPair name(SmallPair a, SmallPair b) { return {function(a.x, b.x), function(a.y, b.y)}; }
#define PYTEST_GEMM_ARITHMETIC(symbol, name)               \
    PYTEST_GEMM_BOTH(operator symbol, __h##name)           \
    PYTEST_GEMM_BOTH(__h##name##2, __h##name)              \
    PYTEST_GEMM_BOTH(__h##name##2_rn, __h##name)           \
    PYTEST_GEMM_BOTH(__h##name##2_sat, __h##name##_sat)
    PYTEST_GEMM_ARITHMETIC(+, add)
    PYTEST_GEMM_ARITHMETIC(-, sub)
    PYTEST_GEMM_ARITHMETIC(*, mul)
#undef PYTEST_GEMM_ARITHMETIC
    PYTEST_GEMM_BOTH(operator/, __hdiv)
    PYTEST_GEMM_BOTH(__h2div, __hdiv)
    PYTEST_GEMM_BOTH(__hmax2, __hmax)
    PYTEST_GEMM_BOTH(__hmin2, __hmin)
    PYTEST_GEMM_BOTH(__hmax2_nan, __hmax_nan)
    PYTEST_GEMM_BOTH(__hmin2_nan, __hmin_nan)

    // 1 or 0 for each half; the one with b is true where both are.
#define PYTEST_GEMM_COMPARE(name)                                                                \
    friend SmallPair __h##name##2(SmallPair a, SmallPair b) {                                    \
        return {Element(float(__h##name(a.x, b.x))), Element(float(__h##name(a.y, b.y)))};       \
    }                                                                                            \
    friend bool __hb##name##2(SmallPair a, SmallPair b) {                                        \
        return __h##name(a.x, b.x) && __h##name(a.y, b.y);                                       \
    }
    PYTEST_GEMM_COMPARE(eq)
    PYTEST_GEMM_COMPARE(ne)
    PYTEST_GEMM_COMPARE(lt)
    PYTEST_GEMM_COMPARE(le)
    PYTEST_GEMM_COMPARE(gt)
    PYTEST_GEMM_COMPARE(ge)
    PYTEST_GEMM_COMPARE(equ)
    PYTEST_GEMM_COMPARE(neu)
    PYTEST_GEMM_COMPARE(ltu)
    PYTEST_GEMM_COMPARE(leu)
    PYTEST_GEMM_COMPARE(gtu)
    PYTEST_GEMM_COMPARE(geu)
#undef PYTEST_GEMM_COMPARE
    PYTEST_GEMM_COMPARISON(SmallPair, operator==, __hbeq2(a, b))
    PYTEST_GEMM_COMPARISON(SmallPair, operator!=, __hbneu2(a, b))
    PYTEST_GEMM_COMPARISON(SmallPair, operator<, __hblt2(a, b))
    PYTEST_GEMM_COMPARISON(SmallPair, operator<=, __hble2(a, b))
    PYTEST_GEMM_COMPARISON(SmallPair, operator>, __hbgt2(a, b))
    PYTEST_GEMM_COMPARISON(SmallPair, operator>=, __hbge2(a, b))

#define PYTEST_GEMM_EACH(name) \
    friend SmallPair h2##name(SmallPair a) { return {h##name(a.x), h##name(a.y)}; }
    PYTEST_GEMM_EACH(sqrt)
    PYTEST_GEMM_EACH(rsqrt)
    PYTEST_GEMM_EACH(rcp)
    PYTEST_GEMM_EACH(exp)
    PYTEST_GEMM_EACH(exp2)
    PYTEST_GEMM_EACH(exp10)
    PYTEST_GEMM_EACH(log)
    PYTEST_GEMM_EACH(log2)
    PYTEST_GEMM_EACH(log10)
    PYTEST_GEMM_EACH(sin)
    PYTEST_GEMM_EACH(cos)
    PYTEST_GEMM_EACH(tanh)
    PYTEST_GEMM_EACH(floor)
    PYTEST_GEMM_EACH(ceil)
    PYTEST_GEMM_EACH(trunc)
    PYTEST_GEMM_EACH(rint)
#undef PYTEST_GEMM_EACH
#undef PYTEST_GEMM_BOTH
};

#undef PYTEST_GEMM_UNARY
#undef PYTEST_GEMM_BINARY
#undef PYTEST_GEMM_COMPARISON

}  // namespace pytest_gemm
