"""The C and C++ headers that kernels include and NVRTC does not have.

printf, assert and the mathematical functions are built into NVRTC; the rest is libcu++'s, which
comes with CuPy.
"""

from __future__ import annotations

_MATH = """\
#pragma once
#define INFINITY (__int_as_float(0x7f800000))
#define NAN (__int_as_float(0x7fffffff))
#define M_PI 3.14159265358979323846
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
    "math": _MATH,
    "limits": "#include <cuda/std/climits>\n",
    "float": "#include <cuda/std/cfloat>\n",
    "stdint": _INTEGERS,
    "stddef": _STANDARD,
    "stdlib": _STANDARD,
}

HEADERS: dict[str, str] = {
    spelling: text for name, text in _TEXTS.items() for spelling in (f"{name}.h", f"c{name}")
}
"""Text of each header by the name in ``#include <...>``."""
