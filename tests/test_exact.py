"""What holds on every machine is compared with what is stored, to the last bit and count."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_gemm.baselines import BaselineStore
from pytest_gemm.case import Case, Settings
from pytest_gemm.exact import changes, facts_of
from pytest_gemm.kernelspec import Kernel
from pytest_gemm.problem import Problem
from pytest_gemm.result import Result
from tests.conftest import Project

CASE = Case(Kernel("tiled"), Problem.parse("512"), Settings(seed=3))
TRAFFIC = {"global_load_words": 64 * 128 * 24, "global_loads": 64 * 128 * 24, "barriers": 768}
RESULT = Result("passed", digest="sha256:1", traffic=TRAFFIC)


@pytest.fixture
def store(tmp_path: Path) -> BaselineStore:
    store = BaselineStore(tmp_path)
    for fact in facts_of(CASE, RESULT):
        store.update_exact(fact)
    store.flush()
    return BaselineStore(tmp_path)


def test_what_is_as_stored_is_no_change(store: BaselineStore) -> None:
    assert list(changes(CASE, RESULT, store, strict=True)) == []


def test_traffic_is_stored_once_for_all_problems_of_a_kernel(store: BaselineStore) -> None:
    other = Case(CASE.kernel, Problem.parse("64x48x32"), Settings(seed=9))
    (change,) = changes(other, RESULT, store, strict=True)
    assert change == "no digest of C is stored"


def test_more_loads_are_told_with_the_formula_and_the_counts(store: BaselineStore) -> None:
    more = {**TRAFFIC, "global_load_words": 64 * 128 * 384, "shared_stores": 5}
    (change,) = changes(
        CASE, Result("passed", digest="sha256:1", traffic=more), store, strict=False
    )
    assert change == (
        "memory traffic changed: loads per element of C 2K/16 -> 2K "
        "(global_load_words 196608 -> 3145728, shared_stores none -> 5)"
    )


def test_other_bits_are_told(store: BaselineStore) -> None:
    (change,) = changes(CASE, Result("passed", digest="sha256:2"), store, strict=False)
    assert change.startswith("the bits of C changed (stored sha256:1, now sha256:2)")


def test_nothing_stored_is_said_under_strict_alone(tmp_path: Path) -> None:
    empty = BaselineStore(tmp_path)
    assert list(changes(CASE, RESULT, empty, strict=False)) == []
    assert list(changes(CASE, RESULT, empty, strict=True)) == [
        "no digest of C is stored",
        "no traffic is stored",
    ]


def test_a_kernel_that_loads_more_fails_until_that_is_accepted(project: Project) -> None:
    folder = project.path / "kernels"
    folder.mkdir()
    source = (Path(__file__).parent.parent / "kernels" / "naive.cu").read_text()
    (folder / "naive.cu").write_text(source)
    (project.path / "conftest.py").unlink()
    run = ("--gemm-device=host", "--gemm-size=64")
    assert project.run(*run, "--gemm-baseline=update").ret == 0
    assert project.run(*run, "--gemm-baseline=strict").ret == 0
    at = source.index("    float acc")
    (folder / "naive.cu").write_text(f"{source[:at]}    if (A[0] > 1000.0f) return;\n{source[at:]}")
    result = project.run(*run)
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        ["naive on 64x64x64: memory traffic changed: loads per element of C 2K -> 385 at K = 192 *"]
    )
    assert project.run(*run, "--gemm-baseline=update").ret == 0
    assert project.run(*run, "--gemm-baseline=strict").ret == 0
