// Takes the place of the C library's: a failed assertion ends the launch, not the process.
// Like the C library's it may be included again after NDEBUG has changed.
#include "pytest_gemm/abi.h"

#undef assert
#ifdef NDEBUG
#define assert(...) ((void)0)
#else
#define assert(...) \
    ((__VA_ARGS__) ? (void)0 : pytest_gemm::fail_assertion(#__VA_ARGS__, __FILE__, __LINE__))
#endif
