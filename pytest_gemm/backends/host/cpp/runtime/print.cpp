// printf from a kernel: collected here, written by Python after the launch.
#include <cstdarg>
#include <cstdio>

#include "runtime.h"

namespace pytest_gemm {

namespace {

char printed[1 << 20];
std::size_t printed_bytes;

}  // namespace

void clear_printed() { printed_bytes = 0; }

// Returns what C's printf returns. What does not fit in the buffer is lost, as on a GPU.
int print(const char* format, ...) {
    const Uninterruptible guard;
    va_list values;
    va_start(values, format);
    const std::size_t room = sizeof printed - printed_bytes;
    const int length = std::vsnprintf(printed + printed_bytes, room, format, values);
    va_end(values);
    if (length > 0 && std::size_t(length) < room) printed_bytes += std::size_t(length);
    return length;
}

extern "C" PYTEST_GEMM_EXPORT std::size_t pytest_gemm_printed(const char** text) {
    *text = printed;
    return printed_bytes;
}

}  // namespace pytest_gemm
