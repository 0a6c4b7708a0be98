"""A user's own reference: a Python function that says what a product with an epilogue should be."""

from __future__ import annotations

import ast
import importlib.util
import sys
import traceback
from collections.abc import Callable, Mapping
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_gemm.errors import ConfigError, raised

if TYPE_CHECKING:
    from numpy.typing import NDArray

PARAMETERS = ("A", "B", "C", "alpha", "beta")
"""What a reference may take, by name: matrices in float64, and the numbers."""


def find(reference: str, folder: Path) -> tuple[str, tuple[str, ...]]:
    """The reference with its file's whole path, and what it takes; the file is read, not run.

    ``reference`` is ``refs.py:gemm_relu``, from ``folder``. Raises ConfigError.
    """
    file, _, name = reference.rpartition(":")
    path = (folder / file).resolve()
    try:
        tree = ast.parse(path.read_bytes(), str(path))
    except OSError:
        raise ConfigError(f"there is no file {file} beside the kernel's") from None
    except (SyntaxError, ValueError) as error:
        raise ConfigError(f"{file} is no Python file: {error}") from None
    functions = {n.name: n for n in tree.body if isinstance(n, ast.FunctionDef)}
    if name not in functions:
        known = ", ".join(functions) or "none"
        raise ConfigError(f"{file} has no function {name}: its functions are {known}")
    own = functions[name].args
    taken = tuple(argument.arg for argument in (*own.posonlyargs, *own.args, *own.kwonlyargs))
    wrong = [parameter for parameter in taken if parameter not in PARAMETERS]
    if wrong or own.posonlyargs or own.vararg or own.kwarg or not {"A", "B"} <= {*taken}:
        raise ConfigError(
            f"{file}:{functions[name].lineno}: {name} takes ({ast.unparse(own)}): a reference "
            "takes A and B, and if it needs them C, alpha and beta, by these names"
        )
    return f"{path}:{name}", taken


@lru_cache(maxsize=64)
def load(reference: str) -> Callable[[Mapping[str, Any]], NDArray[Any]]:
    """A reference, ready to be called with a value for each of ``PARAMETERS``.

    ``reference`` is what ``find`` returned. The file is run at the first call. Both raise
    ConfigError, with the file and line of what the function or its file raised.
    """
    import numpy as np

    file, _, name = reference.rpartition(":")
    _, taken = find(reference, Path("/"))
    module_name = f"pytest_gemm_reference_{sha256(file.encode()).hexdigest()[:16]}"
    spec = importlib.util.spec_from_file_location(module_name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
        function = getattr(module, name)
    except (Exception, SystemExit) as error:
        raise _raised(error, file, "importing it") from error

    def call(values: Mapping[str, Any]) -> NDArray[Any]:
        try:
            return np.asarray(function(**{parameter: values[parameter] for parameter in taken}))
        except (Exception, SystemExit) as error:
            raise _raised(error, file, name) from error

    return call


def _raised(error: BaseException, file: str, what: str) -> ConfigError:
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == file]
    place = f"{file}:{lines[-1]}" if lines else file
    return ConfigError(f"{place}: {what} raised {raised(error)}")
