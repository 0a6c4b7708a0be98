"""Which back end to use, found out without touching a device."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from pytest_gemm.errors import ConfigError

NO_GPU = "--gemm-device=cuda: there is no NVIDIA GPU here; use --gemm-device=host"
NO_CUPY = "CuPy is missing; install it with: pip install 'pytest-gemm[cuda13]' (or [cuda12])"


@dataclass(frozen=True)
class Choice:
    """A back end's kind, and a hint to the user where it is not what they may expect."""

    kind: str
    hint: str = ""


def choose_backend(device: str, *, cold: bool = False) -> Choice:
    """Resolve ``auto``, ``host`` or ``cuda``.

    Raises ConfigError where cuda cannot be used, or cold timing is asked of a CPU.
    """
    choice = _choose(device)
    if cold and choice.kind == "host":
        raise ConfigError("--gemm-cache=cold: only a GPU's caches can be emptied; leave it out")
    return choice


def _choose(device: str) -> Choice:
    if device == "host":
        return Choice("host")
    if not _gpu_is_there():
        if device == "cuda":
            raise ConfigError(NO_GPU)
        return Choice("host")
    if not _cupy_is_there():
        if device == "cuda":
            raise ConfigError(f"--gemm-device=cuda: {NO_CUPY}")
        return Choice("host", f"a GPU is there, but {NO_CUPY}")
    return Choice("cuda")


def _gpu_is_there() -> bool:
    return Path("/dev/nvidiactl").exists() or Path("/dev/dxg").exists()


def _cupy_is_there() -> bool:
    return find_spec("cupy") is not None
