"""pytest's hooks and fixtures: thin; the work is done in ``collection`` and ``session``.

Loaded in every pytest run of everybody who has pytest-gemm installed: only what declares the
options is imported here, and no more names than it takes (pytest looks at each); the rest when
a kernel is collected or run.

Every hook is described at https://docs.pytest.org/en/stable/reference/reference.html#hooks
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_gemm import options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from pytest_gemm.device import DeviceMemory
    from pytest_gemm.fixture import GemmCase
    from pytest_gemm.matrices import Operands
    from pytest_gemm.registry import Registry

NOT_PARAMETRIZED = (
    "the fixture gemm is one case of many: name it as an argument of a test function, or of a "
    "fixture that one uses; request.getfixturevalue and unittest classes cannot have it"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    options.declare(parser)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "gemm: a matrix kernel on a problem (pytest-gemm)")
    config.stash[options.OPTIONS] = options.Options(config)
    if config.getoption("dist", "no") != "no":
        from pytest_gemm.shared import recorder_of

        # The process that gathers xdist's reports collects nothing itself.
        recorder_of(config)


# Kernels become cases, and cases become the parameters of tests that use ``gemm``.


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if file_path.suffix == ".cu" and parent.session.isinitpath(file_path):
        from pytest_gemm.shared import CudaFile

        return CudaFile.from_parent(parent, path=file_path)
    return None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "gemm" in metafunc.fixturenames:
        from pytest_gemm import publish
        from pytest_gemm.shared import collection_of

        config = metafunc.config
        cases = collection_of(metafunc.definition).cases
        params = [pytest.param(i, id=i, marks=publish.marks(config)) for i in cases]
        metafunc.parametrize("gemm", params, indirect=True)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.stash[options.OPTIONS].against:
        from pytest_gemm.shared import check_opponent

        check_opponent(config, items)
    if config.stash[options.OPTIONS].accountable:
        from pytest_gemm.selection import watch_selection

        watch_selection(config, items)
    if config.stash[options.OPTIONS].bench:
        from pytest_gemm.selection import select_cases

        select_cases(config, items)


def pytest_report_collectionfinish(
    config: pytest.Config, items: Sequence[pytest.Item]
) -> list[str]:
    if config.getoption("collectonly"):
        return []
    lines = []
    if any("gemm" in getattr(item, "fixturenames", ()) for item in items):
        from pytest_gemm.shared import busy_ends_pytest, session_of

        with busy_ends_pytest():
            lines += session_of(config).header()
    if config.stash[options.OPTIONS].accountable:
        from pytest_gemm.selection import selection_lines

        lines += selection_lines(config, items)
    return lines


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    if session.config.getoption("collectonly"):
        return
    if any("gemm" in getattr(item, "fixturenames", ()) for item in session.items):
        from pytest_gemm.shared import expect

        expect(session.config, session.items)


# Fixtures


@pytest.fixture
def gemm(request: pytest.FixtureRequest) -> GemmCase:
    """One kernel on one problem: ``gemm.check()`` verifies it, and times and judges it in a bench.

    A test that uses it is parametrized over the project's kernels and their problems.
    """
    from pytest_gemm import shared
    from pytest_gemm.fixture import GemmCase
    from pytest_gemm.recorder import RECORD

    # Left from an earlier attempt, where another plugin runs tests again.
    if RECORD in request.node.stash:
        del request.node.stash[RECORD]
    if not hasattr(request, "param"):
        pytest.fail(NOT_PARAMETRIZED, pytrace=False)
    collection = shared.collection_of(request.node)
    return GemmCase(request, shared.session_of(request.config), collection, request.param)


@pytest.fixture
def gemm_registry(request: pytest.FixtureRequest) -> Registry:
    """The project's kernels: ``gemm_registry.specs["tiled"]``."""
    from pytest_gemm import shared

    return shared.collection_of(request.node).registry


@pytest.fixture
def gemm_operands(request: pytest.FixtureRequest) -> Callable[..., Operands]:
    """Seeded matrices: ``A, B, C = gemm_operands("64x48x32")``, the same bits on every machine."""
    from pytest_gemm.matrices import operands
    from pytest_gemm.problem import Problem

    seed = request.config.stash[options.OPTIONS].seed

    def make(size: str, *, op: str = "gemm", recipe: str = "uniform") -> Operands:
        return operands(Problem.parse(size, op), seed, recipe)

    return make


@pytest.fixture
def gemm_device(request: pytest.FixtureRequest) -> Iterator[DeviceMemory]:
    """Memory of the device, given back after the test: ``matrix = gemm_device.upload(array)``."""
    from pytest_gemm import shared
    from pytest_gemm.device import DeviceMemory

    with DeviceMemory(shared.session_of(request.config).backend) as memory:
        yield memory
