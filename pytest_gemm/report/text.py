"""Numbers as people read them: seconds, rates, changes."""

from __future__ import annotations

_TIME_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))
_RATE_UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))


def seconds(value: float) -> str:
    """``0.0123`` as ``12.3 ms``: three or four digits, the unit that fits."""
    scale, unit = next(((s, u) for s, u in _TIME_UNITS if value >= s), _TIME_UNITS[-1])
    return f"{_digits(value / scale)} {unit}"


def rate(value: float, of: str) -> str:
    """``5.02e13, "FLOP/s"`` as ``50.2 TFLOP/s``."""
    scale, prefix = next(((s, p) for s, p in _RATE_UNITS if value >= s), _RATE_UNITS[-1])
    return f"{_digits(value / scale)} {prefix}{of}"


def percent(fraction: float, signed: bool = True) -> str:
    """``0.0123`` as ``+1.2 %``; two digits after the point below one percent."""
    value = fraction * 100
    value = 0.0 if abs(value) < 0.005 else value  # no "-0.00 %"
    digits = 2 if abs(value) < 1 else 1 if abs(value) < 100 else 0
    sign = "+" if signed else ""
    return f"{value:{sign}.{digits}f} %"


def _digits(value: float) -> str:
    decimals = 2 if value < 10 else 1 if value < 100 else 0
    return f"{value:.{decimals}f}"
