"""NVRTC by itself, without a driver: the calls that ``backends.cuda.compiler`` makes of CuPy's.

The names and the order of arguments are those of ``cupy.cuda.nvrtc``, so that what is inspected is
compiled as what runs on a GPU. CuPy's own module cannot be imported where there is no driver.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path

from pytest_gemm.errors import BackendError

INSTALL = "pip install 'pytest-gemm[static]'"

_REPORT = (b"--ptxas-options=-v", b"--no-cache")
"""Has the assembler say in the log what a kernel takes. Beside a driver, NVRTC from 12.9 on keeps
what it compiled, for other processes too, and its log says nothing of what it finds again."""

_UNUSABLE = "NVRTC_ERROR_BUILTIN_OPERATION_FAILURE"
"""What it answers, whatever the program is, where files of its own are missing."""

_BUFFER = ctypes.c_char_p


class NVRTCError(RuntimeError):
    """A call that failed; the text is NVRTC's."""


class Nvrtc:
    """The library at ``path``. ``log`` is that of the last program that compiled.

    Raises OSError where it cannot be loaded.
    """

    NVRTCError = NVRTCError

    def __init__(self, path: Path) -> None:
        # NVRTC 13.0 looks for this one on the loader's path alone, and not beside itself.
        for builtins in sorted(path.parent.glob("libnvrtc-builtins.so.*")):
            ctypes.CDLL(str(builtins))
        self._library = ctypes.CDLL(str(path))
        self._library.nvrtcGetErrorString.restype = ctypes.c_char_p
        self.log = ""

    def getVersion(self) -> tuple[int, int]:
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._call("Version", ctypes.byref(major), ctypes.byref(minor))
        return major.value, minor.value

    def getSupportedArchs(self) -> tuple[int, ...]:
        count = ctypes.c_int()
        self._call("GetNumSupportedArchs", ctypes.byref(count))
        numbers = (ctypes.c_int * count.value)()
        self._call("GetSupportedArchs", numbers)
        return tuple(numbers)

    def createProgram(
        self, source: str, name: str, headers: Sequence[bytes], names: Sequence[bytes]
    ) -> int:
        handle = ctypes.c_void_p()
        count = len(headers)
        self._call(
            "CreateProgram",
            ctypes.byref(handle),
            *(_BUFFER(text.encode("utf-8", "surrogateescape")) for text in (source, name)),
            *(ctypes.c_int(count), (_BUFFER * count)(*headers), (_BUFFER * count)(*names)),
        )
        return handle.value or 0

    def addNameExpression(self, handle: int, name: str) -> None:
        self._call("AddNameExpression", ctypes.c_void_p(handle), _BUFFER(name.encode()))

    def compileProgram(self, handle: int, options: Sequence[str]) -> None:
        flags = [option.encode("utf-8", "surrogateescape") for option in options]
        try:
            self._compile(handle, [*flags, *_REPORT])
        except NVRTCError as error:
            if str(error) == _UNUSABLE:
                said = " ".join(self.getProgramLog(handle).split())
                raise BackendError(f"NVRTC cannot be used ({said}): {INSTALL}") from None
            # The report takes the place of what the assembler says is wrong.
            self._compile(handle, flags)
            raise
        self.log = self.getProgramLog(handle)

    def getProgramLog(self, handle: int) -> str:
        text = self._bytes("ProgramLog", handle).rstrip(b"\0")
        return text.decode("utf-8", "replace")

    def getCUBIN(self, handle: int) -> bytes:
        return self._bytes("CUBIN", handle)

    def getPTX(self, handle: int) -> bytes:
        return self._bytes("PTX", handle)

    def getLoweredName(self, handle: int, name: str) -> str:
        found = _BUFFER()
        arguments = ctypes.c_void_p(handle), _BUFFER(name.encode()), ctypes.byref(found)
        self._call("GetLoweredName", *arguments)
        return (found.value or b"").decode()

    def destroyProgram(self, handle: int) -> None:
        self._call("DestroyProgram", ctypes.byref(ctypes.c_void_p(handle)))

    def _compile(self, handle: int, flags: Sequence[bytes]) -> None:
        array = (_BUFFER * len(flags))(*flags)
        self._call("CompileProgram", ctypes.c_void_p(handle), ctypes.c_int(len(flags)), array)

    def _bytes(self, what: str, handle: int) -> bytes:
        program, size = ctypes.c_void_p(handle), ctypes.c_size_t()
        self._call(f"Get{what}Size", program, ctypes.byref(size))
        content = ctypes.create_string_buffer(size.value)
        self._call(f"Get{what}", program, content)
        return content.raw

    def _call(self, name: str, *arguments: object) -> None:
        status = getattr(self._library, f"nvrtc{name}")(*arguments)
        if status:
            raise NVRTCError(self._library.nvrtcGetErrorString(status).decode())
