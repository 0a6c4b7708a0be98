// What would end the process, and pytest with it: exit(0) even with the status of a success.
//
// A kernel's library has functions of its own by these names, so that libc's are not called.
#pragma once

#include "pytest_gemm/abi.h"

#define PYTEST_GEMM_REPLACE(name, parameters)                                       \
    [[noreturn]] __attribute__((visibility("hidden"), used)) void replaced_##name \
        parameters __asm__(#name);                                                  \
    void replaced_##name parameters { fail_exit(#name, __builtin_return_address(0)); }

namespace pytest_gemm {

extern "C" {
PYTEST_GEMM_REPLACE(exit, (int))
PYTEST_GEMM_REPLACE(_exit, (int))
PYTEST_GEMM_REPLACE(_Exit, (int))
PYTEST_GEMM_REPLACE(quick_exit, (int))
PYTEST_GEMM_REPLACE(abort, ())
}

}  // namespace pytest_gemm

#undef PYTEST_GEMM_REPLACE
