"""The one place where options and ini keys are declared and read.

Loaded with the plugin in every pytest run: nothing heavy may be imported here.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_gemm.errors import ConfigError

if TYPE_CHECKING:
    import pytest

DEVICES = ("auto", "host", "cuda")
BASELINE_MODES = ("auto", "strict", "update", "off")

OPTIONS: tuple[tuple[str, dict[str, Any]], ...] = (
    (
        "--gemm-bench",
        {"action": "store_true", "help": "time and judge the kernels; run nothing else"},
    ),
    (
        "--gemm-device",
        {"choices": DEVICES, "default": "auto", "help": "where kernels run (default: %(default)s)"},
    ),
    (
        "--gemm-size",
        {
            "action": "append",
            "metavar": "N|MxNxK",
            "help": "problem size instead of the kernels' own; may be given several times",
        },
    ),
    (
        "--gemm-baseline",
        {
            "choices": BASELINE_MODES,
            "default": "auto",
            "help": "auto: compare with what is stored; strict: and fail where nothing can be "
            "compared; update: store this run; off: compare nothing (default: %(default)s)",
        },
    ),
    (
        "--gemm-cache",
        {
            "choices": ("hot", "cold"),
            "default": "hot",
            "help": "time with operands in the GPU's caches, or with empty ones (default: "
            "%(default)s)",
        },
    ),
    (
        "--gemm-report",
        {"metavar": "FILE.json", "help": "write every result, sample and verdict to FILE.json"},
    ),
)

INI_KEYS: tuple[tuple[str, str, Any, str], ...] = (
    ("gemm_kernels", "paths", [], "folders with .cu kernels (default: kernels)"),
    ("gemm_modules", "args", [], "modules with @pytest_gemm.kernel functions"),
    ("gemm_baselines", "string", "baselines", "folder of the stored baselines"),
    ("gemm_seed", "string", "0", "seed of the operands"),
    ("gemm_time_cap", "string", "0.5", "most seconds of sampling per case"),
    ("gemm_margin", "string", "", "slowdown in percent that is tolerated (default: by device)"),
    ("gemm_launch_timeout", "string", "20", "most seconds of one kernel launch"),
)


class Options(NamedTuple):
    """What the user asked for. ``margin`` is a fraction, or None for the device's default.

    A named tuple, since a dataclass takes 2 ms to make, in every pytest run.
    """

    root: Path
    bench: bool
    device: str
    sizes: tuple[str, ...]
    baseline: str
    cold: bool
    report: Path | None
    kernels: tuple[Path, ...]
    modules: tuple[str, ...]
    baselines: Path
    seed: int
    time_cap: float
    margin: float | None
    launch_timeout: float


def declare(parser: pytest.Parser) -> None:
    """Declare every option and ini key."""
    group = parser.getgroup("gemm", "CUDA matrix kernels (pytest-gemm)")
    for flag, settings in OPTIONS:
        group.addoption(flag, **settings)
    for name, kind, default, text in INI_KEYS:
        parser.addini(name, text, type=kind, default=default)  # type: ignore[arg-type]


def read(config: pytest.Config) -> Options:
    """Collect them into one value. Raises ConfigError naming the option that cannot be used."""
    root = config.rootpath
    if config.getoption("gemm_bench") and _is_distributed(config):
        raise ConfigError("--gemm-bench: cases that run side by side cannot be timed; use -n 0")
    kernels = tuple(config.getini("gemm_kernels"))
    if not kernels and (root / "kernels").is_dir():
        kernels = (root / "kernels",)
    margin = config.getini("gemm_margin")
    return Options(
        root=root,
        bench=config.getoption("gemm_bench"),
        device=config.getoption("gemm_device"),
        sizes=tuple(_size(text) for text in config.getoption("gemm_size") or ()),
        baseline=config.getoption("gemm_baseline"),
        cold=config.getoption("gemm_cache") == "cold",
        report=_report_path(config.getoption("gemm_report"), config.invocation_params.dir),
        kernels=kernels,
        modules=tuple(config.getini("gemm_modules")),
        baselines=root / config.getini("gemm_baselines"),
        seed=int(_number("gemm_seed", config.getini("gemm_seed"), 0, whole=True)),
        time_cap=_number("gemm_time_cap", config.getini("gemm_time_cap"), 0.001),
        margin=_number("gemm_margin", margin, 0) / 100 if margin else None,
        launch_timeout=_number("gemm_launch_timeout", config.getini("gemm_launch_timeout"), 0.01),
    )


def _is_distributed(config: pytest.Config) -> bool:
    """Whether xdist runs the tests in other processes: ``-n 2``, or ``-d --tx 2*popen``."""
    return config.getoption("dist", "no") != "no" and bool(config.getoption("tx", None))


def _number(name: str, text: str, least: float, *, whole: bool = False) -> float:
    try:
        value = float(int(text) if whole else float(text))
    except ValueError:
        value = float("nan")
    if not least <= value < 2**53:
        kind = "a whole number" if whole else "a number"
        raise ConfigError(f"{name} = {text!r} is not {kind} of at least {least:g}")
    return value


def _size(text: str) -> str:
    from pytest_gemm.problem import Problem

    try:
        Problem.parse(text)
    except ConfigError as error:
        raise ConfigError(f"--gemm-size={text}: {error}") from None
    return text


def _report_path(text: str | None, folder: Path) -> Path | None:
    if text is None:
        return None
    path = folder / text
    if path.suffix != ".json":
        raise ConfigError(f"--gemm-report={text}: the file's name must end in .json")
    if not os.access(path.parent, os.W_OK):
        raise ConfigError(f"--gemm-report={text}: the folder {path.parent} cannot be written to")
    return path
