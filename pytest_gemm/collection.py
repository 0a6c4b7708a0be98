"""From kernel files to cases. Compiles nothing, touches no device, imports no NumPy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import ModuleType

from pytest_gemm.backends.choice import choose_backend
from pytest_gemm.case import Case, Settings
from pytest_gemm.errors import SpecError
from pytest_gemm.kernelspec import Kernel
from pytest_gemm.options import Options
from pytest_gemm.registry import Registry, load_registry
from pytest_gemm.static.problems import unlike_problems

DEFAULT_SIZES = {
    "host": ("256x256x256", "192x320x96", "131x67x203"),
    "cuda": ("1024x1024x1024", "1536x1024x512", "509x427x333"),
}
"""A square that everyone knows, M != N != K, and residues against every usual tile."""


@dataclass(frozen=True)
class Collection:
    """The cases of some kernels, by id."""

    registry: Registry
    cases: dict[str, Case]


class Collector:
    """Reads kernels once per run: the project's, or those of a file named on its own.

    Raises ConfigError where the wanted device cannot be used.
    """

    def __init__(self, options: Options, modules: Sequence[ModuleType] = ()) -> None:
        self.options = options
        self.backend = choose_backend(options.device).kind
        self.modules = modules
        self._files: dict[Path, Collection] = {}

    @cached_property
    def project(self) -> Collection:
        """The kernels of the project's folders and modules. Raises ConfigError."""
        options = self.options
        registry = load_registry(options.kernels, options.root, self.modules)
        return self._collection(registry)

    def file(self, path: Path) -> Collection:
        """The kernels of one file. Raises ConfigError."""
        if path not in self._files:
            registry = load_registry((), self.options.root, files=(path,))
            self._files[path] = self._collection(registry)
        return self._files[path]

    def _collection(self, registry: Registry) -> Collection:
        cases: list[Case] = []
        errors: list[SpecError] = []
        for backend, make in ((self.backend, self._cases), ("cuda", self._inspections)):
            for kernel in registry.kernels(backend):
                try:
                    cases += make(kernel)
                except SpecError as error:  # of a leading dimension, which only a size shows
                    errors.append(error)
        registry = replace(registry, errors=(*registry.errors, *errors))
        return Collection(registry, {case.id: case for case in cases})

    def _cases(self, kernel: Kernel) -> Iterable[Case]:
        options = self.options
        settings = Settings(
            seed=options.seed,
            timed=options.bench,
            cold=options.cold,
            time_cap=options.time_cap,
            launch_timeout=options.launch_timeout,
            check=options.check,
        )
        sizes = options.sizes or kernel.sizes(self.backend) or DEFAULT_SIZES[self.backend]
        for size in sizes:
            yield Case(kernel, kernel.problem(size), settings)

    def _inspections(self, kernel: Kernel) -> Iterable[Case]:
        """What a GPU would run, whatever this run does: its machine code, without a problem."""
        if kernel.is_python or self.options.check != "full":
            return
        for architecture in self.options.architectures:
            settings = Settings(check="full", architecture=architecture)
            yield Case(kernel, unlike_problems(kernel)[0], settings)
