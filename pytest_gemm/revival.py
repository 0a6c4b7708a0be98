"""A kernel as it was stored, made ready to be launched again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pytest_gemm.errors import BackendError
from pytest_gemm.kernelspec import Kernel, macro_names
from pytest_gemm.slicing import device_part
from pytest_gemm.versioned import damage_told

launch_damage_told = damage_told("the stored launch", "store another session")
"""Decorates what reads ``Session.launch``: a file that was edited by hand may hold anything."""


@launch_damage_told
def stored_kernel(current: Kernel, launch: Mapping[str, Any], source: str) -> Kernel:
    """The kernel that a session measured: its source and launch, the rest as it is declared now.

    ``launch`` is ``Session.launch``. Raises BackendError for a Python kernel: the text of a
    function is not all that it does, and ConfigError for a launch that is damaged.
    """
    if current.is_python:
        raise BackendError(
            "a Python kernel is not stored as a whole: compare it with --gemm-against and a git "
            "revision"
        )
    params = {str(name): int(value) for name, value in launch["params"].items()}
    names = frozenset(name for name, _ in current.defines)
    if params.keys() != dict(current.params).keys():
        names = macro_names(device_part(source, current.filename), launch["entry"], {*params})
    args = tuple(launch["args"])
    return replace(
        current,
        name=f"{current.name} (stored)",
        filename=f"{current.filename} (stored)",
        source=source,
        entry=launch["entry"],
        params=tuple(sorted(params.items())),
        defines=tuple((name, value) for name, value in sorted(params.items()) if name in names),
        args=args,
        arg_types=current.arg_types if args == current.args else (),
        block=tuple(launch["block"]),
        grid=tuple(launch["grid"]),
        shared_mem=launch["shared_mem"],
    )
