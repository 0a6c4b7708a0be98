"""Another copy of the project: its modules are imported beside the project's own, and not mixed."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import FunctionType, ModuleType

from pytest_gemm.errors import BackendError

Modules = dict[str, ModuleType]

_names_in = vars(ModuleType)["__dict__"].__get__
"""What a module holds; a lazy one, which whoever asks it for anything loads, is not asked."""

_KEPT: dict[Path, Modules] = {}
"""The modules of each copy, while the project's own have their names."""


@contextmanager
def imports_from(copy: Path, project: Path) -> Iterator[None]:
    """Import the modules of a copy, wherever those of the project would be imported.

    What is installed, and pytest-gemm itself, are the same for both. Afterwards the names are the
    project's again; functions of the copy keep what their modules imported. Both folders are
    resolved paths. Raises BackendError where a module was found in the project all the same.
    """
    own, path = _modules_in(project, copy), sys.path[:]
    _forget(own)
    sys.modules.update(_KEPT.get(copy, {}))
    sys.path[:] = [_moved(entry, project, copy) for entry in path]
    importlib.invalidate_caches()
    try:
        yield
        for name, module in _modules_in(project, copy).items():
            raise BackendError(
                f"{name} is imported from {_place(module)}, also where an older version is asked "
                "for: name its folder in the ini key pythonpath, so that both can be found"
            )
    finally:
        _KEPT[copy] = _modules_in(copy)
        _forget({**_KEPT[copy], **_modules_in(project, copy)})
        sys.modules.update(own)
        sys.path[:] = path


def late_import(function: FunctionType, copy: Path) -> str:
    """Where a function of the copy imports another module of it when it is called: file and line.

    That would get the project's own. Functions of the copy that it calls by name are looked
    through too. Empty where there is none. To be called within ``imports_from``.
    """
    todo, seen = [function], {function}
    while todo:
        function = todo.pop()
        code = function.__code__
        file = Path(code.co_filename)
        for node in ast.walk(_definition(file, code.co_firstlineno)):
            if isinstance(node, ast.Import | ast.ImportFrom) and _is_of(node, function, copy):
                return f"{file}:{node.lineno}"
        called = (function.__globals__.get(name) for name in code.co_names)
        for other in called:
            if type(other) is FunctionType and other not in seen:
                seen.add(other)
                if Path(other.__code__.co_filename).is_relative_to(copy):
                    todo.append(other)
    return ""


def _is_of(node: ast.Import | ast.ImportFrom, function: FunctionType, copy: Path) -> bool:
    """Whether an import finds something in the copy."""
    if isinstance(node, ast.ImportFrom) and node.level:
        return True
    names = (
        [node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
    )
    for name in names:
        try:
            spec = importlib.util.find_spec(name.partition(".")[0])
        except (ImportError, ValueError):
            continue
        found = [spec.origin, *(spec.submodule_search_locations or ())] if spec else []
        if any(place and Path(place).is_relative_to(copy) for place in found):
            return True
    return False


@cache
def _definitions(file: Path) -> Mapping[int, ast.AST]:
    """The functions in a file, by their first lines, decorators included."""
    tree = ast.parse(file.read_bytes())
    functions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
    return {
        min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))]): node
        for node in ast.walk(tree)
        if isinstance(node, functions)
    }


def _definition(file: Path, line: int) -> ast.AST:
    return _definitions(file).get(line, ast.Pass()) if file.is_file() else ast.Pass()


def _modules_in(folder: Path, but: Path | None = None) -> Modules:
    """The modules of a folder; a copy may lie inside of the project."""
    return {
        name: module
        for name, module in list(sys.modules.items())
        if name.partition(".")[0] not in ("__main__", "__mp_main__", "pytest_gemm")
        if (place := _place(module)) and _is_in(place, folder)
        if not (but and place.is_relative_to(but))
    }


def _is_in(place: Path, folder: Path) -> bool:
    """Whether a file belongs to the folder, and is not merely installed there."""
    if not place.is_relative_to(folder):
        return False
    installed = any(
        place.is_relative_to(prefix) and not folder.is_relative_to(prefix)
        for prefix in (sys.prefix, sys.base_prefix)
    )
    return not installed and "site-packages" not in place.parts


@cache
def _resolved(path: str) -> Path:
    return Path(path).resolve()


def _place(module: object) -> Path | None:
    """A module's file, or the folder of one that has none."""
    if not issubclass(type(module), ModuleType):
        return None
    known = _names_in(module)
    for place in (known.get("__file__"), *list(known.get("__path__") or ())[:1]):
        if isinstance(place, str) and place.startswith("/"):  # or it was made up
            return _resolved(place)
    return None


def _forget(modules: Modules) -> None:
    for name in modules:
        sys.modules.pop(name, None)


def _moved(entry: str, project: Path, copy: Path) -> str:
    """An entry of ``sys.path``, in the copy where it was in the project."""
    place = Path(entry).resolve()
    return str(copy / place.relative_to(project)) if _is_in(place, project) else entry
