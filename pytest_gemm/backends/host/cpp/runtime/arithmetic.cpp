// What the compiler's checks of arithmetic, indices and alignment call.
//
// The structures are those that gcc and clang both pass; see the sources of either's run-time
// library for undefined behaviour.
#include <cstdio>
#include <cstring>

#include "check.h"

namespace pytest_gemm {

namespace {

struct Type {
    std::uint16_t kind;  // 0 integer
    std::uint16_t info;  // of an integer: twice the logarithm of its bits, plus 1 if signed
    char name[1];
};

struct Source {
    const char* file;
    std::uint32_t line, column;
};

struct OnType {
    Source source;
    const Type* type;
};

struct OnArray {
    Source source;
    const Type *array, *index;
};

struct OnAddress {
    Source source;
    const Type* type;
    unsigned char log_alignment;
    unsigned char kind;
};

struct OnConversion {
    Source source;
    const Type *from, *to;
    unsigned char kind;
};

// A value of at most 64 bits is passed itself, a greater one by its address.
std::int64_t value_of(const Type& type, std::uintptr_t value) {
    const unsigned bits = 1u << (type.info >> 1);
    if (bits > 64) return *reinterpret_cast<const std::int64_t*>(value);
    if (bits == 64) return std::int64_t(value);
    const unsigned unused = 64 - bits;
    return type.info & 1 ? std::int64_t(value << unused) >> unused
                         : std::int64_t(value << unused >> unused);
}

[[gnu::noinline]] void report(FindingKind kind, const Source& source, std::uintptr_t pc,
                              const char* operation, const Type* type, std::int64_t a = 0,
                              std::int64_t b = 0) {
    if (!checking) return;
    Finding finding = new_finding(kind, pc);
    if (source.file) std::strncpy(finding.file, source.file, sizeof finding.file - 1);
    finding.line = std::int32_t(source.line);
    std::snprintf(finding.text, sizeof finding.text, "%s %s", operation, type ? type->name : "");
    finding.values[0] = a;
    finding.values[1] = b;
    add_finding(finding);
}

void report_arithmetic(const char* operation, const OnType& on, std::uintptr_t a, std::uintptr_t b,
                       std::uintptr_t pc) {
    const Type& type = *on.type;
    report(FindingKind::overflow, on.source, pc, operation, &type, value_of(type, a),
           value_of(type, b));
}

}  // namespace

#define PYTEST_GEMM_PC reinterpret_cast<std::uintptr_t>(__builtin_return_address(0))

extern "C" {

PYTEST_GEMM_EXPORT void __ubsan_handle_add_overflow(OnType* on, std::uintptr_t a,
                                                    std::uintptr_t b) {
    report_arithmetic("+", *on, a, b, PYTEST_GEMM_PC);
}

PYTEST_GEMM_EXPORT void __ubsan_handle_sub_overflow(OnType* on, std::uintptr_t a,
                                                    std::uintptr_t b) {
    report_arithmetic("-", *on, a, b, PYTEST_GEMM_PC);
}

PYTEST_GEMM_EXPORT void __ubsan_handle_mul_overflow(OnType* on, std::uintptr_t a,
                                                    std::uintptr_t b) {
    report_arithmetic("*", *on, a, b, PYTEST_GEMM_PC);
}

PYTEST_GEMM_EXPORT void __ubsan_handle_negate_overflow(OnType* on, std::uintptr_t a) {
    report_arithmetic("-", *on, 0, a, PYTEST_GEMM_PC);
}

PYTEST_GEMM_EXPORT void __ubsan_handle_divrem_overflow(OnType* on, std::uintptr_t a,
                                                       std::uintptr_t b) {
    const Type& type = *on->type;
    const std::int64_t divisor = value_of(type, b);
    const bool by_zero = type.kind == 0 && divisor == 0;
    report(by_zero ? FindingKind::division_by_zero : FindingKind::overflow, on->source,
           PYTEST_GEMM_PC, "/", &type, value_of(type, a), divisor);
}

PYTEST_GEMM_EXPORT void __ubsan_handle_shift_out_of_bounds(OnArray* on, std::uintptr_t a,
                                                           std::uintptr_t b) {
    report(FindingKind::shift, on->source, PYTEST_GEMM_PC, "<<", on->array,
           value_of(*on->array, a), value_of(*on->index, b));
}

PYTEST_GEMM_EXPORT void __ubsan_handle_out_of_bounds(OnArray* on, std::uintptr_t index) {
    report(FindingKind::array_index, on->source, PYTEST_GEMM_PC, "", on->array,
           value_of(*on->index, index));
}

PYTEST_GEMM_EXPORT void __ubsan_handle_type_mismatch_v1(OnAddress* on, std::uintptr_t address) {
    const std::uintptr_t alignment = std::uintptr_t(1) << on->log_alignment;
    if (address % alignment == 0) return;  // a null pointer: the access will fault
    report(FindingKind::misaligned, on->source, PYTEST_GEMM_PC, "", on->type,
           std::int64_t(address), std::int64_t(alignment));
}

PYTEST_GEMM_EXPORT void __ubsan_handle_implicit_conversion(OnConversion* on, std::uintptr_t from,
                                                           std::uintptr_t to) {
    report(FindingKind::truncation, on->source, PYTEST_GEMM_PC, "", on->to,
           value_of(*on->from, from), value_of(*on->to, to));
}

}  // extern "C"

}  // namespace pytest_gemm
