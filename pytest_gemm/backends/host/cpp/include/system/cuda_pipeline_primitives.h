// Asynchronous copies into shared memory, made at once.
#pragma once

#include <stddef.h>

#include "pytest_gemm/vectors.h"

namespace pytest_gemm {

template <class T>
inline void copy_and_fill(void* to, const void* from, size_t zero_fill) {
    T value = {};
    if (zero_fill == 0) {
        value = *static_cast<const T*>(from);
    } else if (zero_fill < sizeof(T)) {
        const auto* bytes = static_cast<const unsigned char*>(from);
        auto* copied = reinterpret_cast<unsigned char*>(&value);
        for (size_t i = 0; i < sizeof(T) - zero_fill; ++i) copied[i] = bytes[i];
    }
    *static_cast<T*>(to) = value;
}

}  // namespace pytest_gemm

// `size` is 4, 8 or 16, and both addresses are multiples of it; its last `zfill` bytes become 0.
inline void __pipeline_memcpy_async(void* to, const void* from, size_t size, size_t zfill = 0,
                                    const char* file = __builtin_FILE(),
                                    int line = __builtin_LINE()) {
    if (zfill > size) pytest_gemm::fail_assertion("zfill <= size", file, line);
    if (size == 4) return pytest_gemm::copy_and_fill<unsigned int>(to, from, zfill);
    if (size == 8) return pytest_gemm::copy_and_fill<uint2>(to, from, zfill);
    if (size == 16) return pytest_gemm::copy_and_fill<uint4>(to, from, zfill);
    pytest_gemm::fail_assertion("size == 4 || size == 8 || size == 16", file, line);
}

inline void __pipeline_commit() {}
inline void __pipeline_wait_prior(size_t) {}
