"""A Python kernel's function, named so that another process can find it, and a case with it."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from pytest_gemm.apart import imports_from
from pytest_gemm.case import Case
from pytest_gemm.errors import BackendError, raised
from pytest_gemm.kernelspec import KernelSpec
from pytest_gemm.python_kernel import declared

Function = Callable[..., object]


@dataclass(frozen=True)
class FunctionName:
    """The module that defines a function, that module's file, the function's own name and text.

    One of another ``copy`` of the ``project`` (both folders) gets the modules of that copy.
    """

    module: str
    file: str
    qualname: str
    source: str
    copy: str = ""
    project: str = ""

    @classmethod
    def of(cls, function: Function) -> FunctionName:
        """The name of a decorated function."""
        assert isinstance(function, FunctionType)
        file = function.__code__.co_filename
        return cls(function.__module__, file, function.__qualname__, _source(function))

    def load(self) -> Function:
        """Import the module, if that was not done, and find the function in it.

        Raises BackendError, with the reason of an import that fails.
        """
        if not self.copy:
            return self._found(self.module_found())
        with imports_from(Path(self.copy), Path(self.project)):
            return self._found(self.module_found())

    def _found(self, module: ModuleType) -> Function:
        for value in list(vars(module).values()):
            known = declared(value) is not None and isinstance(value, FunctionType)
            if known and value.__qualname__ == self.qualname:
                if _source(value) != self.source:
                    raise BackendError(
                        f"{self.file}: {self.qualname} is another function in the file that a "
                        "worker imports: make the files the same, and start pytest again"
                    )
                return value  # type: ignore[no-any-return]
        raise BackendError(
            f"{self.file}: {self.qualname} is not there when a worker imports the file: declare "
            "the kernel at the top of its module, or set gemm_in_process = true"
        )

    def module_found(self) -> ModuleType:
        """The module, imported if that was not done. Raises BackendError."""
        known = sys.modules.get(self.module)
        if known is not None and getattr(known, "__file__", None) == self.file:
            return known
        if not Path(self.file).is_file():
            raise BackendError(
                f"{self.file} is not on this machine: Python kernels run only where the project is"
            )
        try:
            return _imported(self.module, self.file)
        except BaseException as error:  # also SystemExit, and what pytest.skip raises
            raise BackendError(
                f"{self.file} cannot be imported by a worker: {raised(error)}"
            ) from error


@dataclass(frozen=True)
class Runnable:
    """A case, and the function of a Python kernel: itself, or its name."""

    case: Case
    function: Function | FunctionName | None = None

    def load(self) -> Function | None:
        """The function, imported where only its name is known. Raises BackendError."""
        return self.function.load() if isinstance(self.function, FunctionName) else self.function

    def to_dict(self) -> dict[str, Any]:
        """Plain lists, dicts, strings and numbers, with the function's name."""
        known = self.function
        name = FunctionName.of(known) if callable(known) else known
        return {"case": self.case.to_dict(), "function": asdict(name) if name else None}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Runnable:
        """The reverse of ``to_dict``, but for the function, of which the name is left."""
        name = data["function"]
        return cls(Case.from_dict(data["case"]), FunctionName(**name) if name else None)


@cache
def _imported(name: str, file: str) -> ModuleType:
    """Import a file under a name that another file may have too, as conftest.py has."""
    spec = _spec(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module


def _spec(name: str, file: str) -> ModuleSpec | None:
    """How the file is imported: inside its package, where it has one."""
    root = str(Path(file).parents[name.count(".")])
    if "." in name and root not in sys.path:
        sys.path.append(root)  # pytest finds modules without it, with --import-mode=importlib
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        spec = None
    if spec is None or spec.origin != file:
        return importlib.util.spec_from_file_location(name, file)
    return spec


def _source(function: FunctionType) -> str:
    spec = declared(function)
    return spec.source if isinstance(spec, KernelSpec) else ""
