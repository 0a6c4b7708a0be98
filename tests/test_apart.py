"""Modules that are loaded when they are first asked for are left as they are by whoever looks."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from importlib.util import LazyLoader, module_from_spec, spec_from_file_location
from pathlib import Path
from textwrap import dedent
from types import ModuleType
from typing import Any

import pytest

from pytest_gemm.apart import imports_from, late_import
from pytest_gemm.function import FunctionName
from pytest_gemm.python_kernel import declared
from pytest_gemm.registry import load_registry

OTHERS = [f"asked_for_{number}" for number in range(20)]
"""What a lazy module imports: enough for the table of modules to be built anew."""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with modules, on the path of imports."""
    known = set(sys.modules)
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.syspath_prepend(folder)
    yield folder
    for name in set(sys.modules) - known:
        del sys.modules[name]


def write(folder: Path, **texts: str) -> None:
    folder.mkdir(exist_ok=True)
    for name, text in texts.items():
        (folder / f"{name}.py").write_text(dedent(text))


def lazy(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module as CuPy makes ``cupyx``: whatever of it is asked for, it is loaded first."""
    write(folder, **dict.fromkeys(OTHERS, ""))
    write(folder, **{name: "\n".join(f"import {other}" for other in OTHERS)})
    spec = spec_from_file_location(name, folder / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    spec.loader = LazyLoader(spec.loader)
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module


def loaded() -> set[str]:
    return {*OTHERS} & {*sys.modules}


def test_a_lazy_module_is_not_loaded(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / "installed"
    monkeypatch.syspath_prepend(installed)
    module = lazy("lazy_library", installed, monkeypatch)
    write(project, of_both="x = 2")
    write(tmp_path / "copy", of_both="x = 1")
    own = importlib.import_module("of_both")
    with imports_from(tmp_path / "copy", project):
        assert importlib.import_module("of_both").x == 1
    assert sys.modules["of_both"] is own
    assert not loaded()
    assert sys.modules["lazy_library"] is module
    assert module.__name__ == "lazy_library"
    assert loaded() == {*OTHERS}  # or nothing was held above


def test_a_lazy_module_of_the_project_is_that_of_the_copy(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = lazy("lazy_own", project, monkeypatch)
    write(tmp_path / "copy", lazy_own="x = 1")
    with imports_from(tmp_path / "copy", project):
        assert importlib.import_module("lazy_own").x == 1
    assert sys.modules["lazy_own"] is own
    assert not loaded()


def test_a_module_that_computes_what_it_holds_is_not_asked(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Computed(ModuleType):
        @property
        def __dict__(self) -> dict[str, Any]:  # type: ignore[override]
            for other in OTHERS:
                importlib.import_module(other)
            return {}

    write(project, **dict.fromkeys(OTHERS, ""))
    (tmp_path / "copy").mkdir()
    monkeypatch.setitem(sys.modules, "computed", Computed("computed"))
    with imports_from(tmp_path / "copy", project):
        assert "computed" in sys.modules
    assert not loaded()


@pytest.mark.parametrize("place", ["_ops.py", "<string>", ""])
def test_a_file_that_was_made_up_is_not_of_the_project(
    place: str, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyTorch names some: they would be looked for in the current folder, often the project."""
    made_up = ModuleType("made_up")
    made_up.__file__ = place
    monkeypatch.setitem(sys.modules, "made_up", made_up)
    monkeypatch.chdir(project)
    (tmp_path / "copy").mkdir()
    with imports_from(tmp_path / "copy", project):
        assert sys.modules["made_up"] is made_up


def test_what_is_no_module_has_no_file(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "copy").mkdir()
    for name, thing in {"a_number": 3, "nothing": None, "a_class": Path}.items():
        monkeypatch.setitem(sys.modules, name, thing)
    with imports_from(tmp_path / "copy", project):
        assert sys.modules["a_number"] == 3  # type: ignore[comparison-overlap]


KERNEL = """
    import sys

    import pytest_gemm

    lazy = sys.modules["lazy_library"]

    def helper():
        return 1

    @pytest_gemm.kernel
    def with_lazy(A, B, C):
        C[0] = helper() if lazy is not None else 0
"""


def test_kernels_beside_a_lazy_module_are_found_without_it(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / "installed"
    monkeypatch.syspath_prepend(installed)
    lazy("lazy_library", installed, monkeypatch)
    write(project, kernels_with_lazy=KERNEL)
    module = importlib.import_module("kernels_with_lazy")
    registry = load_registry((), project, modules=[module])
    (function,) = registry.functions.values()
    assert FunctionName.of(function).load() is function
    assert late_import(function, project) == ""  # type: ignore[arg-type]
    assert declared(module.lazy) is None
    assert not loaded()
