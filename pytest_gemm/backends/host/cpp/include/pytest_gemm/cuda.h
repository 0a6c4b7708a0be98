// CUDA C++ as an ordinary C++ compiler understands it: included before every kernel file.
//
// Poses as NVRTC compiling for compute capability 7.0, so that sources which guard host code or
// newer instructions by the usual macros leave them out.
#pragma once

#define __CUDACC__ 1
#define __CUDACC_RTC__ 1
#define __CUDA_ARCH__ 700
#define PYTEST_GEMM_HOST 1

// The C++ headers as well as C's: included later they would undefine the macros below.
#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <type_traits>
#include <utility>

#include "pytest_gemm/abi.h"
#include "pytest_gemm/entry.h"
#include "pytest_gemm/vectors.h"

#include "pytest_gemm/atomics.h"
#include "pytest_gemm/math.h"
#include "pytest_gemm/process.h"
#include "pytest_gemm/threads.h"

#ifdef PYTEST_GEMM_CHECK
#include "pytest_gemm/check.h"
#endif

#define __global__
#define __device__
#define __host__
#define __constant__
#define __managed__
#define __grid_constant__
#define __shared__ static
#define __launch_bounds__(...)
#define __maxnreg__(...)
#define __forceinline__ __attribute__((always_inline))
#define __align__(n) __attribute__((aligned(n)))
#ifndef __clang__
#define __builtin_assume(condition) ((void)0)
#endif
#define __assume(condition) __builtin_assume(condition)

#include "assert.h"
#define printf(...) pytest_gemm::print(__VA_ARGS__)
#define __trap() pytest_gemm::fail_trap(__FILE__, __LINE__)
