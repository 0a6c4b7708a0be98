"""Slices the device part out of a CUDA file that also holds the host code that launches it.

Functions that are not marked for the device, those that name a host library, variables that no
kernel can read, types of host libraries and includes of host headers are left out; line numbers
stay. Of what is not marked only ``constexpr`` functions, constants and types remain, as in CUDA
itself.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import NoReturn

from pytest_gemm.cuda_items import ATTRIBUTES, WORD, Code, Item, Unbalanced
from pytest_gemm.cuda_source import blank, locate, strip
from pytest_gemm.errors import SpecError

_MARKS = frozenset({"__global__", "__device__", "__constant__", "__shared__", "__managed__"})
_CONSTANT = frozenset({"constexpr", "consteval"})

_INCLUDE = re.compile(r'\s*(?:<(?P<angle>[^>\n]*)>|"(?P<local>[^"\n]*)")')
_INCLUDE_LINE = re.compile(r"^[ \t]*#[ \t]*include\b.*$", re.MULTILINE)
_HOST_HEADER = re.compile(
    r"ios(?:fwd)?|iomanip|[fsio]?stream|iostream|streambuf|vector|list|forward_list|deque|queue"
    r"|stack|(?:unordered_)?(?:map|set)|string|string_view|memory|memory_resource|functional"
    r"|numeric|random|chrono|thread|mutex|shared_mutex|condition_variable|future|atomic"
    r"|filesystem|regex|locale|exception|stdexcept|system_error|iterator|valarray|any|optional"
    r"|variant|typeinfo|typeindex|format|csignal|ctime|cerrno|cstdarg|clocale|cctype"
    r"|(?:time|getopt|omp|errno|signal|ctype|stdarg|strings|malloc|pthread|fcntl|dlfcn|mpi"
    r"|windows|cblas|lapacke|\w+intrin|Python|wb)\.h|sys/.*|mkl\w*\.h"
    r"|(?:cublas\w*|curand|cusparse\w*|cusolver\w*|cufft\w*|cudnn\w*|nccl|nvml|nvrtc|cupti\w*"
    r"|nvToolsExt\w*|cuda_profiler_api|cudaProfiler|cuda_gl_interop|helper_\w+)\.h|exception\.h"
    r"|(?:nvtx3|gtest|gmock|benchmark|torch|ATen|c10|pybind11|opencv2|Eigen)/.*"
)
_TRAITS = (
    r"is_\w+|enable_if\w*|conditional\w*|(?:remove|add|make)_\w+|decay\w*|\w+_constant|void_t"
    r"|(?:true|false)_type|common_type\w*|underlying_type\w*|invoke_result\w*"
)
# Headers that device code may need, and the words by which it then would.
_MIXED_HEADERS = tuple(
    (re.compile(header), re.compile(words))
    for header, words in (
        (r"algorithm", r"\bstd\s*::\s*(?:min|max|clamp|swap|fill|copy|\w+_bound)\w*"),
        (r"array", r"\barray\s*<"),
        (r"limits", r"\bnumeric_limits\b"),
        (r"tuple", r"\btuple\w*|\bstd\s*::\s*(?:get|tie)\b"),
        (r"type_traits", rf"\b(?:{_TRAITS})\b"),
        (r"utility", r"\bstd\s*::\s*(?:\w*pair|move|forward|swap|exchange|declval|\w+_sequence)\b"),
        (r"unistd\.h", r"\b_exit\b"),
        (r"cuda\.h", r"\b(?:CU[a-z_]|cu[A-Z])\w*"),
        (r"thrust/.*", r"\b(?:thrust\b|THRUST_)"),
        (r"cub/.*", r"\b(?:cub\b|CUB_)"),
        (r"cutlass/.*", r"\b(?:cutlass\b|CUTLASS_)"),
        (r"cute/.*", r"\b(?:cute\b|CUTE_)"),
    )
)
# What host headers bring along, the header's other names, and the words by which it is needed.
_COMPANIONS = tuple(
    (header, re.compile(names), re.compile(words))
    for header, names, words in (
        ("cstdint", r"cstdint|stdint\.h", r"\bu?int(?:8|16|32|64)_t\b"),
        ("cstddef", r"cstd(?:def|lib)|std(?:def|lib)\.h", r"\bstd\s*::\s*(?:size|ptrdiff)_t\b"),
        ("climits", r"c?limits(?:\.h)?", r"\bU?(?:CHAR|SHRT|INT|LONG|LLONG)_(?:MAX|MIN)\b"),
        ("cfloat", r"cfloat|float\.h", r"\b(?:FLT|DBL)_\w+"),
        ("cmath", r"cmath|math\.h", r"\b(?:INFINITY|NAN|M_PI)\b"),
    )
)
_HOST_NAMESPACES = frozenset(
    {"testing", "benchmark", "torch", "at", "c10", "pybind11", "Eigen", "cv", "boost", "fmt"}
)
_HOST_WORD = re.compile(
    r"cuda(?!Texture|Surface)[A-Z]\w*|cu(?:blas|sparse|solver|dnn|fft)\w*|curand[A-Z]\w*"
    r"|cu(?:Ctx|Device|Module|Launch|Mem|Stream|Event|Func)\w+|FILE|timeval|timespec|clock_t"
    r"|CU(?:device|context|module|function|stream|event|result)\w*|pthread_\w+|MPI_\w+|chrono"
)
# Of std::, what is known at compile time.
_DEVICE_STD = re.compile(
    rf"{_TRAITS}|size_t|ptrdiff_t|nullptr_t|byte|u?int\w*_t|numeric_limits|declval|\w+_sequence\w*"
    r"|pair|tuple\w*|array|get|min|max|move|forward|swap|abs|sqrt|exp|log|pow|floor|ceil"
)
# Types of std, where `using namespace std` leaves that out.
_STD_TYPES = frozenset(
    {"vector", "string", "map", "set", "unordered_map", "unordered_set", "ostream", "istream"}
    | {"ofstream", "ifstream", "stringstream", "unique_ptr", "shared_ptr", "function", "mutex"}
)
_HOST_SIGN = re.compile(r"<<<|\bmain\s*\(")
# What may stand before parentheses in the value of a constant.
_CASTS = ATTRIBUTES | {
    *("sizeof", "alignof", "int", "float", "double", "unsigned", "long", "short", "char", "bool"),
    "size_t",
}
_MISSED = re.compile(r"""['"\u2018](?:\w+ )?(?:\w+::)*(\w+)(?:\([^'"]*\))?['"\u2019]""")
_ADVICE = "balance the brackets, or move the host code to a file of its own"


@dataclass(frozen=True)
class HostName:
    """A name that was left out: ``what`` is ``function``, ``variable`` or ``type``.

    It is ``device`` for a device function or a kernel that uses a host library: ``library`` is what
    of it, such as ``torch::Tensor``.
    """

    what: str
    file: str
    line: int
    library: str = ""


@dataclass(frozen=True)
class DevicePart:
    """``text`` has the lines of its source, and is that source where nothing was left out.

    ``host_names`` are the names that were; ``has_plain_constexpr`` says whether a ``constexpr``
    function without ``__device__`` is in the text.
    """

    text: str
    host_names: Mapping[str, HostName] = field(default_factory=dict)
    has_plain_constexpr: bool = False


def device_part(source: str, filename: str) -> str:
    """The source without its host code; the same text where it has none.

    Every line keeps its number. ``filename`` is what errors call the source where no ``#line``
    does. Raises SpecError, with file and line, where host and device code cannot be told apart.
    """
    return slice_source(source, filename).text


@lru_cache(maxsize=256)
def slice_source(source: str, filename: str) -> DevicePart:
    """As ``device_part``, with what is known of the parts."""
    try:
        slicer = _Slicer(source, filename, Code(source))
    except Unbalanced as error:
        if not _has_host_sign(source):
            return DevicePart(source)  # the compiler says it better
        file, line = _place(source, filename, error.position)
        raise SpecError(f"{error}: {_ADVICE}", path=file, line=line) from None
    slicer.run()
    return DevicePart(slicer.text(), slicer.host_names, slicer.has_plain_constexpr)


def explain(source: str, filename: str, message: str) -> str:
    """What a compiler's message lacks where it misses a name that was left out, else nothing."""
    names = slice_source(source, filename).host_names
    for word in _MISSED.findall(message):
        if host := names.get(word):
            place = f"{word} in {host.file}:{host.line}"
            if host.library:
                return f" ({place} uses {host.library} of a host library: it is left out)"
            way = {
                "function": "mark it __host__ __device__",
                "variable": "make it constexpr, __constant__ or __device__",
                "type": "keep what kernels need of it in a type of its own",
            }[host.what]
            return f" ({place} is host code, which is left out: {way})"
    return ""


def _place(source: str, filename: str, position: int) -> tuple[str, int]:
    file, line = locate(source, source.count("\n", 0, position) + 1)
    return file or filename, line


def _has_host_sign(source: str) -> bool:
    lines = _INCLUDE_LINE.findall(source)
    names = [line.partition("include")[2].strip(' \t<>"') for line in lines]
    return bool(_HOST_SIGN.search(strip(source)) or any(map(_HOST_HEADER.fullmatch, names)))


class _Slicer:
    """Goes through the declarations of a source once, in their order."""

    def __init__(self, source: str, filename: str, code: Code) -> None:
        self.source = source
        self.filename = filename
        self.code = code
        self.host_names: dict[str, HostName] = {}
        self.has_plain_constexpr = False
        self._marks = self._marking_macros()
        self._host_types: set[str] = set()
        self._libraries = _HOST_NAMESPACES - self._own_namespaces()
        self._library_names: set[str] = set()  # using torch::Tensor;
        self._uses_std = "using namespace std" in " ".join(code.texts)
        self._functions: set[str] = set()  # that are in the device part
        self._blanks: list[tuple[int, int]] = []
        self._replacements: dict[tuple[int, int], str] = {}  # of some of them

    def run(self) -> None:
        self._scope(0, len(self.code.tokens))
        self._includes()

    def text(self) -> str:
        """The source with the host code blank; directives inside of that stay."""
        if not self._blanks:
            return self.source
        blanks = set(self._blanks)
        kept = [d for d in self.code.directives if d["word"] not in ("pragma", "")]
        kept = [d for d in kept if d.span() not in blanks]
        starts = [directive.start() for directive in kept]
        parts: list[str] = []
        position = 0
        for start, end in sorted(self._blanks):
            if end <= position:
                continue
            parts.append(self.source[position:start])
            position = start
            for directive in kept[bisect_left(starts, start) : bisect_left(starts, end)]:
                parts.append(blank(self.source[position : directive.start()]))
                parts.append(self.source[directive.start() : directive.end()])
                position = directive.end()
            parts.append(self._replacements.get((start, end), ""))
            parts.append(blank(self.source[position:end]))
            position = end
        text = "".join(parts) + self.source[position:]
        lines = zip(self.source.split("\n"), text.split("\n"), strict=True)
        return "\n".join(new if new == old else new.rstrip() for old, new in lines)

    def _scope(self, at: int, end: int) -> None:
        """The declarations of a file, a namespace or ``extern "C"``."""
        while at < end:
            if self.code.texts[at] == ";":
                at += 1
            elif (brace := self.code.scope_at(at)) >= 0:
                self._scope(brace + 1, self.code.closers[brace])
                at = self.code.closers[brace] + 1
            elif (after := self.code.macro_end(at)) > at:
                self._macro(at, after)
                at = after
            else:
                item = self.code.item(at, end)
                self._decide(item)
                at = item.last + 1

    def _macro(self, at: int, after: int) -> None:
        """A macro in the place of declarations, such as ``DEFINE_KERNEL(16)``."""
        name = self.code.texts[at]
        body = self.code.macros[name]
        if name in self._marks:
            launches = ("<<", "<") in pairwise(body)
            if "__global__" in body and launches:
                text = f"the macro {name} defines a kernel and launches it: move the launch out"
                self._fail(at, text)
        elif body.count("{") == body.count("}"):
            self._leave_out(at, after - 1)

    def _decide(self, item: Item) -> None:
        if item.kind == "function":
            self._function(item)
        elif item.kind == "class":
            self._class(item)
        elif item.kind == "variable":
            self._variable(item)
        elif self._is_host(item.tokens) or self._is_library(item):
            self._alias(item)

    def _is_library(self, item: Item) -> bool:
        """``using namespace torch;`` or ``namespace py = pybind11;``."""
        words = _words(item.tokens, self.code)
        return "namespace" in words[:2] and words[-1] in self._libraries

    def _alias(self, item: Item) -> None:
        name = _alias_name(item, self.code)
        if self.code.texts[item.first] == "namespace":
            self._libraries |= {self.code.text(item.first + 1)}
        elif self._library_word(item.tokens):
            self._library_names.add(name)
        self._type(item, name)

    def _function(self, item: Item) -> None:
        name = self.code.name(item)
        if not self._is_device_function(item, name):
            self._leave_out(item.first, item.last, "function", [name])
        elif library := self._library_word(item.tokens) or self._library_of_template(item, name):
            self._leave_out(item.first, item.last, "device", [name], library)
        else:
            self._functions.add(name)

    def _library_of_template(self, item: Item, name: str) -> str:
        """What the template of an explicit instantiation names."""
        is_instantiation = self.code.texts[item.first] == "template" and item.body < 0
        host = self.host_names.get(name)
        return host.library if host and is_instantiation and name not in self._functions else ""

    def _library_word(self, tokens: Iterable[int]) -> str:
        """What of a host library is named first, as ``torch::Tensor``; empty where nothing is."""
        for at in tokens:
            if self._is_of_library(at):
                after = f"::{self.code.text(at + 2)}" if self.code.starts(at + 1, "::") else ""
                return self.code.texts[at] + after
        return ""

    def _is_of_library(self, at: int) -> bool:
        word = self.code.texts[at]
        if word in self._library_names:
            return True
        return word in self._libraries and self.code.starts(at + 1, "::")

    def _own_namespaces(self) -> frozenset[str]:
        """Those that the source opens itself."""
        texts = self.code.texts
        opened = zip(texts, texts[1:], texts[2:], strict=False)
        return frozenset(name for a, name, b in opened if (a, b) == ("namespace", "{"))

    def _is_device_function(self, item: Item, name: str) -> bool:
        words = self.code.words(item.head)
        if words & self._marks:
            return True
        if words & _CONSTANT and not self._is_host(item.tokens):
            self.has_plain_constexpr = True
            return True
        if self.code.text(item.value) in ("default", "delete"):
            return True
        is_instantiation = self.code.texts[item.first] == "template" and item.body < 0
        return is_instantiation and name in self._functions

    def _variable(self, item: Item) -> None:
        if not self._is_device_variable(item):
            self._leave_out(item.first, item.last, "variable", _variable_names(item, self.code))

    def _is_device_variable(self, item: Item) -> bool:
        if self.code.words(item.tokens) & self._marks:
            return True
        if self._is_host(item.tokens):
            return False
        head = [self.code.texts[at] for at in item.head]
        if set(head) & _CONSTANT:
            return True
        own = head[len(head) - head[::-1].index("*") :] if "*" in head else head
        return "const" in own and not self._calls(item.tokens)

    def _calls(self, tokens: Iterable[int]) -> bool:
        """Whether a value is computed by a function that is not known here."""
        known = self._functions | _CASTS | self.code.macros.keys()
        return any(
            self.code.starts(at + 1, "(")
            and WORD.fullmatch(self.code.texts[at])
            and self.code.texts[at] not in known
            for at in tokens
        )

    def _class(self, item: Item, *, is_member: bool = False) -> None:
        members = list(self.code.members(item))
        data = [member for member in members if member.kind != "function"]
        host = [member for member in data if self._is_host(self._data(member))]
        if self._is_host(item.head) or (host and not self._has_device_function(members)):
            self._type(item, self.code.name(item) or _alias_name(item, self.code))
            return
        if host:
            name = self.code.name(item) or "this type"
            text = "has device functions and a member of a host type: move one to another type"
            self._fail(host[0].first, f"{name} {text}")
        for member in members:
            if member.kind == "function":
                self._function(member)
            elif member.kind == "class":
                self._class(member, is_member=True)
            elif member.kind == "variable" and "static" in self.code.words(member.head):
                self._variable(member)
        declared = range(self.code.closers[item.body] + 1, item.last)  # struct {...} these;
        words = self.code.words((*item.head, *declared))
        stays = is_member or words & {"typedef", "const", *_CONSTANT, *self._marks}
        is_attribute = self.code.text(declared.start) in ATTRIBUTES
        if declared and not (stays or is_attribute):
            # A type without a name declares nothing else.
            first, last = declared[0], declared[-1]
            if not self.code.name(item):
                first, last = item.first, item.last
            self._leave_out(first, last, "variable", _words(declared[:1], self.code))

    def _data(self, item: Item) -> Sequence[int]:
        """The tokens of a member; of a type only those of its own data."""
        if item.kind != "class":
            return item.tokens
        members = [m for m in self.code.members(item) if m.kind != "function"]
        return [*item.head, *(at for member in members for at in self._data(member))]

    def _has_device_function(self, members: Iterable[Item]) -> bool:
        return any(
            self._has_device_function(self.code.members(member))
            if member.kind == "class"
            else bool(self.code.words(member.head) & self._marks)
            for member in members
        )

    def _type(self, item: Item, name: str) -> None:
        self._host_types.add(name)
        self._leave_out(item.first, item.last, "type", [name])

    def _is_host(self, tokens: Iterable[int]) -> bool:
        """Whether host libraries, or types that were left out, are named."""
        return any(self._is_host_word(at) for at in tokens)

    def _is_host_word(self, at: int) -> bool:
        word = self.code.texts[at]
        if _HOST_WORD.fullmatch(word) or word in self._host_types or self._is_of_library(at):
            return True
        if self.code.starts(at - 2, "std", "::"):
            return not _DEVICE_STD.fullmatch(word)
        following = self.code.text(at + 1)
        return (
            word in _STD_TYPES
            and self._uses_std
            and (following == "<" or bool(WORD.fullmatch(following)))
            and self.code.text(at - 1) not in (".", "->")
        )

    def _marking_macros(self) -> frozenset[str]:
        """The marks, and the macros that stand for one."""
        found = set(_MARKS)
        while more := {m for m, body in self.code.macros.items() if found & set(body)} - found:
            found |= more
        return frozenset(found)

    def _includes(self) -> None:
        rest = _INCLUDE_LINE.sub("", strip(self.text()))
        kept, left_out = [], []
        for directive in self.code.directives:
            match = _INCLUDE.match(self.source, directive.start("rest"))
            if directive["word"] == "include" and match:
                name = match["angle"] or match["local"] or ""
                if _is_host_header(name, rest):
                    left_out.append(directive.span())
                else:
                    kept.append(name)
        needed = [
            f"#include <{header}>"
            for header, names, words in _COMPANIONS
            if words.search(rest) and not any(map(names.fullmatch, kept))
        ]
        self._blanks += left_out
        self._replacements = dict(zip(left_out, needed, strict=False))

    def _leave_out(
        self, first: int, last: int, what: str = "", names: Iterable[str] = (), library: str = ""
    ) -> None:
        start, end = self.code.tokens[first].start, self.code.tokens[last].end
        self._blanks.append((start, end))
        for name in names:
            if name not in self.host_names:
                self.host_names[name] = HostName(what, *self._place(start), library)

    def _fail(self, token: int, message: str) -> NoReturn:
        file, line = self._place(self.code.tokens[token].start)
        raise SpecError(message, path=file, line=line)

    def _place(self, position: int) -> tuple[str, int]:
        return _place(self.source, self.filename, position)


def _is_host_header(name: str, rest: str) -> bool:
    """Whether the rest of the source needs no such header."""
    if _HOST_HEADER.fullmatch(name):
        return True
    return any(h.fullmatch(name) and not words.search(rest) for h, words in _MIXED_HEADERS)


def _alias_name(item: Item, code: Code) -> str:
    """The name that a ``using`` or a ``typedef`` declares, else nothing."""
    words = _words(item.tokens, code)
    if words[:1] == ["using"] and item.value >= 0:
        return "".join(words[1:2])
    is_alias = words[:1] in (["using"], ["typedef"]) and "namespace" not in words
    return words[-1] if is_alias else ""


def _variable_names(item: Item, code: Code) -> list[str]:
    ends = [*item.head[1:], *(at + 1 for at in item.head[-1:])]
    pairs = zip(item.head, ends, strict=True)
    return [code.texts[a] for a, b in pairs if code.text(b) in ("=", ";", ",", "[", "{")]


def _words(tokens: Iterable[int], code: Code) -> list[str]:
    return [code.texts[at] for at in tokens if WORD.fullmatch(code.texts[at])]
