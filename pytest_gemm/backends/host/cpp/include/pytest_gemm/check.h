// What differs in a build for checking: included after the rest, in that build alone.
#pragma once

#include <cstddef>
#include <type_traits>

#include "pytest_gemm/abi.h"
#include "pytest_gemm/entry.h"

namespace pytest_gemm {

// ---- shared variables ------------------------------------------------------------------------

// `__shared__ float As[8][8];` declares a variable that is not used, and `As` as a reference to
// one of the same type with bytes around it that nobody may touch.
template <auto* Declared, std::size_t alignment>
struct Placed {
    using T = std::remove_pointer_t<decltype(Declared)>;
    static constexpr std::size_t red_zone = 4096;
    struct Storage {
        alignas(alignment < 256 ? 256 : alignment) unsigned char before[red_zone];
        alignas(alignment) T value;
        unsigned char after[red_zone];
    };
    static inline Storage storage;
};

template <class T>
constexpr std::uint32_t element_size() {
    return sizeof(std::remove_all_extents_t<T>);
}

template <class T>
SharedVariable describe_variable(T& variable, const char* name, std::size_t red_zone) {
    return {const_cast<void*>(static_cast<const volatile void*>(&variable)),
            sizeof(T),
            nullptr,
            name,
            element_size<T>(),
            {std::uint32_t(std::extent_v<T, 0>), std::uint32_t(std::extent_v<T, 1>),
             std::uint32_t(std::extent_v<T, 2>), std::uint32_t(std::extent_v<T, 3>)},
            red_zone};
}

template <auto* Declared, std::size_t alignment>
bool enlist_placed(const char* name) {
    using Place = Placed<Declared, alignment>;
    static SharedVariable entry = describe_variable(Place::storage.value, name, Place::red_zone);
    return enlist(entry);
}

template <auto* Declared, std::size_t alignment, class Name>
struct EnlistPlaced {
    static bool listed;
    static constexpr bool* instantiate = &listed;
};

template <auto* Declared, std::size_t alignment, class Name>
bool EnlistPlaced<Declared, alignment, Name>::listed =
    enlist_placed<Declared, alignment>(Name::text());

}  // namespace pytest_gemm

#define PYTEST_GEMM_DECLARED(name) pytest_gemm_declared_##name
#define PYTEST_GEMM_PLACED(name)                                                              \
    struct pytest_gemm_name_##name {                                                          \
        static const char* text() { return #name; }                                           \
    };                                                                                        \
    static_assert(                                                                            \
        (static_cast<void>(::pytest_gemm::EnlistPlaced<&PYTEST_GEMM_DECLARED(name),           \
                                                       __alignof__(PYTEST_GEMM_DECLARED(name)), \
                                                       pytest_gemm_name_##name>::instantiate), \
         true),                                                                               \
        "");                                                                                  \
    [[maybe_unused]] static constexpr auto& name =                                            \
        ::pytest_gemm::Placed<&PYTEST_GEMM_DECLARED(name),                                    \
                              __alignof__(PYTEST_GEMM_DECLARED(name))>::storage.value;

// Behind a __device__ variable's declaration.
#define PYTEST_GEMM_DEVICE(name)                                                              \
    [[maybe_unused]] static const bool pytest_gemm_listed_##name = [] {                       \
        static ::pytest_gemm::SharedVariable entry =                                          \
            ::pytest_gemm::describe_variable(name, #name, 0);                                 \
        return ::pytest_gemm::enlist(entry, ::pytest_gemm::device_variables);                 \
    }();

// ---- accesses in functions of the C library, and by way of CUDA's -----------------------------

using pytest_gemm::pytest_gemm_memcpy, pytest_gemm::pytest_gemm_memmove,
    pytest_gemm::pytest_gemm_memset;

namespace std {
using ::pytest_gemm_memcpy, ::pytest_gemm_memmove, ::pytest_gemm_memset;
}  // namespace std

#define memcpy pytest_gemm_memcpy
#define memmove pytest_gemm_memmove
#define memset pytest_gemm_memset

#if defined(__clang__) && __clang_major__ < 15
// These call the C library's functions for copies of whole structs, unseen otherwise.
extern "C" {
__attribute__((visibility("hidden"), used, no_sanitize("thread"))) void* seen_memcpy(
    void* to, const void* from, std::size_t size) __asm__("memcpy");
void* seen_memcpy(void* to, const void* from, std::size_t size) {
    return pytest_gemm::pytest_gemm_memmove_at(to, from, size, __builtin_return_address(0));
}
}
#endif

namespace pytest_gemm {

template <class T>
inline const T* readable(const T* address) {
    return address;
}

}  // namespace pytest_gemm

// Macros, so that the access is on the user's line.
#define __ldg(...) (*::pytest_gemm::readable(__VA_ARGS__))
#define __ldca(...) (*::pytest_gemm::readable(__VA_ARGS__))
#define __ldcg(...) (*::pytest_gemm::readable(__VA_ARGS__))
#define __ldcs(...) (*::pytest_gemm::readable(__VA_ARGS__))
#define __ldcv(...) (*::pytest_gemm::readable(__VA_ARGS__))
#define __ldlu(...) (*::pytest_gemm::readable(__VA_ARGS__))
#define __stcg(address, ...) (static_cast<void>(*(address) = (__VA_ARGS__)))
#define __stcs(address, ...) (static_cast<void>(*(address) = (__VA_ARGS__)))
#define __stwb(address, ...) (static_cast<void>(*(address) = (__VA_ARGS__)))
#define __stwt(address, ...) (static_cast<void>(*(address) = (__VA_ARGS__)))
