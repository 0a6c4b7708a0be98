"""The host back end: CUDA kernels and Python callables on this machine's CPU."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from pytest_gemm.backends.base import (
    Argument,
    Backend,
    Buffer,
    Bytes,
    CudaProgram,
    Device,
    Executable,
    LaunchConfig,
    Program,
    PythonProgram,
)
from pytest_gemm.backends.host.build import Builder, Library, cache_folder, runtime_hash
from pytest_gemm.backends.host.check import ASCENDING, CheckReport, ThreadOrder
from pytest_gemm.backends.host.check_runtime import check_launch
from pytest_gemm.backends.host.compiler import Compiler, find_compiler
from pytest_gemm.backends.host.debug_lines import DebugLines
from pytest_gemm.backends.host.launch import LoadedKernel, Runtime, check_config, load_runtime
from pytest_gemm.backends.host.machine import (
    core_count,
    cpu_model,
    device_name,
    instruction_set,
    memory,
)
from pytest_gemm.backends.host.memory import HostBuffer, find_buffer
from pytest_gemm.backends.host.python_program import PythonExecutable
from pytest_gemm.errors import BackendError


class CudaExecutable:
    """A kernel built from a ``.cu`` file."""

    def __init__(self, program: CudaProgram, library: Library, kernel: LoadedKernel) -> None:
        self.kernel = kernel
        self.name = f"{program.entry} in {program.filename}"
        self.facts: Mapping[str, Any] = {
            "build_seconds": library.seconds,
            "cached": library.seconds == 0.0,
        }


class HostBackend(Backend):
    """Runs kernels on the calling thread; its CPU time is the time of a launch.

    ``cache_dir`` keeps compiled kernels (see ``build.cache_folder`` for the default);
    ``compiler`` is a command such as ``clang++-19`` (see ``compiler.find_compiler``);
    ``progress`` is told when set-up that is done once starts. Nothing is compiled until
    it is needed.
    """

    kind: ClassVar[str] = "host"

    def __init__(
        self,
        cache_dir: Path | None = None,
        compiler: str | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> None:
        self._cache_dir = cache_dir
        self._wanted_compiler = compiler
        self._progress = progress
        self._buffers: dict[int, HostBuffer] = {}
        self._lost = ""
        self._checked: dict[CudaProgram, tuple[LoadedKernel, DebugLines]] = {}

    @property
    def device(self) -> Device:
        """This machine's CPU. Raises BackendError where no C++ compiler works."""
        level = instruction_set()
        cores = core_count()
        fused = "" if level != "x86-64" else ", no fused multiply-add: bits differ from a GPU's"
        return Device(
            kind="host",
            name=device_name(),
            description=f"{cpu_model()} ({level}), {cores} core{'s' * (cores != 1)}{fused}",
            environment={
                "compiler": self._compiler.name,
                "compiler_version": self._compiler.version,
                "flags": self._compiler.flags_hash,
                "runtime": runtime_hash(),
                "os": f"{platform.system()} {platform.release()}",
                "python": platform.python_version(),
                "cpu": cpu_model(),
                "cores": cores,
            },
            memory=memory(),
        )

    @cached_property
    def _compiler(self) -> Compiler:
        return find_compiler(self._wanted_compiler)

    @cached_property
    def _builder(self) -> Builder:
        return Builder(self._compiler, cache_folder(self._cache_dir), self._progress)

    @cached_property
    def _runtime_library(self) -> Library:
        return self._builder.runtime()

    @cached_property
    def _runtime(self) -> Runtime:
        return load_runtime(self._runtime_library.path)

    @property
    def lost(self) -> str:
        """Why another process should go on: what kernels keep of memory ends with theirs."""
        return self._lost

    def compile(self, program: Program) -> Executable:
        """Build a program, or take it from the cache. Raises CompileError, BackendError."""
        if isinstance(program, PythonProgram):
            return PythonExecutable(program)
        runtime = self._runtime  # loaded first: the kernel's library links to it
        assert runtime
        library = self._builder.kernel(program, self._runtime_library)
        try:
            return CudaExecutable(program, library, LoadedKernel(library.path))
        except OSError as error:
            raise BackendError(f"a compiled kernel cannot be loaded: {error}") from error

    def allocate(self, nbytes: int) -> HostBuffer:
        """Reserve memory between guard pages. Raises BackendError."""
        try:
            buffer = HostBuffer(nbytes)
        except BackendError as error:
            self._lost = str(error)
            raise
        self._buffers[id(buffer)] = buffer
        return buffer

    def free(self, buffer: Buffer) -> None:
        """Give a buffer back; every array that views it becomes invalid."""
        own = self._own(buffer)
        del self._buffers[id(own)]
        own.release()

    def upload(self, buffer: Buffer, data: Bytes) -> None:
        """Copy ``data`` into the buffer. Raises BackendError where the sizes differ."""
        if data.nbytes != buffer.nbytes:
            raise BackendError(f"{data.nbytes} bytes do not fill a buffer of {buffer.nbytes}")
        self._own(buffer).bytes[:] = data

    def download(self, buffer: Buffer) -> Bytes:
        """Return a copy of the buffer's bytes."""
        return self._own(buffer).bytes.copy()

    def time(
        self,
        executable: Executable,
        config: LaunchConfig,
        arguments: Sequence[Argument],
        *,
        launches: int = 1,
        cold: bool = False,
        timeout: float = 60.0,
    ) -> float:
        """The CPU seconds of ``launches`` launches: of this thread, or of the process for Python.

        ``timeout`` holds for a CUDA kernel only. Raises KernelFault, CompileError, and
        BackendError for a launch over CUDA's limits and for a cold one.
        """
        if cold:
            raise BackendError("a CPU's caches cannot be emptied before a launch: time hot ones")
        if isinstance(executable, PythonExecutable):
            return executable.time(arguments, launches)
        assert isinstance(executable, CudaExecutable)
        check_config(config)
        values = executable.kernel.pack(arguments, executable.name)
        return self._runtime.launch(
            executable.kernel, config, values, launches, timeout, self._describe(arguments)
        )

    def check(
        self,
        program: CudaProgram,
        config: LaunchConfig,
        arguments: Sequence[Argument],
        *,
        order: ThreadOrder = ASCENDING,
        timeout: float = 60.0,
        names: Mapping[int, str] | None = None,
    ) -> CheckReport:
        """Launch a CUDA program once with every access watched, and report what it did wrong.

        The program is built a second time for that, or taken from the cache. ``order`` is that
        in which threads and blocks run; ``names`` calls arguments, by their number from 1, what
        the author calls them. Matrices may be accessed within their rows and columns only. A
        fault ends the launch and is reported like the rest: see ``CheckReport``. Raises
        CompileError, and BackendError for a launch over CUDA's limits.
        """
        check_config(config)
        kernel, lines = self._checked_kernel(program)
        return check_launch(
            self._runtime,
            kernel,
            lines,
            config,
            arguments,
            f"{program.entry} in {program.filename}",
            order=order,
            timeout=timeout,
            names=names or {},
            describe_address=self._describe(arguments),
        )

    def _checked_kernel(self, program: CudaProgram) -> tuple[LoadedKernel, DebugLines]:
        if program not in self._checked:
            runtime = self._runtime  # loaded first: the kernel's library links to it
            assert runtime
            path = self._builder.kernel(program, self._runtime_library, check=True).path
            self._checked[program] = LoadedKernel(path), DebugLines(path)
        return self._checked[program]

    def conditions(self) -> Mapping[str, Any]:
        """The load of the machine: processes that want to run, over the last minute."""
        return {"load": os.getloadavg()[0]}

    def _own(self, buffer: Buffer) -> HostBuffer:
        if self._buffers.get(id(buffer)) is not buffer:
            raise BackendError("a buffer was used after it was freed, or is not this back end's")
        assert isinstance(buffer, HostBuffer)
        return buffer

    def _describe(self, arguments: Sequence[Argument]) -> Callable[[int], str]:
        def describe(address: int) -> str:
            if address < 4096:
                return "a null pointer"
            buffer = find_buffer(iter(self._buffers.values()), address)
            if buffer is None:
                return f"address {address:#x} is not near any buffer"
            numbers = [
                str(i)
                for i, argument in enumerate(arguments, start=1)
                if getattr(argument, "buffer", None) is buffer
            ]
            role = f"argument {' and '.join(numbers)}" if numbers else "a buffer of no argument"
            return f"{buffer.describe(address)} ({role}, {buffer.nbytes} bytes)"

        return describe
