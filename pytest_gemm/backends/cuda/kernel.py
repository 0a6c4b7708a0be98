"""A compiled kernel on the device: loaded, measured up, and launched."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from pytest_gemm.backends.base import Argument, CudaProgram, Dim3, LaunchConfig
from pytest_gemm.backends.cuda.api import Api
from pytest_gemm.backends.cuda.compiler import Image
from pytest_gemm.backends.cuda.parameters import Signature, declared_parameters
from pytest_gemm.backends.cuda.queue import Queue
from pytest_gemm.errors import BackendError, KernelFault


@dataclass(frozen=True)
class Limits:
    """What one launch may ask for; shared memory in bytes of a block."""

    max_grid: Dim3
    max_block: Dim3
    max_threads: int
    threads_per_sm: int
    shared: int
    shared_optin: int

    @classmethod
    def of(cls, api: Api, device: int) -> Limits:
        """Ask the device."""

        def attribute(name: str) -> int:
            number = getattr(api.runtime, f"cudaDevAttr{name}")
            return int(api.runtime.deviceGetAttribute(number, device))

        x, y, z = (attribute(f"MaxGridDim{axis}") for axis in "XYZ")
        bx, by, bz = (attribute(f"MaxBlockDim{axis}") for axis in "XYZ")
        return cls(
            max_grid=(x, y, z),
            max_block=(bx, by, bz),
            max_threads=attribute("MaxThreadsPerBlock"),
            threads_per_sm=attribute("MaxThreadsPerMultiProcessor"),
            shared=attribute("MaxSharedMemoryPerBlock"),
            shared_optin=attribute("MaxSharedMemoryPerBlockOptin"),
        )

    def check(self, config: LaunchConfig) -> None:
        """Raise BackendError, with the numbers, for a launch that this GPU cannot do."""
        for what, size, limit in (
            ("grid", config.grid, self.max_grid),
            ("block", config.block, self.max_block),
        ):
            if min(size) < 1:
                raise BackendError(f"the {what} {size} has an entry below 1")
            if any(n > most for n, most in zip(size, limit, strict=True)):
                raise BackendError(f"the {what} {size} exceeds this GPU's limit of {limit}")
        if (threads := prod(config.block)) > self.max_threads:
            raise BackendError(
                f"the block {config.block} has {threads} threads, more than {self.max_threads}"
            )


class CudaExecutable:
    """A kernel built from a ``.cu`` file.

    ``facts``: seconds of compiling and loading; registers, local (spilled) and constant bytes of
    a thread; static shared bytes; the most threads a block can have; after a launch also how many
    such blocks fit on a multiprocessor, and the fraction of its threads that they fill.
    """

    def __init__(
        self, api: Api, queue: Queue, limits: Limits, program: CudaProgram, image: Image
    ) -> None:
        self.name = f"{program.entry} in {program.filename}"
        self._driver = driver = api.driver
        self._queue = queue
        self._limits = limits
        with queue.guarded():
            started = time.perf_counter()
            # Never unloaded: a kernel that still runs after a time-out would block that.
            module = driver.moduleLoadData(image.code)
            self._function: int = driver.moduleGetFunction(module, image.entry)
            loaded = time.perf_counter() - started

            def attribute(name: str) -> int:
                number = getattr(driver, f"CU_FUNC_ATTRIBUTE_{name}")
                return int(driver.funcGetAttribute(number, self._function))

            self._facts: dict[str, Any] = {
                "compile_seconds": image.seconds,
                "load_seconds": loaded,
                "registers": attribute("NUM_REGS"),
                "local_bytes": attribute("LOCAL_SIZE_BYTES"),
                "static_shared_bytes": attribute("SHARED_SIZE_BYTES"),
                "max_threads": attribute("MAX_THREADS_PER_BLOCK"),
            }
        self._dynamic_allowed = max(0, limits.shared - self._facts["static_shared_bytes"])
        self._signature = Signature(
            self.name, declared_parameters(program), api.libcuda.parameter_sizes(self._function)
        )

    @property
    def facts(self) -> Mapping[str, Any]:
        """See the class."""
        return self._facts

    def prepare(self, config: LaunchConfig, arguments: Sequence[Argument]) -> Callable[[], None]:
        """A callable that queues one launch.

        Raises CompileError for arguments that do not fit, BackendError for a launch that this GPU
        cannot do, KernelFault for one that it cannot do with this kernel.
        """
        values = self._signature.pack(arguments)
        self._limits.check(config)
        self._check_resources(config)
        with self._queue.guarded():
            self._allow_shared(config.shared_mem)
            self._note_occupancy(config)
        pointers = (ctypes.c_void_p * max(len(values), 1))()
        for index, value in enumerate(values):
            pointers[index] = ctypes.addressof(value)
        launch_kernel, function, stream = (
            self._driver.launchKernel,
            self._function,
            self._queue.stream,
        )
        size = (*config.grid, *config.block, config.shared_mem)

        # ``values`` is a default so that it lives as long as the pointers to it.
        def launch(
            address: int = ctypes.addressof(pointers), keep: Any = (pointers, values)
        ) -> None:
            launch_kernel(function, *size, stream, address, 0)

        return launch

    def _check_resources(self, config: LaunchConfig) -> None:
        threads, most = prod(config.block), self._facts["max_threads"]
        if threads > most:
            raise KernelFault(
                "cuda",
                f"a block of {threads} threads is too large for {self.name}: with its "
                f"{self._facts['registers']} registers per thread, or by __launch_bounds__, it "
                f"can have {most}",
            )
        static = self._facts["static_shared_bytes"]
        if static + config.shared_mem > self._limits.shared_optin:
            raise KernelFault(
                "cuda",
                f"{config.shared_mem} bytes of dynamic and {static} of static shared memory "
                f"exceed this GPU's {self._limits.shared_optin} per block",
            )

    def _allow_shared(self, nbytes: int) -> None:
        if nbytes > self._dynamic_allowed:
            attribute = self._driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            self._driver.funcSetAttribute(self._function, attribute, nbytes)
            self._dynamic_allowed = nbytes

    def _note_occupancy(self, config: LaunchConfig) -> None:
        threads = prod(config.block)
        blocks = self._driver.occupancyMaxActiveBlocksPerMultiprocessor(
            self._function, threads, config.shared_mem
        )
        self._facts["blocks_per_sm"] = blocks
        self._facts["occupancy"] = blocks * threads / self._limits.threads_per_sm
