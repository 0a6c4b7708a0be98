"""What the cases of a pytest run share, made when it is first needed and kept in the config."""

from __future__ import annotations

import os
import re
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, TypeGuard

import pytest

from pytest_gemm.against import check_against
from pytest_gemm.collection import Collection, Collector
from pytest_gemm.errors import ConfigError, DeviceBusyError
from pytest_gemm.options import OPTIONS
from pytest_gemm.python_kernel import declared
from pytest_gemm.recorder import Project, Recorder
from pytest_gemm.registry import import_module
from pytest_gemm.selection import is_case

if TYPE_CHECKING:
    from pytest_gemm.session import GemmSession

COLLECTOR = pytest.StashKey[Collector]()
RECORDER = pytest.StashKey[Recorder]()
SESSION = pytest.StashKey["GemmSession"]()

NO_KERNELS = (
    "no kernels found: put .cu files with front matter into kernels/, name their folders in the "
    "ini key gemm_kernels, or decorate a function in conftest.py with @pytest_gemm.kernel"
)

LATE = (
    "{path}: pytest loads it after the kernels were collected: move {names} to the conftest.py "
    "beside the settings, or to a module that the ini key gemm_modules names"
)


DECLARES = re.compile(rb"\bpytest_gemm(?:\.kernel\b| as\b| import\b.*\bkernel\b)")
"""What a module with a decorated function has in its text."""


class CudaFile(pytest.Module):
    """A ``.cu`` named on the command line: a module with one test over the kernels in it."""

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        module = ModuleType(self.path.stem)
        module.test_gemm = lambda gemm: gemm.check()  # type: ignore[attr-defined]
        self.obj = module
        return super().collect()


def collection_of(node: pytest.Item | pytest.Collector) -> Collection:
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
        config.pluginmanager.register(_Conftests(config, collector))
        recorder_of(config).project = Project([*project.cases], [*project.registry.specs])
    if not (project.cases or project.registry.errors):
        raise ConfigError(NO_KERNELS)
    return project


class _Conftests:
    """Watches which conftest.py files pytest loads: kernels of the others are not known.

    pytest loads those of deeper folders when it gets there, and which it knows at the start depends
    on its arguments. A kernel of one that is loaded when the kernels are collected would run in
    some runs, and be missing in others: that is reported.
    """

    def __init__(self, config: pytest.Config, collector: Collector) -> None:
        self._config = config
        self._collector = collector

    def pytest_plugin_registered(self, plugin: object) -> None:
        if not _is_conftest(plugin) or plugin in self._collector.modules:
            return
        known = self._collector.project.registry.functions.values()
        values = list(vars(plugin).items())
        late = [
            name
            for name, value in values
            if declared(value) is not None and all(value is not own for own in known)
        ]
        if late:
            path = str(plugin.__file__)
            text = LATE.format(path=path, names=", ".join(late))
            self._config.hook.pytest_collectreport(report=_collect_error(path, text))

    def pytest_sessionfinish(self) -> None:
        """What a conftest.py declares that this run had no reason to load has not vanished."""
        texts = (path.read_bytes() for path in self._unread())
        if self._collector.options.accountable and any(map(DECLARES.search, texts)):
            recorder_of(self._config).project = None

    def _unread(self) -> Iterator[Path]:
        """The files that only a run of the whole project loads."""
        config, root = self._config, self._config.rootpath
        plugins = filter(_is_conftest, config.pluginmanager.get_plugins())
        known = {Path(str(plugin.__file__)).resolve() for plugin in plugins}
        skipped = config.getini("norecursedirs")
        for place in config.getini("testpaths") or ["."]:
            for folder, folders, _ in os.walk(root / place):
                path = Path(folder, "conftest.py")
                if path.is_file() and path.resolve() not in known:
                    yield path
                folders[:] = [f for f in folders if not any(fnmatch(f, p) for p in skipped)]


def _file(file: CudaFile) -> Collection:
    recorder_of(file.config)
    collection = _collector_of(file.config).file(file.path)
    for error in collection.registry.errors:
        raise ConfigError(str(error))
    return collection


def _collector_of(config: pytest.Config) -> Collector:
    if COLLECTOR not in config.stash:
        modules = [p for p in config.pluginmanager.get_plugins() if _is_conftest(p)]
        modules += map(import_module, config.stash[OPTIONS].modules)
        config.stash[COLLECTOR] = Collector(config.stash[OPTIONS], modules)
    return config.stash[COLLECTOR]


def recorder_of(config: pytest.Config) -> Recorder:
    """The plugin that gathers the records of this run."""
    if RECORDER not in config.stash:
        config.stash[RECORDER] = Recorder(config.stash[OPTIONS])
        config.pluginmanager.register(config.stash[RECORDER])
    return config.stash[RECORDER]


def session_of(config: pytest.Config) -> GemmSession:
    """The back end and the stored facts of this run; importing it imports NumPy."""
    if SESSION not in config.stash:
        try:
            from pytest_gemm.session import GemmSession
        except ModuleNotFoundError as error:
            text = f"pytest-gemm: {error.name} is missing; see: pytest-gemm doctor"
            raise pytest.UsageError(text) from error

        with _config_error_as(pytest.UsageError):
            session = GemmSession(
                config.stash[OPTIONS],
                partial(_show, config),
                lambda: _collector_of(config).project,
                shared=hasattr(config, "workerinput"),
            )
        config.stash[SESSION] = session
        config.pluginmanager.register(_Ending(session))
    return config.stash[SESSION]


class _Ending:
    """Closes the session before what other plugins do at the end.

    pytest-xdist gives its workers five seconds for that, and interrupts them then.
    """

    def __init__(self, session: GemmSession) -> None:
        self._session = session

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        self._session.close()


def check_opponent(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Raise UsageError where --gemm-against names a kernel that does not exist, or several.

    A worker of xdist, which nobody hears when it raises, reports an error of collection.
    """
    try:
        collector = _collector_of(config)
        check_against(collector.options, collector.backend, lambda: collector.project.registry)
    except ConfigError as error:
        items.clear()  # or a device would be opened for them
        if not hasattr(config, "workerinput"):
            raise pytest.UsageError(str(error)) from None
        config.hook.pytest_collectreport(report=_collect_error("--gemm-against", str(error)))


def expect(config: pytest.Config, items: Iterable[pytest.Item]) -> None:
    """Say which cases come, in order."""
    cases = []
    for item in items:
        if is_case(item) and hasattr(item, "callspec"):
            collection = collection_of(item)
            # Without a single case pytest makes one item with none, which it skips.
            if case := collection.cases.get(item.callspec.params["gemm"]):
                cases.append((case, collection.registry.functions.get(case.kernel.callable)))
    if cases:
        with busy_ends_pytest():
            session_of(config).expect(cases)


@contextmanager
def busy_ends_pytest() -> Generator[None]:
    """Stop where another run has the device and this one must not wait for it."""
    try:
        yield
    except DeviceBusyError as error:
        pytest.exit(str(error), returncode=pytest.ExitCode.USAGE_ERROR)


def _show(config: pytest.Config, line: str) -> None:
    """Print a line at once, also inside a test, whose output is captured."""
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    capture = config.pluginmanager.get_plugin("capturemanager")
    with capture.global_and_fixture_disabled() if capture else nullcontext():
        if terminal:
            terminal.write_line(line)


def _is_conftest(plugin: object) -> TypeGuard[ModuleType]:
    return isinstance(plugin, ModuleType) and plugin.__name__.rpartition(".")[2] == "conftest"


def _collect_error(path: str, text: str) -> pytest.CollectReport:
    return pytest.CollectReport(nodeid=path, outcome="failed", longrepr=text, result=[])


@contextmanager
def _config_error_as(kind: type[Exception]) -> Generator[None]:
    try:
        yield
    except ConfigError as error:
        raise kind(str(error)) from None
