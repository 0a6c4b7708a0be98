"""From a rewritten source to a shared library, by way of a cache of earlier builds.

A build's name is a hash of everything that it depends on: the rewritten sources with all local
includes, the entry, macros, compiler, flags and the runtime. A file is complete or absent, and
carries its own checksum: several processes may build the same kernel, and a damaged file is
built again.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from pytest_gemm.backends.base import CudaProgram
from pytest_gemm.backends.host.compiler import Compiler
from pytest_gemm.backends.host.red_zones import with_red_zones
from pytest_gemm.backends.host.rewrite import SourceFile, rewrite
from pytest_gemm.cuda_source import line_files
from pytest_gemm.errors import BackendError, CompileError
from pytest_gemm.scratch import scratch, sweep
from pytest_gemm.slicing import explain

CPP = Path(__file__).parent / "cpp"
_INCLUDE = (f"-I{CPP / 'include' / 'system'}", f"-I{CPP / 'include'}")
_ENTRY_FILE = "<entry>"
_DIGEST = hashlib.sha256
_MARK = b"pytest-gemm\n"
_NEW = "build-"

_ERROR = re.compile(r"(?P<file>[^\n:]+):(?P<line>\d+)(?::\d+)?: (?:fatal )?error: (?P<text>.*)")
_POSITION = re.compile(r"(?:.*from )?(?P<file>[^\n:]+):(?P<line>\d+)[:,]")
_INCLUDED = re.compile(r"In file included from|\s+from ")
_UNDEFINED = re.compile(r"undefined (?:reference to|symbol:?) .*")


@dataclass(frozen=True)
class Library:
    """A shared library on disk; ``seconds`` is what building it took, 0 where it was cached."""

    path: Path
    seconds: float


@cache
def runtime_hash() -> str:
    """Changes with any file of the C++ part."""
    digest = _DIGEST()
    for path in sorted(CPP.rglob("*")):
        if path.is_file():
            digest.update(path.relative_to(CPP).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


class Builder:
    """Builds with one compiler into one cache folder.

    ``progress`` is told when the one-time build of the runtime starts.
    """

    def __init__(
        self, compiler: Compiler, folder: Path, progress: Callable[[str], None] | None = None
    ) -> None:
        self.compiler = compiler
        self.folder = folder
        self._progress = progress or (lambda _: None)

    def runtime(self) -> Library:
        """The library that every kernel links to. Raises BackendError."""
        name = f"libpytest_gemm_host-{self._key(())}.so"
        with self._lock():
            sweep(self.folder, _NEW)
            if library := self._cached(name):
                return library
            self._progress(f"building the CPU back end with {self.compiler.name} (once)")
            sources = sorted(str(path) for path in (CPP / "runtime").glob("*.cpp"))
            started = time.perf_counter()
            with scratch() as folder:
                local = []
                for source in sources:
                    text = Path(source).read_text(encoding="utf-8")
                    local.append(Path(source).name)
                    (folder / local[-1]).write_text(text, encoding="utf-8")
                include = (*_INCLUDE, f"-I{CPP / 'runtime'}", f"-Wl,-soname,{name}")
                done = self.compiler.build(folder, local, name, include)
                if done.returncode != 0:
                    compiler = self.compiler.name
                    raise BackendError(f"{compiler} cannot build the runtime:\n{done.stdout}")
                return self._keep(folder / name, time.perf_counter() - started)

    def kernel(self, program: CudaProgram, runtime: Library, *, check: bool = False) -> Library:
        """Build the kernel of a program; ``check``: so that every access is watched.

        Raises CompileError, whose first line has the user's file, line and the first error; the
        compiler's whole log follows.
        """
        files = rewrite(program.source, program.filename)
        if check:
            files = tuple(replace(file, text=with_red_zones(file.text)) for file in files)
        compiler = self.compiler.for_checking if check else self.compiler
        main = _with_entry(files[0], program)
        texts = [main, *(text for file in files[1:] for text in (file.name, _marked(file)))]
        name = f"{self._key([runtime.path.name, *texts], compiler)}.so"
        if library := self._cached(name):
            return library
        started = time.perf_counter()
        with scratch() as folder:
            (folder / files[0].name).write_text(main, encoding="utf-8")
            for file in files[1:]:
                (folder / file.name).write_text(_marked(file), encoding="utf-8")
            beside = Path(program.filename).parent.resolve()
            options = (*_INCLUDE, f"-iquote{beside}", str(runtime.path))
            done = compiler.build(folder, [files[0].name], name, options)
            if check and done.returncode != 0:
                # Where a source does with a float4 what only a plain struct can: its copies are
                # then not seen as a whole.
                plain = (*options, "-DPYTEST_GEMM_PLAIN_VECTORS")
                done = compiler.build(folder, [files[0].name], name, plain)
            if done.returncode != 0:
                shown = {file.shown for file in files} | line_files(program.source)
                raise CompileError(_first_line(done.stdout, program, shown) + "\n" + done.stdout)
            return self._keep(folder / name, time.perf_counter() - started)

    def _key(self, parts: Iterable[str], compiler: Compiler | None = None) -> str:
        digest = _DIGEST()
        # Where the headers lie is built in: what a fault is told by are the files of its frames.
        for part in (runtime_hash(), str(CPP), (compiler or self.compiler).identity, *parts):
            digest.update(part.encode("utf-8", "surrogatepass") + b"\0")
        return digest.hexdigest()[:32]

    def _cached(self, name: str) -> Library | None:
        path = self.folder / name
        return Library(path, 0.0) if _is_intact(path) else None

    def _keep(self, built: Path, seconds: float) -> Library:
        content = built.read_bytes()
        # Moving is atomic on the cache's own file system alone.
        with tempfile.TemporaryDirectory(prefix=_NEW, dir=self.folder) as place:
            new = Path(place) / built.name
            new.write_bytes(content + _MARK + _DIGEST(content).digest())
            return Library(new.replace(self.folder / built.name), seconds)

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        """Let one process build the runtime while the others wait for it."""
        with (self.folder / "runtime.lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def cache_folder(wanted: Path | None) -> Path:
    """The folder of compiled kernels, made where it does not exist.

    ``wanted``, else ``$PYTEST_GEMM_CACHE``: no other is tried then. Otherwise
    ``$XDG_CACHE_HOME/pytest-gemm``, ``~/.cache/pytest-gemm``, or one of this user's under the
    system's temporary folder. Raises BackendError.
    """
    if wanted is None and (named := os.environ.get("PYTEST_GEMM_CACHE")):
        wanted = Path(named)
    if wanted is not None:
        if not _is_usable(wanted):
            raise BackendError(
                f"the cache folder {wanted} cannot be written: set PYTEST_GEMM_CACHE to another"
            )
        return wanted.absolute()
    places = []
    if base := os.environ.get("XDG_CACHE_HOME"):
        places.append(Path(base))
    with contextlib.suppress(RuntimeError):
        places.append(Path.home() / ".cache")
    for place in places:
        if place.is_absolute() and _is_usable(place / "pytest-gemm"):
            return place / "pytest-gemm"
    folder = Path(tempfile.gettempdir()) / f"pytest-gemm-{os.getuid()}"
    if _is_usable(folder) and folder.stat().st_uid == os.getuid():
        return folder
    raise BackendError("no folder for compiled kernels: set PYTEST_GEMM_CACHE to a writable one")


def _is_usable(folder: Path) -> bool:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK | os.X_OK)


def _is_intact(path: Path) -> bool:
    try:
        content = path.read_bytes()
    except OSError:
        return False
    size = _DIGEST().digest_size
    body, mark = content[: -size - len(_MARK)], content[-size - len(_MARK) : -size]
    digest = content[-size:]
    return mark == _MARK and _DIGEST(body).digest() == digest


def _with_entry(file: SourceFile, program: CudaProgram) -> str:
    # Macros are defined here and not on the command line: there, a short name would break the
    # C++ library's headers.
    defines = "".join(f"#define {name} {value}\n" for name, value in program.defines)
    return (
        f'#include "pytest_gemm/cuda.h"\n{defines}{_marked(file)}'
        f'#line 1 "{_ENTRY_FILE}"\nPYTEST_GEMM_ENTRY({program.entry})\n'
    )


def _marked(file: SourceFile) -> str:
    shown = file.shown.replace("\\", "\\\\").replace('"', '\\"')
    return f'#line 1 "{shown}"\n{file.text}'


def _first_line(log: str, program: CudaProgram, shown: set[str]) -> str:
    """One complete sentence: the first error, on the line of the user's that led to it."""
    lines = log.splitlines()
    for index, line in enumerate(lines):
        if not (error := _ERROR.match(line)):
            continue
        text = _plain(error["text"])
        text += explain(program.source, program.filename, text)
        if error["file"] in shown:
            return f"{error['file']}:{error['line']}: error: {text}"
        if error["file"] == _ENTRY_FILE:
            return f"{program.filename}: error: entry {program.entry!r}: {text}"
        around = (*reversed(lines[:index]), *lines[index + 1 :])
        # What a header needs it for says more than where it is included.
        for other in sorted(around, key=lambda line: bool(_INCLUDED.match(line))):
            if (place := _POSITION.match(other)) and place["file"] in shown:
                return f"{place['file']}:{place['line']}: error: {text}"
        return f"{program.filename}: error: {text}"
    for line in lines:
        if undefined := _UNDEFINED.search(line):
            return f"{program.filename}: error: {undefined[0]}"
    return f"{program.filename}: error: {lines[0] if lines else 'the compiler failed'}"


def _plain(text: str) -> str:
    """The message of ``#error "..."`` without what is around it."""
    text = re.sub(r"^#error\s+", "", text.strip())
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] == '"' else text
