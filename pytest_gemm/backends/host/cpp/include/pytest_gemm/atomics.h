// Atomics: one thread runs at a time and none is interrupted, so plain operations are atomic.
#pragma once

#include <type_traits>

namespace pytest_gemm {

// A parameter of this type takes no part in deducing T: atomicAdd(&an_unsigned, 1) is fine.
template <class T>
using Plain = std::enable_if_t<true, T>;

// In a build for checking each atomic is one access, on the line of its caller.
#ifdef PYTEST_GEMM_CHECK
#define PYTEST_GEMM_ONE_ACCESS __attribute__((noinline, no_sanitize("thread")))
#define PYTEST_GEMM_ACCESS(address) \
    pytest_gemm::check_atomic(address, sizeof *address, __builtin_return_address(0))
#else
#define PYTEST_GEMM_ONE_ACCESS inline
#define PYTEST_GEMM_ACCESS(address) static_cast<void>(0)
#endif

template <class T>
PYTEST_GEMM_UNWATCHED inline T replace(T* address, T value) {
    const T old = *address;
    *address = value;
    return old;
}

}  // namespace pytest_gemm

#define PYTEST_GEMM_ATOMIC(name, expression)                                \
    template <class T>                                                      \
    PYTEST_GEMM_ONE_ACCESS T name(T* address, pytest_gemm::Plain<T> value) { \
        PYTEST_GEMM_ACCESS(address);                                        \
        const T old = *address;                                             \
        return pytest_gemm::replace(address, T(expression));                \
    }                                                                       \
    template <class T>                                                      \
    inline T name##_block(T* address, pytest_gemm::Plain<T> value) {        \
        return name(address, value);                                        \
    }                                                                       \
    template <class T>                                                      \
    inline T name##_system(T* address, pytest_gemm::Plain<T> value) {       \
        return name(address, value);                                        \
    }

PYTEST_GEMM_ATOMIC(atomicAdd, old + value)
PYTEST_GEMM_ATOMIC(atomicSub, old - value)
PYTEST_GEMM_ATOMIC(atomicExch, (static_cast<void>(old), value))
PYTEST_GEMM_ATOMIC(atomicMin, value < old ? value : old)
PYTEST_GEMM_ATOMIC(atomicMax, old < value ? value : old)
PYTEST_GEMM_ATOMIC(atomicAnd, old & value)
PYTEST_GEMM_ATOMIC(atomicOr, old | value)
PYTEST_GEMM_ATOMIC(atomicXor, old ^ value)
PYTEST_GEMM_ATOMIC(atomicInc, old >= value ? 0 : old + 1)
PYTEST_GEMM_ATOMIC(atomicDec, old == 0 || old > value ? value : old - 1)

#undef PYTEST_GEMM_ATOMIC

template <class T>
PYTEST_GEMM_ONE_ACCESS T atomicCAS(T* address, pytest_gemm::Plain<T> expected,
                                   pytest_gemm::Plain<T> value) {
    PYTEST_GEMM_ACCESS(address);
    const T old = *address;
    return pytest_gemm::replace(address, old == expected ? value : old);
}
