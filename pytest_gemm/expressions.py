"""Integer expressions over a problem's sizes and a kernel's parameters: ``cdiv(N, 16)``.

The language is a small part of Python's: integers, names, ``+ - * // %``, ``min``, ``max``,
``cdiv``, comparisons (``1 <= M % 4 < 3``), ``and``, ``or``, ``not`` and parentheses.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from pytest_gemm.errors import SpecError

MAX_LENGTH = 200
"""Longest expression, in characters: what bounds its values and its depth."""

MAX_DEPTH = 40
"""Deepest nesting of operators and calls."""

_ALLOWED = re.compile(r"[A-Za-z0-9_+\-*/%()<>=!, \t]+")
_ODD_NUMBER = re.compile(r"(?<![A-Za-z0-9_])(?:[0-9]+[A-Za-z_]\w*|0[0-9]+)")


def cdiv(a: int, b: int) -> int:
    """``a / b`` rounded up."""
    return -(-a // b)


_BINARY: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARE: dict[type[ast.cmpop], Callable[[int, int], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_FUNCTIONS: dict[str, Callable[..., int]] = {"cdiv": cdiv, "max": max, "min": min}

RESERVED = frozenset({*_FUNCTIONS, "and", "or", "not"})
"""Words of the language, which cannot name a parameter."""


@dataclass(frozen=True)
class Expression:
    """A checked expression.

    ``names`` are the names that it uses; ``is_condition`` is true where its value is a truth
    value (a comparison, ``and``, ``or``, ``not``) and not a number.
    """

    text: str
    names: frozenset[str]
    is_condition: bool
    _tree: ast.expr = field(repr=False, compare=False)

    def evaluate(self, values: Mapping[str, int]) -> int | bool:
        """The value for these values of the names.

        Raises SpecError (without a place) for a name that has no value and for a division by
        zero.
        """
        try:
            return _value(self._tree, values)
        except KeyError as error:
            known = ", ".join(values) or "no names"
            raise SpecError(
                f"{self.text!r} uses the unknown name {error.args[0]!r}: known are {known}"
            ) from None
        except ZeroDivisionError:
            used = ", ".join(f"{name} = {values[name]}" for name in sorted(self.names))
            raise SpecError(
                f"{self.text!r} divides by zero" + (f" for {used}" if used else "")
            ) from None


@lru_cache(maxsize=1024)
def compile_expression(text: str) -> Expression:
    """Read an expression. Raises SpecError (without a place) for anything outside the language."""
    if len(text) > MAX_LENGTH:
        raise SpecError(
            f"the expression {text[:20] + '...'!r} has {len(text)} characters, "
            f"more than {MAX_LENGTH}: make it shorter"
        )
    if not text.strip():
        raise SpecError("an expression is empty: write an integer or an expression like 'M * N'")
    if "?" in text:
        raise SpecError(f"{text!r} is a gap to fill in: write what the kernel expects there")
    if not _ALLOWED.fullmatch(text):
        odd = next(c for c in text if not _ALLOWED.fullmatch(c))
        raise SpecError(f"{text!r} contains {odd!r}, which no expression may: {_HELP}")
    if odd_number := _ODD_NUMBER.search(text):
        raise SpecError(f"{text!r} contains {odd_number[0]!r}: write integers in decimal")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, RecursionError, MemoryError):
        raise SpecError(f"{text!r} is not an expression: {_HELP}") from None
    _check(tree, text, 0)
    names = frozenset(
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and node.id not in _FUNCTIONS
    )
    return Expression(text, names, _is_condition(tree), tree)


_HELP = "use integers, names, + - * // %, min, max, cdiv, comparisons, and, or, not"


def _is_condition(node: ast.expr) -> bool:
    return isinstance(node, ast.Compare | ast.BoolOp) or (
        isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
    )


def _check(node: ast.expr, text: str, depth: int) -> None:
    """Raise SpecError unless the tree holds only what ``_value`` knows."""
    if depth > MAX_DEPTH:
        raise SpecError(f"{text!r} is nested more than {MAX_DEPTH} deep: make it simpler")
    children: list[ast.expr]
    match node:
        case ast.Constant(value=int()) | ast.Name() if not _is_bool(node):
            if isinstance(node, ast.Name) and node.id in _FUNCTIONS:
                raise SpecError(
                    f"{text!r} uses {node.id} without calling it: write {node.id}(a, b)"
                )
            children = []
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            children = [left, right]
        case ast.BinOp(op=ast.Div()):
            raise SpecError(f"{text!r} uses /: write // to round down or cdiv(a, b) to round up")
        case ast.UnaryOp(op=ast.USub() | ast.Not(), operand=operand):
            children = [operand]
        case ast.Compare(left=left, ops=ops, comparators=rest) if all(
            type(op) in _COMPARE for op in ops
        ):
            children = [left, *rest]
        case ast.BoolOp(values=children):
            pass
        case ast.Call(func=ast.Name(id=name), args=children, keywords=[]) if name in _FUNCTIONS:
            if len(children) < 2 or (name == "cdiv" and len(children) != 2):
                count = "two values" if name == "cdiv" else "two values or more"
                raise SpecError(f"{text!r} calls {name} with {len(children)}: it takes {count}")
        case ast.Call(func=ast.Name(id=name)):
            raise SpecError(f"{text!r} calls {name}: the functions are cdiv, max and min")
        case _:
            raise SpecError(f"{text!r} is not an expression of this language: {_HELP}")
    for child in children:
        _check(child, text, depth + 1)


def _is_bool(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, bool)


def _value(node: ast.expr, values: Mapping[str, int]) -> int:
    match node:
        case ast.Constant(value=int(number)):
            return number
        case ast.Name(id=name):
            return values[name]
        case ast.BinOp(left=left, op=op, right=right):
            return _BINARY[type(op)](_value(left, values), _value(right, values))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return not _value(operand, values)
        case ast.UnaryOp(operand=operand):
            return -_value(operand, values)
        case ast.Compare(left=left, ops=ops, comparators=rest):
            operands = [_value(item, values) for item in (left, *rest)]
            steps = zip(operands, ops, operands[1:], strict=False)
            return all(_COMPARE[type(op)](a, b) for a, op, b in steps)
        case ast.BoolOp(op=ast.And(), values=items):
            return all(_value(item, values) for item in items)
        case ast.BoolOp(values=items):
            return any(_value(item, values) for item in items)
        case ast.Call(func=ast.Name(id=name), args=args):
            return _FUNCTIONS[name](*(_value(arg, values) for arg in args))
    raise AssertionError(ast.dump(node))  # _check lets nothing else through
