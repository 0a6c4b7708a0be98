// Switching between the stacks of a block's threads.
//
// Only what the calling convention preserves is saved, so a switch costs about as much as a
// function call. Signal masks and floating-point modes are common to all threads of a launch.
#pragma once

#include <cstdint>

namespace pytest_gemm {

// Saves the running thread's stack pointer in `*from` and continues at `to`.
extern "C" __attribute__((visibility("hidden"))) void pytest_gemm_switch(void** from, void* to);

#if defined(__x86_64__)

// `pop; jmp` instead of `ret`: a return address that no call pushed would be mispredicted.
__asm__(R"(
    .text
    .globl pytest_gemm_switch
    .hidden pytest_gemm_switch
    .type pytest_gemm_switch, @function
    .p2align 4
pytest_gemm_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    popq %rcx
    jmpq *%rcx
    .size pytest_gemm_switch, .-pytest_gemm_switch
)");

// A stack whose first switch enters `start`; `top` is aligned to 16 bytes.
inline void* prepare_stack(char* top, void (*start)()) {
    auto* slots = reinterpret_cast<std::uintptr_t*>(top);
    slots[-1] = 0;  // `start` finds the stack as after a call, with no one to return to.
    slots[-2] = reinterpret_cast<std::uintptr_t>(start);
    for (int saved = 3; saved <= 8; ++saved) slots[-saved] = 0;
    return slots - 8;
}

#elif defined(__aarch64__)

__asm__(R"(
    .text
    .globl pytest_gemm_switch
    .hidden pytest_gemm_switch
    .type pytest_gemm_switch, %function
    .p2align 4
pytest_gemm_switch:
    sub sp, sp, #160
    stp x19, x20, [sp, #0]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x9, sp
    str x9, [x0]
    mov sp, x1
    ldp x19, x20, [sp, #0]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #160
    br x30
    .size pytest_gemm_switch, .-pytest_gemm_switch
)");

inline void* prepare_stack(char* top, void (*start)()) {
    auto* slots = reinterpret_cast<std::uintptr_t*>(top) - 20;
    for (int saved = 0; saved < 20; ++saved) slots[saved] = 0;
    slots[11] = reinterpret_cast<std::uintptr_t>(start);  // x30
    return slots;
}

#else
#error "the host back end runs on x86-64 and aarch64 only"
#endif

}  // namespace pytest_gemm
