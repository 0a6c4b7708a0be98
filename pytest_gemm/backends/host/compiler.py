"""Finds a C++ compiler that works, and knows how to call it."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Literal

from pytest_gemm.backends.host.machine import instruction_set
from pytest_gemm.errors import BackendError
from pytest_gemm.scratch import scratch

Family = Literal["gcc", "clang", "zig"]

_ADVICE = "run `pip install 'pytest-gemm[host]'` or `apt-get install g++`"

# The results of every kernel must be those of an in-order chain of fused multiply-adds. g++
# would split multiplication and addition to vectorise them, so it may not. Kernels read float as
# float4 and int, which costs nothing to allow; null pointers must fault, endless loops not end. As
# on a GPU nothing is thrown: no handler would be there, and pytest would be aborted.
_COMMON = (
    # Fortified, longjmp would refuse to leave one stack for another.
    *("-std=c++17", "-O3", "-fPIC", "-fvisibility=hidden", "-w", "-U_FORTIFY_SOURCE"),
    *("-ffp-contract=fast", "-fno-math-errno", "-fno-exceptions"),
    *("-fno-strict-aliasing", "-fno-delete-null-pointer-checks"),
    *("-fno-threadsafe-statics", "-fno-plt", "-fno-finite-loops", "-fstack-clash-protection"),
    # Else an edit elsewhere in a file moves a loop across cache lines, and its time by 15 %.
    *("-falign-functions=64", "-falign-loops=64"),
)
_FAMILY: dict[Family, tuple[str, ...]] = {
    # Kernels of one file are libraries of one process: variables of templates would be one for all.
    "gcc": ("-fno-tree-vectorize", "-fno-semantic-interposition", "-fno-gnu-unique"),
    "clang": ("-fno-semantic-interposition", "-Wno-unused-command-line-argument"),
    "zig": ("-fno-sanitize=undefined", "-UNDEBUG", "-Wno-unused-command-line-argument"),
}

# Instrumented as for the sanitizers, whose libraries are not linked: the runtime defines what they
# would. Line tables of version 4 are what debug_lines.py reads.
_CHECK = (
    *("-O1", "-g1", "-gdwarf-4", "-DPYTEST_GEMM_CHECK"),
    # A call at the end of a kernel returns into it, so that its line is known.
    "-fno-optimize-sibling-calls",
    "-fsanitize=thread",
    "-fsanitize=alignment,signed-integer-overflow,shift-exponent,integer-divide-by-zero",
)
_CLANG_CHECK = (
    "-fsanitize=array-bounds,implicit-signed-integer-truncation",
    *("-fno-sanitize-trap=all", "-fno-slp-vectorize", "-fno-vectorize"),
    *("-mllvm", "-tsan-instrument-func-entry-exit=0"),
    *("-mllvm", "-tsan-instrument-read-before-write=1"),
    *("-mllvm", "-tsan-distinguish-volatile=1"),
)
_CHECK_FAMILY: dict[Family, tuple[str, ...]] = {
    # Copies of structs stay whole: a float4 is one access.
    "gcc": (
        "-fsanitize=bounds",
        "-fno-tree-sra",
        *("--param", "tsan-instrument-func-entry-exit=0"),
        *("--param", "tsan-distinguish-volatile=1"),
    ),
    "clang": _CLANG_CHECK,
    "zig": _CLANG_CHECK,
}

_PROBE = """\
#include <math.h>
#include <type_traits>
static_assert(std::is_same_v<int, int>);
extern "C" __attribute__((visibility("default"))) float probe(float a) { return fmaf(a, a, a); }
"""


@dataclass(frozen=True)
class Compiler:
    """A compiler that was seen to work.

    ``command`` calls it; ``version`` is the first line of ``--version``; ``flags`` are those of
    every build; ``links_apart`` compiles and links in two steps, the second without the flags.
    """

    command: tuple[str, ...]
    version: str
    family: Family
    flags: tuple[str, ...]
    links_apart: bool = False

    @property
    def for_checking(self) -> Compiler:
        """The same compiler, building kernels whose every access is watched."""
        flags = tuple(f for f in self.flags if f != "-O3" and not f.startswith("-falign-"))
        flags = (*flags, *_CHECK, *_CHECK_FAMILY[self.family])
        return replace(self, flags=flags, links_apart=True)

    @property
    def name(self) -> str:
        """``g++``, ``clang++-19`` or ``zig c++``."""
        return "zig c++" if self.family == "zig" else Path(self.command[0]).name

    @property
    def identity(self) -> str:
        """What a cached build depends on: the command, its version, the flags."""
        return "\n".join((*self.command, self.version, *self.flags))

    @property
    def flags_hash(self) -> str:
        """Eight hexadecimal digits that change with the flags."""
        return hashlib.sha256(" ".join(self.flags).encode()).hexdigest()[:8]

    def build(
        self, folder: Path, sources: Sequence[str], output: str, options: Sequence[str] = ()
    ) -> subprocess.CompletedProcess[str]:
        """Compile ``sources`` of ``folder`` into the shared library ``output`` there.

        The completed process tells of failure: nothing is raised for a source that is wrong.
        """
        shared = ("-shared", "-Wl,-z,defs")
        is_zig = self.family == "zig"
        if not is_zig and not self.links_apart:
            command = [*self.command, *self.flags, *sources, *options, *shared, "-lm"]
            return _run([*command, "-o", output], folder)
        # Linking with `zig c++` would first build a C++ library, for most of a minute. Kernels
        # need only its headers: they are compiled as C++ and linked as C.
        include = [option for option in options if _is_include(option)]
        link = [option for option in options if not _is_include(option)]
        for source in sources:
            command = [*self.command, *self.flags, *include, "-c", source, "-o", f"{source}.o"]
            done = _run(command, folder)
            if done.returncode != 0:
                return done
        objects = [f"{source}.o" for source in sources]
        if is_zig:
            command = [*self.command[:-1], "cc", *shared, "-nostdlib"]
            return _run([*command, *objects, *link, "-lc", "-lm", "-o", output], folder)
        return _run([*self.command, *shared, *objects, *link, "-lm", "-o", output], folder)


def _is_include(option: str) -> bool:
    return option.startswith(("-I", "-iquote", "-D"))


def _run(command: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "LC_ALL": "C", "TMPDIR": str(folder)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )


@cache
def find_compiler(wanted: str | None = None) -> Compiler:
    """The first compiler that works, or ``wanted`` and no other.

    Tried in order: ``$PYTEST_GEMM_CXX``, ``$CXX``, g++, clang++, c++, ``python -m ziglang c++``.
    Each is tried once per process. Raises BackendError where none works.
    """
    if wanted is not None:
        return _probe_named(wanted, "asked for")
    if named := os.environ.get("PYTEST_GEMM_CXX"):
        return _probe_named(named, "named in PYTEST_GEMM_CXX")
    failures = []
    for command in _candidates():
        try:
            return _probe(command)
        except BackendError as error:
            failures.append(str(error))
    tried = (
        "; ".join(failures) or "g++, clang++ and c++ are not on the PATH, ziglang is not installed"
    )
    raise BackendError(f"no C++ compiler works here ({tried}): {_ADVICE}")


def _candidates() -> Iterator[tuple[str, ...]]:
    for command in (os.environ.get("CXX", ""), "g++", "clang++", "c++"):
        if words := _words(command):
            yield words
    if importlib.util.find_spec("ziglang"):
        yield (sys.executable, "-m", "ziglang", "c++")


def _probe_named(command: str, where: str) -> Compiler:
    if words := _words(command):
        return _probe(words)
    raise BackendError(f"the C++ compiler {command!r} {where} does not exist: {_ADVICE}")


def _words(command: str) -> tuple[str, ...]:
    """A command's words, or none where there is no such program."""
    try:
        words = tuple(shlex.split(command))
    except ValueError:  # a quotation mark is missing
        return ()
    return words if words and shutil.which(words[0]) else ()


@cache
def _probe(command: tuple[str, ...]) -> Compiler:
    """Compile a tiny library. Raises BackendError where that fails."""
    command = (str(Path(shutil.which(command[0]) or command[0]).absolute()), *command[1:])
    try:
        answer = _run([*command, "--version"], Path(tempfile.gettempdir()))
    except OSError as error:
        raise BackendError(f"{shlex.join(command)}: {error.strerror}") from error
    version = answer.stdout.partition("\n")[0].strip()
    family: Family = "gcc"
    if "ziglang" in command or "zig" in Path(command[0]).name:
        family = "zig"
    elif "clang" in answer.stdout.lower():
        family = "clang"
    with scratch() as folder:
        (folder / "probe.cpp").write_text(_PROBE)
        log = answer.stdout
        for flags in _flag_sets(family):
            compiler = Compiler(command, version, family, flags)
            done = compiler.build(folder, ["probe.cpp"], "probe.so")
            if done.returncode == 0 and (folder / "probe.so").exists():
                return compiler
            log = done.stdout
    reason = next((line for line in log.splitlines() if "error" in line), log.partition("\n")[0])
    reason = reason.strip() or f"it ends with exit code {done.returncode} and says nothing"
    raise BackendError(f"{shlex.join(command)} cannot build a library: {reason}")


def _flag_sets(family: Family) -> Iterator[tuple[str, ...]]:
    march = instruction_set()
    if family == "zig":
        march = march.replace("x86-64", "x86_64").replace("-v", "_v")
    target = (f"-march={march}",) if platform.machine() == "x86_64" else ("-mcpu=native",)
    yield (*_COMMON, *_FAMILY[family], *target)
    optional = {"-fstack-clash-protection", "-fno-finite-loops", "-fno-plt", "-falign-loops=64"}
    yield (*(f for f in _COMMON if f not in optional), *_FAMILY[family], *target)
