"""What a kernel is measured against on purpose: itself as it was at a revision, or another one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import FunctionType
from typing import Literal, Protocol

from pytest_gemm.apart import imports_from, late_import
from pytest_gemm.case import Case
from pytest_gemm.errors import BackendError, ConfigError, GemmError, SpecError
from pytest_gemm.function import Function, FunctionName, Runnable
from pytest_gemm.kernelspec import Kernel, KernelSpec
from pytest_gemm.options import BASELINE, KERNEL, Options
from pytest_gemm.python_kernel import declared, relocate
from pytest_gemm.registry import SIDECAR_SUFFIX, Registry, load_registry
from pytest_gemm.revision import Export


@dataclass(frozen=True)
class Opponent(Runnable):
    """A kernel on the problem of another case."""

    notes: tuple[str, ...] = ()


class NoOpponent(GemmError):
    """There is nothing to measure against; ``outcome`` is the verdict's."""

    def __init__(self, outcome: Literal["new", "withheld"], message: str) -> None:
        self.outcome = outcome
        super().__init__(message)


class Opponents(Protocol):
    """Finds what cases are measured against; ``name`` is what verdicts call it."""

    @property
    def name(self) -> str: ...

    def find(self, case: Case, function: Function | None) -> Opponent:
        """The opponent of a case. Raises NoOpponent, and other GemmErrors."""

    def close(self) -> None:
        """Give back what the search took."""


def open_opponents(
    options: Options, backend: str, registry: Callable[[], Registry]
) -> Opponents | None:
    """What the option --gemm-against asks for; None where the stored kernels decide.

    ``registry`` gives the kernels of the project, as they are now.
    """
    if options.revision is not None:
        export = Export(options.revision)
        return OldKernels(export, backend, options.root, options.kernels)
    if options.against is None or options.against == BASELINE:
        return None
    return OtherKernel(options.against.removeprefix(KERNEL), backend, registry)


def check_against(options: Options, backend: str, registry: Callable[[], Registry]) -> None:
    """Raise ConfigError where --gemm-against names a kernel that does not exist, or several."""
    if (options.against or "").startswith(KERNEL):
        kernel_named(str(options.against).removeprefix(KERNEL), registry(), backend)


class OtherKernel:
    """Another kernel of the project, by its name or its id."""

    def __init__(self, name: str, backend: str, registry: Callable[[], Registry]) -> None:
        self._kernel = name
        self._backend = backend
        self._registry = registry

    @property
    def name(self) -> str:
        return f"kernel {self._kernel}"

    def find(self, case: Case, function: Function | None) -> Opponent:
        registry = self._registry()
        other = kernel_named(self._kernel, registry, self._backend)
        _check_problem(case, other, other.id, "withheld")
        return Opponent(replace(case, kernel=other), registry.functions.get(other.callable))

    def close(self) -> None:
        """Nothing was taken."""


def kernel_named(name: str, registry: Registry, backend: str) -> Kernel:
    """The kernel with that name or id. Raises ConfigError for none, and for a sweep of several."""
    kernels = registry.kernels(backend)
    found = [kernel for kernel in kernels if kernel.id == name]
    found = found or [kernel for kernel in kernels if kernel.name == name]
    if len(found) == 1:
        return found[0]
    those = ", ".join(kernel.id for kernel in found or kernels) or "none"
    what = f"{name} is {len(found)} kernels" if found else f"there is no kernel {name}"
    raise ConfigError(f"--gemm-against=kernel:{name}: {what}: name one of {those}")


class OldKernels:
    """The project's kernels as they were at a revision, found by their names.

    ``folders`` are those of the kernels now, ``root`` is the project's. A ``.cu`` kernel is looked
    for where it is now, then everywhere; one in Python in the module where it is now, then in the
    one that defines a function of that name.
    """

    def __init__(self, export: Export, backend: str, root: Path, folders: Sequence[Path]) -> None:
        self._export = export
        self._backend = backend
        self._root = root
        self._folders = folders
        self._registries: dict[tuple[Path, ...], Registry] = {}

    @property
    def name(self) -> str:
        return str(self._export.revision)

    def find(self, case: Case, function: Function | None) -> Opponent:
        try:
            spec, name = self._python(function) if function else (self._cuda(case.kernel), None)
            old = self._same(spec, case.kernel)
            _check_problem(case, old, f"{old.id} at {self.name}", "new")
        except (SpecError, BackendError) as error:
            # Nobody knows the temporary folder.
            text = str(error).replace(f"{self._export.folder}/", "")
            text = "; ".join([text, *self._absent])
            raise NoOpponent("withheld", f"at {self.name}: {text}") from None
        moved = old.path != case.kernel.path
        notes = (f"at {self.name} it was in {old.path}",) if moved else ()
        # Whatever is said of it names the revision.
        old = replace(old, name=f"{old.name} at {self._export.revision.ref}")
        return Opponent(replace(case, kernel=old), name, notes)

    def close(self) -> None:
        self._export.close()

    def _same(self, spec: KernelSpec, kernel: Kernel) -> Kernel:
        """The kernel of a sweep with the same parameters; the only one, where there is no more."""
        kernels = spec.kernels(self._backend)
        for old in kernels:
            if old.id == kernel.id or len(kernels) == 1:
                return old
        those = ", ".join(old.id for old in kernels) or f"none for {self._backend}"
        raise self._none(f"{kernel.id}: there was {those}")

    def _none(self, name: str) -> NoOpponent:
        return NoOpponent("new", f"at {self.name} there was no kernel {name}")

    def _not_found(self, name: str) -> NoOpponent:
        if not self._absent:
            return self._none(name)
        text = "; ".join([f"at {self.name} no kernel {name} was found", *self._absent])
        return NoOpponent("withheld", text)

    @property
    def _absent(self) -> list[str]:
        """A phrase for each submodule whose files are not here."""
        return [
            f"what the submodule {path} was is not here: get it with 'git submodule update --init "
            f"{path}' or with 'git fetch' in it"
            for path in self._export.absent
        ]

    # .cu files

    def _cuda(self, kernel: Kernel) -> KernelSpec:
        own = (self._root / kernel.path).parent
        places = [f for f in map(self._export.then, (own, *self._folders)) if f is not None]
        if not places:
            raise SpecError(f"{own} lies outside of the repository {self._export.revision.top}")
        near = self._registry(*dict.fromkeys(places))
        if kernel.name in near.specs:
            return near.specs[kernel.name]
        elsewhere = [self._registry(folder) for folder in self._all_folders]
        found = [r.specs[kernel.name] for r in elsewhere if kernel.name in r.specs]
        if len(found) == 1:
            return found[0]
        if found:
            those = ", ".join(spec.path for spec in found)
            raise SpecError(f"several kernels were called {kernel.name}: {those}")
        # It may be what cannot be read.
        for error in sorted(near.errors, key=lambda error: error.path != kernel.path):
            raise error
        raise self._not_found(kernel.name)

    @cached_property
    def _all_folders(self) -> list[Path]:
        files = (*self._all_files("*.cu"), *self._all_files(f"*{SIDECAR_SUFFIX}"))
        return sorted({path.parent for path in files})

    def _all_files(self, pattern: str) -> Iterator[Path]:
        return self._export.folder.rglob(pattern)

    def _registry(self, *folders: Path) -> Registry:
        if folders not in self._registries:
            there = [folder for folder in folders if folder.is_dir()]
            self._registries[folders] = load_registry(there, self._root_then)
        return self._registries[folders]

    @property
    def _root_then(self) -> Path:
        return self._export.then(self._root) or self._export.folder

    # Python kernels

    def _python(self, function: Function) -> tuple[KernelSpec, FunctionName]:
        assert isinstance(function, FunctionType)
        spec = declared(function)
        assert isinstance(spec, KernelSpec)
        file = self._export.then(Path(function.__code__.co_filename))
        if file is None:
            raise BackendError(f"{spec.path} lies outside of the repository")
        modules = [(function.__module__, file)] if file.is_file() else []
        for module, path in (*modules, *self._modules_with(function.__name__)):
            if old := self._function(module, path, spec.name):
                return old
        raise self._not_found(spec.name)

    def _modules_with(self, function: str) -> Iterator[tuple[str, Path]]:
        definition = re.compile(rf"^def {function}\(".encode(), re.MULTILINE)
        for path in sorted(self._all_files("*.py")):
            text = path.read_bytes()
            if b"kernel" in text and definition.search(text):
                yield _dotted_name(path), path

    def _function(
        self, module: str, path: Path, name: str
    ) -> tuple[KernelSpec, FunctionName] | None:
        """A kernel of a module at the revision, by the kernel's name. Raises BackendError."""
        copy, project = self._export.folder, self._export.revision.top
        where = FunctionName(module, str(path), "", "", str(copy), str(project))
        with imports_from(copy, project):
            for value in list(vars(where.module_found()).values()):
                spec = declared(value)
                if not (isinstance(spec, KernelSpec) and spec.name == name):
                    continue
                assert isinstance(value, FunctionType)
                if place := late_import(value, copy):
                    raise BackendError(
                        f"{place}: {name} imports a module of the project when it is called, and "
                        "would get today's: only imports at the top of a file can be of a revision"
                    )
                root = self._root_then
                shown = path.relative_to(root if path.is_relative_to(root) else copy)
                known = FunctionName.of(value)
                return relocate(spec, shown), replace(known, copy=str(copy), project=str(project))
        return None


def _check_problem(
    case: Case, other: Kernel, title: str, outcome: Literal["new", "withheld"]
) -> None:
    """Raise NoOpponent where the other kernel computes something else, or not this problem."""
    kernel, problem = case.kernel, case.problem
    if (other.op, other.dtype) != (kernel.op, kernel.dtype):
        raise NoOpponent(
            "withheld",
            f"{title} computes {other.op} in {other.dtype}, {kernel.id} {kernel.op} in "
            f"{kernel.dtype}",
        )
    # All else that a benchmark's id says: layouts, alpha and beta, batches.
    if (theirs := other.of_kind(problem).label) != problem.label:
        raise NoOpponent("withheld", f"{title} computes {theirs}, {kernel.id} {problem.label}")
    if reason := other.skip_reason(problem):
        raise NoOpponent(outcome, f"{title} does not take {problem.id}: {reason}")


def _dotted_name(path: Path) -> str:
    """What a file is imported as: inside its package, where it has one."""
    names = [path.stem]
    while (path.parent / "__init__.py").is_file():
        path = path.parent
        names.append(path.name)
    return ".".join(reversed(names))
