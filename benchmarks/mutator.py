"""Small changes to a kernel's text, most of which are mistakes: six kinds, drawn with a seed.

No C++ parser: it knows tokens and brackets, which is enough for the kernels of this project.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from pytest_gemm.cuda_source import strip


@dataclass(frozen=True)
class Mutation:
    """One change of a file: what stands at ``start`` (an offset) becomes ``after``."""

    kind: str
    file: str
    line: int
    column: int
    start: int
    before: str
    after: str

    def apply(self, source: str) -> str:
        end = self.start + len(self.before)
        assert source[self.start : end] == self.before
        return source[: self.start] + self.after + source[end:]

    def __str__(self) -> str:
        before, after = (" ".join(text.split()) for text in (self.before, self.after))
        place = f"{self.file}:{self.line}:{self.column}"
        return f"{place}: `{before}` -> {f'`{after}`' if after else 'nothing'}"


_TOKEN = re.compile(r"[^\W\d]\w*|\.?\d[\w.]*|\+\+|--|&&|\|\||[-+*/%<>=!&|]=|\S")
_WORD = re.compile(r"[^\W\d]\w*")
_PAIRS = {"(": ")", "[": "]", "{": "}"}
_COMPARISONS = frozenset({"<", "<=", ">", ">="})
_CONDITION_ENDS = frozenset({"(", ")", ";", "&&", "||", "?", ":", "=", ","})
_PARTNERS = (
    *(("A", "B"), ("As", "Bs"), ("a_frag", "b_frag"), ("row", "col"), ("ty", "tx"), ("x", "y")),
    *(("M", "N"), ("N", "K"), ("M", "K"), ("i", "j"), ("m", "n"), ("TM", "TN")),
    *(("ROWS", "COLS"), ("block_row", "block_col"), ("blockIdx", "threadIdx")),
)

_STATEMENT_ENDS = frozenset({";", "{", "}"})

Span = tuple[int, int]
"""The first and the last of some tokens."""

Edit = tuple[int, int, str]
"""The first and the last token that are replaced, and the text that replaces them."""


class Code:
    """The tokens of a source, without comments and preprocessor lines."""

    def __init__(self, source: str) -> None:
        self.source = source
        code = re.sub(r"(?m)^[ \t]*#.*$", lambda line: " " * len(line[0]), strip(source))
        self.tokens = list(_TOKEN.finditer(code))
        self.words = [token[0] for token in self.tokens]

    @cached_property
    def partner(self) -> dict[int, int]:
        """From each bracket to the one that it belongs to."""
        partner, opened = {}, []
        for index, word in enumerate(self.words):
            if word in _PAIRS:
                opened.append(index)
            elif word in _PAIRS.values():
                partner[index] = opened.pop()
                partner[partner[index]] = index
        return partner

    def text(self, first: int, last: int) -> str:
        return self.source[self.tokens[first].start() : self.tokens[last].end()]

    def until(self, index: int, ends: frozenset[str], step: int) -> int:
        """The last token from ``index`` on, forwards or backwards, before one of ``ends``.

        What lies in brackets of its own is passed over.
        """
        while True:
            around = self.partner.get(index + step, index)
            if (around - index) * step > 1:
                index = around
            elif self.words[index + step] in ends:
                return index
            else:
                index += step

    def span(self, index: int, ends: frozenset[str]) -> tuple[int, int]:
        """The tokens around an operator, up to one of ``ends`` on either side."""
        return self.until(index, ends, -1), self.until(index, ends, 1)

    @cached_property
    def loops(self) -> list[tuple[int, int, int]]:
        """Of each ``for``: its opening bracket and its two semicolons."""
        found = []
        for opening in (index + 1 for index in self._all("for")):
            middle = self.words.index(";", opening)
            found.append((opening, middle, self.words.index(";", middle + 1)))
        return found

    @cached_property
    def comparisons(self) -> list[int]:
        return [i for i, word in enumerate(self.words) if word in _COMPARISONS]

    def in_loop(self, index: int) -> bool:
        return any(opening < index < self.partner[opening] for opening, *_ in self.loops)

    def factor(self, index: int, step: int) -> int:
        """The far end of the factor next to an operator: ``As[ty][k]``, ``(size_t)row``, ``4``."""
        at = index + step
        if step > 0 and self.words[at] == "(" and self.words[at + 1] in ("size_t", "int"):
            return self.factor(self.partner[at], 1)
        if self.words[at] in ")]" if step < 0 else self.words[at] in "([":
            at = self.partner[at]
        while step > 0 and self.words[at + 1] == "[":
            at = self.partner[at + 1]
        while step < 0 and self.words[at] == "[":
            at = self.partner[at - 1] if self.words[at - 1] == "]" else at - 1
        if step < 0 and self.words[at - 2 : at] in (["size_t", ")"], ["int", ")"]):
            at -= 3
        while self.words[at + step] == ".":
            at += 2 * step
        return at

    def _all(self, word: str) -> Iterator[int]:
        return (i for i, other in enumerate(self.words) if other == word)

    # What follows are the kinds of change.

    def drop_barrier(self) -> Iterator[Edit]:
        for index in self._all("__syncthreads"):
            yield index, index + 3, ""

    def shift_index(self) -> Iterator[Edit]:
        """An index, or a variable that indices are made of, is one more or one less."""
        yield from self._one_off(self._subscripts(declared=False))
        yield from self._one_off(self._initial_values("const"))

    def change_bound(self) -> Iterator[Edit]:
        """Of a comparison, a loop's start or end, an array, a constant or the block's size."""
        for index in self.comparisons:
            first, last = self.span(index, _CONDITION_ENDS)
            left, right = self.text(first, index - 1), self.text(index + 1, last)
            operator = self.words[index]
            if not self.in_loop(index):
                other = operator.removesuffix("=") if operator.endswith("=") else f"{operator}="
                yield first, last, f"{left} {other} {right}"
            yield first, last, f"{left} {operator} {right} - 1"
        launch_bounds = self._all("__launch_bounds__")
        yield from self._one_off(self._subscripts(declared=True))
        yield from self._one_off((i + 2, self.partner[i + 1] - 1) for i in launch_bounds)
        yield from self._one_off(self._initial_values("constexpr"))
        for opening, semicolon, _ in self.loops:
            start = self.text(opening + 1, semicolon - 1)
            yield opening + 1, semicolon - 1, f"{start} + 1"

    def drop_guard(self) -> Iterator[Edit]:
        """A whole condition, or one of those that are joined."""
        for index in self._all("if"):
            last = self.partner[index + 1]
            yield index, last + 2 if self.words[last + 1] == "return" else last, ""
        for index in self._all("?"):
            first, _ = self.span(index, frozenset({"="}) | {";"})
            yield first, index, ""
        ends = _CONDITION_ENDS - {"="}
        for operator in ("&&", "||"):
            for index in self._all(operator):
                yield self.until(index, ends | {"="}, -1), index, ""
                yield index, self.until(index, ends, 1), ""

    def swap_operands(self) -> Iterator[Edit]:
        """Of an operator, of two subscripts or of ``?:``, or a name for the one like it."""
        for index, word in enumerate(self.words):
            if word in _COMPARISONS:
                yield self._swapped(index, *self.span(index, _CONDITION_ENDS))
            elif word in ("*", "/") and self.words[index - 1] not in ("float", "const"):
                yield self._swapped(index, self.factor(index, -1), self.factor(index, 1))
            elif word == ":":
                query = self.until(index, frozenset("?"), -1)
                yield self._swapped(index, query, self.until(index, _STATEMENT_ENDS, 1))
            elif word == "]" and self.words[index + 1] == "[":
                first, last = self.partner[index], self.partner[index + 1]
                yield first, last, self.text(index + 1, last) + self.text(first, index)
            first = index - 2 if self.words[index - 1] == "." else index
            for pair in _PARTNERS:
                if word in pair:
                    other = pair[word == pair[0]]
                    yield first, index, self.text(first, index).removesuffix(word) + other

    def lengthen_loop(self) -> Iterator[Edit]:
        """By its start, its end or its step, or for ever."""
        for opening, middle, end in self.loops:
            start = self.text(opening + 1, middle - 1)
            yield opening + 1, middle - 1, f"{start} - 1"
            index = next(i for i in self.comparisons if middle < i < end)
            left, right = self.text(middle + 1, index - 1), self.text(index + 1, end - 1)
            yield middle + 1, end - 1, f"{left} <= {right}"
            yield middle + 1, end - 1, f"{left} < 2 * {right}"
            first, last = end + 1, self.partner[opening] - 1
            step = self.text(first, last)
            yield first, last, ""
            yield first, last, step.replace("++", "--").replace("+=", "-=")
            if "+=" in step:
                yield first, last, f"{step} / 2"

    def _subscripts(self, *, declared: bool) -> Iterator[Span]:
        """What stands between ``[`` and ``]``: a size where an array is declared, else an index."""
        for index in self._all("["):
            start = self.until(index, _STATEMENT_ENDS, -1)
            is_declaration = self.words[start] in ("__shared__", "float")
            if declared == (is_declaration and "=" not in self.words[start:index]):
                yield index + 1, self.partner[index] - 1

    def _initial_values(self, qualifier: str) -> Iterator[Span]:
        for index in self._all("="):
            if self.words[self.until(index, _STATEMENT_ENDS, -1)] == qualifier:
                yield index + 1, self.until(index, _STATEMENT_ENDS, 1)

    def _one_off(self, spans: Iterable[Span]) -> Iterator[Edit]:
        for first, last in spans:
            for shift in (" + 1", " - 1"):
                yield first, last, self.text(first, last) + shift

    def _swapped(self, index: int, first: int, last: int) -> Edit:
        left, right = self.text(first, index - 1), self.text(index + 1, last)
        return first, last, f"{right} {self.words[index]} {left}"


KINDS: Mapping[str, Callable[[Code], Iterator[Edit]]] = {
    "drop a barrier": Code.drop_barrier,
    "shift an index": Code.shift_index,
    "change a bound": Code.change_bound,
    "drop a guard": Code.drop_guard,
    "swap operands": Code.swap_operands,
    "lengthen a loop": Code.lengthen_loop,
}


def mutations(file: str, source: str) -> list[Mutation]:
    """All mutations of a source in the order of their kinds and places, each text once."""
    code = Code(source)
    seen = {source}
    found = []
    for kind, edits in KINDS.items():
        for first, last, after in edits(code):
            start = code.tokens[first].start()
            line = source.count("\n", 0, start) + 1
            column = start - source.rfind("\n", 0, start)
            mutation = Mutation(kind, file, line, column, start, code.text(first, last), after)
            text = mutation.apply(source)
            if text not in seen:
                seen.add(text)
                found.append(mutation)
    return found


def draw(
    sources: Mapping[str, str], seed: int, count: int, usable: Callable[[Mutation], bool]
) -> list[Mutation]:
    """As many usable mutations as there are, up to ``count``; the kinds take turns."""
    rng = random.Random(seed)
    left: dict[str, list[Mutation]] = {kind: [] for kind in KINDS}
    for file, source in sources.items():
        for mutation in mutations(file, source):
            left[mutation.kind].append(mutation)
    for candidates in left.values():
        rng.shuffle(candidates)
    drawn: list[Mutation] = []
    while any(left.values()):
        for candidates in left.values():
            while candidates and len(drawn) < count:
                mutation = candidates.pop()
                if usable(mutation):
                    drawn.append(mutation)
                    break
        if len(drawn) == count:
            break
    return drawn
