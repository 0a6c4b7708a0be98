"""NVIDIA's compiler, headers and disassembler as wheels from PyPI: where they lie."""

from __future__ import annotations

import importlib.util
import json
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pytest_gemm.errors import BackendError
from pytest_gemm.scratch import scratch
from pytest_gemm.static.nvrtc import INSTALL, Nvrtc

PLACES = {
    "nvrtc": "lib/libnvrtc.so.13",
    "nvdisasm": "bin/nvdisasm",
    "CUDA's headers": "include/cuda_runtime.h",
    "libcu++'s headers": "include/cccl/cuda/std/cstdint",
}
"""What is needed, below ``nvidia/cu13`` in a folder of packages."""


@dataclass(frozen=True)
class Toolchain:
    """The folder ``nvidia/cu13`` with all of ``PLACES``. It is ``compiler.CompilerApi``, too."""

    root: Path

    @cached_property
    def nvrtc(self) -> Nvrtc:
        """Raises BackendError where the library cannot be loaded."""
        try:
            return Nvrtc(self.root / PLACES["nvrtc"])
        except OSError as error:
            raise BackendError(f"NVRTC cannot be loaded ({error}): {INSTALL}") from None

    @property
    def include_folders(self) -> tuple[str, ...]:
        return str(self.root / "include"), str(self.root / "include/cccl")

    def disassembled(self, cubin: bytes) -> Any:
        """What ``nvdisasm -json`` makes of machine code. Raises BackendError."""
        with scratch() as folder:
            file = folder / "kernel.cubin"
            file.write_bytes(cubin)
            command = [str(self.root / PLACES["nvdisasm"]), "-c", "-json", str(file)]
            try:
                run = subprocess.run(command, capture_output=True, text=True, check=True)
                return json.loads(run.stdout)
            except subprocess.CalledProcessError as error:
                reason = error.stderr.strip().partition("\n")[0]
            except (OSError, ValueError) as error:
                reason = str(error)
        raise BackendError(f"nvdisasm cannot read what NVRTC made: {reason}")


def find_toolchain(folders: Iterable[str] | None = None) -> Toolchain:
    """The first folder of the package ``nvidia`` that has all, of this Python's if none is given.

    Raises BackendError, naming what is missing.
    """
    missing = list(PLACES)
    for folder in _packages() if folders is None else folders:
        root = Path(folder) / "cu13"
        missing = [name for name, place in PLACES.items() if not (root / place).is_file()]
        if not missing:
            return Toolchain(root)
    raise BackendError(f"{', '.join(missing)}: not installed; {INSTALL}")


def _packages() -> list[str]:
    """The folders that make up the package ``nvidia``, which has no file of its own."""
    spec = importlib.util.find_spec("nvidia")
    return [*(spec.submodule_search_locations or ())] if spec else []
