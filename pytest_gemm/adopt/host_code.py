"""What the host code of a file computes: C expressions, as those that a declaration knows."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from pytest_gemm.cuda_items import WORD, Code

MOST_STEPS = 40
"""How often a name may be replaced by what stands for it."""

_TYPES = frozenset(
    {"int", "unsigned", "float", "double", "long", "short", "size_t", "uint", "const", "dim3"}
    | {"uint32_t", "int32_t", "int64_t", "uint64_t", "std", "::"}
)
_SIZES = {"float": 4, "double": 8, "int": 4, "unsigned": 4, "char": 1, "half": 2, "float4": 16}
_ROUNDING_UP = re.compile(r"c?div_?up|ceil_?div|cdiv|divup|iDivUp|idivup|round_?up_?div", re.I)
_CEIL = frozenset({"ceil", "ceilf", "ceill"})
_NUMBER = re.compile(r"(?P<whole>[0-9]+)(?:(?P<point>\.[0-9]*)?f?|[uUlL]*)")


@dataclass(frozen=True)
class Node:
    """A C expression: ``op`` is an operator, ``number``, ``name``, ``call`` or ``member``."""

    op: str
    text: str = ""
    parts: tuple[Node, ...] = ()


class Unreadable(Exception):
    """An expression that is more than this module understands."""


Resolve = Callable[[str], str | None]
"""The text of a declaration that stands for a name, or None."""


class HostCode:
    """The expressions of a source, host code included."""

    def __init__(self, code: Code) -> None:
        self.code = code

    @cached_property
    def _values(self) -> Mapping[str, list[tuple[int, range]]]:
        """Of each name the tokens that give it a value, with the token where they stand."""
        found: dict[str, list[tuple[int, range]]] = {}
        texts = self.code.texts
        for at in range(1, len(texts)):
            name = texts[at - 1]
            if texts[at] == "=" and WORD.fullmatch(name) and texts[at + 1 : at + 2] != ["="]:
                if texts[at - 2 : at - 1] == ["."]:
                    name = f"{texts[at - 3]}.{name}"
                found.setdefault(name, []).append((at, range(at + 1, self._end(at + 1))))
            elif texts[at] in ("(", "{") and WORD.fullmatch(name) and self._declares(at - 1):
                found.setdefault(name, []).append((at, range(at + 1, self.code.closers[at])))
        return found

    def _declares(self, at: int) -> bool:
        """Whether a name before brackets is a new variable: ``dim3 block(16, 16)``."""
        before = self.code.text(at - 1)
        return before in _TYPES - {"::"} or (before == "," and self._in_dim3(at))

    def _in_dim3(self, at: int) -> bool:
        while at > 0 and self.code.texts[at] not in (";", "{", "}"):
            if self.code.texts[at] == "dim3":
                return True
            at -= 1
        return False

    def _end(self, at: int) -> int:
        texts = self.code.texts
        while at < len(texts) and texts[at] not in (";", ",", ")", "}"):
            at = self.code.closers.get(at, at) + 1
        return min(at, len(texts))

    def value_of(self, name: str, near: int) -> range | None:
        """The tokens that last gave a name its value before a token, else first after it."""
        places = self._values.get(name)
        if not places:
            return None
        index = bisect_left(places, near, key=lambda place: place[0]) - 1
        return places[max(index, 0)][1]

    def split(self, tokens: range) -> list[range]:
        """What commas separate."""
        parts, start, at = [], tokens.start, tokens.start
        while at < tokens.stop:
            if self.code.texts[at] == ",":
                parts.append(range(start, at))
                start = at + 1
            at = self.code.closers.get(at, at) + 1
        if start < tokens.stop:
            parts.append(range(start, tokens.stop))
        return parts

    def dimensions(self, tokens: range, near: int, depth: int = 0) -> list[range]:
        """The one to three expressions of a ``dim3`` (a variable, a call, braces) or an integer."""
        texts = [self.code.texts[at] for at in tokens]
        if texts[:1] == ["dim3"] and texts[1:2] in (["("], ["{"]):
            return self.split(range(tokens.start + 2, tokens.stop - 1))
        if texts[:1] == ["{"]:
            return self.split(range(tokens.start + 1, tokens.stop - 1))
        if len(texts) == 1 and WORD.fullmatch(texts[0]) and depth < MOST_STEPS:
            value = self.value_of(texts[0], near)
            inner = [] if value is None else self.split(value)
            if value is not None and len(inner) < 2:
                inner = self.dimensions(inner[0], value.start, depth + 1) if inner else []
            since = -1 if value is None else value.start
            return self._with_members(texts[0], inner, since, near) or [tokens]
        return [tokens]

    def _with_members(self, name: str, parts: list[range], since: int, near: int) -> list[range]:
        """A ``dim3``'s expressions, with those that are set apart: ``block.x = 128``.

        They count from the token ``since`` on, where ``parts`` stand, up to ``near``.
        """
        for index, side in enumerate("xyz"):
            value = self.value_of(f"{name}.{side}", near)
            if value is not None and since < value.start < near and index <= len(parts):
                parts = [*parts[:index], value, *parts[index + 1 :]]
        return parts

    def text(self, tokens: range, resolve: Resolve) -> str | None:
        """The expression of a declaration that says the same, or None where that is unclear.

        ``resolve`` is asked for each name; where it knows none, the value that the file gives the
        name stands for it.
        """
        try:
            node = self._expanded(self.node(tokens), resolve, tokens.start, 0)
            return _written(_simplified(node))
        except Unreadable:
            return None

    def node(self, tokens: range) -> Node:
        """Read an expression. Raises Unreadable."""
        return _Parser([self.code.texts[at] for at in tokens]).read()

    def _expanded(self, node: Node, resolve: Resolve, near: int, depth: int) -> Node:
        """The expression with every name replaced, in the end by texts of a declaration."""
        if depth > MOST_STEPS:
            raise Unreadable
        if node.op == "name":
            known = resolve(node.text)
            if known is not None:
                return Node("known", known)
            macro = self.code.macros.get(node.text)
            if macro and not self._parameters(node.text):
                inner = _Parser(list(macro)).read()
                return self._expanded(inner, resolve, near, depth + 1)
            value = self.value_of(node.text, near)
            if value is None:
                raise Unreadable
            return self._expanded(self.node(value), resolve, value.start, depth + 1)
        if node.op == "member":
            return self._component(node, resolve, near, depth)
        if node.op == "call" and (names := self._parameters(node.text)):
            body = _Parser(list(self.code.macros[node.text])).read()
            given = dict(zip(names, node.parts, strict=False))
            return self._expanded(_replaced(body, given), resolve, near, depth + 1)
        parts = tuple(self._expanded(part, resolve, near, depth + 1) for part in node.parts)
        return Node(node.op, node.text, parts)

    def _component(self, node: Node, resolve: Resolve, near: int, depth: int) -> Node:
        name, _, side = node.text.partition(".")
        own = self.value_of(node.text, near)
        if own is not None:
            return self._expanded(self.node(own), resolve, own.start, depth + 1)
        value = self.value_of(name, near)
        if value is None or side not in ("x", "y", "z"):
            raise Unreadable
        inner = self.split(value)
        parts = inner if len(inner) > 1 else self.dimensions(inner[0], value.start)
        if len(parts) <= "xyz".index(side):
            return Node("number", "1")
        tokens = parts["xyz".index(side)]
        return self._expanded(self.node(tokens), resolve, tokens.start, depth + 1)

    def _parameters(self, macro: str) -> Sequence[str]:
        """The parameters of a macro that takes some."""
        for directive in self.code.directives:
            if directive["word"] == "define":
                match = re.match(rf"\s*{re.escape(macro)}\(([^)]*)\)", directive["rest"])
                if match:
                    return [name.strip() for name in match[1].split(",")]
        return ()


def _replaced(node: Node, given: Mapping[str, Node]) -> Node:
    if node.op == "name" and node.text in given:
        return given[node.text]
    return Node(node.op, node.text, tuple(_replaced(part, given) for part in node.parts))


class _Parser:
    """Sums, products, casts and calls; anything else is Unreadable."""

    def __init__(self, texts: list[str]) -> None:
        self.texts = [text for text in texts if text != "::"]
        self.at = 0

    def read(self) -> Node:
        node = self._sum()
        if self.at < len(self.texts):
            raise Unreadable
        return node

    def _next(self) -> str:
        return self.texts[self.at] if self.at < len(self.texts) else ""

    def _take(self, *wanted: str) -> str:
        if self._next() not in wanted:
            return ""
        self.at += 1
        return self.texts[self.at - 1]

    def _sum(self) -> Node:
        node = self._product()
        while sign := self._take("+", "-"):
            node = Node(sign, "", (node, self._product()))
        return node

    def _product(self) -> Node:
        node = self._unary()
        while sign := self._take("*", "/", "%"):
            node = Node(sign, "", (node, self._unary()))
        return node

    def _unary(self) -> Node:
        if self._take("+"):
            return self._unary()
        if self._take("-"):
            return Node("-", "", (Node("number", "0"), self._unary()))
        if self._next() == "(" and self._is_cast():
            self.at = self.texts.index(")", self.at) + 1
            return self._unary()
        return self._primary()

    def _is_cast(self) -> bool:
        if ")" not in self.texts[self.at :]:
            return False
        inside = self.texts[self.at + 1 : self.texts.index(")", self.at)]
        return bool(inside) and set(inside) <= _TYPES

    def _primary(self) -> Node:
        if self._take("("):
            node = self._sum()
            if not self._take(")"):
                raise Unreadable
            return node
        text = self._next()
        self.at += 1
        if match := _NUMBER.fullmatch(text):
            return Node("number", match["whole"])
        if not WORD.fullmatch(text):
            raise Unreadable
        if text == "static_cast" and self._take("<"):
            self.at = self.texts.index(">", self.at) + 1
            return self._primary()
        if text == "std":
            return self._primary()
        if text == "sizeof":
            return self._sizeof()
        if self._take("("):
            parts = list(self._call())
            return parts[0] if text in _TYPES and len(parts) == 1 else _call(text, parts)
        if self._take("."):
            self.at += 1
            return Node("member", f"{text}.{self.texts[self.at - 1]}")
        return Node("name", text)

    def _sizeof(self) -> Node:
        size = _SIZES.get(self.texts[self.at + 1] if len(self.texts) > self.at + 1 else "")
        if size is None or not self._take("(") or self.texts[self.at + 1 : self.at + 2] != [")"]:
            raise Unreadable
        self.at += 2
        return Node("number", str(size))

    def _call(self) -> Iterator[Node]:
        while self._next():
            if self._take(")"):
                return
            yield self._sum()
            self._take(",")
        raise Unreadable


def _call(name: str, parts: Sequence[Node]) -> Node:
    return Node("call", name, tuple(parts))


def _simplified(node: Node) -> Node:
    """The same with divisions that round up as ``cdiv``, and constants computed."""
    if node.op == "call" and node.text in _CEIL and len(node.parts) == 1:
        inner = node.parts[0]
        if inner.op == "/":
            return _simplified(Node("cdiv", "", inner.parts))
        return _simplified(inner)
    parts = tuple(map(_simplified, node.parts))
    node = Node(node.op, node.text, parts)
    if node.op == "call" and len(parts) == 2 and _ROUNDING_UP.fullmatch(node.text):
        return Node("cdiv", "", parts)
    if node.op in ("/", "%", "cdiv") and parts[1] == Node("number", "0"):
        raise Unreadable
    if node.op == "call" and node.text in ("min", "max"):
        return node
    if node.op == "call":
        raise Unreadable
    if node.op == "/" and (above := _rounded_up(*parts)):
        return Node("cdiv", "", (above, parts[1]))
    if node.op == "+" and parts[1] == Node("number", "1") and parts[0].op == "/":
        above, below = parts[0].parts
        rest, constant = _terms(above)
        if constant == -1:
            return Node("cdiv", "", (_total(rest), below))
    return _computed(node)


def _rounded_up(above: Node, below: Node) -> Node | None:
    """x of ``(x + y - 1) / y``."""
    rest, constant = _terms(above)
    if below.op == "number":
        size = int(below.text)
        return _total(rest) if rest and size > 1 and constant == size - 1 else None
    for index, (sign, term) in enumerate(rest):
        if sign > 0 and term == below and constant == -1 and len(rest) > 1:
            return _total(rest[:index] + rest[index + 1 :])
    return None


Terms = list[tuple[int, Node]]


def _terms(node: Node, sign: int = 1) -> tuple[Terms, int]:
    """A sum's terms with their signs, and its constant."""
    if node.op == "number":
        return [], sign * int(node.text)
    if node.op in ("+", "-"):
        left, a = _terms(node.parts[0], sign)
        right, b = _terms(node.parts[1], sign if node.op == "+" else -sign)
        return left + right, a + b
    return [(sign, node)], 0


def _total(terms: Terms) -> Node:
    total = terms[0][1] if terms[0][0] > 0 else Node("-", "", (Node("number", "0"), terms[0][1]))
    for sign, term in terms[1:]:
        total = Node("+" if sign > 0 else "-", "", (total, term))
    return total


def _computed(node: Node) -> Node:
    if len(node.parts) == 2 and all(part.op == "number" for part in node.parts):
        a, b = (int(part.text) for part in node.parts)
        values = {"+": a + b, "-": a - b, "*": a * b}
        if b:
            values |= {"/": a // b, "%": a % b, "cdiv": -(-a // b)}
        if values.get(node.op, -1) >= 0:
            return Node("number", str(values[node.op]))
    return node


_RANKS = {"+": 1, "-": 1, "*": 2, "/": 2, "%": 2}


def _written(node: Node, rank: int = 0) -> str:
    if node.op in ("number", "known"):
        return node.text if node.text.isalnum() or not rank else f"({node.text})"
    if node.op == "cdiv":
        return f"cdiv({_written(node.parts[0])}, {_written(node.parts[1])})"
    if node.op == "call":
        return f"{node.text}({', '.join(map(_written, node.parts))})"
    if node.op not in _RANKS:
        raise Unreadable
    own = _RANKS[node.op]
    a, b = _written(node.parts[0], own), _written(node.parts[1], own + 1)
    text = f"{a} {'//' if node.op == '/' else node.op} {b}"
    return f"({text})" if own < rank else text
