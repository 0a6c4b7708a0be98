// From a `__global__` function to what the runtime launches and Python checks arguments against.
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

#include "pytest_gemm/abi.h"

namespace pytest_gemm {

// ---- shared variables: listed when the library is loaded, so that they can be poisoned -------

inline SharedVariable* shared_variables = nullptr;
inline SharedVariable* device_variables = nullptr;

inline bool enlist(SharedVariable& variable, SharedVariable*& list = shared_variables) {
    variable.next = list;
    list = &variable;
    return true;
}

template <auto* Variable>
struct Shared {
    static inline SharedVariable entry{
        const_cast<void*>(static_cast<const volatile void*>(Variable)), sizeof(*Variable), nullptr};
    static bool listed;
    static constexpr bool* instantiate = &listed;
};

template <auto* Variable>
bool Shared<Variable>::listed = enlist(entry);

// The rewriter appends this to every declaration of a __shared__ variable.
#define PYTEST_GEMM_SHARED(variable) \
    static_assert((static_cast<void>(::pytest_gemm::Shared<&variable>::instantiate), true), "");

// `extern __shared__ T x[]`, inside a function and outside of one.
template <class T>
inline T* dynamic_shared() {
    return reinterpret_cast<T*>(dynamic_shared_memory);
}

template <class T>
inline T* const& dynamic_shared_reference() {
    return reinterpret_cast<T* const&>(dynamic_shared_memory);
}

// ---- parameters ------------------------------------------------------------------------------

template <class T>
constexpr char kind_of() {
    if (std::is_void_v<T>) return 'v';
    if (std::is_pointer_v<T>) return 'p';
    if (std::is_same_v<T, bool>) return 'b';
    if (std::is_floating_point_v<T>) return 'f';
    if (std::is_integral_v<T>) return std::is_signed_v<T> ? 'i' : 'u';
    return 's';
}

template <class T>
constexpr std::size_t size_of() {
    if constexpr (std::is_void_v<T> || std::is_function_v<T>) {
        return 0;
    } else {
        return sizeof(T);
    }
}

template <class T>
constexpr Parameter describe() {
    using Pointee = std::remove_cv_t<std::remove_pointer_t<T>>;
    return {kind_of<T>(), kind_of<Pointee>(), std::uint16_t(size_of<Pointee>()),
            std::uint32_t(sizeof(T))};
}

// ---- the kernel ------------------------------------------------------------------------------

inline bool advance(uint3& thread) {
    if (++thread.x < blockDim.x) return true;
    thread.x = 0;
    if (++thread.y < blockDim.y) return true;
    thread.y = 0;
    return ++thread.z < blockDim.z;
}

// A build for checking watches the kernel and not the loop around it, and calls the threads in
// any order.
#ifdef PYTEST_GEMM_CHECK
#define PYTEST_GEMM_UNWATCHED __attribute__((no_sanitize("thread")))
#define PYTEST_GEMM_CALLED(function) void (*volatile called)(P...) = function
#define PYTEST_GEMM_ADVANCE(thread) next_in_order(thread)
#else
#define PYTEST_GEMM_UNWATCHED
#define PYTEST_GEMM_CALLED(function) constexpr auto called = function
#define PYTEST_GEMM_ADVANCE(thread) advance(thread)
#endif

template <class Function, Function* function>
struct Entry;

template <class... P, void (*function)(P...)>
struct Entry<void(P...), function> {
    template <std::size_t... I>
    PYTEST_GEMM_UNWATCHED static void run([[maybe_unused]] void** arguments,
                                          std::index_sequence<I...>) {
        PYTEST_GEMM_CALLED(function);
        uint3 thread = threadIdx;
        do {
            threadIdx = thread;
            __asm__ volatile("" : : "m"(threadIdx));  // stored by now: a fault names it
            called(*static_cast<std::remove_reference_t<P>*>(arguments[I])...);
        } while (!block_is_cooperative && PYTEST_GEMM_ADVANCE(thread));
    }

    static void run_threads(void** arguments) { run(arguments, std::index_sequence_for<P...>()); }

    static constexpr Parameter parameters[sizeof...(P) + 1] = {
        describe<std::remove_reference_t<P>>()...};
    static constexpr Kernel kernel = {sizeof...(P), parameters, run_threads, &shared_variables,
                                      &device_variables};
};

template <auto function>
using EntryOf = Entry<std::remove_pointer_t<decltype(function)>, function>;

#define PYTEST_GEMM_ENTRY(...)                                                      \
    extern "C" PYTEST_GEMM_EXPORT const pytest_gemm::Kernel* pytest_gemm_kernel() { \
        return &pytest_gemm::EntryOf<__VA_ARGS__>::kernel;                          \
    }

}  // namespace pytest_gemm
