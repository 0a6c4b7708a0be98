// cooperative_groups::reduce over a tile: each pair of lanes, then each pair of pairs ...
#pragma once

#include "cooperative_groups.h"

namespace cooperative_groups {

#define PYTEST_GEMM_OPERATION(name, expression)               \
    template <class T>                                        \
    struct name {                                             \
        T operator()(T a, T b) const { return expression; }   \
    };
PYTEST_GEMM_OPERATION(plus, a + b)
PYTEST_GEMM_OPERATION(less, b < a ? b : a)
PYTEST_GEMM_OPERATION(greater, a < b ? b : a)
PYTEST_GEMM_OPERATION(bit_and, a & b)
PYTEST_GEMM_OPERATION(bit_or, a | b)
PYTEST_GEMM_OPERATION(bit_xor, a ^ b)
#undef PYTEST_GEMM_OPERATION

template <unsigned int threads, class Parent, class T, class Operation>
inline T reduce(const thread_block_tile<threads, Parent>& tile, T value, Operation operation,
                const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    for (unsigned int distance = threads / 2; distance > 0; distance /= 2) {
        value = operation(value, tile.shfl_xor(value, distance, file, line));
    }
    return value;
}

}  // namespace cooperative_groups
