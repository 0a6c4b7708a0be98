"""A Python kernel's function, named so that another process can find it."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType, ModuleType

from pytest_gemm.errors import BackendError
from pytest_gemm.python_kernel import declared


@dataclass(frozen=True)
class FunctionName:
    """The module that defines a function, that module's file, and the function's own name."""

    module: str
    file: str
    qualname: str

    @classmethod
    def of(cls, function: Callable[..., object]) -> FunctionName:
        """The name of a decorated function."""
        assert isinstance(function, FunctionType)
        return cls(function.__module__, function.__code__.co_filename, function.__qualname__)

    def load(self) -> Callable[..., object]:
        """Import the module, if that was not done, and find the function in it.

        Raises BackendError, with the reason of an import that fails.
        """
        module = self._module()
        for value in vars(module).values():
            known = isinstance(value, FunctionType) and value.__qualname__ == self.qualname
            if known and declared(value) is not None:
                return value  # type: ignore[no-any-return]
        raise BackendError(
            f"{self.file}: {self.qualname} is not there when a worker imports the file: declare "
            "the kernel at the top of its module, or set gemm_in_process = true"
        )

    def _module(self) -> ModuleType:
        known = sys.modules.get(self.module)
        if known is None or getattr(known, "__file__", None) != self.file:
            known = self._import()
        return known

    def _import(self) -> ModuleType:
        if not Path(self.file).is_file():
            raise BackendError(
                f"{self.file} is not on this machine: Python kernels run only where the project is"
            )
        try:
            spec = importlib.util.find_spec(self.module)
            if spec is None or spec.origin != self.file:
                spec = importlib.util.spec_from_file_location(self.module, self.file)
            assert spec is not None
            assert spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            sys.modules[self.module] = module
            spec.loader.exec_module(module)
        except Exception as error:
            sys.modules.pop(self.module, None)
            raise BackendError(
                f"{self.file} cannot be imported by a worker: {type(error).__name__}: {error}"
            ) from error
        return module
