"""What slowdown of a kernel is tolerated on a device, and who says so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pytest_gemm.calibration import read_calibration
from pytest_gemm.kernelspec import Kernel
from pytest_gemm.margin import Calibration, margin_of


class Tolerance:
    """The margin of a run, fractions: of its command line, its kernels, its project, its devices.

    ``path_of`` says where a device's calibration is stored. Each is read once.
    """

    def __init__(
        self,
        path_of: Callable[[str], Path],
        *,
        run: float | None = None,
        project: float | None = None,
    ) -> None:
        self._path_of = path_of
        self._run = run
        self._project = project
        self._calibrations: dict[str, Calibration | None] = {}

    def margin(self, kernel: Kernel, kind: str, device: str) -> float:
        """The first that is given, else the device's. Raises BaselineError for its calibration."""
        given = [self._run, kernel.margin_on(kind), self._project]
        return margin_of(kind, self.calibration(device), given)

    def calibration(self, device: str) -> Calibration | None:
        """What was measured on a device, if it was. Raises BaselineError."""
        if device not in self._calibrations:
            self._calibrations[device] = read_calibration(self._path_of(device), device)
        return self._calibrations[device]
