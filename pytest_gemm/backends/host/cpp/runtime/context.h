// Switching between the stacks of a block's threads.
//
// The switch is inline, not a function of its own: each thread's return from the barrier is then
// where the processor expects it, at the call that another thread made from the same place. The
// compiler saves what it needs across the switch, since all registers count as overwritten.
// Signal masks and floating-point modes are common to all threads of a launch.
#pragma once

#include <cstdint>

namespace pytest_gemm {

#if defined(__x86_64__)

// Saves the running thread's stack pointer in `*from` and continues at `to`.
[[gnu::always_inline]] inline void switch_stack(void** from, void* to) {
    // The 128 bytes below the stack pointer may be in use; rbp cannot be named as overwritten.
    __asm__ volatile(
        "leaq -128(%%rsp), %%rsp\n\t"
        "pushq %%rbp\n\t"
        "leaq 1f(%%rip), %%rax\n\t"
        "pushq %%rax\n\t"
        "movq %%rsp, (%0)\n\t"
        "movq %1, %%rsp\n\t"
        "popq %%rax\n\t"
        "jmpq *%%rax\n"
        "1:\n\t"
        "popq %%rbp\n\t"
        "leaq 128(%%rsp), %%rsp"
        : "+D"(from), "+S"(to)
        :
        : "rax", "rbx", "rcx", "rdx", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15",
          "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10",
          "xmm11", "xmm12", "xmm13", "xmm14", "xmm15", "memory", "cc");
}

// A stack whose first switch enters `start`; `top` is aligned to 16 bytes.
inline void* prepare_stack(char* top, void (*start)()) {
    auto* slots = reinterpret_cast<std::uintptr_t*>(top);
    slots[-1] = 0;  // `start` finds the stack as after a call, with no one to return to
    slots[-2] = reinterpret_cast<std::uintptr_t>(start);
    return slots - 2;
}

#elif defined(__aarch64__)

[[gnu::always_inline]] inline void switch_stack(void** from, void* to) {
    register void** saved __asm__("x0") = from;
    register void* target __asm__("x1") = to;
    __asm__ volatile(
        "adr x9, 1f\n\t"
        "stp x29, x9, [sp, #-16]!\n\t"
        "mov x10, sp\n\t"
        "str x10, [x0]\n\t"
        "mov sp, x1\n\t"
        "ldp x29, x10, [sp], #16\n\t"
        "br x10\n"
        "1:"
        : "+r"(saved), "+r"(target)
        :
        : "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14", "x15",
          "x16", "x17", "x19", "x20", "x21", "x22", "x23", "x24", "x25", "x26", "x27", "x28",
          "x30", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12",
          "v13", "v14", "v15", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25",
          "v26", "v27", "v28", "v29", "v30", "v31", "memory", "cc");
}

inline void* prepare_stack(char* top, void (*start)()) {
    auto* slots = reinterpret_cast<std::uintptr_t*>(top);
    slots[-1] = reinterpret_cast<std::uintptr_t>(start);
    slots[-2] = 0;  // the frame pointer: here the chain of frames ends
    return slots - 2;
}

#else
#error "the host back end runs on x86-64 and aarch64 only"
#endif

}  // namespace pytest_gemm
