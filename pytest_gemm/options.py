"""The one place where options and ini keys are declared and read.

Loaded with the plugin in every pytest run: nothing heavy may be imported here.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_gemm.checking import Scope
    from pytest_gemm.revision import Revision

BASELINE_MODES = ("auto", "strict", "update", "off")

BASELINE, KERNEL = "baseline", "kernel:"
"""What --gemm-against may be, or begin with, where it is no revision of git."""

DECLARED: tuple[tuple[str, dict[str, Any]], ...] = (
    (
        "--gemm-bench",
        {"action": "store_true", "help": "time and judge the kernels; run nothing else"},
    ),
    (
        "--gemm-device",
        {
            "metavar": "auto|host|cuda|cuda:0,2|cuda:all|ssh=HOST",
            "default": "auto",
            "help": "where kernels run; with ssh=HOST//python=PATH//device=cuda on a machine that "
            "one can log in to (default: %(default)s)",
        },
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
        "--gemm-against",
        {
            "metavar": "baseline|REF|kernel:NAME",
            "help": "measure each timed kernel side by side with the stored one, with itself at "
            "a git revision, or with another kernel",
        },
    ),
    (
        "--gemm-margin",
        {
            "metavar": "PERCENT",
            "help": "slowdown that is tolerated on top of noise, instead of the kernel's, the "
            "project's or the device's",
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
        "--gemm-check",
        {
            "choices": ("off", "auto", "full"),
            "default": "auto",
            "help": "watch every memory access of a .cu kernel on the CPU first: on a few small "
            "problems, or on all of the exact suite; full also inspects the machine code for "
            "gemm_architectures (default: %(default)s)",
        },
    ),
    (
        "--gemm-report",
        {
            "action": "append",
            "metavar": "FILE.html|.md|.json",
            "help": "write a report: a page to look at, Markdown, or every result, sample and "
            "verdict; may be given several times",
        },
    ),
)

INI_KEYS: tuple[tuple[str, str, Any, str], ...] = (
    ("gemm_kernels", "paths", (), "folders with .cu kernels (default: kernels)"),
    ("gemm_modules", "args", [], "modules with @pytest_gemm.kernel functions"),
    ("gemm_baselines", "string", "baselines", "folder of the stored baselines"),
    ("gemm_seed", "string", "0", "seed of the operands"),
    ("gemm_time_cap", "string", "0.5", "most seconds of sampling per case"),
    ("gemm_margin", "string", "", "slowdown in percent that is tolerated (default: by device)"),
    ("gemm_launch_timeout", "string", "20", "most seconds of one kernel launch"),
    ("gemm_case_timeout", "string", "300", "most seconds of one case, compilation included"),
    ("gemm_busy", "string", "wait", "where another run has the device: wait, or stop"),
    ("gemm_architectures", "args", [], "GPUs to compile for with --gemm-check=full: sm_80 sm_90"),
    ("gemm_in_process", "bool", False, "run kernels in pytest's own process, for a debugger"),
)


def declare(parser: pytest.Parser) -> None:
    """Declare every option and ini key."""
    group = parser.getgroup("gemm", "CUDA matrix kernels (pytest-gemm)")
    for flag, settings in DECLARED:
        group.addoption(flag, **settings)
    for name, kind, default, text in INI_KEYS:
        parser.addini(name, text, type=kind, default=default)  # type: ignore[arg-type]


class Options:
    """What the user asked for, read once.

    A plain class: a dataclass or named tuple takes longer to make than all the rest of the plugin,
    in everybody's runs.
    """

    def __init__(self, config: pytest.Config) -> None:
        """Read every option and ini key. Raises UsageError naming the one that cannot be used."""
        option, ini = config.getoption, config.getini
        root = config.rootpath
        kernels = tuple(ini("gemm_kernels"))
        if ini("gemm_kernels") == []:  # where it is not set, it is the empty tuple
            raise pytest.UsageError(
                "gemm_kernels is empty: name folders with .cu kernels, or leave it out: then it is "
                "kernels"
            )
        if not kernels and (root / "kernels").is_dir():
            kernels = (root / "kernels",)
        margin, own_margin = option("gemm_margin"), ini("gemm_margin")
        self.root: Path = root
        self.bench: bool = option("gemm_bench")
        self.device: str = option("gemm_device")
        self.sizes: tuple[str, ...] = tuple(map(_size, option("gemm_size") or ()))
        self.baseline: str = option("gemm_baseline")
        # Whether it must be told what became of every case.
        self.accountable: bool = self.bench or self.baseline == "strict"
        self.cold: bool = option("gemm_cache") == "cold"
        self.check: Scope = option("gemm_check")
        folder = config.invocation_params.dir
        self.reports = tuple(_report_path(text, folder) for text in option("gemm_report") or ())
        self.kernels: tuple[Path, ...] = kernels
        self.modules: tuple[str, ...] = tuple(ini("gemm_modules"))
        stored: str = ini("gemm_baselines") or "baselines"  # also where the key stands there empty
        self.baselines = _baselines(stored, root, written=self.baseline == "update")
        self.seed = int(_number("gemm_seed", ini("gemm_seed"), 0, whole=True))
        self.time_cap = _number("gemm_time_cap", ini("gemm_time_cap"), 0.001)
        # Fractions, or None.
        self.margin = None if margin is None else _margin("--gemm-margin", margin)
        self.project_margin = _margin("gemm_margin", own_margin) if own_margin else None
        self.launch_timeout = _number("gemm_launch_timeout", ini("gemm_launch_timeout"), 0.01)
        self.case_timeout = _number("gemm_case_timeout", ini("gemm_case_timeout"), 0.01)
        self.wait: bool = _one_of("gemm_busy", ini("gemm_busy"), ("wait", "stop")) == "wait"
        self.in_process = _truth(config, "gemm_in_process")
        self.architectures = tuple(map(_architecture, dict.fromkeys(ini("gemm_architectures"))))
        self.against: str | None = option("gemm_against")
        # Of git, where that is what kernels are measured against.
        self.revision: Revision | None = None if self.against is None else _revision(self)
        if self.device not in ("auto", "host") or self.cold:
            _check_device(self.device, cold=self.cold)


def project_options(arguments: Sequence[str]) -> Options:
    """The options of the project around the current folder, where pytest does not run.

    ``arguments`` are pytest's; its settings are read, and no conftest. Raises ConfigError.
    """
    from pytest_gemm.errors import ConfigError

    try:
        settled = ["--noconftest", "--assert=plain", "--capture=no", *arguments]
        config = pytest.Config.fromdictargs({}, settled)
        return Options(config)
    except pytest.UsageError as error:
        # As commands call them.
        text = re.sub(r"--gemm-(device|size)\b", r"--\1", str(error))
        raise ConfigError(text) from None


OPTIONS = pytest.StashKey[Options]()
"""Where they are kept in a config's stash."""


def _check_device(device: str, *, cold: bool) -> None:
    from pytest_gemm.backends.choice import choose_backend
    from pytest_gemm.errors import ConfigError

    try:
        choose_backend(device, cold=cold)
    except ConfigError as error:
        raise pytest.UsageError(str(error)) from None


def _revision(options: Options) -> Revision | None:
    """The revision that --gemm-against names, if it does. Raises UsageError for the option."""
    from pytest_gemm.errors import ConfigError
    from pytest_gemm.revision import find_revision

    text = str(options.against)
    reasons = {
        "--gemm-bench is missing: only timed kernels are measured": not options.bench,
        f"--gemm-baseline={options.baseline} compares nothing: leave one of the two out": (
            options.baseline in ("update", "off")
        ),
        "gemm_in_process = true leaves one process, and it takes several": options.in_process,
        "it is 'baseline', 'kernel:NAME' or a revision of git": text in ("", KERNEL),
    }
    for reason, holds in reasons.items():
        if holds:
            raise pytest.UsageError(f"--gemm-against={text}: {reason}")
    if text == BASELINE or text.startswith(KERNEL):
        return None
    try:
        return find_revision(options.root, text)
    except ConfigError as error:
        raise pytest.UsageError(f"--gemm-against={text}: {error}") from None


def _one_of(name: str, text: str, words: tuple[str, ...]) -> str:
    if text not in words:
        raise pytest.UsageError(f"{name} = {text!r} is none of {', '.join(words)}")
    return text


def _truth(config: pytest.Config, name: str) -> bool:
    try:
        value: bool = config.getini(name)
    except (TypeError, ValueError, pytest.UsageError) as error:
        raise pytest.UsageError(f"{name}: {error}: write true or false") from None
    return value


def _number(name: str, text: str, least: float, *, whole: bool = False) -> float:
    try:
        value = float(int(text) if whole else float(text))
    except ValueError:
        value = float("nan")
    if not least <= value < 2**53:
        kind = "a whole number" if whole else "a number"
        raise pytest.UsageError(f"{name} = {text!r} is not {kind} of at least {least:g}")
    return value


def _baselines(text: str, root: Path, *, written: bool) -> Path:
    """The folder of baselines, which need not exist."""
    if "\0" in text:
        raise pytest.UsageError(f"gemm_baselines = {text!r}: no folder has such a name")
    folder = root / text
    # What is there already of it.
    there = folder
    while not os.access(there, os.F_OK) and there != there.parent:
        there = there.parent
    if not there.is_dir():
        raise pytest.UsageError(
            f"gemm_baselines = {text!r}: {there} is no folder: name another one"
        )
    if written and not os.access(there, os.W_OK | os.X_OK):
        raise pytest.UsageError(
            f"gemm_baselines = {text!r}: the folder {there} cannot be written to, as "
            "--gemm-baseline=update must"
        )
    return folder


def _margin(name: str, text: str) -> float:
    from pytest_gemm.limits import margin_of_percent

    try:
        return margin_of_percent(_number(name, text, 0))
    except ValueError as error:
        raise pytest.UsageError(f"{name} = {text!r}: {error}") from None


def _architecture(text: str) -> str:
    from pytest_gemm.errors import ConfigError
    from pytest_gemm.static.occupancy import capability

    try:
        capability(text)
    except ConfigError as error:
        raise pytest.UsageError(f"gemm_architectures: {error}") from None
    return text


def _size(text: str) -> str:
    from pytest_gemm.errors import ConfigError
    from pytest_gemm.problem import Problem

    try:
        Problem.parse(text)
    except ConfigError as error:
        raise pytest.UsageError(f"--gemm-size={text}: {error}") from None
    return text


def _report_path(text: str, folder: Path) -> Path:
    from pytest_gemm.report.formats import refused

    path = folder / text
    if reason := refused(path):
        raise pytest.UsageError(f"--gemm-report={text}: {reason}")
    if path.is_dir():
        raise pytest.UsageError(f"--gemm-report={text}: that is a folder: name a file")
    if not os.access(path.parent, os.W_OK):
        raise pytest.UsageError(
            f"--gemm-report={text}: the folder {path.parent} cannot be written to"
        )
    return path
