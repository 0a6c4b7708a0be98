// The order in which the threads of a block run, and the blocks of a grid.
#pragma once

#include <cstdint>

namespace pytest_gemm {

enum class OrderKind : std::uint32_t { ascending, descending, random };

struct Order {
    OrderKind kind = OrderKind::ascending;
    std::uint64_t seed = 0;

    // Writes a permutation of 0 ... count - 1; each `stream` has a random one of its own.
    void fill(std::uint32_t* order, std::uint32_t count, std::uint64_t stream) const;
};

}  // namespace pytest_gemm
