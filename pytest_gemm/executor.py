"""Where cases are executed: in workers, or in the process that asks."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Protocol
from uuid import uuid4

from pytest_gemm import backends
from pytest_gemm.backends.base import Device
from pytest_gemm.backends.choice import Choice, likely_gpus
from pytest_gemm.case import Case
from pytest_gemm.dueling import Times
from pytest_gemm.duet import Round
from pytest_gemm.errors import BackendError, ConfigError
from pytest_gemm.function import Function, Runnable
from pytest_gemm.options import Options
from pytest_gemm.result import Result
from pytest_gemm.runner import Runner
from pytest_gemm.workers.pool import Pool
from pytest_gemm.workers.serve import Start
from pytest_gemm.workers.turns import Hold, Turns
from pytest_gemm.workers.worker import Worker

Progress = Callable[[str], None]


class Executor(Protocol):
    """Runs cases on the devices that were chosen.

    Each method raises BackendError, and DeviceBusyError where it must not wait for a device.
    """

    def devices(self) -> Sequence[Device]:
        """What cases run on."""

    def expect(self, cases: Sequence[tuple[Case, Function | None]]) -> None:
        """Say what will be run, in order; work may begin."""

    def run(self, case: Case, function: Function | None) -> Result:
        """Run a case; ``function`` is a Python kernel's callable."""

    @property
    def can_duet(self) -> bool:
        """Whether ``duet`` can be asked for."""

    def duet(self, old: Runnable, new: Runnable, round_: Round) -> Sequence[Times]:
        """Measure a round of a duet: what each of its processes found."""

    def close(self) -> None:
        """Give back every device and end every process."""


def open_executor(
    options: Options, choice: Choice, progress: Progress, *, shared: bool
) -> Executor:
    """Make the executor that the options ask for; nothing is started yet.

    ``shared``: other processes of the same run use the same devices, as under pytest-xdist.
    Raises ConfigError where the options contradict each other.
    """
    hold: Hold = "never"
    if options.bench or choice.kind == "cuda":
        hold = "case" if shared else "run"
    wait = options.wait or shared
    if options.in_process:
        if choice.ssh or choice.gpus is None or len(choice.gpus) > 1:
            raise ConfigError(
                f"--gemm-device={options.device}: with gemm_in_process, cases run on one device "
                "of this machine"
            )
        return InProcess(choice, hold, progress, wait=wait)

    # Linux keeps 15 characters of a process' name.
    run = f"gemm-{os.environ.get('PYTEST_XDIST_TESTRUNUID', uuid4().hex)[:10]}"
    told: set[str] = set()

    def tell(progress: Progress, helps: bool, line: str) -> None:
        # A duet's processes all start as the first one did.
        if not (helps and line in told):
            progress(line)
        told.add(line)

    def open_worker(gpu: int, progress: Progress, helps: bool) -> Worker:
        # Whoever helps a worker that has the device for the whole run has it too.
        own_hold: Hold = "never" if helps and hold == "run" else hold
        start = Start(choice.kind, gpu, own_hold, wait, run)
        said = partial(tell, progress, helps)
        return Worker(start, options.case_timeout, said, dict(choice.ssh))

    likely = likely_gpus() if choice.gpus is None and not choice.ssh else 1
    return Pool(open_worker, choice.gpus, progress, likely=likely, ahead=not shared)


class InProcess:
    """Runs cases in this process: for debuggers; a kernel that ends its process ends this one."""

    def __init__(self, choice: Choice, hold: Hold, progress: Progress, *, wait: bool) -> None:
        self._choice = choice
        self._hold = hold
        self._progress = progress
        self._wait = wait

    def devices(self) -> list[Device]:
        runner, _ = self._ready
        return [runner.backend.device]

    def expect(self, cases: Sequence[tuple[Case, Function | None]]) -> None:
        """Nothing begins before it is asked for."""

    def run(self, case: Case, function: Function | None) -> Result:
        runner, turns = self._ready
        with turns.turn():
            return runner.run(case, function)

    @property
    def can_duet(self) -> bool:
        return False

    def duet(self, old: Runnable, new: Runnable, round_: Round) -> Sequence[Times]:
        raise BackendError("a duet takes several processes: leave gemm_in_process out")

    def close(self) -> None:
        if "_ready" in vars(self):
            self._ready[1].stop()

    @cached_property
    def _ready(self) -> tuple[Runner, Turns]:
        kind, gpus = self._choice.kind, self._choice.gpus
        backend = backends.open_backend(kind, self._progress, gpus[0] if gpus else 0)
        turns = Turns(backend.device, self._hold, self._progress, wait=self._wait)
        turns.start()
        return Runner(backend, self._progress), turns
