"""NVIDIA's own compiler and disassembler, where they are installed: planted slowdowns are seen."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu import changed_facts
from pytest_gemm.errors import BackendError, CompileError
from pytest_gemm.kernelspec import Kernel
from pytest_gemm.registry import load_registry
from pytest_gemm.static.gate import SHOWN
from pytest_gemm.static.inspection import Facts, Inspector
from pytest_gemm.static.nvrtc import Nvrtc, NVRTCError
from pytest_gemm.static.policy import changes, share, worsened
from pytest_gemm.static.toolchain import PLACES, Toolchain, find_toolchain

KERNELS = Path(__file__).parent.parent / "kernels"
UNROLLED = "#pragma unroll\n        for (int k = 0; k < TILE; ++k)"


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(BackendError) as none:
        find_toolchain([str(tmp_path)])
    assert str(none.value) == (
        "nvrtc, nvdisasm, CUDA's headers, libcu++'s headers: not installed; "
        "pip install 'pytest-gemm[static]'"
    )
    for place in PLACES.values():
        path = tmp_path / "cu13" / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert find_toolchain([str(tmp_path / "other"), str(tmp_path)]).root == tmp_path / "cu13"
    (tmp_path / "cu13" / PLACES["nvdisasm"]).unlink()
    with pytest.raises(BackendError, match=r"^nvdisasm: not installed; pip install"):
        find_toolchain([str(tmp_path)])


def test_files_that_are_no_tools_are_said(tmp_path: Path) -> None:
    for name in ("nvrtc", "nvdisasm"):
        path = tmp_path / PLACES[name]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    with pytest.raises(BackendError, match=r"NVRTC cannot be loaded .*libnvrtc.*: pip install"):
        _ = Toolchain(tmp_path).nvrtc
    with pytest.raises(BackendError, match="nvdisasm cannot read what NVRTC made: "):
        Toolchain(tmp_path).disassembled(b"")
    (tmp_path / PLACES["nvdisasm"]).write_text("#!/bin/sh\necho not a cubin >&2; exit 1\n")
    (tmp_path / PLACES["nvdisasm"]).chmod(0o755)
    with pytest.raises(BackendError, match=r"nvdisasm cannot read .*: not a cubin$"):
        Toolchain(tmp_path).disassembled(b"")


class Library:
    """NVRTC as ctypes would load it: writes a log only of what it compiles, as the real one does.

    ``status`` is what compiling ends with; ``kept``: it is in NVRTC's cache.
    """

    def __init__(self, log: str, status: int = 0, *, kept: bool = False) -> None:
        self._text, self._status, self._kept = log, status, kept
        self._log = b""

    @staticmethod
    def nvrtcGetErrorString(status: int) -> bytes:
        names = {6: b"NVRTC_ERROR_COMPILATION", 7: b"NVRTC_ERROR_BUILTIN_OPERATION_FAILURE"}
        return names[status]

    def nvrtcCompileProgram(self, handle: object, count: Any, flags: Any) -> int:
        options = [flags[i] for i in range(count.value)]
        found = self._kept and b"--no-cache" not in options
        reports = b"--ptxas-options=-v" in options
        self._log = b"" if found or not (reports or self._status) else self._text.encode()
        return self._status

    def nvrtcGetProgramLogSize(self, handle: object, size: Any) -> int:
        size._obj.value = len(self._log) + 1
        return 0

    def nvrtcGetProgramLog(self, handle: object, content: Any) -> int:
        content.value = self._log
        return 0


def scripted(monkeypatch: pytest.MonkeyPatch, library: Library) -> Nvrtc:
    monkeypatch.setattr("ctypes.CDLL", lambda path: library)
    return Nvrtc(Path("libnvrtc.so.13"))


def test_what_nvrtc_has_in_its_cache_is_compiled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    nvrtc = scripted(monkeypatch, Library("Used 10 registers", kept=True))
    nvrtc.compileProgram(1, ["-ftz=true"])
    assert nvrtc.log == "Used 10 registers"


def test_an_nvrtc_without_its_files_is_no_mistake_of_the_kernel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nvrtc = scripted(monkeypatch, Library("failed to open libnvrtc-builtins.so.13.0.\n  See", 7))
    with pytest.raises(BackendError) as caught:
        nvrtc.compileProgram(1, [])
    assert str(caught.value) == (
        "NVRTC cannot be used (failed to open libnvrtc-builtins.so.13.0. See): "
        "pip install 'pytest-gemm[static]'"
    )
    with pytest.raises(NVRTCError, match="NVRTC_ERROR_COMPILATION"):
        scripted(monkeypatch, Library("k.cu(1): error: no", 6)).compileProgram(1, [])


def test_what_nvrtc_looks_for_on_the_loaders_path_is_loaded_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[str] = []

    def load(path: str) -> Library:
        loaded.append(Path(path).name)
        return Library("")

    monkeypatch.setattr("ctypes.CDLL", load)
    (tmp_path / "libnvrtc-builtins.so.13.0").touch()
    Nvrtc(tmp_path / "libnvrtc.so.13")
    assert loaded == ["libnvrtc-builtins.so.13.0", "libnvrtc.so.13"]


@pytest.fixture(scope="module")
def inspector() -> Inspector:
    """The real one. CI asks for it by ``PYTEST_GEMM_NEEDS_STATIC``: there, nothing may skip."""
    try:
        return Inspector(find_toolchain())
    except BackendError as error:
        if os.environ.get("PYTEST_GEMM_NEEDS_STATIC"):
            raise
        pytest.skip(str(error))


def kernel(folder: Path, name: str, *changes: tuple[str, str]) -> Kernel:
    """A shipped kernel with some of its text changed."""
    source = (KERNELS / f"{name}.cu").read_text(encoding="utf-8")
    source = "\n".join(
        line for line in source.split("\n") if "derived_from" not in line and "change " not in line
    )
    for before, after in changes:
        assert before in source
        source = source.replace(before, after)
    path = folder / f"{name}.cu"
    path.write_text(source, encoding="utf-8")
    registry = load_registry((), folder, files=(path,))
    assert registry.errors == ()
    [found] = registry.kernels("cuda")
    return found


WIDE = (
    *(("TILE = 32", "TILE = 64"), ("TM = 4", "TM = 8"), ("TN = 4", "TN = 8")),
    # All of it unrolled takes the compiler seconds.
    (UNROLLED, UNROLLED.replace("unroll", "unroll 4")),
)
BOUNDS = "__launch_bounds__(ROWS * COLS)"
PLANTS = {
    "spill": (
        "register_blocked",
        WIDE,
        ((BOUNDS, "__launch_bounds__(ROWS * COLS, 10)"), ("= 64;", "= 64; // tight")),
        "bytes of spill stores 0 -> ",
    ),
    "register step": (
        "tiled32",
        (),
        (("__global__ void", "__global__ void __launch_bounds__(1024, 1)"),),
        "warps per multiprocessor 64 -> 32 (registers ",
    ),
    "lost unroll": (
        "register_blocked",
        (),
        ((UNROLLED, UNROLLED.replace("unroll", "unroll 1")),),
        "less is unrolled: FFMA in a turn of the inner loop 512 -> 16, loops 1 -> 2",
    ),
    "array in local memory": (
        "naive",
        (),
        (
            ("float acc = 0.0f;", "float acc = 0.0f, kept[16]; kept[M % 16] = beta_of(A);"),
            ("__global__", "__device__ float beta_of(const float* A) { return A[0]; }\n__global__"),
            ("= acc;", "= acc + kept[N % 16];"),
        ),
        "bytes of stack 0 -> 64",
    ),
}


@pytest.mark.parametrize("plant", PLANTS)
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
def test_planted_slowdowns_are_seen(
    plant: str, architecture: str, inspector: Inspector, tmp_path: Path
) -> None:
    name, common, change, phrase = PLANTS[plant]

    def facts(*changes: tuple[str, str]) -> Facts:
        return inspector.inspect(kernel(tmp_path, name, *changes), architecture).facts

    before, after = facts(*common), facts(*common, *change)
    assert any(text.startswith(phrase) for text in worsened(before, after))


@pytest.mark.parametrize("plant", changed_facts.PLANTS)
def test_what_is_measured_on_a_gpu_is_a_change_that_is_named(
    plant: str, inspector: Inspector, tmp_path: Path
) -> None:
    change, fact = changed_facts.PLANTS[plant]
    before, after = (
        inspector.inspect(kernel(tmp_path, changed_facts.KERNEL, *plants), "sm_90").facts
        for plants in ((), (change,))
    )
    assert any(text.startswith(fact) for text in changes(before, after)[:SHOWN])


def test_a_compile_error_has_file_and_line(inspector: Inspector, tmp_path: Path) -> None:
    broken = kernel(tmp_path, "naive", ("float acc = 0.0f;", "float acc = zero;"))
    line = broken.source.split("\n").index("    float acc = zero;") + 1
    with pytest.raises(CompileError) as caught:
        inspector.inspect(broken, "sm_90")
    first = str(caught.value).partition("\n")[0]
    assert first == f'naive.cu:{line}: error: identifier "zero" is undefined'


def test_what_the_assembler_refuses_is_said(inspector: Inspector, tmp_path: Path) -> None:
    big = kernel(tmp_path, "tiled32", ("TILE = 32", "TILE = 200"), ("[32, 32]", "[5, 200]"))
    with pytest.raises(CompileError, match=r"tiled32\.cu: error: .*too much shared data"):
        inspector.inspect(big, "sm_90")


def test_an_architecture_that_the_compiler_left_behind_is_said(
    inspector: Inspector, tmp_path: Path
) -> None:
    with pytest.raises(BackendError, match="makes no machine code for sm_70: take it out of gemm_"):
        inspector.inspect(kernel(tmp_path, "naive"), "sm_70")


def test_headers_of_cuda_and_of_libcu_are_found(inspector: Inspector, tmp_path: Path) -> None:
    headers = "#include <cuda_fp16.h>\n#include <mma.h>\n#include <algorithm>\n__global__"
    included = kernel(tmp_path, "naive", ("__global__", headers))
    assert inspector.inspect(included, "sm_90").facts["registers"] > 0


def test_the_facts_are_those_of_the_code(inspector: Inspector, tmp_path: Path) -> None:
    found = inspector.inspect(kernel(tmp_path, "register_blocked"), "sm_90")
    # 32 x 32 x 32 multiply-adds of a tile by 64 threads; 2 x 32 x 32 copies; 4 x 4 of C; what
    # the source says of the rest. Loads from shared memory are joined as the compiler likes.
    assert {name: found.facts[name] for name in ("FFMA", "LDG", "STS", "STG", "BAR")} == {
        **{"FFMA": 512, "LDG": 32, "STS": 32, "STG": 16, "BAR": 2}
    }
    assert found.facts["static_shared_bytes"] == 2 * 32 * 32 * 4
    assert (found.facts["threads"], found.facts["barriers"]) == (64, 1)
    assert found.facts["loops"] == 1
    assert found.facts["loop.FFMA"] == 512
    assert 0.5 < (share(found.facts) or 0) < 0.8
    assert found.toolchain.startswith("nvrtc 13.")
    assert inspector.inspect(kernel(tmp_path, "register_blocked"), "sm_90") == found
