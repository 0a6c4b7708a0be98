// The order in which the threads of a block run, and the blocks of a grid.
#include "order.h"

namespace pytest_gemm {

namespace {

// splitmix64: well mixed from any seed, the same on every machine.
std::uint64_t next(std::uint64_t& state) {
    std::uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

}  // namespace

void Order::fill(std::uint32_t* order, std::uint32_t count, std::uint64_t stream) const {
    for (std::uint32_t i = 0; i < count; ++i)
        order[i] = kind == OrderKind::descending ? count - 1 - i : i;
    if (kind != OrderKind::random) return;
    std::uint64_t state = seed;
    state = next(state) ^ stream * 0xd1342543de82ef95u;
    for (std::uint32_t i = count; i > 1; --i) {
        const auto j = std::uint32_t(next(state) % i);
        const std::uint32_t moved = order[i - 1];
        order[i - 1] = order[j];
        order[j] = moved;
    }
}

}  // namespace pytest_gemm
