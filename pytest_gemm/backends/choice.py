"""Which device to use, and on which machine, found out without touching one."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from pytest_gemm.errors import ConfigError

NO_GPU = "there is no NVIDIA GPU here; use --gemm-device=host"
NO_CUPY = "CuPy is missing; install it with: pip install 'pytest-gemm[cuda13]' (or [cuda12])"
FORMS = "auto, host, cuda, cuda:0,2, cuda:all or ssh=HOST//python=PATH//device=cuda"

_GPUS = re.compile(r"cuda:(?:(?P<all>all)|(?P<list>\d{1,3}(?:,\d{1,3})*))")
_SSH_KEYS = ("ssh", "python", "device", "ssh_config")


@dataclass(frozen=True)
class Choice:
    """A back end's kind, and a hint to the user where it is not what they may expect.

    ``gpus`` are those to use, by the number that programs know them by; None for all. ``ssh`` are
    the keys of the machine to log in to (``ssh``, ``python``, ``ssh_config``), or none for this.
    """

    kind: str
    hint: str = ""
    gpus: tuple[int, ...] | None = (0,)
    ssh: tuple[tuple[str, str], ...] = ()


def choose_backend(device: str, *, cold: bool = False) -> Choice:
    """Resolve what was given to ``--gemm-device``.

    Raises ConfigError where it is none of ``FORMS`` or cannot be used here, or where cold timing
    is asked of a CPU. What a machine that one logs in to has is found out there.
    """
    choice = _choose(device)
    if cold and choice.kind == "host":
        raise ConfigError("--gemm-cache=cold: only a GPU's caches can be emptied; leave it out")
    return choice


def _choose(device: str) -> Choice:
    if device.startswith("ssh="):
        return _remote(device)
    if device == "host":
        return Choice("host")
    if device == "auto" and not _gpu_is_there():
        return Choice("host")
    if device == "auto" and not _cupy_is_there():
        return Choice("host", f"a GPU is there, but {NO_CUPY}")
    gpus = (0,) if device == "auto" else _gpus(device)
    if gpus == ():
        raise ConfigError(f"--gemm-device={device}: it is one of {FORMS}")
    if not _gpu_is_there():
        raise ConfigError(f"--gemm-device={device}: {NO_GPU}")
    if not _cupy_is_there():
        raise ConfigError(f"--gemm-device={device}: {NO_CUPY}")
    return Choice("cuda", gpus=gpus)


def _gpus(device: str) -> tuple[int, ...] | None:
    """Their numbers; None for all, and nothing where the text is no such form."""
    if device == "cuda":
        return (0,)
    match = _GPUS.fullmatch(device)
    if match is None:
        return ()
    if match["all"]:
        return None
    return tuple(sorted({int(number) for number in match["list"].split(",")}))


def _remote(device: str) -> Choice:
    pairs = [part.partition("=")[::2] for part in device.split("//")]
    keys = {key: value.strip() for key, value in pairs}
    unknown = [key for key in keys if key not in _SSH_KEYS]
    if unknown or len(keys) < len(pairs) or not all(keys.values()):
        wrong = f" there is no key {unknown[0]!r}:" if unknown else ""
        form = "it is ssh=HOST//python=PATH//device=cuda"
        raise ConfigError(f"--gemm-device={device}:{wrong} {form}")
    there = keys.pop("device", "cuda")
    if there == "host":
        return Choice("host", ssh=tuple(keys.items()))
    gpus = _gpus(there)
    if gpus == ():
        raise ConfigError(
            f"--gemm-device={device}: its device is one of host, cuda, cuda:0,2 or cuda:all"
        )
    return Choice("cuda", gpus=gpus, ssh=tuple(keys.items()))


def likely_gpus(devices: Path = Path("/dev")) -> int:
    """How many GPUs programs see here, as far as can be told without CUDA; at least one."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return len(visible.split(","))
    return max(1, len(list(devices.glob("nvidia[0-9]*"))))


def _gpu_is_there() -> bool:
    return Path("/dev/nvidiactl").exists() or Path("/dev/dxg").exists()


def _cupy_is_there() -> bool:
    return find_spec("cupy") is not None
