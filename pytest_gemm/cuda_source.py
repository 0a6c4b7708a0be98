"""Finds the ``__global__`` functions of a CUDA C++ source, without compiling it.

This is no C++ parser: it knows comments, strings, preprocessor lines, namespaces and brackets,
which is enough to read the head of a kernel wherever its qualifiers and macros stand.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

Kind = Literal["pointer", "integer", "float", "other"]


@dataclass(frozen=True)
class Parameter:
    """A function's parameter: ``name`` (empty where it has none), C type and line.

    ``file`` is the one that a ``#line`` names, empty where none does.
    """

    name: str
    type: str
    line: int
    file: str = ""

    @property
    def kind(self) -> Kind:
        """What can be passed, see ``kind_of``."""
        return kind_of(self.type)


@dataclass(frozen=True)
class TemplateParameter:
    """``int BM = 32``: its name, whether it has a default, whether it is a pack."""

    name: str
    has_default: bool = False
    is_pack: bool = False


@dataclass(frozen=True)
class Function:
    """The head of a ``__global__`` function.

    ``name`` is qualified by its namespaces; ``template`` is None for an ordinary function;
    ``launch_bounds`` is the text between the parentheses, or empty; ``file`` is the one that a
    ``#line`` names, empty where none does.
    """

    name: str
    line: int
    parameters: tuple[Parameter, ...]
    template: tuple[TemplateParameter, ...] | None = None
    launch_bounds: str = ""
    is_definition: bool = True
    file: str = ""

    @property
    def unqualified(self) -> str:
        """The name without its namespaces."""
        return self.name.rpartition("::")[2]


_QUALIFIERS = {"const", "volatile", "register", "__restrict__", "__grid_constant__", "std"}
_INTEGERS = {
    *("int", "unsigned", "signed", "long", "short", "char", "bool", "size_t", "ptrdiff_t"),
    *("uint", "ulong", "ushort", "uchar", "ssize_t"),
    *(f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)),
}
_TYPE_WORDS = _QUALIFIERS | _INTEGERS | {"float", "double", "void", "auto", "typename", "class"}

_LEXEME = re.compile(
    r"""
    (?P<comment>//(?:\\\n|[^\n])*|/\*.*?(?:\*/|\Z))
    |(?:u8|[uUL])?R"(?P<delimiter>[^()\\\s]{0,16})\(.*?(?:\)(?P=delimiter)"|\Z)
    |"(?:\\.|[^"\\\n])*"?
    |(?P<keep>\.?[0-9](?:[eEpP][+-]|'\w|[\w.])*|(?!(?:u8|[uUL])['"])[^\W\d]\w*)
    |(?:u8|[uUL])?'(?:\\.|[^'\\\n])*'?
    """,
    re.DOTALL | re.VERBOSE,
)
_DIRECTIVE = re.compile(r"^[ \t]*\#(?:\\\n|[^\n])*", re.MULTILINE)
# #define KERNEL extern "C" __global__ void
_MARK = re.compile(
    r"^[ \t]*\#[ \t]*define[ \t]+(\w+)[ \t]+((?:(?!\\$)[^\n(){};])*\b__global__\b"
    r"(?:__launch_bounds__[ \t]*\([^()\n]*\)|(?!\\$)[^\n(){};])*)$",
    re.MULTILINE,
)
_CONDITION = re.compile(
    r"^[ \t]*\#[ \t]*"
    r"(?:(?P<open>if(?:n?def)?\b(?P<zero>[ \t]+0[ \t]*$)?)|(?P<close>endif\b)|el\w+)",
    re.MULTILINE,
)
_LINE = re.compile(
    r'^[ \t]*#[ \t]*line[ \t]+(?P<number>[0-9]{1,10})\b(?:[ \t]*"(?P<file>[^"\n]*)")?', re.MULTILINE
)
_CONSTANTS = re.compile(
    r"^[ \t]*\#[ \t]*define[ \t]+(?P<macro>\w+)[ \t]+(?P<text>\w+|\([^()\n]*\))[ \t]*$"
    r"|\b(?:const|constexpr)\s+(?:\w+\s+)+(?P<declarators>\w+\s*=[^;{}]*);",
    re.MULTILINE,
)
_SCOPE = re.compile(
    r"\bnamespace\b(?P<namespace>[^;{}()=]*)\{"
    r"|(?P<open>\{)|(?P<close>\})|(?P<kernel>\b__global__\b)"
)
_TEMPLATE = re.compile(r"\btemplate\s*(?=<)")
# What may carry parentheses in a kernel's head without being its name.
_ATTRIBUTES = {
    *("__launch_bounds__", "__attribute__", "__cluster_dims__", "__maxnreg__", "__block_size__"),
    *("__align__", "alignas", "__declspec", "noexcept", "decltype", "requires"),
}
_PAIRS = {"(": ")", "[": "]", "{": "}", "<": ">"}


@lru_cache(maxsize=256)
def strip(source: str) -> str:
    """The source with comments and the contents of strings blanked; lines and columns stay."""
    return _LEXEME.sub(_blank_lexeme, source.replace("\r\n", " \n"))


def _blank_lexeme(match: re.Match[str]) -> str:
    text = match[0]
    if match["keep"] is not None:
        return text
    spaces = blank(text)
    if match["comment"] is not None or len(text) < 2:
        return spaces
    return f'"{spaces[1:-1]}"' if text.endswith('"') else spaces


def identifiers(source: str) -> frozenset[str]:
    """Every word of the code, its preprocessor lines included."""
    return frozenset(re.findall(r"[^\W\d]\w*", strip(source)))


@lru_cache(maxsize=256)
def integer_constants(source: str) -> dict[str, str]:
    """What ``const``, ``constexpr`` and ``#define`` give names, as texts in the file's order.

    A name that is given different ones is left out, as is a macro of several words without
    parentheses around them.
    """
    found: dict[str, set[str]] = {}
    for match in _CONSTANTS.finditer(strip(source)):
        if match["macro"]:
            found.setdefault(match["macro"], set()).add(match["text"])
            continue
        for _, declarator in _split(match["declarators"]):
            name, _, value = declarator.partition("=")
            found.setdefault(name.strip(), set()).add(value.strip())
    return {name: texts.pop() for name, texts in found.items() if len(texts) == 1}


def locate(source: str, line: int) -> tuple[str, int]:
    """File and line that ``#line`` directives give a line of the text.

    The file is empty where none names one.
    """
    marks = _line_marks(source)
    index = bisect_right(marks, line, key=lambda mark: mark[0]) - 1
    if index < 0:
        return "", line
    first, number, file = marks[index]
    return file, number + line - first


def line_files(source: str) -> frozenset[str]:
    """The files that ``#line`` directives name."""
    return frozenset(file for _, _, file in _line_marks(source) if file)


@lru_cache(maxsize=256)
def _line_marks(source: str) -> tuple[tuple[int, int, str], ...]:
    """Of each ``#line``: the line of the text after it, that line's new number and file."""
    code = strip(source)
    marks = []
    line, position, file = 1, 0, ""
    for match in _LINE.finditer(code):
        line += code.count("\n", position, match.end())
        position = match.end()
        if match["file"] is not None:
            file = re.sub(r"\\(.)", r"\1", source[match.start("file") : match.end("file")])
        marks.append((line + 1, int(match["number"]), file))
    return tuple(marks)


def template_names(source: str) -> frozenset[str]:
    """The names of all template parameters, of whatever function or class."""
    code = _code(source)
    return frozenset(
        parameter.name
        for match in _TEMPLATE.finditer(code)
        for parameter in _template_parameters(code[match.end() + 1 : _close(code, match.end())])
    )


@lru_cache(maxsize=256)
def find_kernels(source: str) -> tuple[Function, ...]:
    """The ``__global__`` functions in the order of the file, each name once.

    A definition is preferred to a declaration, a primary template to its specialisations.
    Lines and files are those that ``#line`` directives give.
    """
    found: dict[str, Function] = {}
    for function in _functions(_code(source)):
        earlier = found.get(function.name)
        if earlier is None or (function.is_definition and not earlier.is_definition):
            found[function.name] = function
    functions = sorted(found.values(), key=lambda function: function.line)
    return tuple(_located(function, source) for function in functions)


def _located(function: Function, source: str) -> Function:
    parameters = []
    for parameter in function.parameters:
        file, line = locate(source, parameter.line)
        parameters.append(replace(parameter, file=file, line=line))
    file, line = locate(source, function.line)
    return replace(function, file=file, line=line, parameters=tuple(parameters))


def _code(source: str) -> str:
    """The source without its directives, with macros that mark kernels replaced."""
    text = _without_disabled(strip(source))
    marks = {match[1]: match[2] for match in _MARK.finditer(text)}
    code = _DIRECTIVE.sub(lambda match: blank(match[0]), text)
    return re.sub(r"[^\W\d]\w*", lambda word: marks.get(word[0], word[0]), code) if marks else code


def blank(text: str) -> str:
    """As many spaces; lines stay."""
    return re.sub(r"[^\n]", " ", text)


def _without_disabled(text: str) -> str:
    """The text with what stands under ``#if 0`` blank, up to its ``#else``."""
    parts: list[str] = []
    position = start = 0
    depth = disabled = 0  # conditions that are open; the one that is ``#if 0``
    for match in _CONDITION.finditer(text):
        if match["open"]:
            depth += 1
            if match["zero"] and not disabled:
                disabled, start = depth, match.end()
        elif depth == disabled and disabled:
            parts += [text[position:start], blank(text[start : match.start()])]
            position, disabled = match.start(), 0
        if match["close"]:
            depth -= 1
    rest = text[position:start] + blank(text[start:]) if disabled else text[position:]
    return "".join(parts) + rest


def _functions(code: str) -> Iterator[Function]:
    scopes: list[str] = []  # a namespace's name and "::", or "" for any other brace
    for match in _SCOPE.finditer(code):
        if match["namespace"] is not None:
            name = re.sub(r"\binline\b|\[\[.*?\]\]|\s", "", match["namespace"])
            scopes.append(f"{name}::" if name else "")
        elif match["open"]:
            scopes.append("")
        elif match["close"]:
            if scopes:
                scopes.pop()
        else:
            function = _function(code, match.start(), match.end(), scopes)
            if function is not None:
                yield function


def _function(code: str, start: int, after: int, scopes: list[str]) -> Function | None:
    before = code[max(code.rfind(c, 0, start) for c in ";{}") + 1 : start]
    head_start = start - len(before)
    template: tuple[TemplateParameter, ...] | None = None
    if match := _TEMPLATE.search(before):
        opening = head_start + match.end()
        template = _template_parameters(code[opening + 1 : _close(code, opening)])
    name, name_at, opening, bounds, position = "", 0, 0, "", after
    while match := re.compile(r"[;{]|([^\W\d]\w*)\s*(?=[(<])|[^\W\d]\w*").search(code, position):
        position = match.end()
        word = match[1]
        if match[0] in ";{":
            break
        if word is None:
            continue
        if code[position] == "<":
            position = _close(code, position) + 1
            while code[position : position + 1].isspace():
                position += 1
            if code[position : position + 1] != "(":
                continue
        closing = _close(code, position)
        if word == "__launch_bounds__":
            bounds = " ".join(code[position + 1 : closing].split())
        elif word not in _ATTRIBUTES:
            name, name_at, opening = word, match.start(), position
        position = closing + 1
    if not name:
        return None
    if early := re.search(r"\b__launch_bounds__\s*(?=\()", before):
        at = head_start + early.end()
        bounds = " ".join(code[at + 1 : _close(code, at)].split())
    return Function(
        name="".join(scopes) + name,
        line=code.count("\n", 0, name_at) + 1,
        parameters=_parameters(code, opening + 1, _close(code, opening)),
        template=template,
        launch_bounds=bounds,
        is_definition=code[position - 1 : position] == "{",
    )


def _close(code: str, opening: int) -> int:
    """Index of the bracket that closes the one at ``opening``, or the end of the code.

    Inside ``<...>`` a ``>`` within parentheses does not count, as in C++.
    """
    closers = [_PAIRS[code[opening]]]
    for index in range(opening + 1, len(code)):
        c = code[index]
        if c == closers[-1]:
            closers.pop()
            if not closers:
                return index
        elif c in "([{" or (c == "<" and closers[-1] == ">"):
            closers.append(_PAIRS[c])
    return len(code)


def _split(text: str) -> Iterator[tuple[int, str]]:
    """The parts between top-level commas, with the index where each starts."""
    start = 0
    closers: list[str] = []
    for index, c in enumerate(text):
        if closers and c == closers[-1]:
            closers.pop()
        elif c in "([{" or (c == "<" and (not closers or closers[-1] == ">")):
            closers.append(_PAIRS[c])
        elif c == "," and not closers:
            yield start, text[start:index]
            start = index + 1
    if text[start:].strip():
        yield start, text[start:]


def _template_parameters(text: str) -> tuple[TemplateParameter, ...]:
    result = []
    for _, part in _split(text):
        declaration, equals, _ = part.partition("=")
        words = re.findall(r"[^\W\d]\w*", declaration)
        named = len(words) > 1 and words[-1] not in _TYPE_WORDS
        name = words[-1] if named else ""
        result.append(TemplateParameter(name, bool(equals), "..." in declaration))
    return tuple(result)


def _parameters(code: str, start: int, end: int) -> tuple[Parameter, ...]:
    result = []
    for offset, part in _split(code[start:end]):
        declaration = re.sub(r"\[\[.*?\]\]", "", part.partition("=")[0])
        name, type_ = _declarator(declaration)
        if type_ == "void" and not name:
            continue
        where = re.search(rf"\b{name}\b", part) if name else re.search(r"\S", part)
        at = start + offset + (where.start() if where else 0)
        result.append(Parameter(name, type_, code.count("\n", 0, at) + 1))
    return tuple(result)


def _declarator(text: str) -> tuple[str, str]:
    """Name and type of ``const float* __restrict__ A``; arrays become pointers."""
    # float (*A)[16]: the name stands inside the parentheses.
    if inner := re.search(r"\(\s*[*&]\s*(?:__restrict__\s*)?(\w*)\s*\)", text):
        return inner[1], _type(text[: inner.start()]) + "*"
    flat, arrays = re.subn(r"\[[^\]]*\]", " ", text)
    words = list(re.finditer(r"[^\W\d]\w*", flat))
    name = ""
    # The last word is the name, unless it is part of the type: `unsigned int`, `std::size_t`.
    if len(words) > 1 and words[-1][0] not in _TYPE_WORDS and flat[words[-1].end() :].strip() == "":
        before = flat[: words[-1].start()].rstrip()
        if not before.endswith("::"):
            name = words[-1][0]
            flat = before
    return name, _type(flat) + ("*" if arrays else "")


def _type(text: str) -> str:
    text = re.sub(r"\b__restrict(?:__)?\b|\brestrict\b", " ", text)
    text = " ".join(text.split())
    text = re.sub(r"\s*\*\s*", "* ", text).strip()
    return re.sub(r"\*(?: const| volatile)+$", "*", text)


def kind_of(type_: str) -> Kind:
    """What a C type is passed: ``other`` for types that only a compiler knows."""
    if type_.endswith("*"):
        return "pointer"
    words = set(re.findall(r"\w+", type_)) - _QUALIFIERS
    if words and words <= _INTEGERS:
        return "integer"
    if words and words <= {"float", "double", "long"}:
        return "float"
    return "other"


def template_arguments(entry: str) -> tuple[str, ...] | None:
    """``("BM", "BN")`` for ``gemm<BM, BN>``; None for a name without ``<``."""
    opening = entry.find("<")
    if opening < 0:
        return None
    return tuple(part.strip() for _, part in _split(entry[opening + 1 : _close(entry, opening)]))


def integer_range(type_: str) -> tuple[int, int]:
    """Least and greatest value of a C integer type (LP64, as CUDA on Linux)."""
    words = set(re.findall(r"\w+", type_))
    if "bool" in words:
        return 0, 1
    sizes = (
        (8, {"char", "uchar", "int8_t", "uint8_t"}),
        (16, {"short", "ushort", "int16_t", "uint16_t"}),
        (64, {"long", "ulong", "size_t", "ssize_t", "ptrdiff_t", "int64_t", "uint64_t"}),
    )
    bits = next((bits for bits, names in sizes if words & names), 32)
    unsigned = words & {"unsigned", "size_t"} or any(word.startswith("u") for word in words)
    return (0, 2**bits - 1) if unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
