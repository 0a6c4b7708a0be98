"""The file of a device's calibration: read, checked and written.

::

    {
      "bias": 0.0012,
      ...
      "pairs": [
        {"benchmark": "tiled-256x256x256-float32", "ratios": [...]},
        {...}
      ]
    }

The ratios are what was measured; what they give stands beside them for whoever reviews the file,
and is held against them when it is read.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pytest_gemm.baselines.checks import (
    UnusableError,
    a_date,
    a_list,
    a_number,
    a_plain_object,
    a_text,
    a_whole_number,
    checked,
    parsed,
    shown,
)
from pytest_gemm.baselines.files import locked, read_regular, restoring, write_atomically
from pytest_gemm.errors import BaselineError
from pytest_gemm.margin import Calibration, calibrated

FORMAT = 1
"""History. 1: the first."""

_DIGITS = 7
_CLOSE = 1e-3
"""How far numbers that were rounded may be from each other."""


@dataclass(frozen=True)
class Pair:
    """Two builds of one kernel, and log(second / first) of each process that timed both."""

    benchmark: str
    ratios: tuple[float, ...]


@dataclass(frozen=True)
class Measured:
    """All that a calibration found; ``toolchain`` says what built the kernels."""

    device: str
    date: str
    pairs: tuple[Pair, ...]
    toolchain: Mapping[str, Any] = field(default_factory=dict)

    @property
    def calibration(self) -> Calibration:
        """What follows from it. Raises ValueError where that is too little."""
        return calibrated(self.device, self.date, [pair.ratios for pair in self.pairs])


def read_calibration(path: Path, device: str) -> Calibration | None:
    """The calibration in a file, or None where there is no file. Raises BaselineError."""
    try:
        text = read_regular(path).decode("utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise BaselineError(f"{path}: it cannot be read ({reason}); {_way_out(path)}") from None
    try:
        return _parsed(text, device)
    except UnusableError as error:
        raise BaselineError(f"{path}: {error}; {_way_out(path)}") from None


def write_calibration(path: Path, measured: Measured) -> None:
    """Write a file that ``read_calibration`` reads. Raises BaselineError, and ValueError."""
    pairs = [Pair(p.benchmark, tuple(map(_rounded, p.ratios))) for p in measured.pairs]
    rounded = Measured(measured.device, measured.date, tuple(pairs), measured.toolchain)
    numbers = {
        key: _rounded(value) if isinstance(value, float) else value
        for key, value in asdict(rounded.calibration).items()
    }
    header = {**numbers, "format": FORMAT, "toolchain": measured.toolchain}
    head = json.dumps(header, indent=2, sort_keys=True).removesuffix("\n}")
    lines = ",\n".join(f"    {json.dumps(asdict(pair), sort_keys=True)}" for pair in pairs)
    text = f'{head},\n  "pairs": [\n{lines}\n  ]\n}}\n'
    _parsed(text, measured.device)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with locked(path.parent):
            write_atomically(path, text.encode())
    except OSError as error:
        raise BaselineError(f"{path}: it cannot be written ({error.strerror})") from None


def _parsed(text: str, device: str) -> Calibration:
    data = parsed(text)
    version = data.get("format") if isinstance(data, dict) else None
    if isinstance(data, dict) and version != FORMAT:
        raise UnusableError(f"its format is {shown(version)}, and {FORMAT} is known here")
    stored = checked(
        "the file",
        data,
        {
            **dict.fromkeys(("bias", "sd", "df"), a_number),
            **{"date": a_date, "device": a_text, "duets": a_whole_number},
            **{"format": a_whole_number, "pairs": _pairs, "toolchain": a_plain_object},
        },
    )
    if stored["device"] != device:
        raise UnusableError(f"it was measured on {stored['device']!a}, not on {device!a}")
    try:
        found = calibrated(device, stored["date"], [pair.ratios for pair in stored["pairs"]])
    except ValueError as error:
        raise UnusableError(str(error)) from None
    for key in ("duets", "df", "bias", "sd"):
        told, true = stored[key], getattr(found, key)
        if not math.isclose(told, true, rel_tol=_CLOSE, abs_tol=1e-9):
            raise UnusableError(f"its {key} is {shown(told)}, where its pairs give {true:.4g}")
    return found


def _pairs(value: Any) -> list[Pair]:
    return [
        Pair(**checked(f"pairs[{i}]", pair, {"benchmark": a_text, "ratios": _ratios}))
        for i, pair in enumerate(a_list(value))
    ]


def _ratios(value: Any) -> tuple[float, ...]:
    return tuple(map(a_number, a_list(value)))


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")


def _way_out(path: Path) -> str:
    return f"{restoring(path)}, or measure again: pytest-gemm calibrate"
