"""The C and C++ headers that kernels include and NVRTC does not have.

printf, assert, memcpy and the mathematical functions are built into NVRTC; the rest is libcu++'s,
which comes with CuPy.
"""

from __future__ import annotations

_MATH = """\
#pragma once
#define INFINITY (__int_as_float(0x7f800000))
#define NAN (__int_as_float(0x7fffffff))
#define M_PI 3.14159265358979323846
namespace std {
using ::abs; using ::fabs; using ::fma; using ::fmax; using ::fmin; using ::fmod;
using ::ceil; using ::floor; using ::round; using ::trunc; using ::rint;
using ::sqrt; using ::cbrt; using ::exp; using ::exp2; using ::log; using ::log2; using ::pow;
using ::sin; using ::cos; using ::tan; using ::tanh; using ::erf;
using ::sqrtf; using ::fabsf; using ::fmaf; using ::fmaxf; using ::fminf;
using ::expf; using ::logf;
using ::isnan; using ::isinf; using ::isfinite;
}
"""

_INTEGERS = """\
#pragma once
#include <cuda/std/cstdint>
namespace std {
using ::int8_t; using ::int16_t; using ::int32_t; using ::int64_t;
using ::uint8_t; using ::uint16_t; using ::uint32_t; using ::uint64_t;
using ::intptr_t; using ::uintptr_t;
}
"""

_STANDARD = """\
#pragma once
namespace std { using ::size_t; using ::ptrdiff_t; }
"""

_TEXTS = {
    "assert": "",
    "stdio": "",
    "string": "",
    "math": _MATH,
    "limits": "#include <cuda/std/climits>\n",
    "float": "#include <cuda/std/cfloat>\n",
    "stdint": _INTEGERS,
    "inttypes": _INTEGERS,
    "stddef": _STANDARD,
    "stdlib": _STANDARD,
}

_CPP = """\
#pragma once
#include <cuda/std/{name}>
namespace std {{ using namespace cuda::std; }}
"""

_CPP_NAMES = ("algorithm", "array", "limits", "tuple", "type_traits", "utility")

HEADERS: dict[str, str] = {
    **{spelling: text for name, text in _TEXTS.items() for spelling in (f"{name}.h", f"c{name}")},
    **{name: _CPP.format(name=name) for name in _CPP_NAMES},
}
"""Text of each header by the name in ``#include <...>``."""
