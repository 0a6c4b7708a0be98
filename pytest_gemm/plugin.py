"""pytest's hooks and fixtures: thin; the work is done in ``collection`` and ``session``.

Loaded in every pytest run of everybody who has pytest-gemm installed: only what declares the
options is imported here, the rest when a kernel is collected or run.

Every hook is described at https://docs.pytest.org/en/stable/reference/reference.html#hooks
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

from pytest_gemm import options
from pytest_gemm.errors import ConfigError

if TYPE_CHECKING:
    from pytest_gemm.collection import Collection, Collector
    from pytest_gemm.device import DeviceMemory
    from pytest_gemm.fixture import GemmCase
    from pytest_gemm.matrices import Operands
    from pytest_gemm.recorder import Recorder
    from pytest_gemm.registry import Registry
    from pytest_gemm.session import GemmSession

OPTIONS = pytest.StashKey[options.Options]()
COLLECTOR = pytest.StashKey["Collector"]()
SESSION = pytest.StashKey["GemmSession"]()
RECORDER = pytest.StashKey["Recorder"]()

NO_KERNELS = (
    "no kernels found: put .cu files with front matter into kernels/, name their folders in the "
    "ini key gemm_kernels, or decorate a function in conftest.py with @pytest_gemm.kernel"
)

NOT_PARAMETRIZED = (
    "the fixture gemm is one case of many: name it as an argument of a test function, or of a "
    "fixture that one uses; request.getfixturevalue and unittest classes cannot have it"
)

NO_TEST = (
    "gemm: no test uses the fixture gemm: add a module with"
    " 'def test_gemm(gemm): gemm.check()', or name a .cu file"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    options.declare(parser)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "gemm: a matrix kernel on a problem (pytest-gemm)")
    with _config_error_as(pytest.UsageError):
        config.stash[OPTIONS] = chosen = options.Options(config)
        if chosen.device == "cuda" or chosen.cold:
            from pytest_gemm.backends.choice import choose_backend

            choose_backend(chosen.device, cold=chosen.cold)
    if config.getoption("dist", "no") != "no":
        # The process that gathers xdist's reports collects nothing itself.
        _recorder_of(config)


# Kernels become cases, and cases become the parameters of tests that use ``gemm``.


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if file_path.suffix == ".cu" and parent.session.isinitpath(file_path):
        return CudaFile.from_parent(parent, path=file_path)
    return None


class CudaFile(pytest.Module):
    """A ``.cu`` named on the command line: a module with one test over the kernels in it."""

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        module = ModuleType(self.path.stem)
        module.test_gemm = lambda gemm: gemm.check()  # type: ignore[attr-defined]
        self.obj = module
        return super().collect()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "gemm" in metafunc.fixturenames:
        from pytest_gemm import publish

        config = metafunc.config
        cases = _collection_of(metafunc.definition).cases
        params = [pytest.param(i, id=i, marks=publish.marks(config)) for i in cases]
        metafunc.parametrize("gemm", params, indirect=True)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.stash[OPTIONS].bench:
        import random

        from pytest_gemm import publish
        from pytest_gemm.recorder import is_case

        publish.announce(config, filter(is_case, items))
        config.hook.pytest_deselected(items=[item for item in items if not is_case(item)])
        # Shuffled, the same way for a seed: no case may owe its time to the one before it.
        cases = list(filter(is_case, items))
        items[:] = random.Random(config.stash[OPTIONS].seed).sample(cases, len(cases))


def pytest_report_collectionfinish(
    config: pytest.Config, items: Sequence[pytest.Item]
) -> list[str]:
    bench = config.stash[OPTIONS].bench
    if config.getoption("collectonly") or not (bench or COLLECTOR in config.stash):
        return []
    from pytest_gemm.recorder import is_case

    if any(map(is_case, items)):
        return _session_of(config).header()
    return [NO_TEST] if bench else []


# Fixtures


@pytest.fixture
def gemm(request: pytest.FixtureRequest) -> GemmCase:
    """One kernel on one problem: ``gemm.check()`` verifies it, and times and judges it in a bench.

    A test that uses it is parametrized over the project's kernels and their problems.
    """
    from pytest_gemm.fixture import GemmCase
    from pytest_gemm.recorder import RECORD

    # Left from an earlier attempt, where another plugin runs tests again.
    if RECORD in request.node.stash:
        del request.node.stash[RECORD]
    if not hasattr(request, "param"):
        pytest.fail(NOT_PARAMETRIZED, pytrace=False)
    collection = _collection_of(request.node)
    return GemmCase(request, _session_of(request.config), collection, request.param)


@pytest.fixture
def gemm_registry(request: pytest.FixtureRequest) -> Registry:
    """The project's kernels: ``gemm_registry.specs["tiled"]``."""
    return _collection_of(request.node).registry


@pytest.fixture
def gemm_operands(request: pytest.FixtureRequest) -> Callable[..., Operands]:
    """Seeded matrices: ``A, B, C = gemm_operands("64x48x32")``, the same bits on every machine."""
    from pytest_gemm.matrices import operands
    from pytest_gemm.problem import Problem

    seed = request.config.stash[OPTIONS].seed

    def make(size: str, *, op: str = "gemm", recipe: str = "uniform") -> Operands:
        return operands(Problem.parse(size, op), seed, recipe)

    return make


@pytest.fixture
def gemm_device(request: pytest.FixtureRequest) -> Iterator[DeviceMemory]:
    """Memory of the device, given back after the test: ``matrix = gemm_device.upload(array)``."""
    from pytest_gemm.device import DeviceMemory

    with DeviceMemory(_session_of(request.config).backend) as memory:
        yield memory


# What a run shares is made when it is first needed and kept in the config's stash.


def _collection_of(node: pytest.Item | pytest.Collector) -> Collection:
    """The kernels of the ``.cu`` that the node lies in, else those of the project."""
    file = node.getparent(CudaFile)
    with _config_error_as(pytest.Collector.CollectError):
        return _project(node.config) if file is None else _file(file)


def _project(config: pytest.Config) -> Collection:
    """The project's kernels; each file that cannot be used is reported once, by itself."""
    collector = _collector_of(config)
    first = "project" not in vars(collector)
    project = collector.project
    if first:
        for error in project.registry.errors:
            config.hook.pytest_collectreport(report=_collect_error(error.path, str(error)))
        if not (project.cases or project.registry.errors):
            raise ConfigError(NO_KERNELS)
        _recorder_of(config).cases = project.cases.keys()
    return project


def _file(file: CudaFile) -> Collection:
    _recorder_of(file.config)
    collection = _collector_of(file.config).file(file.path)
    for error in collection.registry.errors:
        raise ConfigError(str(error))
    return collection


def _collector_of(config: pytest.Config) -> Collector:
    if COLLECTOR not in config.stash:
        from pytest_gemm.collection import Collector

        modules = [p for p in config.pluginmanager.get_plugins() if _is_conftest(p)]
        modules += map(_import, config.stash[OPTIONS].modules)
        config.stash[COLLECTOR] = Collector(config.stash[OPTIONS], modules)
    return config.stash[COLLECTOR]


def _recorder_of(config: pytest.Config) -> Recorder:
    if RECORDER not in config.stash:
        from pytest_gemm.recorder import Recorder

        config.stash[RECORDER] = Recorder(config.stash[OPTIONS])
        config.pluginmanager.register(config.stash[RECORDER])
    return config.stash[RECORDER]


def _session_of(config: pytest.Config) -> GemmSession:
    if SESSION not in config.stash:
        from pytest_gemm.session import GemmSession

        config.stash[SESSION] = GemmSession(config.stash[OPTIONS], partial(_show, config))
    return config.stash[SESSION]


def _show(config: pytest.Config, line: str) -> None:
    """Print a line at once, also inside a test, whose output is captured."""
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    capture = config.pluginmanager.get_plugin("capturemanager")
    with capture.global_and_fixture_disabled() if capture else nullcontext():
        if terminal:
            terminal.write_line(line)


def _is_conftest(plugin: object) -> bool:
    return isinstance(plugin, ModuleType) and plugin.__name__.rpartition(".")[2] == "conftest"


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ConfigError(f"gemm_modules: {name} cannot be imported: {error}") from error


def _collect_error(path: str, text: str) -> pytest.CollectReport:
    return pytest.CollectReport(nodeid=path, outcome="failed", longrepr=text, result=[])


@contextmanager
def _config_error_as(kind: type[Exception]) -> Generator[None]:
    try:
        yield
    except ConfigError as error:
        raise kind(str(error)) from None
