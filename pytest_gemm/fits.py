"""Curves through measured points: their coefficients, how sure they are, how good the fit is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

Float64 = npt.NDArray[np.float64]

SIGNIFICANCE = 0.01
"""A curve that so probably is a constant with noise on it is no fit."""

LEAST_SPAN = 0.03
"""Nor is one that changes by less than this part of the points' mean, however well it fits."""


LEAST_ERRORS = 2
"""As many standard errors from 0 does a coefficient lie that is told from it."""


@dataclass(frozen=True)
class Fit:
    """A model's coefficients and their standard errors, by name, in the units of the points.

    ``r_squared`` is 1 - (residual sum of squares) / (sum of squares about the mean), ``residual``
    the root mean square of the residuals over the points' values. ``reason`` says why there is
    no fit, and is empty where there is one: the coefficients, if any, are then not to be used.
    """

    model: str
    n: int
    coefficients: Mapping[str, float]
    errors: Mapping[str, float]
    r_squared: float = math.nan
    residual: float = math.nan
    reason: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain dicts, texts and numbers; None for what is not a number."""
        plain = asdict(self)
        for name in ("r_squared", "residual"):
            plain[name] = plain[name] if math.isfinite(plain[name]) else None
        return plain


def polynomial(x: Sequence[float], y: Sequence[float], degree: int) -> Fit:
    """``y = c0 + c1 x + ... ``, each point weighted by 1 / y: as sure relatively as any other.

    Times grow over many decades, and so does what they scatter by. All y must be above 0.
    """
    points = _Points(x, y, relative=True)
    # Powers of x / max(x) are all of one size.
    scale = max(x, default=1)
    columns = [(points.x / scale) ** power for power in range(degree + 1)]
    units = [float(scale) ** -power for power in range(degree + 1)]
    names = [f"c{power}" for power in range(degree + 1)]
    return points.linear(f"polynomial of degree {degree}", names, columns, units)


def logarithmic(x: Sequence[float], y: Sequence[float]) -> Fit:
    """``y = offset + slope ln(x)`` by plain least squares, unless the points are flat."""
    points = _Points(x, y)
    columns = [np.ones_like(points.x), np.log(points.x)]
    return points.unless_flat(points.linear("logarithmic", ["offset", "slope"], columns))


def exponential(x: Sequence[float], y: Sequence[float]) -> Fit:
    """``y = floor + height exp(-rate x)`` by plain least squares, unless the points are flat.

    With a given rate the rest is linear: the best of a grid of rates starts the search.
    """
    points = _Points(x, y)
    if len(x) <= 3:
        return points.unfit("exponential", _too_few(len(x), 4))
    reach = float(np.ptp(points.x))

    def left(rate: float) -> float:
        columns = [np.ones_like(points.x), np.exp(-rate * points.x)]
        return points.solve(columns)[1]

    rate = min(np.geomspace(0.1 / reach, 10.0 * len(x) / reach, 200), key=left)
    return points.unless_flat(points.exponential(float(rate)))


@dataclass(frozen=True)
class Ratio:
    """A quotient and its standard error."""

    value: float
    error: float


def leading_ratio(first: Fit, second: Fit) -> Ratio | None:
    """The first fit's coefficient of the highest power over the second's.

    The relative errors are taken as independent: they add up in squares. None without two such
    coefficients that are told from 0.
    """
    if first.reason or second.reason:
        return None
    (a, da), (b, db) = _leading(first), _leading(second)
    if not (is_told(a, da) and is_told(b, db)):
        return None
    value = a / b
    return Ratio(value, abs(value) * math.hypot(da / a, db / b))


def is_told(value: float, error: float) -> bool:
    """Whether a coefficient is told from 0 by its standard error."""
    return abs(value) > LEAST_ERRORS * error


def _leading(fit: Fit) -> tuple[float, float]:
    name = list(fit.coefficients)[-1]
    return fit.coefficients[name], fit.errors[name]


class _Points:
    """Points, with y in units of its largest magnitude; ``relative``: weighted by 1 / y."""

    def __init__(self, x: Sequence[float], y: Sequence[float], *, relative: bool = False) -> None:
        self.x = np.asarray(x, np.float64)
        values = np.asarray(y, np.float64)
        self._unit = float(np.abs(values).max(initial=0)) or 1.0
        self._y = values / self._unit
        self._sigma = np.abs(self._y) if relative else np.ones_like(self._y)

    def solve(self, columns: Sequence[Float64]) -> tuple[Float64, float]:
        """The columns' coefficients by least squares, and the weighted sum of squares left."""
        design = np.stack(columns, axis=1) / self._sigma[:, None]
        wanted = self._y / self._sigma
        found: Float64 = np.linalg.lstsq(design, wanted)[0].astype(np.float64)
        return found, float(((wanted - design @ found) ** 2).sum())

    def linear(
        self,
        title: str,
        names: Sequence[str],
        columns: Sequence[Float64],
        units: Sequence[float] | None = None,
    ) -> Fit:
        """A fit of columns; ``units`` turn the coefficients into the points' own."""
        if len(self.x) <= len(names):
            return self.unfit(title, _too_few(len(self.x), len(names) + 1))
        found, _ = self.solve(columns)
        return self._fit(title, names, found, columns, units or [1.0] * len(names))

    def exponential(self, rate: float) -> Fit:
        """The best exponential near a rate."""
        from scipy.optimize import least_squares

        def model(p: Float64) -> Float64:
            curve: Float64 = p[0] + p[1] * np.exp(np.clip(-p[2] * self.x, -700, 700))
            return curve

        first, _ = self.solve([np.ones_like(self.x), np.exp(-rate * self.x)])

        def miss(p: Float64) -> Float64:
            return model(p) - self._y

        start = [*first, rate]
        search = least_squares(miss, start, x_scale="jac", xtol=1e-12, ftol=1e-12)
        _, height, rate = search.x
        falling = np.exp(np.clip(-rate * self.x, -700, 700))
        slopes = [np.ones_like(self.x), falling, -height * self.x * falling]
        names = ["floor", "height", "rate"]
        units = [1.0, 1.0, 1 / self._unit]
        return self._fit("exponential", names, search.x, slopes, units, model(search.x))

    def unless_flat(self, fit: Fit) -> Fit:
        """The fit, or why the points are as well described by their mean (F test of both)."""
        from scipy.special import fdtrc

        if fit.reason:
            return fit
        more, left = len(fit.coefficients) - 1, fit.n - len(fit.coefficients)
        unexplained = 1 - fit.r_squared
        f = max(fit.r_squared, 0.0) / more / (unexplained / left) if unexplained > 0 else math.inf
        p = float(fdtrc(more, left, f))
        if p > SIGNIFICANCE:
            return replace(fit, reason=f"no better than a constant (p = {p:.2g})")
        return fit

    def unfit(self, title: str, reason: str) -> Fit:
        return Fit(title, len(self.x), {}, {}, reason=reason)

    def _fit(
        self,
        title: str,
        names: Sequence[str],
        found: Float64,
        slopes: Sequence[Float64],
        units: Sequence[float],
        curve: Float64 | None = None,
    ) -> Fit:
        """``slopes`` are the derivatives by each coefficient; ``curve``, else their sum, the fit.

        The covariance is (residual variance) (J^T J)^-1.
        """
        design = np.stack(slopes, axis=1)
        curve = design @ found if curve is None else curve
        span = float(np.ptp(curve)) / (abs(float(self._y.mean())) or 1.0)
        if span < LEAST_SPAN:
            return self.unfit(title, f"flat: it changes by {100 * span:.1f} % in all")
        residuals = self._y - curve
        weighted = design / self._sigma[:, None]
        variance = float(((residuals / self._sigma) ** 2).sum()) / (len(self.x) - len(found))
        try:
            inverse = np.linalg.inv(weighted.T @ weighted)
        except np.linalg.LinAlgError:
            return self.unfit(title, "the points do not determine it")
        errors = np.sqrt(variance * np.diag(inverse))
        if not np.isfinite(errors).all():
            return self.unfit(title, "the points do not determine it")
        about_mean = float(((self._y - self._y.mean()) ** 2).sum())
        scales = [self._unit * unit for unit in units]
        return Fit(
            *(title, len(self.x)),
            {n: float(v * s) for n, v, s in zip(names, found, scales, strict=True)},
            {n: float(v * s) for n, v, s in zip(names, errors, scales, strict=True)},
            1 - float((residuals**2).sum()) / about_mean,
            float(np.sqrt(np.mean((residuals / self._y) ** 2))) if self._y.all() else math.nan,
        )


def _too_few(n: int, least: int) -> str:
    return f"{n} point{'s are' if n != 1 else ' is'} too few: it takes {least}"
