"""From a CUDA source to machine code, by NVRTC."""

from __future__ import annotations

import hashlib
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pytest_gemm.backends.base import CudaProgram
from pytest_gemm.backends.cuda.headers import HEADERS
from pytest_gemm.cuda_source import find_kernels, line_files
from pytest_gemm.errors import BackendError, CompileError, SpecError
from pytest_gemm.slicing import DevicePart, explain, slice_source

# Subnormals are zero, as on the host back end and in CuPy's own kernels: with them kept, the two
# back ends would disagree on the bits of tiny products.
_FLAGS = ("--std=c++17", "-lineinfo", "-ftz=true")

_ERROR = re.compile(
    r"^(?P<file>.+?)\((?P<line>\d+)\): (?:catastrophic )?error(?: #[\w-]+)?: (?P<text>.*)"
)
_ASSEMBLER = re.compile(r"^ptxas (?:error|fatal)\s*:\s*(?P<text>.*)")
# With nvcc these come with the C library, and published kernels are full of them.
_TYPES = "typedef unsigned int uint; typedef unsigned short ushort; typedef unsigned long ulong;\n"
_NAMES = "__nv_name_map"
"""The file in which NVRTC looks up the entry."""


@dataclass(frozen=True)
class Image:
    """Machine code (or PTX for a GPU newer than NVRTC), and the name of its entry there."""

    code: bytes
    entry: str
    seconds: float


class CompilerApi(Protocol):
    """What is needed of ``api.Api``: NVRTC as CuPy wraps it, and the folders of CUDA's headers."""

    @property
    def nvrtc(self) -> Any: ...

    @property
    def include_folders(self) -> tuple[str, ...]: ...


class Compiler:
    """NVRTC for one compute capability."""

    def __init__(self, api: CompilerApi, major: int, minor: int) -> None:
        self._nvrtc = api.nvrtc
        self._headers = tuple(text.encode() for text in HEADERS.values())
        self._header_names = tuple(name.encode() for name in HEADERS)
        self._include_folders = api.include_folders
        self._error = api.nvrtc.NVRTCError
        try:
            self.version = ".".join(map(str, api.nvrtc.getVersion()))
            known = api.nvrtc.getSupportedArchs()
        except (ImportError, OSError, RuntimeError) as error:
            reason = str(error).partition("\n")[0]
            raise BackendError(
                f"NVRTC cannot be loaded ({reason}): "
                "pip install 'pytest-gemm[cuda13]' (or [cuda12])"
            ) from error
        wanted = 10 * major + minor
        # From Hopper on, "a" adds the instructions of exactly this chip (wgmma, for one).
        suffix = "a" if major >= 9 else ""
        self.makes_machine_code = wanted in known
        newest = max((arch for arch in known if arch <= wanted), default=wanted)
        arch = f"sm_{wanted}{suffix}" if self.makes_machine_code else f"compute_{newest}"
        self.flags = (*_FLAGS, f"--gpu-architecture={arch}")

    @property
    def flags_hash(self) -> str:
        """Eight hexadecimal digits that change with the flags."""
        return hashlib.sha256(" ".join(self.flags).encode()).hexdigest()[:8]

    def compile(self, program: CudaProgram) -> Image:
        """Build the program's entry.

        Raises CompileError: its first line has the user's file and line and the first error, the
        whole log follows.
        """
        folder = Path(program.filename).parent.resolve()
        folders = (str(folder), *self._include_folders)
        part = _device_part(program)
        # Else NVRTC refuses a constexpr function that has no __device__.
        plain = ("-default-device",) if part.has_plain_constexpr else ()
        options = (*self.flags, *plain, *(f"-I{place}" for place in folders))
        nvrtc = self._nvrtc
        handle = nvrtc.createProgram(
            _marked(program, part.text), program.filename, self._headers, self._header_names
        )
        try:
            nvrtc.addNameExpression(handle, program.entry)
            started = time.perf_counter()
            try:
                nvrtc.compileProgram(handle, options)
            except self._error as error:
                log = nvrtc.getProgramLog(handle)
                raise CompileError(f"{first_line(log, program)}\n{log or error}") from error
            code = nvrtc.getCUBIN(handle) if self.makes_machine_code else nvrtc.getPTX(handle)
            entry = nvrtc.getLoweredName(handle, program.entry)
            return Image(code, entry, time.perf_counter() - started)
        finally:
            nvrtc.destroyProgram(handle)


def _device_part(program: CudaProgram) -> DevicePart:
    try:
        return slice_source(program.source, program.filename)
    except SpecError as error:
        raise CompileError(str(error)) from error


def _marked(program: CudaProgram, source: str) -> str:
    # Macros are defined here and not on the command line: there, a short name such as T would
    # break NVRTC's own headers.
    defines = "".join(f"#define {name} {value}\n" for name, value in program.defines)
    shown = program.filename.replace("\\", "\\\\").replace('"', '\\"')
    return f'{_TYPES}{defines}#line 1 "{shown}"\n{source}\n'


def first_line(log: str, program: CudaProgram) -> str:
    """One complete sentence: the first error of NVRTC's log, on the user's line."""
    shown = program.filename
    for line in log.splitlines():
        if error := _ERROR.match(line):
            file, text = error["file"], error["text"].strip()
            if file == _NAMES:
                return f"{shown}: error: entry {program.entry!r}: {text}{_known_entries(program)}"
            place = file if file in line_files(program.source) else _place(file, shown)
            if place:
                host = explain(program.source, shown, text)
                return f"{place}:{error['line']}: error: {text}{host}"
            return f"{shown}: error: {text} (in {file}:{error['line']})"
        if error := _ASSEMBLER.match(line):
            return f"{shown}: error: {error['text'].strip()}"
    return f"{shown}: error: {log.strip().partition(chr(10))[0] or 'NVRTC failed'}"


def _place(file: str, shown: str) -> str:
    """What to call a file of the user's: the kernel's, or one included from its folder."""
    if file == shown:
        return shown
    folder = Path(shown).parent
    try:
        return str(folder / Path(file).relative_to(folder.resolve()))
    except ValueError:
        return ""


def _known_entries(program: CudaProgram) -> str:
    names = ", ".join(function.name for function in find_kernels(program.source))
    return f" (the file has {names})" if names else " (the file has no __global__ function)"
