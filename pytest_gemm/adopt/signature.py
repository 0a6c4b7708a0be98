"""What a kernel's parameters can be given, as far as their types say."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from pytest_gemm.adopt.kinds import ELEMENTS
from pytest_gemm.binding import REFERENCE
from pytest_gemm.cuda_items import Code
from pytest_gemm.cuda_source import Function, Parameter, kind_of
from pytest_gemm.errors import SpecError

MATRICES = 3
MOST_INTEGERS = 9
_COMPLEX = re.compile(r"\bcu(?:Float|Double)?Complex\b|\bcomplex\b")
_QUALIFIERS = {"const", "volatile", "__restrict__"}
_OTHER_INTEGERS = {"unsigned char", "unsigned short", "unsigned long", "long int", "short int"}
_OTHERS = "other kernels cannot be checked"
_WAY_OUT = (
    "write a __global__ function beside it that takes float pointers and integers, builds what "
    "this one expects, and does its work (see 'What cannot be adopted' in docs/adopt.md)"
)


@dataclass(frozen=True)
class Signature:
    """The positions of a kernel's parameters by what they take; ``constant`` are the pointers
    through which nothing is written; ``types`` are all of them, aliases resolved."""

    function: Function
    pointers: tuple[int, ...]
    constant: frozenset[int]
    integers: tuple[int, ...]
    scalars: tuple[int, ...]
    types: tuple[str, ...] = ()

    def elements(self, types: Mapping[str, str]) -> dict[int, str]:
        """The element type of each pointer, float32 where that is not known.

        An integer type of C's that no matrix has stands for itself.
        """
        found = {}
        for position in self.pointers:
            words = [types.get(w, w) for w in re.findall(r"\w+", self.types[position])]
            known = [ELEMENTS[word] for word in words if word in ELEMENTS]
            plain = " ".join(word for word in words if word not in _QUALIFIERS)
            is_other = plain in _OTHER_INTEGERS or (kind_of(plain) == "integer" and not known)
            found[position] = plain if is_other else known[0] if known else "float32"
        return found

    @property
    def names(self) -> list[str]:
        return [parameter.name for parameter in self.function.parameters]


def read_signature(function: Function, code: Code, path: str) -> Signature:
    """Raises SpecError, with the parameter's line, for what no declaration can give."""
    aliases = _aliases(code)
    templates = dict.fromkeys(type_parameters(function, code), "float")
    types = []
    structs = struct_names(code)
    kinds: dict[str, list[int]] = {"pointer": [], "integer": [], "float": []}
    constant = set()
    for position, parameter in enumerate(function.parameters):
        types.append(_resolved(parameter.type, aliases))
        type_ = _resolved(types[-1], templates)
        kind = kind_of(type_)
        if kind == "other" and type_.split()[-1] in ELEMENTS:
            kind = "float"  # alpha, as half
        if kind == "other" and "<" not in type_ and "&" not in type_:
            _refuse(parameter, type_, structs, path)
        _check_type(function, parameter, types[-1], code, structs, path)
        if kind == "other" or re.search(r"\*\s*(?:const\s*)?\*", type_):
            what = f"{parameter.type} {parameter.name}".strip()
            raise SpecError(
                f"{function.name} takes '{what}', which is no pointer to elements: {_WAY_OUT}",
                path=parameter.file or path,
                line=parameter.line,
            )
        kinds[kind].append(position)
        if kind == "pointer" and "const" in re.findall(r"\w+", type_):
            constant.add(position)
    _check_counts(function, kinds, path)
    return Signature(
        function,
        tuple(kinds["pointer"]),
        frozenset(constant),
        tuple(kinds["integer"]),
        tuple(kinds["float"]),
        tuple(types),
    )


def _check_type(
    function: Function,
    parameter: Parameter,
    type_: str,
    code: Code,
    structs: frozenset[str],
    path: str,
) -> None:
    """Raise SpecError for what is neither an element nor a pointer to elements of CUDA's."""
    what = f"'{parameter.type} {parameter.name}'"
    why = ""
    if "&" in type_:
        why = f"{what} is {REFERENCE}"
    elif _COMPLEX.search(type_):
        why = f"{what} holds complex numbers, which are not among the types that there are"
    elif structs.intersection(re.findall(r"\w+", type_)) and kind_of(type_) == "pointer":
        why = f"{what} points to a struct, which is no element: {_WAY_OUT}"
    elif kind_of(type_) == "other" and "<" not in type_ and code.uses_object(parameter.name):
        why = (
            f"{what} is an object that {function.name} calls: write a __global__ function beside "
            "it that makes the object and takes the rest"
        )
    if why:
        raise SpecError(why, path=parameter.file or path, line=parameter.line)


def _check_counts(function: Function, kinds: Mapping[str, list[int]], path: str) -> None:
    def fail(text: str) -> None:
        place = function.file or path
        raise SpecError(f"{function.name} {text}", path=place, line=function.line)

    count = len(kinds["pointer"])
    if count != MATRICES:
        pointers = f"{count} pointer{'s' * (count != 1)}"
        way = _WAY_OUT if count > MATRICES else _OTHERS
        fail(f"takes {pointers}, and a product or a sum has three matrices: {way}")
    if len(kinds["integer"]) > MOST_INTEGERS:
        fail(f"takes {len(kinds['integer'])} integers, more than can be tried: declare it by hand")
    if len(kinds["float"]) > 2:
        fail(f"takes {len(kinds['float'])} floats, and there are only alpha and beta: {_WAY_OUT}")


def _refuse(parameter: Parameter, type_: str, structs: frozenset[str], path: str) -> None:
    what = f"{parameter.type} {parameter.name}".strip()
    own = next((word for word in re.findall(r"\w+", type_) if word in structs), "")
    title = f"a struct that is passed by value ({own})" if own else "a type that is not known here"
    raise SpecError(
        f"'{what}' is {title}, and a kernel is given pointers, integers and floats: {_WAY_OUT}",
        path=parameter.file or path,
        line=parameter.line,
    )


def _resolved(type_: str, aliases: Mapping[str, str]) -> str:
    for _ in range(4):
        changed = re.sub(r"[A-Za-z_]\w*", lambda word: aliases.get(word[0], word[0]), type_)
        if changed == type_:
            break
        type_ = changed
    return " ".join(type_.split())


def type_parameters(function: Function, code: Code) -> frozenset[str]:
    """The template parameters of a function that are types."""
    names = {parameter.name for parameter in function.template or ()}
    texts = code.texts
    return frozenset(b for a, b in pairwise(texts) if a in ("typename", "class") and b in names)


def _aliases(code: Code) -> dict[str, str]:
    """``typedef float real;``, ``using real = float;``, ``#define real float``, and macros for
    ``__restrict__`` or nothing."""
    found = dict(_alias_statements(code))
    for name, body in code.macros.items():
        if not body or "restrict" in body[0]:
            found[name] = ""
        elif all(re.fullmatch(r"\w+", word) for word in body):
            kind = kind_of(" ".join(body))
            if kind != "other":
                found[name] = " ".join(body)
    return found


def _alias_statements(code: Code) -> Iterator[tuple[str, str]]:
    texts = code.texts
    for at, text in enumerate(texts):
        if text == "typedef":
            end = texts.index(";", at) if ";" in texts[at:] else at
            yield texts[end - 1], " ".join(texts[at + 1 : end - 1])
        elif text == "using" and texts[at + 2 : at + 3] == ["="]:
            end = texts.index(";", at) if ";" in texts[at:] else at
            yield texts[at + 1], " ".join(texts[at + 3 : end])


def struct_names(code: Code) -> frozenset[str]:
    """The names of types that the source declares, by ``struct X`` or ``typedef struct {} X``."""
    texts = code.texts
    found = set()
    for at, text in enumerate(texts):
        if text not in ("struct", "class", "union"):
            continue
        if code.text(at + 2) not in (",", ">", "=", "..."):  # template <class T>
            found.add(code.text(at + 1))
        brace = at + 1 + (code.text(at + 1) != "{")
        if code.text(brace) == "{":
            found.add(code.text(code.closers[brace] + 1))
    return frozenset(found)
