"""Branches that store sessions merge in git, and what was merged is read and judged."""

from __future__ import annotations

import random
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pytest

from pytest_gemm.baselines import BaselineStore, Fact, Session
from pytest_gemm.baselines.store import GIT_ATTRIBUTES
from pytest_gemm.cli import main
from pytest_gemm.errors import BaselineError
from pytest_gemm.verdict import judge
from tests.test_baselines import BENCHMARK, DEVICE, fact, session, stored

pytestmark = pytest.mark.skipif(not shutil.which("git"), reason="git is not installed")

OTHER = "tiled-8x8x8-float32"
RESOLUTION = r"sed -i '/^[<|=>]\{7\}/d' baselines/*/*.json"


class Repository:
    """A repository with baselines in it, on the branch ``main``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.root = path / "baselines"
        self.git("init", "-b", "main")
        (path / "README").write_text("kernels\n")
        self.commit()

    def git(self, *arguments: str, check: bool = True) -> str:
        who = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
        command = ["git", *who, *arguments]
        run = subprocess.run(command, cwd=self.path, check=check, capture_output=True, text=True)
        return run.stdout

    def commit(self, *sessions: Session, facts: tuple[Fact, ...] = ()) -> None:
        if sessions or facts:
            stored(self.root, *sessions, facts=facts)
        self.git("add", ".")
        self.git("commit", "-m", "more")

    def branches(self, ours: Callable[[], None], theirs: Callable[[], None]) -> None:
        """Two branches from here: ``main`` with our commits, ``branch`` with theirs."""
        self.git("checkout", "-b", "branch")
        theirs()
        self.git("checkout", "main")
        ours()

    def days(self, benchmark: str = BENCHMARK) -> list[int]:
        found = BaselineStore(self.root).sessions(DEVICE, "tiled", benchmark)
        return [int(s.date[8:10]) for s in found]


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path)


def verdict_of(root: Path, slowdown: float = 1.0) -> str:
    """What is said of a run like the third session."""
    reference = BaselineStore(root).reference(DEVICE, "tiled", BENCHMARK)
    now = session(3)
    times = {
        name: getattr(now.estimate, name) * slowdown for name in ("median", "low", "high", "mad")
    }
    now = now._replace(estimate=replace(now.estimate, **times))
    return judge(now, reference, kind="host", benchmarks=2).outcome


def test_the_repository_of_pytest_gemm_has_these_attributes() -> None:
    path = Path(__file__).parent.parent / "baselines" / ".gitattributes"
    assert path.read_text(encoding="utf-8") == GIT_ATTRIBUTES


def test_an_update_adds_missing_attributes_and_leaves_others(tmp_path: Path) -> None:
    stored(tmp_path, session(1))
    assert (tmp_path / ".gitattributes").read_text() == GIT_ATTRIBUTES
    (tmp_path / ".gitattributes").write_text("mine")
    stored(tmp_path, session(2))
    assert (tmp_path / ".gitattributes").read_text() == "mine"


def test_sessions_of_the_same_and_of_other_benchmarks_merge(repository: Repository) -> None:
    repository.commit(session(1), session(2), session(2, benchmark=OTHER), facts=(fact(64),))
    repository.branches(
        lambda: repository.commit(session(3), facts=(fact(64), fact(8))),
        lambda: repository.commit(
            session(4),
            session(5, benchmark=OTHER),
            session(5, benchmark="tiled-4x4x4-float32"),
            session(5, kernel="naive", benchmark="naive-4x4x4-float32"),
            facts=(fact(64), fact(8)),
        ),
    )

    repository.git("merge", "branch")

    assert repository.days() == [1, 2, 3, 4]
    assert repository.days(OTHER) == [2, 5]
    store = BaselineStore(repository.root)
    assert store.unreadable(DEVICE) == ()
    assert len(store.benchmarks(DEVICE)) == 4
    assert len(store.load_exact("tiled")) == 2
    assert verdict_of(repository.root) == "same"
    assert verdict_of(repository.root, 1.5) == "slower"


def test_files_that_are_new_on_both_branches_merge(repository: Repository) -> None:
    repository.branches(
        lambda: repository.commit(session(1), session(2), facts=(fact(64),)),
        lambda: repository.commit(session(3), facts=(fact(64), fact(8))),
    )

    repository.git("merge", "branch")

    assert repository.days() == [1, 2, 3]
    assert len(BaselineStore(repository.root).load_exact("tiled")) == 2
    assert verdict_of(repository.root) == "same"


def test_what_the_merged_branch_added_is_the_newest(repository: Repository) -> None:
    repository.commit(session(1))
    repository.branches(
        lambda: repository.commit(session(9, source="")), lambda: repository.commit(session(2))
    )
    repository.git("merge", "branch")
    assert repository.days() == [1, 9, 2]
    assert len(BaselineStore(repository.root).series(DEVICE, "tiled", BENCHMARK)) == 2


def test_a_rebased_branch_stands_last(repository: Repository) -> None:
    repository.commit(session(1))
    repository.branches(
        lambda: repository.commit(session(9)), lambda: repository.commit(session(2))
    )
    repository.git("checkout", "branch")
    repository.git("rebase", "main")
    assert repository.days() == [1, 9, 2]


def test_branches_that_both_pruned_merge(repository: Repository) -> None:
    repository.commit(*(session(day) for day in range(1, 21)))
    repository.branches(
        lambda: repository.commit(session(23)),
        lambda: repository.commit(session(21), session(22, source="")),
    )

    repository.git("merge", "branch")

    found = repository.days()
    assert found[-3:] == [23, 21, 22]
    assert found[:-3] in ([*range(2, 21)], [*range(3, 21)])
    reference = BaselineStore(repository.root).reference(DEVICE, "tiled", BENCHMARK)
    assert reference is not None


def test_the_same_session_on_both_branches_counts_once(repository: Repository) -> None:
    repository.commit(session(1))
    repository.branches(
        lambda: repository.commit(session(2), session(3)),
        lambda: repository.commit(session(4), session(2)),
    )
    repository.git("merge", "branch")
    assert sorted(repository.days()) == [1, 2, 3, 4]
    assert [len(each) for each in BaselineStore(repository.root).medians(DEVICE)] == [4]
    repository.commit(session(5))
    text = (repository.root / DEVICE / "tiled.json").read_text()
    assert text.count("2025-01-02T") == 1, "the next update leaves one line"


def test_a_pin_and_a_session_merge(repository: Repository) -> None:
    repository.commit(session(1), session(2))

    def pin() -> None:
        assert main(["baseline", "pin", "v1.0", "--baselines", str(repository.root)]) == 0
        repository.commit()

    repository.branches(lambda: repository.commit(session(3)), pin)
    repository.git("merge", "branch")

    store = BaselineStore(repository.root)
    anchor = store.anchor(DEVICE, "tiled", BENCHMARK)
    assert sorted(repository.days()) == [1, 2, 3]
    assert anchor is not None
    assert [s.date[8:10] for s in anchor.sessions] == ["01", "02"]


def test_different_bits_of_C_are_named_and_one_line_must_go(repository: Repository) -> None:
    repository.commit(session(1), facts=(fact(64), fact(8)))
    repository.branches(
        lambda: repository.commit(facts=(fact(64, "sha256:aa"),)),
        lambda: repository.commit(facts=(fact(64, "sha256:bb"),)),
    )
    repository.git("merge", "branch")
    path = repository.root / "exact" / "tiled.json"

    with pytest.raises(BaselineError, match="line 5 and line 6 contradict each other") as caught:
        BaselineStore(repository.root).load_exact("tiled")
    assert str(caught.value).startswith(f"{path}: ")
    assert BENCHMARK in str(caught.value)

    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:4] + lines[5:]))
    store = BaselineStore(repository.root)
    assert store.load_exact("tiled")[BENCHMARK, 0, "normal-1"].digest == "sha256:bb"


def test_without_attributes_the_documented_line_resolves_a_conflict(
    repository: Repository,
) -> None:
    docs = Path(__file__).parent.parent / "docs" / "baselines.md"
    assert RESOLUTION in docs.read_text(encoding="utf-8")
    repository.commit(session(1), session(2, benchmark=OTHER), facts=(fact(64),))
    (repository.root / ".gitattributes").write_text("")
    repository.commit()
    repository.branches(
        lambda: repository.commit(session(3), facts=(fact(8),)),
        lambda: repository.commit(session(4), facts=(fact(4),)),
    )
    repository.git("config", "merge.conflictStyle", "diff3")
    repository.git("merge", "branch", check=False)
    with pytest.raises(BaselineError, match="line 7 is a conflict marker of git"):
        repository.days()

    subprocess.run(RESOLUTION, shell=True, cwd=repository.path, check=True)

    assert repository.days() == [1, 3, 4]
    assert repository.days(OTHER) == [2]
    assert len(BaselineStore(repository.root).load_exact("tiled")) == 3
    assert verdict_of(repository.root) == "same"


@pytest.mark.parametrize("seed", range(12))
def test_nothing_that_either_branch_added_is_lost(repository: Repository, seed: int) -> None:
    rng = random.Random(seed)
    unused = list(range(1, 32))
    rng.shuffle(unused)
    benchmarks = [f"tiled-{size}x{size}x{size}-float32" for size in (2, 4, 8, 16)]

    def some(most: int) -> list[Session]:
        return [
            session(unused.pop(), benchmark=rng.choice(benchmarks))
            for _ in range(rng.randint(1, most))
        ]

    base = some(9)
    ours, theirs = [some(4), some(4)], [some(4), some(4)]
    repository.commit(*base)
    repository.branches(
        lambda: [repository.commit(*each) for each in ours] and None,
        lambda: [repository.commit(*each) for each in theirs] and None,
    )
    repository.git("merge", "branch")

    expected: dict[str, list[str]] = {}
    for each in chain(base, *ours, *theirs):
        expected.setdefault(each.benchmark, []).append(each.date)
    store = BaselineStore(repository.root)
    assert store.unreadable(DEVICE) == ()
    for benchmark, dates in expected.items():
        found = [s.date for s in store.sessions(DEVICE, "tiled", benchmark)]
        assert sorted(found) == sorted(dates)
