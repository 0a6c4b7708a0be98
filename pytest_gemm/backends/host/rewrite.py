"""The little that must change in a CUDA source before an ordinary C++ compiler reads it.

Macros in ``cpp/include/pytest_gemm/cuda.h`` do most of the work. Rewritten here are only
declarations of shared memory that no macro can express, ``#include`` lines, and constructs that
the back end does not support: those get a ``#error`` of their own, so that the compiler reports
them on the user's line and only where no ``#if`` leaves them out.
Line numbers never change.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pytest_gemm.cuda_source import strip
from pytest_gemm.errors import CompileError, SpecError
from pytest_gemm.kernelspec import MAX_SHARED_MEM
from pytest_gemm.slicing import device_part

_WAY_OUT = (
    "guard it with #ifndef PYTEST_GEMM_HOST, or run this kernel on a GPU (--gemm-device cuda)"
)

# Headers whose contents are always there.
_PROVIDED = re.compile(
    r"(?:cuda|cuda_runtime|cuda_runtime_api|device_launch_parameters|vector_types"
    r"|vector_functions|device_functions|device_atomic_functions|math_functions|builtin_types"
    r"|driver_types|host_defines|sm_\w+_intrinsics|crt/host_defines)\.h(?:pp)?"
)
_UNSUPPORTED_HEADER = re.compile(
    r"cuComplex\.h|cuda_(?:fp(?:4|6|8)|tf32|texture_types|awbarrier\w*)\.h(?:pp)?"
    r"|cooperative_groups/(?!reduce\.h).*|texture_\w+\.h|surface_\w+\.h"
    r"|(?:cublas|curand|cusparse|cusolver|cufft|nvrtc|nvtx|helper_|thrust/|cub/|cute/|cutlass/"
    r"|cuda/|cudaTypedefs|curand_kernel).*"
)
_UNSUPPORTED = tuple(
    (re.compile(pattern), what)
    for pattern, what in (
        (r"\b(?:asm|__asm__|__asm)\b", "inline PTX"),
        (r"<<<", "launching a kernel with <<<...>>>"),
        (r"\b(?:tex[123]D|tex1Dfetch|surf[123]D)\w*\s*[<(]", "a texture or surface"),
        (r"\bcudaTextureObject_t\b|\btexture\s*<", "a texture or surface"),
        (r"\bcuda[A-Z]\w*(?=\s*\()|\bcuda(?:Error|Stream|Event)_t\b", "CUDA's host API"),
        (r"\bcuda\s*::\s*(?:std\b|\w+)", "libcu++ (cuda::barrier, cuda::std ...)"),
        (r"\bthis_(?:multi_)?grid\s*\(", "a barrier of the whole grid (cooperative groups)"),
        (
            r"\b(?:coalesced_threads|labeled_partition|binary_partition)\b",
            "a group that is neither a block nor a tile (cooperative groups)",
        ),
        (r"\bthis_cluster\s*\(|\b__cluster_dims__\b|\bcluster_group\b", "a thread block cluster"),
        (r"\bwmma\s*::\s*experimental\b", "WMMA of less than 8 bits"),
        (r"\bCUtensorMap\b", "a TMA copy (CUtensorMap)"),
        (r"\b(?:cub|cutlass|cute|thrust)\s*::", "a device library (CUB, CUTLASS, Thrust)"),
        (r"\b__activemask\b", "__activemask"),
        (r"\b__(?:match_any|match_all|reduce_\w+)_sync\b", "a warp reduction or match"),
        (r"\b(?:memcpy_async|__pipeline_arrive_on|__mbarrier_\w+)\b", "an asynchronous copy"),
        (r"\b__cvta_\w+", "an address for inline PTX"),
        (r"\b__nv_fp[468]\w+", "a floating-point type of 8 bits or less"),
    )
)

_DIRECTIVE = re.compile(r"^[ \t]*#(?:\\\n|[^\n])*", re.MULTILINE)
_DEFINE_HEAD = re.compile(r"[ \t]*#[ \t]*define[ \t]+\w+(?:\([^)]*\))?")
_INCLUDE = re.compile(r'[ \t]*#[ \t]*include[ \t]*(?:"(?P<local>[^"\n]+)"|<(?P<angle>[^>\n]+)>)')
_EXTERN_SHARED = re.compile(
    r"\b(?:extern\b[^;{}\"]*?\b__shared__|__shared__\b[^;{}]*?\bextern)\b[^;{}]*;"
)
_SHARED = re.compile(r"\b__shared__\b(?P<declarators>[^;{}=#]*);")
_DYNAMIC = re.compile(
    r"(?P<type>.+?[\s*&>])(?P<name>\w+)\s*\[\s*\](?P<dimensions>(?:\s*\[[^\[\]]*\])*)\s*", re.DOTALL
)
_QUALIFIER = re.compile(
    r"\b(?:extern|__shared__|static|__align__\s*\([^()]*(?:\([^()]*\)[^()]*)*\)"
    r"|alignas\s*\([^()]*(?:\([^()]*\)[^()]*)*\))"
)
_STATIC_SHARED = re.compile(r"\bstatic\b(?=(?:\s+(?:const|volatile|__device__))*\s+__shared__\b)")
_SHARED_STATIC = re.compile(r"(?<=\b__shared__)(\s+)static\b")
_SHARED_ALIGNAS = re.compile(r"\b__shared__(?P<space>\s+)(?P<alignas>alignas\s*\([^()]*\))")
_NOINLINE = re.compile(r"(?<!\(\()\b__noinline__\b")
_BRACE = re.compile(r"[{}]")
_TRANSPARENT_BRACE = re.compile(r'(?:\bnamespace\b[^;{}()=]*|\bextern\s*"[^"]*"\s*)$')


@dataclass(frozen=True)
class SourceFile:
    """A rewritten source: ``name`` inside the build folder, ``shown`` in diagnostics."""

    name: str
    shown: str
    text: str


def rewrite(source: str, filename: str) -> tuple[SourceFile, ...]:
    """Rewrite the device part of a kernel file and of every local file that it includes.

    The kernel's comes first. ``filename`` is what diagnostics call the source; its folder is
    searched for includes. Raises CompileError where the device part cannot be told apart.
    """
    reader = _Reader(Path(filename).parent)
    main = reader.read(source, filename)
    return (main, *reader.headers.values())


class _Reader:
    """Rewrites one file after another, as their includes ask for them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.headers: dict[Path, SourceFile] = {}
        self._names: dict[Path, str] = {}

    def read(self, source: str, shown: str, name: str = "kernel.cpp") -> SourceFile:
        try:
            source = device_part(source, shown)
        except SpecError as error:
            raise CompileError(str(error)) from error
        if not source.endswith("\n"):
            source += "\n"
        code = strip(source)
        edits = [*self._includes(source, code, Path(shown).parent), *_declarations(code)]
        edits += _unsupported(code)
        return SourceFile(name, shown, _apply(source, edits))

    def _includes(self, source: str, code: str, folder: Path) -> Iterator[_Edit]:
        for directive in _DIRECTIVE.finditer(code):
            if match := _INCLUDE.match(source, directive.start()):
                yield from self._include(match, folder)

    def _include(self, match: re.Match[str], folder: Path) -> Iterator[_Edit]:
        header = match["local"] or match["angle"]
        path = self._find(header, folder)
        if path is not None:
            yield _Edit(match.start(), match.end(), f'#include "{self._header(path)}"')
        elif _PROVIDED.fullmatch(header):
            yield _Edit(match.start(), match.end(), "")
        elif _UNSUPPORTED_HEADER.fullmatch(header):
            yield _Edit(match.start(), match.end(), f'#error "{_sentence(header)}"')

    def _find(self, header: str, folder: Path) -> Path | None:
        for place in (folder, self.folder):
            if (path := place / header).is_file():
                return path
        return None

    def _header(self, path: Path) -> str:
        key = path.resolve()
        if key not in self._names:
            self._names[key] = name = f"{len(self._names)}-{path.name}"
            source = path.read_text(encoding="utf-8", errors="replace")
            self.headers[key] = self.read(source, os.path.normpath(path), name)
        return self._names[key]


@dataclass(frozen=True)
class _Edit:
    start: int
    end: int
    text: str


def _apply(source: str, edits: list[_Edit]) -> str:
    parts = []
    position = 0
    for edit in sorted(edits, key=lambda edit: (edit.start, edit.end)):
        if edit.start < position:
            continue
        parts += [source[position : edit.start], edit.text]
        newlines = source.count("\n", edit.start, edit.end) - edit.text.count("\n")
        parts.append("\n" * newlines)
        position = edit.end
    return "".join(parts) + source[position:]


def _declarations(code: str) -> Iterator[_Edit]:
    dynamic = list(_EXTERN_SHARED.finditer(code))
    for match in dynamic:
        yield _dynamic_shared(code, match)
    inside = [(match.start(), match.end()) for match in dynamic]
    for match in _SHARED.finditer(code):
        if not any(start <= match.start() < end for start, end in inside):
            names = _declared_names(match["declarators"])
            marks = "".join(f" PYTEST_GEMM_SHARED({name})" for name in names)
            limits = "".join(f" {_limit(name)}" for name in names)
            yield _Edit(match.end(), match.end(), marks + limits)
    for match in _STATIC_SHARED.finditer(code):
        yield _Edit(match.start(), match.end(), "")
    for match in _SHARED_STATIC.finditer(code):
        yield _Edit(match.start(), match.end(), match[1])
    for match in _SHARED_ALIGNAS.finditer(code):
        text = f"{match['alignas']}{match['space']}__shared__"
        yield _Edit(match.start(), match.end(), text)
    for match in _NOINLINE.finditer(code):
        yield _Edit(match.start(), match.end(), "__attribute__((noinline))")


def _dynamic_shared(code: str, match: re.Match[str]) -> _Edit:
    declaration = _QUALIFIER.sub("", match[0].rstrip(";"))
    array = _DYNAMIC.fullmatch(declaration.strip())
    if array is None:
        text = _pragma("this declaration of dynamic shared memory") + match[0]
    else:
        element = " ".join(f"{array['type']}{array['dimensions']}".split())
        if _in_function(code, match.start()):
            text = f"auto* const {array['name']} = ::pytest_gemm::dynamic_shared<{element}>();"
        else:
            text = (
                f"static auto& {array['name']} ="
                f" ::pytest_gemm::dynamic_shared_reference<{element}>();"
            )
    return _Edit(match.start(), match.end(), text)


def _in_function(code: str, position: int) -> bool:
    """Whether a brace is open there that is not a namespace's or a linkage's."""
    scopes: list[bool] = []
    for brace in _BRACE.finditer(code, 0, position):
        if brace[0] == "}":
            if scopes:
                scopes.pop()
        else:
            line = max(code.rfind(c, 0, brace.start()) for c in ";{}") + 1
            scopes.append(not _TRANSPARENT_BRACE.search(code, line, brace.start()))
    return any(scopes)


def _declared_names(declarators: str) -> list[str]:
    """``float As[8][8], *p``: the names of ``As`` and ``p``."""
    for brackets in (r"\[[^\[\]]*\]", r"\([^()]*\)", r"<[^<>]*>"):
        while (shorter := re.sub(brackets, " ", declarators)) != declarators:
            declarators = shorter
    names = [re.findall(r"[^\W\d]\w*", part) for part in declarators.split(",")]
    return [words[-1] for words in names if words]


def _unsupported(code: str) -> Iterator[_Edit]:
    directives = list(_DIRECTIVE.finditer(code))
    starts = [directive.start() for directive in directives]
    for pattern, what in _UNSUPPORTED:
        for match in pattern.finditer(code):
            index = bisect_right(starts, match.start()) - 1
            if index >= 0 and match.start() < directives[index].end():
                head = _DEFINE_HEAD.match(code, starts[index])
                if head is None or match.start() < head.end():
                    continue
            yield _Edit(match.start(), match.start(), _pragma(what))


def _limit(name: str) -> str:
    what = f"more than {MAX_SHARED_MEM // 1024} KB of shared memory"
    return f'static_assert(sizeof({name}) <= {MAX_SHARED_MEM}, "{name}: {what} are on no GPU");'


def _sentence(what: str) -> str:
    return f"{what} is not supported on the CPU back end; {_WAY_OUT}"


def _pragma(what: str) -> str:
    return f' _Pragma("GCC error \\"{_sentence(what)}\\"") '
