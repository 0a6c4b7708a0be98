"""Tells the declarations of a CUDA C++ source apart by their words and brackets.

This is no C++ parser: it finds where each function, type and variable begins and ends, and which
words stand before its body. Preprocessor lines are set aside.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple

from pytest_gemm.cuda_source import strip

Kind = Literal["function", "class", "variable", "other"]

WORD = re.compile(r"[^\W\d]\w*")
CLASS_KEYS = frozenset({"struct", "class", "union"})
ATTRIBUTES = frozenset(
    {"alignas", "__align__", "__attribute__", "__declspec", "decltype", "noexcept", "explicit"}
    | {"__launch_bounds__", "__maxnreg__", "__cluster_dims__", "__block_size__", "requires"}
)
"""Words before parentheses that hold no parameters."""

_TOKEN = re.compile(r"""[^\W\d]\w*|\.?\d[\w.]*|"[^"]*"|::|->|<<|[^\s\w]""")
_DIRECTIVE = re.compile(
    r"^[ \t]*#(?:[ \t]|\\\n)*(?P<word>\w*)(?P<rest>(?:\\\n|[^\n])*)", re.MULTILINE
)
_DEFINE = re.compile(r"\s*(?P<name>\w+)(?:\([^)]*\))?(?P<body>.*)", re.DOTALL)
_CLOSERS = {"(": ")", "[": "]", "{": "}"}
_STATEMENTS = frozenset(
    {"using", "static_assert", "_Static_assert", "asm", "__asm__", "concept", "enum", "namespace"}
)
_AFTER_PARAMETERS = frozenset({"const", "volatile", "noexcept", "override", "final"})
_ACCESS = frozenset({"public", "private", "protected"})


class Token(NamedTuple):
    """``start`` and ``end`` are offsets in the source."""

    text: str
    start: int
    end: int


class Unbalanced(Exception):
    """A bracket without its partner, at an offset of the source."""

    def __init__(self, message: str, position: int) -> None:
        self.position = position
        super().__init__(message)


@dataclass(frozen=True)
class Item:
    """A declaration: the tokens ``first`` to ``last``, its ``;`` or ``}`` included.

    ``head`` are the tokens before the body or the value, less those inside of brackets; ``body``
    is the brace that opens a function's or a type's body, or -1; ``value`` is the token after the
    ``=`` of the head, or -1.
    """

    kind: Kind
    first: int
    last: int
    head: tuple[int, ...]
    body: int = -1
    value: int = -1

    @property
    def tokens(self) -> range:
        return range(self.first, self.last + 1)


class Code:
    """The tokens of a source, its preprocessor lines, and its macros' bodies by name.

    Raises Unbalanced.
    """

    def __init__(self, source: str) -> None:
        text = strip(source)
        self.directives = tuple(_DIRECTIVE.finditer(text))
        self.macros = _macros(self.directives)
        self.tokens = _active_tokens(text, self.directives)
        self.texts = [token.text for token in self.tokens]
        self.closers = _match(self.tokens)

    def text(self, at: int) -> str:
        """The text of a token, empty beyond the last."""
        return self.texts[at] if 0 <= at < len(self.texts) else ""

    def words(self, tokens: Iterable[int]) -> frozenset[str]:
        """The texts of some tokens."""
        return frozenset(self.texts[at] for at in tokens)

    def starts(self, at: int, *texts: str) -> bool:
        """Whether these are the next tokens."""
        return self.texts[at : at + len(texts)] == list(texts)

    def uses_object(self, name: str) -> bool:
        """Whether what a name stands for is called, or a member of it is, anywhere."""
        return any(a == name and b in ("(", ".") for a, b in pairwise(self.texts))

    def scope_at(self, at: int) -> int:
        """The brace of the namespace or ``extern "C"`` that begins here, or -1."""
        if self.texts[at] == "extern":
            is_linkage = self.text(at + 1).startswith('"')
            return at + 2 if is_linkage and self.starts(at + 2, "{") else -1
        if self.texts[at] == "namespace" or self.starts(at, "inline", "namespace"):
            while at < len(self.texts) and self.texts[at] not in ("{", ";", "="):
                at += 1
            return at if self.starts(at, "{") else -1
        return -1

    def macro_end(self, at: int) -> int:
        """Where a macro's use ends that stands for whole declarations; ``at`` if none is here."""
        if not {"{", "}", ";"} & set(self.macros.get(self.texts[at], ())):
            return at
        after = at + 1
        if self.starts(after, "("):
            after = self.closers[after] + 1
        return after + self.starts(after, ";")

    def members(self, item: Item) -> Iterator[Item]:
        """The declarations in a type's body."""
        at, end = item.body + 1, self.closers[item.body]
        while at < end:
            if self.texts[at] == ";":
                at += 1
            elif self.texts[at] in _ACCESS and self.starts(at + 1, ":"):
                at += 2
            elif (after := self.macro_end(at)) > at:
                at = after
            else:
                member = self.item(at, end)
                yield member
                at = member.last + 1

    def item(self, first: int, end: int) -> Item:
        """The declaration that begins at a token, and ends before ``end``."""
        head: list[int] = []
        key = parameters = -1  # the tokens of a class key and of a parameter list
        is_pointer = False  # void (*f)(int)
        at = first
        while at < end and self.texts[at] != ";":
            text = self.texts[at]
            if text == "template" and self.starts(at + 1, "<"):
                at = self.close_angle(at + 1, end) + 1
                continue
            if text == "=":
                kind = self._kind(head, key, parameters)
                return Item(kind, first, self._semicolon(at, end), tuple(head), value=at + 1)
            if text == "{":
                is_class = key >= 0 and parameters < 0 and "enum" not in self.words(head)
                if parameters >= 0 and not self._is_member_value(at, parameters):
                    return Item("function", first, self.closers[at], tuple(head), at)
                last = self._semicolon(self.closers[at] + 1, end)
                if is_class:
                    return Item("class", first, last, tuple(head), at)
                if parameters < 0:
                    return Item(self._kind(head, key, parameters), first, last, tuple(head))
            if text in CLASS_KEYS and parameters < 0:
                key = at
            if text == "(" and parameters < 0:
                is_pointer |= self.texts[at + 1] in ("*", "&")
                before = self.texts[at - 1] if at > first else ""
                if not is_pointer and before not in ATTRIBUTES and not self._is_mark(at, key):
                    parameters = at
            head.append(at)
            at = self._operator(at, end) if text == "operator" else self.closers.get(at, at) + 1
        last = min(at, end - 1)
        return Item(self._kind(head, key, parameters), first, last, tuple(head))

    def close_angle(self, at: int, end: int) -> int:
        """The ``>`` of a ``<``; the last token before a ``{`` or ``;`` where there is none."""
        depth = 0
        while at < end and self.texts[at] not in ("{", ";"):
            depth += (self.texts[at] == "<") - (self.texts[at] == ">")
            if depth == 0:
                return at
            at = self.closers.get(at, at) + 1
        return at - 1

    def name(self, item: Item) -> str:
        """What a function or type is called, without its scope; empty where that is unclear."""
        texts = [self.texts[at] for at in item.head]
        if item.kind == "class":
            return _class_name(texts)
        for index, text in enumerate(texts):
            if text != "(":
                continue
            word = _before_angle(texts[:index])
            if WORD.fullmatch(word) and word not in ATTRIBUTES:
                return word
        return ""

    def _kind(self, head: Sequence[int], key: int, parameters: int) -> Kind:
        texts = [self.texts[at] for at in head]
        if _STATEMENTS & set(texts[:2]) or "typedef" in texts:
            return "other"
        if parameters >= 0:
            return "function"
        if key >= 0:
            rest = self._outside_angles(texts[texts.index(self.texts[key]) + 1 :])
            words = [t for t in rest if WORD.fullmatch(t) and t not in ATTRIBUTES]
            return "variable" if len(words) > 1 else "other"
        return "variable"

    def _outside_angles(self, texts: Sequence[str]) -> Iterator[str]:
        depth = 0
        for text in texts:
            depth += text == "<"
            if not depth:
                yield text
            depth -= text == ">"

    def _semicolon(self, at: int, end: int) -> int:
        while at < end and self.texts[at] != ";":
            at = self.closers.get(at, at) + 1
        return min(at, end - 1)

    def _is_member_value(self, at: int, parameters: int) -> bool:
        """Whether a brace is that of ``: x{1}`` and not of the constructor's body."""
        after = self.closers[parameters] + 1
        has_values = ":" in self.texts[after:at]
        return has_values and (
            bool(WORD.fullmatch(self.texts[at - 1])) or self.texts[at - 1] == ">"
        )

    def _is_mark(self, at: int, key: int) -> bool:
        """Whether parentheses are those of ``struct ALIGNED(16) Name``."""
        after = self.text(self.closers[at] + 1)
        is_named = WORD.fullmatch(after) and after not in _AFTER_PARAMETERS
        return key == at - 2 and bool(is_named)

    def _operator(self, at: int, end: int) -> int:
        """The parameters of an ``operator``, whose name may be brackets."""
        if self.text(at + 1) in ("(", "["):
            return self.closers[at + 1] + 1
        while at < end and self.texts[at] != "(":
            at += 1
        return at


def _class_name(texts: Sequence[str]) -> str:
    name = ""
    for text in texts[next((i for i, t in enumerate(texts) if t in CLASS_KEYS), 0) :]:
        if text in (":", "<") and name:
            break
        if WORD.fullmatch(text) and text not in {"final", *CLASS_KEYS, *ATTRIBUTES}:
            name = text
    return name


def _before_angle(texts: Sequence[str]) -> str:
    """The last word, before ``<...>`` where that ends the texts."""
    depth = 0
    for text in reversed(texts):
        depth += (text == ">") - (text == "<")
        if depth == 0 and text != "<":
            return text
    return ""


def _macros(directives: Iterable[re.Match[str]]) -> Mapping[str, tuple[str, ...]]:
    macros: dict[str, tuple[str, ...]] = {}
    for directive in directives:
        if directive["word"] == "define" and (match := _DEFINE.match(directive["rest"])):
            body = tuple(token[0] for token in _TOKEN.finditer(match["body"]) if token[0] != "\\")
            macros[match["name"]] = macros.get(match["name"], ()) + body
    return macros


class _Branch(NamedTuple):
    is_read: bool
    tokens: list[Token]


def _active_tokens(text: str, directives: Sequence[re.Match[str]]) -> list[Token]:
    """All tokens outside of directives, less those of branches that unbalance brackets.

    Of ``#if A``, ``f() {``, ``#else``, ``g() {``, ``#endif`` only the first branch is read.
    """
    conditions: list[list[_Branch]] = [[_Branch(True, [])]]
    position = 0
    for directive in directives:
        conditions[-1][-1].tokens.extend(_tokens(text, position, directive.start()))
        position = directive.end()
        word = directive["word"]
        if word in ("if", "ifdef", "ifndef"):
            conditions.append([_Branch(directive["rest"].strip() != "0" or word != "if", [])])
        elif word.startswith("el") and len(conditions) > 1:
            conditions[-1].append(_Branch(True, []))
        elif word == "endif" and len(conditions) > 1:
            read = _readable(conditions.pop())
            conditions[-1][-1].tokens.extend(read)
    conditions[-1][-1].tokens.extend(_tokens(text, position, len(text)))
    while len(conditions) > 1:
        read = _readable(conditions.pop())
        conditions[-1][-1].tokens.extend(read)
    return conditions[0][0].tokens


def _tokens(text: str, start: int, end: int) -> Iterator[Token]:
    for match in _TOKEN.finditer(text, start, end):
        yield Token(match[0], match.start(), match.end())


def _readable(branches: Sequence[_Branch]) -> list[Token]:
    read = [branch.tokens for branch in branches if branch.is_read]
    if all(_is_balanced(tokens) for tokens in read):
        return [token for tokens in read for token in tokens]
    return read[0]


def _is_balanced(tokens: Sequence[Token]) -> bool:
    texts = [token.text for token in tokens]
    return all(texts.count(a) == texts.count(b) for a, b in _CLOSERS.items())


def _match(tokens: Sequence[Token]) -> dict[int, int]:
    """The closing bracket of each opening one."""
    closers: dict[int, int] = {}
    stack: list[int] = []
    for index, token in enumerate(tokens):
        if token.text in _CLOSERS:
            stack.append(index)
        elif token.text in (")", "]", "}"):
            if not stack or _CLOSERS[tokens[stack[-1]].text] != token.text:
                raise Unbalanced(f"{token.text} closes nothing here", token.start)
            closers[stack.pop()] = index
    if stack:
        token = tokens[stack[-1]]
        raise Unbalanced(f"{token.text} is never closed", token.start)
    return closers
