"""Which of the collected items are run, and what is said of cases that are not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random

import pytest

from pytest_gemm import publish
from pytest_gemm.options import OPTIONS

SELECTION = pytest.StashKey["Selection"]()

NO_TEST = (
    "gemm: no test uses the fixture gemm: add a module with"
    " 'def test_gemm(gemm): gemm.check()', or name a .cu file"
)

ALL_DESELECTED = "gemm: {count} collected, and all deselected: see -k, -m and --deselect"

LOST = (
    "gemm: {count} taken away by a conftest.py or a plugin, and not reported as deselected: {shown}"
)

LOST_SHOWN = 5


def is_case(item: pytest.Item) -> bool:
    """Whether the item is a kernel on a problem: a test that uses the fixture ``gemm``."""
    return "gemm" in getattr(item, "fixturenames", ())


class Selection:
    """Knows what became of the cases that were collected: still there, deselected, or neither."""

    def __init__(self, items: Iterable[pytest.Item]) -> None:
        self._collected = [item.nodeid for item in items if is_case(item)]
        self._deselected: set[str] = set()

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        self._deselected.update(item.nodeid for item in items)

    def lines(self, items: Sequence[pytest.Item]) -> list[str]:
        """What there is to say now that only these items are left."""
        if not self._collected:
            return [NO_TEST]
        accounted = {*self._deselected, *(item.nodeid for item in items)}
        lost = [case for case in self._collected if case not in accounted]
        if lost:
            shown = ", ".join(lost[:LOST_SHOWN]) + ", ..." * (len(lost) > LOST_SHOWN)
            return [LOST.format(count=_cases(len(lost)), shown=shown)]
        if not any(map(is_case, items)):
            return [ALL_DESELECTED.format(count=_cases(len(self._collected)))]
        return []


def watch_selection(config: pytest.Config, items: Iterable[pytest.Item]) -> None:
    """Remember the cases among the items, and which of them are deselected from now on."""
    config.stash[SELECTION] = Selection(items)
    config.pluginmanager.register(config.stash[SELECTION])


def selection_lines(config: pytest.Config, items: Sequence[pytest.Item]) -> list[str]:
    """What there is to say of the cases that will not run."""
    selection = config.stash.get(SELECTION, None)  # none where an earlier hook failed
    return selection.lines(items) if selection else []


def select_cases(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave only cases, for a bench.

    Shuffled, the same way for a seed: no case may owe its time to the one before it.
    """
    cases = [item for item in items if is_case(item)]
    publish.announce(config, cases)
    config.hook.pytest_deselected(items=[item for item in items if not is_case(item)])
    items[:] = Random(config.stash[OPTIONS].seed).sample(cases, len(cases))


def _cases(count: int) -> str:
    return "1 case" if count == 1 else f"{count} cases"
