"""What the project and the machine share: locks, baselines, and what is stored for this device."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_gemm.baselines import BaselineStore
from pytest_gemm.doctor.finding import Finding, advice, fault, ok
from pytest_gemm.doctor.machine import Machine
from pytest_gemm.errors import BaselineError
from pytest_gemm.workers.turns import FOLDER, VARIABLE

CACHE = "PYTEST_GEMM_CACHE"
UPDATE = "pytest --gemm-bench --gemm-baseline=update"
SURE = 3
"""Sessions from which on a verdict is no longer provisional."""


@dataclass(frozen=True)
class Stored:
    """What the folder holds for one device; ``damage`` says what cannot be read."""

    device: str
    sessions: tuple[int, ...]
    damage: tuple[str, ...]


def locks(machine: Machine, *, shared: bool, container: str) -> Finding:
    """``shared``: whether there is a GPU, which other containers may use too."""
    named = machine.environ.get(VARIABLE)
    folder = Path(named or FOLDER)
    if not _can_hold(machine, folder):
        remedy = f"export {VARIABLE}=FOLDER, one that every user of this machine can write to"
        if folder.is_dir():
            remedy = f"sudo chmod 777 {shlex.quote(str(folder))}"
        return fault("locks", f"{folder} cannot be written to", remedy)
    if shared and container and not named:
        return advice(
            "locks",
            f"{folder}: runs in other containers on the same GPU do not see it ({container})",
            f"give the containers one folder in common: export {VARIABLE}=FOLDER",
        )
    return ok("locks", str(folder))


def cache(machine: Machine) -> Iterator[Finding]:
    """The folder of compiled kernels, where one is named: no other is tried then."""
    if named := machine.environ.get(CACHE):
        if _can_hold(machine, Path(named)):
            yield ok("cache", named)
        else:
            yield fault("cache", f"{named} cannot be written to", f"unset {CACHE}")


def baselines(machine: Machine, folder: Path) -> Finding:
    if _can_hold(machine, folder):
        if damage := BaselineStore(folder).unreadable_facts():
            return _damaged("baselines", list(map(str, damage)))
        return ok("baselines", f"{folder}{'' if folder.exists() else ', which update makes'}")
    why = "cannot be written to" if folder.is_dir() or not folder.exists() else "is no folder"
    owner = f"sudo chown -R $(id -un) {shlex.quote(str(folder))}"
    return fault(
        "baselines",
        f"{folder} {why}",
        owner if folder.is_dir() else "name another one with the ini key gemm_baselines",
    )


def read_stored(folder: Path, device: str) -> Stored:
    """How many sessions a new run would be compared with, for each benchmark."""
    store = BaselineStore(folder)
    damage = [str(error) for error in store.unreadable(device)]
    counts = []
    for kernel, benchmark in store.names(device):
        try:
            reference = store.reference(device, kernel, benchmark)
        except BaselineError as error:
            damage.append(str(error))
        else:
            counts.append(len(reference.sessions) if reference else 0)
    return Stored(device, tuple(counts), tuple(dict.fromkeys(damage)))


def stored(facts: Stored, others: Sequence[str]) -> Finding:
    """``others`` are the devices that something is stored for."""
    if facts.damage:
        return _damaged("stored", facts.damage)
    count = len(facts.sessions)
    if not count:
        elsewhere = f", only for {', '.join(others)}" if others else ""
        return advice("stored", f"no times for {facts.device}{elsewhere}", UPDATE)
    least = min(facts.sessions)
    text = f"{count} benchmarks of {facts.device}, {least} sessions or more of each"
    if least < SURE:
        return advice("stored", f"{text}: provisional below {SURE}", UPDATE)
    return ok("stored", text)


def _damaged(name: str, damage: Sequence[str]) -> Finding:
    more = f" (and {len(damage) - 1} more)" if len(damage) > 1 else ""
    text, _, remedy = damage[0].partition("; ")
    return fault(name, text + more, remedy)


def all_stored(folder: Path, devices: Sequence[str]) -> Iterator[Finding]:
    """One line for each device of this machine."""
    others = [name for name in BaselineStore(folder).devices() if name not in devices]
    for device in devices:
        yield stored(read_stored(folder, device), others)


def _can_hold(machine: Machine, folder: Path) -> bool:
    """Whether files can be written there, perhaps after it was made."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder.is_dir() and machine.is_writable(folder)
