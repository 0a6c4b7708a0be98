"""Mutants of the shipped kernels: how each kind is caught, and the script that draws them."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_gemm.backends.host import HostBackend
from pytest_gemm.checking import Checker
from pytest_gemm.frontmatter import strip_front_matter
from pytest_gemm.kernelspec import Kernel
from pytest_gemm.registry import load_registry

ROOT = Path(__file__).parent.parent
sys.path.append(str(ROOT / "benchmarks"))

import mutations as script  # noqa: E402
from mutator import KINDS, Mutation, draw, mutations  # noqa: E402

SOURCES = {p.name: p.read_text(encoding="utf-8") for p in sorted((ROOT / "kernels").glob("*.cu"))}
ALL = {str(m): m for file, source in SOURCES.items() for m in mutations(file, source)}

SMALL = """\
// for (int k = 0; k < K; ++k) is not code here.
constexpr int TILE = 16;
__global__ void __launch_bounds__(TILE) mm(const float* A, float* C, int M)
{
    __shared__ float As[TILE];
    const int i = threadIdx.x;
    #pragma unroll
    for (int k = 0; k < M; k += TILE)
        As[i] = k + i < M && i >= 0 ? A[k * M + i] : 0.0f;
    __syncthreads();
    if (i < M)
        C[i] = As[i];
}
"""


@pytest.fixture(scope="module")
def host() -> HostBackend:
    return HostBackend()


def kernels(folder: Path, mutant: Mutation) -> tuple[Kernel, Kernel]:
    """The mutant and its original."""
    name = Path(mutant.file).stem
    for file, text in SOURCES.items():
        (folder / file).write_text(text, encoding="utf-8")
    (folder / "mutant.cu").write_text(mutant.apply(SOURCES[mutant.file]), encoding="utf-8")
    found = {kernel.name: kernel for kernel in load_registry([folder], folder).kernels("host")}
    return found["mutant"], found[name]


CAUGHT = {
    "tiled.cu:33:9: `__syncthreads();` -> nothing": "race",
    "register_blocked.cu:65:9: `__syncthreads();` -> nothing": "race",
    "naive.cu:21:18: `(size_t)row * K + k` -> `(size_t)row * K + k + 1`": "out of bounds",
    "tiled.cu:31:12: `ty` -> `ty + 1`": "out of bounds",
    "tiled.cu:22:20: `threadIdx.y` -> `threadIdx.x`": "uninitialised",
    "naive.cu:16:9: `row >= M` -> `row > M`": "out of bounds",
    "tiled.cu:28:22: `k0 < K` -> `k0 < K - 1`": "wrong result",
    "tiled32.cu:19:25: `TILE` -> `TILE - 1`": "out of bounds",
    "add.cu:17:5: `if (i < (size_t)M * N)` -> nothing": "out of bounds",
    "tiled.cu:31:30: `&& k0 + tx < K` -> nothing": "out of bounds",
    "add.cu:18:23: `B` -> `A`": "wrong result",
    "tiled.cu:37:34: `[k][tx]` -> `[tx][k]`": "wrong result",
    "tiled.cu:36:25: `k < TILE` -> `k <= TILE`": "out of bounds",
    "register_blocked.cu:71:33: `++n` -> nothing": "time-out",
}


@pytest.mark.parametrize(("change", "caught_by"), CAUGHT.items())
def test_it_is_caught(host: HostBackend, tmp_path: Path, change: str, caught_by: str) -> None:
    mutant, _ = kernels(tmp_path, ALL[change])
    failure = Checker(host, "auto", 0, 0.5).check(mutant).failure
    assert script.caught_by(failure) == caught_by, failure


def test_every_kind_is_among_them() -> None:
    assert {ALL[change].kind for change in CAUGHT} == set(KINDS)


def test_all_mutations_of_a_small_kernel() -> None:
    found: dict[str, list[str]] = {}
    for mutation in mutations("mm.cu", SMALL):
        found.setdefault(mutation.kind, []).append(str(mutation).removeprefix("mm.cu:"))
    assert found["drop a barrier"] == ["10:5: `__syncthreads();` -> nothing"]
    assert found["shift an index"] == [
        *("9:12: `i` -> `i + 1`", "9:12: `i` -> `i - 1`"),
        *("9:41: `k * M + i` -> `k * M + i + 1`", "9:41: `k * M + i` -> `k * M + i - 1`"),
        *("12:11: `i` -> `i + 1`", "12:11: `i` -> `i - 1`"),
        *("12:19: `i` -> `i + 1`", "12:19: `i` -> `i - 1`"),
        *("6:19: `threadIdx.x` -> `threadIdx.x + 1`", "6:19: `threadIdx.x` -> `threadIdx.x - 1`"),
    ]
    assert found["change a bound"] == [
        "8:21: `k < M` -> `k < M - 1`",
        *("9:17: `k + i < M` -> `k + i <= M`", "9:17: `k + i < M` -> `k + i < M - 1`"),
        *("9:30: `i >= 0` -> `i > 0`", "9:30: `i >= 0` -> `i >= 0 - 1`"),
        *("11:9: `i < M` -> `i <= M`", "11:9: `i < M` -> `i < M - 1`"),
        *("5:25: `TILE` -> `TILE + 1`", "5:25: `TILE` -> `TILE - 1`"),
        *("3:35: `TILE` -> `TILE + 1`", "3:35: `TILE` -> `TILE - 1`"),
        *("2:22: `16` -> `16 + 1`", "2:22: `16` -> `16 - 1`"),
        "8:10: `int k = 0` -> `int k = 0 + 1`",
    ]
    assert found["drop a guard"] == [
        "11:5: `if (i < M)` -> nothing",
        "9:17: `k + i < M && i >= 0 ?` -> nothing",
        "9:17: `k + i < M &&` -> nothing",
        "9:27: `&& i >= 0` -> nothing",
    ]
    assert found["lengthen a loop"] == [
        "8:10: `int k = 0` -> `int k = 0 - 1`",
        *("8:21: `k < M` -> `k <= M`", "8:21: `k < M` -> `k < 2 * M`"),
        *("8:28: `k += TILE` -> nothing", "8:28: `k += TILE` -> `k -= TILE`"),
        "8:28: `k += TILE` -> `k += TILE / 2`",
    ]
    swaps = found["swap operands"]
    assert "9:41: `k * M` -> `M * k`" in swaps
    assert "9:39: `A[k * M + i] : 0.0f` -> `0.0f : A[k * M + i]`" in swaps
    assert "11:9: `i < M` -> `M < i`" in swaps
    assert "6:19: `threadIdx.x` -> `threadIdx.y`" in swaps
    assert "6:19: `threadIdx` -> `blockIdx`" in swaps
    assert "12:16: `As` -> `Bs`" in swaps


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("(size_t)(k0 + ty) * N", "N * (size_t)(k0 + ty)"),
        ("As[ty][k] * Bs[k][tx]", "Bs[k][tx] * As[ty][k]"),
        ("[ty][k]", "[k][ty]"),
        ("blockIdx.y * TILE", "TILE * blockIdx.y"),
    ],
)
def test_operands_are_whole(before: str, after: str) -> None:
    assert any((m.before, m.after) == (before, after) for m in ALL.values() if m.file == "tiled.cu")


def test_mutants_are_different_kernels_with_the_same_front_matter() -> None:
    texts = [m.apply(SOURCES[m.file]) for m in ALL.values()]
    assert len({*texts, *SOURCES.values()}) == len(texts) + len(SOURCES)
    for mutation, text in zip(ALL.values(), texts, strict=True):
        source = SOURCES[mutation.file]
        assert len(text) - len(source) == len(mutation.after) - len(mutation.before)
        _, _, head = source.partition("// ///\n")
        assert text.startswith(source[: len(source) - len(head)])
        assert source.splitlines()[mutation.line - 1][mutation.column - 1 :].startswith(
            mutation.before.splitlines()[0]
        )
    assert all(strip_front_matter(text) for text in texts)


def test_a_seed_draws_the_same_mutants_and_the_kinds_take_turns() -> None:
    def drawn(seed: int, count: int) -> list[Mutation]:
        return draw(SOURCES, seed, count, lambda _: True)

    first = drawn(0, 30)
    assert first == drawn(0, 30) == drawn(0, 60)[:30]
    assert first != drawn(1, 30)
    assert [m.kind for m in first[:12]] == [*KINDS, *KINDS]
    assert len(drawn(0, 10**6)) == len(set(drawn(0, 10**6))) == len(ALL)


def test_what_cannot_be_used_is_replaced() -> None:
    usable = draw(SOURCES, 0, 40, lambda m: m.file == "naive.cu")
    assert len(usable) == 40
    assert {m.file for m in usable} == {"naive.cu"}


def test_the_published_survivors_are_those_of_these_kernels() -> None:
    text = (ROOT / "docs" / "mutations.md").read_text(encoding="utf-8")
    published = re.findall(r"^\| (\w+\.cu:.*) \| (.*) \| (?:the same|more) \|$", text, re.MULTILINE)
    for change, reason in published:
        mutation = ALL[change.replace("\\|", "|")]
        assert reason == next(text for text, holds in script.EQUIVALENT if holds(mutation))
    [row] = re.findall(r"^\| all \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|$", text, re.MULTILINE)
    mutants, equivalent, can_matter, caught = map(int, row)
    assert (mutants, equivalent) == (200, len(published))
    assert can_matter == caught == mutants - equivalent
    assert f"of the {len(ALL)} possible mutants" in text


def record(name: str, outcome: str = "passed", message: str = "", why: str = "") -> dict[str, Any]:
    return {
        "id": f"{name}-8x8x8-float32",
        "case": {"kernel": {"name": name}},
        "result": {"unchecked": why},
        "outcome": outcome,
        "message": message,
    }


def test_a_run_that_is_not_as_it_should_be_is_told() -> None:
    names = {f"naive_m00{i}": m for i, m in enumerate([*ALL.values()][:4])}
    records = [
        record("naive", "failed", "naive on 8x8x8: no"),
        record("naive_m000", "failed", "x: race in block (0, 0, 0): ..."),
        record("naive_m001", why="a.cu:3: error: what is that?"),
        record("naive_m002", "skipped", "too large"),
    ]
    mutants, complaints = script.read_records(names, records, ["naive.cu", "add.cu"], {})
    assert [m.caught_by for m in mutants] == ["race", "", "", ""]
    assert sorted(complaints) == [
        "naive_m001-8x8x8-float32 was not checked: a.cu:3: error: what is that?",
        "naive_m002-8x8x8-float32 was skipped: too large",
        "the original fails: naive on 8x8x8: no",
        "there is no record of add",
        "there is no record of naive_m003",
    ]


def test_an_unknown_failure_is_counted_as_such() -> None:
    assert script.caught_by("x on 8x8x8: the moon is full\nrace in block (0, 0, 0)") == (
        "something else"
    )


@pytest.fixture(scope="module")
def twins(host: HostBackend) -> script.Twins:
    return script.Twins(host, 0, problems=3)


def survivors(folder: Path, twins: script.Twins, change: str) -> Iterator[script.Survivor]:
    kernels(folder, ALL[change])
    return script.judge([script.Mutant("mutant", ALL[change])], twins, folder)


@pytest.mark.parametrize(
    ("change", "reason", "same_work"),
    [
        ("tiled.cu:24:21: `blockIdx.y * TILE` -> `TILE * blockIdx.y`", "multiplication", True),
        ("tiled.cu:28:22: `k0 < K` -> `k0 <= K`", "more tiles behind the last", False),
        ("tiled.cu:19:31: `TILE` -> `TILE + 1`", "a longer array", True),
    ],
)
def test_an_equivalent_survivor(
    tmp_path: Path, twins: script.Twins, change: str, reason: str, same_work: bool
) -> None:
    [survivor] = survivors(tmp_path, twins, change)
    assert survivor.reason.startswith(reason)
    assert survivor.comparison == script.Comparison("", same_work)


def test_a_survivor_without_a_reason_was_missed(
    tmp_path: Path, twins: script.Twins, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script, "EQUIVALENT", ())
    [survivor] = survivors(tmp_path, twins, "tiled.cu:28:22: `k0 < K` -> `k0 <= K`")
    assert survivor.reason == ""


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        ("tiled.cu:40:9: `__syncthreads();` -> nothing", "race in block"),
        ("add.cu:18:23: `B` -> `A`", "C has other bits"),
    ],
)
def test_a_reason_that_the_comparison_refutes_is_none(
    tmp_path: Path,
    twins: script.Twins,
    monkeypatch: pytest.MonkeyPatch,
    change: str,
    difference: str,
) -> None:
    monkeypatch.setattr(script, "EQUIVALENT", (("it is fine", lambda _: True),))
    [survivor] = survivors(tmp_path, twins, change)
    assert survivor.reason == ""
    assert difference in survivor.comparison.difference
    missed = [*script.tables([survivor.mutant], [survivor])]
    assert any("**missed**" in line for line in missed)
    assert any(line == "| all | 1 | 0 | 1 | 0 |" for line in missed)


def test_mutants_run_under_pytest_in_workers(tmp_path: Path) -> None:
    source = SOURCES["naive.cu"].replace("void naive(", "void __launch_bounds__(256) naive(")
    changes = ["`row >= M` -> `row > M`", "`256` -> `256 - 1`", "`256` -> `256 + 1`"]
    found = {str(m).split(": ")[1]: m for m in mutations("naive.cu", source)}
    drawn = [found[change] for change in changes]
    run = script.run_pytest(drawn, {"naive.cu": source}, tmp_path / "run")
    assert run.complaints == ()
    assert run.cases == 3
    caught = [mutant.caught_by for mutant in run.mutants]
    assert caught == ["out of bounds", "declaration", ""]
