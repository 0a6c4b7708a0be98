"""Finds the kernels of a project: ``.cu`` files, sidecars and decorated functions."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FunctionType, ModuleType

from pytest_gemm import cuda_source
from pytest_gemm.binding import bind_by_name
from pytest_gemm.declaration import read_kernel, with_reference
from pytest_gemm.errors import ConfigError, SpecError, raised
from pytest_gemm.frontmatter import Table, read_front_matter, read_sidecar
from pytest_gemm.includes import expand, is_file, read_text
from pytest_gemm.kernelspec import Kernel, KernelSpec
from pytest_gemm.python_kernel import declared, relocate
from pytest_gemm.schema import SIDECAR_KEYS, Reader

SIDECAR_SUFFIX = ".gemm.toml"


@dataclass(frozen=True)
class Registry:
    """Kernels by name, in the order of their files and lines.

    ``errors`` are the declarations that cannot be used; ``functions`` are the Python kernels'
    callables by ``Kernel.callable``.
    """

    specs: Mapping[str, KernelSpec] = field(default_factory=dict)
    errors: tuple[SpecError, ...] = ()
    functions: Mapping[str, Callable[..., object]] = field(default_factory=dict)

    def kernels(self, backend: str) -> tuple[Kernel, ...]:
        """Every kernel for a back end, sweeps included."""
        return tuple(kernel for spec in self.specs.values() for kernel in spec.kernels(backend))


def load_registry(
    folders: Sequence[Path],
    root: Path,
    modules: Iterable[ModuleType] = (),
    files: Sequence[Path] = (),
) -> Registry:
    """Read all kernels of the folders, modules and single files (``.cu`` or sidecar).

    Paths in the result are relative to ``root`` where they lie under it. A declaration that is
    wrong becomes one of ``errors`` and spoils no other. Raises ConfigError for a folder that
    does not exist.
    """
    loader = _Loader(root)
    for folder in folders:
        if not folder.is_dir():
            raise ConfigError(
                f"the kernel folder {folder} does not exist: create it or name another"
            )
        loader.load_folder(folder)
    for path in files:
        loader.load_file(path)
    for module in modules:
        loader.load_module(module)
    return loader.finish(whole=bool(folders))


def import_module(name: str) -> ModuleType:
    """A module of the ini key gemm_modules. Raises ConfigError, whatever is wrong with it."""
    try:
        return importlib.import_module(name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # also SystemExit, and what pytest.skip raises
        why = str(error) if isinstance(error, ImportError) else raised(error)
        raise ConfigError(f"gemm_modules: {name} cannot be imported: {why}") from error


class _Loader:
    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.specs: list[KernelSpec] = []
        self.errors: list[SpecError] = []
        self.functions: dict[str, FunctionType] = {}
        self.seen: set[tuple[Path, int]] = set()  # a file, or the line of a sidecar's table

    def load_folder(self, folder: Path) -> None:
        claimed: set[Path] = set()
        for sidecar in sorted(folder.glob("*" + SIDECAR_SUFFIX)):
            claimed |= self._load_sidecar(sidecar, self.errors)
        for path in sorted(folder.glob("*.cu")):
            self._load_cu(path, must_declare=False, claimed=path.resolve() in claimed)

    def load_file(self, path: Path) -> None:
        if path.name.endswith(SIDECAR_SUFFIX):
            self._load_sidecar(path, self.errors)
            return
        broken: list[SpecError] = []
        claimed: set[Path] = set()
        for sidecar in sorted(path.parent.glob("*" + SIDECAR_SUFFIX)):
            claimed |= self._load_sidecar(sidecar, broken, only=path)
        self._load_cu(path, must_declare=True, claimed=path.resolve() in claimed, broken=broken)

    def load_module(self, module: ModuleType) -> None:
        for value in list(vars(module).values()):
            declaration = declared(value)
            if isinstance(declaration, SpecError):
                display = self._display(Path(declaration.path))
                error = SpecError(declaration.message, path=display, line=declaration.line)
                self.errors.append(error)
            elif declaration is not None and isinstance(value, FunctionType):
                self._load_function(value, declaration)

    def _load_function(self, function: FunctionType, declaration: KernelSpec) -> None:
        spec = relocate(declaration, self._display(Path(declaration.path)))
        known = self.functions.setdefault(spec.callable, function)
        if known is not function:
            self._error(
                f"{spec.name} and another kernel are both {spec.callable}: give each function "
                "a name of its own",
                spec,
            )
        elif all(other.callable != spec.callable for other in self.specs):
            try:
                self.specs.append(with_reference(spec, Path(declaration.path).parent))
            except SpecError as error:
                self.errors.append(error)

    def finish(self, *, whole: bool) -> Registry:
        by_name: dict[str, KernelSpec] = {}
        for spec in sorted(self.specs, key=lambda spec: (spec.path, spec.line)):
            first = by_name.setdefault(spec.name, spec)
            if first is not spec:
                self._error(
                    f"the kernel {spec.name} is declared in {first.path}:{first.line} already: "
                    "give one of them another name",
                    spec,
                )
        if whole:
            for spec in by_name.values():
                self._check_ancestors(spec, by_name)
        # A mistake in a file that several kernels include is one.
        errors = {str(error): error for error in self.errors}.values()
        ordered = sorted(errors, key=lambda error: (error.path, error.line))
        return Registry(by_name, tuple(ordered), self.functions)

    def _check_ancestors(self, spec: KernelSpec, by_name: Mapping[str, KernelSpec]) -> None:
        line = dict(spec.lines).get("derived_from", spec.line)
        here = replace(spec, line=line)
        if not spec.derived_from:
            return
        if spec.derived_from not in by_name:
            known = ", ".join(name for name in by_name if name != spec.name) or "none"
            self._error(
                f"derived_from names {spec.derived_from!r}, which is no kernel: there are {known}",
                here,
            )
            return
        chain = [spec.name]
        ancestor: KernelSpec | None = spec
        while ancestor is not None and ancestor.derived_from:
            chain.append(ancestor.derived_from)
            if ancestor.derived_from == spec.name:
                self._error(f"derived_from runs in a circle: {' from '.join(chain)}", here)
                return
            if len(chain) > len(by_name) + 1:  # a circle that this kernel only leads into
                return
            ancestor = by_name.get(ancestor.derived_from)

    def _load_cu(
        self, path: Path, *, must_declare: bool, claimed: bool, broken: Sequence[SpecError] = ()
    ) -> None:
        """Load a source; ``broken`` are errors of sidecars that may have declared it."""
        display = self._display(path)
        if not self._is_new(path):
            return
        try:
            source = read_text(path, display)
            tables = read_front_matter(source, display)
            if not tables and not claimed and broken:
                self.errors.extend(broken)
            elif not tables and not claimed:
                _reject_undeclared(source, display, must_declare=must_declare)
            if tables:
                source = expand(source, path, display)
        except SpecError as error:
            self.errors.append(error)
            return
        for table in tables:
            default_name = path.stem if len(tables) == 1 else ""
            try:
                if not default_name and "name" not in table.data and "entry" not in table.data:
                    raise SpecError(
                        f"{display} has several blocks: give each its entry or name",
                        path=display,
                        line=table.line,
                    )
                spec = read_kernel(
                    table,
                    path=display,
                    source=source,
                    filename=display,
                    default_name=default_name,
                )
                self.specs.append(with_reference(spec, path.parent))
            except SpecError as error:
                self.errors.append(error)

    def _load_sidecar(
        self, sidecar: Path, errors: list[SpecError], only: Path | None = None
    ) -> set[Path]:
        """Load the tables (for one source, if given); returns the sources that they name.

        A file that cannot be read at all goes to ``errors``.
        """
        display = self._display(sidecar)
        claimed: set[Path] = set()
        try:
            tables = read_sidecar(read_text(sidecar, display), display)
        except SpecError as error:
            if self._is_new(sidecar):
                errors.append(error)
            return claimed
        sources = [self._sidecar_source(sidecar, table) for table in tables]
        for table, path in zip(tables, sources, strict=True):
            if path is not None:
                claimed.add(path.resolve())
            if only is not None and (path is None or path.resolve() != only.resolve()):
                continue
            if not self._is_new(sidecar, table.line):
                continue
            same_source = sum(path == other for other in sources)
            try:
                self._load_table(table, sidecar, path, single=same_source == 1)
            except SpecError as error:
                self.errors.append(error)
        return claimed

    def _load_table(self, table: Table, sidecar: Path, path: Path | None, *, single: bool) -> None:
        display = self._display(sidecar)
        reader = Reader(table.data, table.line_of, display)
        reader.reject_unknown(SIDECAR_KEYS)
        reader.text("source")
        if path is None:
            reader.fail("source is missing: name the .cu file, relative to this file")
        if not is_file(path):
            reader.fail(f"source {self._display(path)} does not exist", "source")
        if not single and "name" not in table.data and "entry" not in table.data:
            reader.fail(f"several tables name {path.name}: give each its entry or name")
        shown = self._display(path)
        spec = read_kernel(
            table,
            path=display,
            source=expand(read_text(path, shown), path, shown),
            filename=shown,
            default_name=path.stem if single else "",
            keys=SIDECAR_KEYS,
        )
        self.specs.append(with_reference(spec, sidecar.parent))

    def _sidecar_source(self, sidecar: Path, table: Table) -> Path | None:
        source = table.data.get("source")
        is_path = isinstance(source, str) and source.strip() and source.isprintable()
        return sidecar.parent / str(source) if is_path else None

    def _is_new(self, path: Path, line: int = 0) -> bool:
        key = (path.resolve(), line)
        if key in self.seen:
            return False
        self.seen.add(key)
        return True

    def _display(self, path: Path) -> str:
        try:
            return path.resolve().relative_to(self.root).as_posix()
        except ValueError:
            return path.as_posix()

    def _error(self, message: str, spec: KernelSpec) -> None:
        self.errors.append(SpecError(message, path=spec.path, line=spec.line))


def _reject_undeclared(source: str, path: str, *, must_declare: bool) -> None:
    """Raise SpecError for a kernel that lacks its front matter; other sources may lie about."""
    functions = cuda_source.find_kernels(source)
    advice = (
        "add a block before it with '// /// gemm', '// block = [16, 16]', "
        "'// grid = [\"cdiv(N, 16)\", \"cdiv(M, 16)\"]' and '// ///'"
    )
    if len(functions) == 1:
        try:
            bind_by_name(functions[0], "gemm", path)
        except SpecError:
            pass
        else:
            raise SpecError(
                f"the kernel {functions[0].name} has no front matter: {advice}",
                path=functions[0].file or path,
                line=functions[0].line,
            )
    if must_declare:
        raise SpecError(f"has no front matter: {advice}", path=path, line=1)
