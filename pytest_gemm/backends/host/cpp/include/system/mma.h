// WMMA: a warp's product of two small matrices.
//
// Where an element of a fragment lies is this back end's own matter, as it is each GPU's: lane l
// holds 8 or 16 elements, row by row, from number l * num_elements on.
#pragma once

#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "pytest_gemm/threads.h"

namespace nvcuda::wmma {

struct matrix_a;
struct matrix_b;
struct accumulator;
struct row_major;
struct col_major;
enum layout_t { mem_row_major, mem_col_major };
namespace precision {
struct tf32 {};
struct u4 {};
struct s4 {};
struct b1 {};
}  // namespace precision

template <class Use, int m, int n, int k, class T, class Layout = void>
struct fragment;

}  // namespace nvcuda::wmma

namespace pytest_gemm {

namespace wmma = nvcuda::wmma;

template <class T>
constexpr bool is_small_float = std::is_same_v<T, __half> || std::is_same_v<T, __nv_bfloat16>;

template <int m, int n, int k>
constexpr bool is_wmma_shape =
    k == 16 && ((m == 16 && n == 16) || (m == 32 && n == 8) || (m == 8 && n == 32));

template <class T, int rows_, int columns_>
struct Fragment {
    using element_type = T;
    static constexpr int rows = rows_, columns = columns_;
    static constexpr int num_elements = rows * columns / int(warp_size);
    static constexpr int num_storage_elements = num_elements;
    T x[num_elements];
};

template <class F>
inline int first_element() {
    return int(lane_id()) * F::num_elements;
}

// The offset in memory of element number `index`.
template <class F>
inline size_t offset_of(int index, unsigned int ldm, bool is_row_major) {
    const auto row = unsigned(index / F::columns), column = unsigned(index % F::columns);
    return is_row_major ? size_t(row) * ldm + column : size_t(column) * ldm + row;
}

template <class T>
inline void check_ldm(unsigned int ldm, const char* file, int line) {
    if (ldm * sizeof(T) % 16 != 0) {
        fail_assertion("the leading dimension is a multiple of 16 bytes", file, line);
    }
}

// The operands of one product, of each warp.
struct alignas(64) Operands {
    float a[32 * 16], b[16 * 32];
};
inline Operands operands[max_warps];

inline Operands& operands_of_warp() {
    const unsigned int thread =
        (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    return operands[thread / warp_size];
}

template <class A, class B>
PYTEST_GEMM_UNWATCHED inline void stage(const A& a, const B& b) {
    Operands& to = operands_of_warp();
    for (int i = 0; i < A::num_elements; ++i) to.a[first_element<A>() + i] = a.x[i];
    for (int i = 0; i < B::num_elements; ++i) to.b[first_element<B>() + i] = b.x[i];
}

// Products and sums are those of float, in the order of k, each rounded once.
template <class D, class C>
PYTEST_GEMM_UNWATCHED inline void multiply(D& d, const C& c) {
    using Vector = float __attribute__((vector_size(32)));
    constexpr int k = 16, width = 8;
    static_assert(D::num_elements == width && D::columns % width == 0, "");
    const Operands& from = operands_of_warp();
    const int row = first_element<D>() / D::columns, column = first_element<D>() % D::columns;
    Vector sum;
    for (int i = 0; i < width; ++i) sum[i] = c.x[i];
    for (int l = 0; l < k; ++l) {
        const auto& b = *reinterpret_cast<const Vector*>(&from.b[l * D::columns + column]);
        sum += from.a[row * k + l] * b;
    }
    for (int i = 0; i < width; ++i) d.x[i] = typename D::element_type(sum[i]);
}

}  // namespace pytest_gemm

#define PYTEST_GEMM_PLACE const char *file = __builtin_FILE(), int line = __builtin_LINE()
#define PYTEST_GEMM_WMMA_OPERAND                                                            \
    static_assert(pytest_gemm::is_wmma_shape<m, n, k> && pytest_gemm::is_small_float<T>,    \
                  "WMMA of this shape or type is not supported on the CPU back end; take "  \
                  "16x16x16 of half or __nv_bfloat16, or run this kernel on a GPU "         \
                  "(--gemm-device cuda)")

namespace nvcuda::wmma {

template <int m, int n, int k, class T, class Layout>
struct fragment<matrix_a, m, n, k, T, Layout> : pytest_gemm::Fragment<T, m, k> {
    PYTEST_GEMM_WMMA_OPERAND;
    static constexpr bool is_row_major = std::is_same_v<Layout, row_major>;
};

template <int m, int n, int k, class T, class Layout>
struct fragment<matrix_b, m, n, k, T, Layout> : pytest_gemm::Fragment<T, k, n> {
    PYTEST_GEMM_WMMA_OPERAND;
    static constexpr bool is_row_major = std::is_same_v<Layout, row_major>;
};

template <int m, int n, int k, class T>
struct fragment<accumulator, m, n, k, T> : pytest_gemm::Fragment<T, m, n> {
    static_assert(pytest_gemm::is_wmma_shape<m, n, k> &&
                      (std::is_same_v<T, float> || std::is_same_v<T, __half>),
                  "WMMA of this shape or type is not supported on the CPU back end; take "
                  "16x16x16 with an accumulator of float or half, or run this kernel on a GPU "
                  "(--gemm-device cuda)");
};

// Loads and stores wait for nobody: between them and what other lanes do with the same memory
// there must be a barrier, as on a GPU.
template <class F, class T>
inline void fill_fragment(F& fragment, const T& value) {
    for (auto& x : fragment.x) x = value;
}

template <class F>
inline void load_matrix_sync(F& fragment, const typename F::element_type* from, unsigned int ldm,
                             PYTEST_GEMM_PLACE) {
    pytest_gemm::check_ldm<typename F::element_type>(ldm, file, line);
    const int first = pytest_gemm::first_element<F>();
    for (int i = 0; i < F::num_elements; ++i) {
        fragment.x[i] = from[pytest_gemm::offset_of<F>(first + i, ldm, F::is_row_major)];
    }
}

template <int m, int n, int k, class T>
inline void load_matrix_sync(fragment<accumulator, m, n, k, T>& fragment, const T* from,
                             unsigned int ldm, layout_t layout, PYTEST_GEMM_PLACE) {
    using F = pytest_gemm::Fragment<T, m, n>;
    pytest_gemm::check_ldm<T>(ldm, file, line);
    const int first = pytest_gemm::first_element<F>();
    for (int i = 0; i < F::num_elements; ++i) {
        fragment.x[i] = from[pytest_gemm::offset_of<F>(first + i, ldm, layout == mem_row_major)];
    }
}

template <int m, int n, int k, class T>
inline void store_matrix_sync(T* to, const fragment<accumulator, m, n, k, T>& fragment,
                              unsigned int ldm, layout_t layout, PYTEST_GEMM_PLACE) {
    using F = pytest_gemm::Fragment<T, m, n>;
    pytest_gemm::check_ldm<T>(ldm, file, line);
    const int first = pytest_gemm::first_element<F>();
    for (int i = 0; i < F::num_elements; ++i) {
        to[pytest_gemm::offset_of<F>(first + i, ldm, layout == mem_row_major)] = fragment.x[i];
    }
}

template <int m, int n, int k, class D, class T, class LayoutA, class LayoutB, class C>
inline void mma_sync(fragment<accumulator, m, n, k, D>& d,
                     const fragment<matrix_a, m, n, k, T, LayoutA>& a,
                     const fragment<matrix_b, m, n, k, T, LayoutB>& b,
                     const fragment<accumulator, m, n, k, C>& c, PYTEST_GEMM_PLACE) {
    pytest_gemm::stage(a, b);
    __syncwarp(~0u, file, line);
    pytest_gemm::multiply(d, c);
    __syncwarp(~0u, file, line);  // before another product is staged
}

}  // namespace nvcuda::wmma

#undef PYTEST_GEMM_WMMA_OPERAND
#undef PYTEST_GEMM_PLACE
