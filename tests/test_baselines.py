from __future__ import annotations

import fcntl
import json
import math
import multiprocessing
import os
import random
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import scale
from pytest_gemm.baselines import (
    BaselineStore,
    Fact,
    Series,
    Session,
    frame,
    schema,
    source_hash,
    store,
)
from pytest_gemm.baselines.checks import UnusableError
from pytest_gemm.baselines.files import safe_name, write_atomically, write_text
from pytest_gemm.errors import BaselineError, ConfigError
from pytest_gemm.stats import Estimate, summarize

DEVICE = "host-model-1-x86-64-v3-abc"
BENCHMARK = "tiled-64x64x64-float32"
SOURCE = "__global__ void tiled() {}\n"


def session(day: int = 1, **changes: Any) -> Session:
    fields: dict[str, Any] = {
        "device": DEVICE,
        "kernel": "tiled",
        "benchmark": BENCHMARK,
        "date": f"2025-01-{day:02}T12:00:00Z",
        "estimate": summarize([1e-3 + day * 1e-6 + k * 1e-7 for k in range(30)]),
        "launches": 4,
        "seed": 0,
        "recipe": "normal-1",
        "source": source_hash(SOURCE),
        "launch": {"entry": "tiled", "grid": [4, 4, 1], "block": [16, 16, 1], "defines": {}},
        "environment": {"compiler": "g++ 12.2", "cores": 2, "load": 0.25, "governor": None},
        "settings": {"dtype": "float32"},
        "commit": None,
    }
    return Session(**fields | changes)


def fact(size: int = 64, digest: str = "sha256:00ff", **changes: Any) -> Fact:
    benchmark = f"tiled-{size}x{size}x{size}-float32"
    return replace(Fact("tiled", benchmark, 0, "normal-1", digest, {"loads": 128}), **changes)


def stored(root: Path, *sessions: Session, facts: tuple[Fact, ...] = ()) -> BaselineStore:
    baselines = BaselineStore(root)
    for each in sessions:
        baselines.append(each, SOURCE if each.source else None)
    for each_fact in facts:
        baselines.update_exact(each_fact)
    assert baselines.flush().refused == ()
    return BaselineStore(root)


def files(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


# A first run


def test_an_empty_folder_holds_nothing_and_is_not_created(tmp_path: Path) -> None:
    baselines = BaselineStore(tmp_path / "baselines")

    assert baselines.load_exact("tiled") == {}
    assert (BENCHMARK, 0, "normal-1") not in baselines.load_exact("tiled")
    assert baselines.reference(DEVICE, "tiled", BENCHMARK) is None
    assert baselines.benchmarks(DEVICE) == ()
    assert baselines.unreadable(DEVICE) == ()
    assert baselines.devices("host") == ()
    assert baselines.flush().written == ()
    assert not baselines.root.exists()


def test_nothing_is_written_before_the_flush(tmp_path: Path) -> None:
    baselines = BaselineStore(tmp_path / "baselines")
    baselines.append(session(), SOURCE)
    baselines.update_exact(fact())

    assert not baselines.root.exists()

    flushed = baselines.flush()

    assert sorted(str(path.relative_to(baselines.root)) for path in flushed.written) == [
        "exact/tiled.json",
        f"{DEVICE}/tiled.json",
        f"sources/{source_hash(SOURCE)}.cu",
    ]
    assert baselines.flush().written == ()


def test_what_was_stored_is_read_back(tmp_path: Path) -> None:
    baselines = stored(tmp_path, session(), facts=(fact(),))

    ((found,),) = (series.sessions for series in baselines.series(DEVICE, "tiled", BENCHMARK))
    given = session()
    assert found._replace(estimate=given.estimate) == given
    assert found.estimate.median == pytest.approx(given.estimate.median, rel=1e-6)
    assert found.estimate.deciles == pytest.approx(given.estimate.deciles, rel=1e-6)
    brief = found._replace(estimate=replace(found.estimate, deciles=()))
    assert baselines.reference(DEVICE, "tiled", BENCHMARK) == Series((brief,))
    assert found.program == given.program
    assert baselines.load_exact("tiled")[BENCHMARK, 0, "normal-1"].digest == "sha256:00ff"
    assert baselines.source(given.source) == SOURCE
    assert baselines.benchmarks(DEVICE) == (BENCHMARK,)


# The files


def test_a_file_has_one_line_for_each_session_and_ends_with_a_newline(tmp_path: Path) -> None:
    stored(tmp_path, session(1), session(2), facts=(fact(64), fact(8)))

    text = (tmp_path / DEVICE / "tiled.json").read_text()
    lines = text.splitlines()

    assert lines[:4] == [
        "{",
        f'  "device": "{DEVICE}",',
        '  "format": 2,',
        '  "kernel": "tiled",',
    ]
    assert [line.count('"date"') for line in lines[5:7]] == [1, 1]
    assert text.endswith("    null\n  ]\n}\n")
    assert json.loads(text)["sessions"][1] == json.loads(lines[6].removesuffix(","))
    facts = json.loads((tmp_path / "exact" / "tiled.json").read_text())["facts"]
    assert [entry and entry["benchmark"] for entry in facts] == [
        "tiled-64x64x64-float32",
        "tiled-8x8x8-float32",
        None,
    ]


def test_storing_again_adds_one_line_after_the_benchmarks_and_changes_no_other(
    tmp_path: Path,
) -> None:
    other = session(1, benchmark="tiled-8x8x8-float32")
    stored(tmp_path, session(1), other)
    path = tmp_path / DEVICE / "tiled.json"
    before = path.read_text().splitlines()

    stored(tmp_path, session(2))

    after = path.read_text().splitlines()
    assert after[:6] + after[7:] == before
    assert BENCHMARK in after[6]
    assert '"date": "2025-01-02' in after[6]


def test_variants_share_the_file_of_their_kernel(tmp_path: Path) -> None:
    names = [f"block_size[SIDE:{side}]" for side in (8, 16)]
    variants = [session(kernel=name, benchmark=f"{name}-64x64x64-float32") for name in names]
    facts = [replace(fact(), kernel=name, benchmark=f"{name}-8x8x8-float32") for name in names]

    baselines = stored(tmp_path, *variants, facts=tuple(facts))

    assert [path.name for path in (tmp_path / DEVICE).iterdir()] == ["block_size.json"]
    assert [path.name for path in (tmp_path / "exact").iterdir()] == ["block_size.json"]
    assert len(baselines.benchmarks(DEVICE)) == 2
    for name in names:
        assert baselines.reference(DEVICE, name, f"{name}-64x64x64-float32") is not None
        assert baselines.load_exact(name)[f"{name}-8x8x8-float32", 0, "normal-1"].digest


@pytest.mark.parametrize(
    "name",
    ["../../evil", "/etc/passwd", "..", ".", "", "a/b", "a\\b", "\0", "x" * 300, "C:", "ä ö", ".x"],
)
def test_no_name_leaves_the_folder(tmp_path: Path, name: str) -> None:
    root = tmp_path / "deep" / "baselines"
    assert safe_name(name) not in ("", ".", "..")
    hostile = session(device=name or "d", kernel=name or "k", benchmark=f"{name!r}-1x1x1-float32")
    baselines = BaselineStore(root)
    if name.isprintable():
        baselines.append(hostile, SOURCE)
        assert len(baselines.flush().written) == 2
        assert BaselineStore(root).benchmarks(hostile.device) == (hostile.benchmark,)
    else:
        with pytest.raises(ValueError, match="printable"):
            baselines.append(hostile, SOURCE)
    outside = [path for path in tmp_path.rglob("*") if path.is_file() and root not in path.parents]
    assert outside == []
    with pytest.raises(BaselineError, match="is stored"):
        baselines.source(name)


@pytest.mark.parametrize("device", ["exact", "sources"])
def test_a_device_cannot_take_a_reserved_folder(tmp_path: Path, device: str) -> None:
    baselines = stored(tmp_path, session(device=device), facts=(fact(),))

    assert baselines.benchmarks(device) == (BENCHMARK,)
    assert baselines.load_exact("tiled")


def test_the_devices_of_a_kind_are_listed(tmp_path: Path) -> None:
    baselines = stored(tmp_path, session(), session(device="NVIDIA-H100"), facts=(fact(),))
    (tmp_path / "host-empty").mkdir()
    (tmp_path / "README.md").write_text("notes")

    assert baselines.devices("host") == (DEVICE,)
    assert baselines.devices("cuda") == ("NVIDIA-H100",)


def test_a_folder_copied_to_another_device_is_refused(tmp_path: Path) -> None:
    stored(tmp_path, session(device="NVIDIA-H100"))
    (tmp_path / "NVIDIA-H100").rename(tmp_path / "NVIDIA-H200")
    baselines = BaselineStore(tmp_path)

    with pytest.raises(BaselineError, match="stored for 'NVIDIA-H100', not for 'NVIDIA-H200'"):
        baselines.reference("NVIDIA-H200", "tiled", BENCHMARK)
    assert len(baselines.unreadable("NVIDIA-H200")) == 1


def test_a_renamed_file_is_refused(tmp_path: Path) -> None:
    stored(tmp_path, session(), facts=(fact(),))
    for folder in (DEVICE, "exact"):
        (tmp_path / folder / "tiled.json").rename(tmp_path / folder / "naive.json")
    baselines = BaselineStore(tmp_path)

    with pytest.raises(BaselineError, match="belongs to the kernel 'tiled'"):
        baselines.reference(DEVICE, "naive", BENCHMARK)
    with pytest.raises(BaselineError, match="belongs to the kernel 'tiled'"):
        baselines.load_exact("naive")


# Series


def test_a_changed_source_is_referred_to_the_series_accepted_last(tmp_path: Path) -> None:
    slower = session(2, source="")
    baselines = stored(tmp_path, session(1))

    before = baselines.reference(DEVICE, "tiled", BENCHMARK)
    baselines = stored(tmp_path, slower)
    after = baselines.reference(DEVICE, "tiled", BENCHMARK)

    assert before is not None
    assert after is not None
    assert before.program == session(1).program
    assert after.program == slower.program != before.program
    assert [s.program for s in baselines.series(DEVICE, "tiled", BENCHMARK)] == [
        before.program,
        after.program,
    ]


def test_a_source_that_comes_back_continues_its_series(tmp_path: Path) -> None:
    baselines = stored(tmp_path, session(1), session(2, source=""), session(3))

    reference = baselines.reference(DEVICE, "tiled", BENCHMARK)

    assert reference is not None
    assert [s.date[:10] for s in reference.sessions] == ["2025-01-01", "2025-01-03"]
    assert len(baselines.series(DEVICE, "tiled", BENCHMARK)) == 2


def test_the_order_of_storing_counts_not_the_clock(tmp_path: Path) -> None:
    baselines = stored(tmp_path, session(9), session(2, source=""))

    reference = baselines.reference(DEVICE, "tiled", BENCHMARK)

    assert reference is not None
    assert reference.newest.date.startswith("2025-01-02")


def test_a_changed_launch_starts_a_series(tmp_path: Path) -> None:
    launch = {**session().launch, "block": (32, 32, 1)}
    baselines = stored(tmp_path, session(1), session(2, launch=launch))

    assert len(baselines.series(DEVICE, "tiled", BENCHMARK)) == 2


def test_a_series_keeps_its_last_twenty_sessions(tmp_path: Path) -> None:
    stored(tmp_path, session(1, source=""), *(session(day) for day in range(2, 25)))
    baselines = stored(tmp_path, session(25), session(26))

    old, new = baselines.series(DEVICE, "tiled", BENCHMARK)

    assert len(old.sessions) == 1
    assert [s.date[8:10] for s in new.sessions] == [f"{day:02}" for day in range(7, 27)]


def test_a_benchmark_sees_only_its_own_sessions(tmp_path: Path) -> None:
    other = "tiled-8x8x8-float32"
    baselines = stored(tmp_path, session(1), session(2, benchmark=other))

    reference = baselines.reference(DEVICE, "tiled", BENCHMARK)

    assert reference is not None
    assert {s.benchmark for s in reference.sessions} == {BENCHMARK}
    assert baselines.benchmarks(DEVICE) == tuple(sorted((BENCHMARK, other)))


# Facts


def test_a_fact_is_replaced_when_asked_and_its_counters_join(tmp_path: Path) -> None:
    stored(tmp_path, facts=(fact(), fact(8)))
    baselines = stored(tmp_path, facts=(fact(counters={"stores": 1}), fact(8, "sha256:11")))

    same, changed = baselines.load_exact("tiled").values()

    assert same.counters == {"loads": 128, "stores": 1}
    assert (changed.digest, changed.counters) == ("sha256:11", {"loads": 128})


def test_counters_of_another_digest_are_dropped(tmp_path: Path) -> None:
    stored(tmp_path, facts=(fact(),))
    baselines = stored(tmp_path, facts=(fact(digest="sha256:22", counters={}),))

    (found,) = baselines.load_exact("tiled").values()

    assert (found.digest, found.counters) == ("sha256:22", {})


def test_what_was_flushed_is_seen_by_the_same_store(tmp_path: Path) -> None:
    baselines = BaselineStore(tmp_path)
    assert baselines.benchmarks(DEVICE) == ()
    assert baselines.reference(DEVICE, "tiled", BENCHMARK) is None
    assert baselines.load_exact("tiled") == {}
    baselines.append(session(), SOURCE)
    baselines.update_exact(fact())
    baselines.flush()

    assert baselines.benchmarks(DEVICE) == (BENCHMARK,)
    assert baselines.reference(DEVICE, "tiled", BENCHMARK) is not None
    assert len(baselines.load_exact("tiled")) == 1


def test_facts_are_kept_apart_by_seed_and_recipe(tmp_path: Path) -> None:
    baselines = stored(
        tmp_path, facts=(fact(), fact(digest="a", seed=1), fact(digest="b", recipe="r"))
    )

    assert baselines.load_exact("tiled")[BENCHMARK, 1, "normal-1"].digest == "a"
    assert baselines.load_exact("tiled")[BENCHMARK, 0, "r"].digest == "b"
    assert (BENCHMARK, 1, "r") not in baselines.load_exact("tiled")


def test_an_unchanged_fact_leaves_the_file_alone(tmp_path: Path) -> None:
    stored(tmp_path, facts=(fact(),))
    baselines = BaselineStore(tmp_path)
    baselines.update_exact(fact())

    assert baselines.flush().written == ()


# What cannot be stored


def broken(**changes: Any) -> Session:
    return session(estimate=replace(session().estimate, **changes))


@pytest.mark.parametrize(
    "bad",
    [
        broken(median=math.nan),
        broken(median=math.inf),
        broken(median=0.0),
        broken(median=-1.0),
        broken(median=1.0),
        broken(low=0.0),
        broken(high=math.inf),
        broken(mad=-1e-9),
        broken(n=0),
        broken(deciles=(1.0,)),
        broken(deciles=tuple(float(10 - k) for k in range(9))),
        session(date="yesterday"),
        session(date="2025-02-30T00:00:00Z"),
        session(benchmark=""),
        session(kernel="a\nb"),
        session(launches=0),
        session(seed=2**70),
        session(environment={"load": math.nan}),
        session(environment={"path": Path()}),
        session(commit=""),
    ],
    ids=lambda bad: None,
)
def test_a_session_that_could_not_be_read_back_is_refused(tmp_path: Path, bad: Session) -> None:
    baselines = BaselineStore(tmp_path / "baselines")

    with pytest.raises(ValueError):
        baselines.append(bad, SOURCE)
    assert baselines.flush().written == ()


def test_a_session_must_name_the_source_that_is_stored_with_it(tmp_path: Path) -> None:
    baselines = BaselineStore(tmp_path)

    with pytest.raises(ValueError, match="hash of the source"):
        baselines.append(session(), "another source")
    with pytest.raises(ValueError, match="hash of the source"):
        baselines.append(session(), None)
    with pytest.raises(ValueError, match=r"none of \.cu, \.py"):
        baselines.append(session(), SOURCE, suffix=".exe")


def test_a_bad_fact_is_refused(tmp_path: Path) -> None:
    baselines = BaselineStore(tmp_path)

    for bad in (fact(digest=""), fact(counters={"loads": math.nan}), fact(seed=2**80)):
        with pytest.raises(ValueError):
            baselines.update_exact(bad)


# Writing safely


def test_a_failed_write_keeps_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored(tmp_path, session(1))
    before = files(tmp_path)
    baselines = BaselineStore(tmp_path)
    baselines.append(session(2), SOURCE)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        (error,) = baselines.flush().refused

    assert "No space left on device" in str(error)
    assert files(tmp_path) == before
    assert len(baselines.flush().written) == 1, "what was refused stays queued"
    reference = BaselineStore(tmp_path).reference(DEVICE, "tiled", BENCHMARK)
    assert reference is not None
    assert len(reference.sessions) == 2


def test_an_interrupted_write_leaves_no_temporary_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file.json"
    write_atomically(path, b"old")

    def interrupt(descriptor: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, b"new")

    assert files(tmp_path) == {"file.json": b"old"}


def test_a_file_that_is_replaced_keeps_its_permissions(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_bytes(b"old")
    path.chmod(0o640)
    write_atomically(path, b"new")
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"new", 0o640)


def test_what_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"x.svg: it cannot be written \((Not a|File exists)"):
        write_text(tmp_path / "file" / "x.svg", "<svg/>")


def test_one_unusable_file_does_not_stop_the_others(tmp_path: Path) -> None:
    stored(tmp_path, session(1))
    path = tmp_path / DEVICE / "tiled.json"
    path.write_text("{")
    baselines = BaselineStore(tmp_path)
    baselines.append(session(2), SOURCE)
    baselines.append(session(2, kernel="naive", benchmark="naive-8x8x8-float32"), SOURCE)

    flushed = baselines.flush()

    assert [written.name for written in flushed.written] == ["naive.json"]
    assert len(flushed.refused) == 1
    assert path.read_text() == "{"
    assert BaselineStore(tmp_path).benchmarks(DEVICE) == ("naive-8x8x8-float32",)


def test_a_changed_source_file_is_neither_believed_nor_overwritten(tmp_path: Path) -> None:
    stored(tmp_path, session(1))
    path = tmp_path / "sources" / f"{source_hash(SOURCE)}.cu"
    path.write_text("changed")
    baselines = BaselineStore(tmp_path)

    with pytest.raises(BaselineError, match="not what its name says"):
        baselines.source(source_hash(SOURCE))
    baselines.append(session(2), SOURCE)
    (error,) = baselines.flush().refused

    assert "not what its name says" in str(error)
    assert path.read_text() == "changed"


def test_sources_keep_every_byte(tmp_path: Path) -> None:
    source = "// caf\udce9\r\n\ttab\n"
    baselines = BaselineStore(tmp_path)
    baselines.append(session(source=source_hash(source)), source, suffix=".py")
    baselines.flush()

    assert baselines.source(source_hash(source)) == source


def test_a_file_in_place_of_the_folder_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "baselines").write_text("not a folder")
    baselines = BaselineStore(tmp_path / "baselines")
    baselines.append(session(), SOURCE)

    with pytest.raises(BaselineError, match="gemm_baselines") as caught:
        baselines.flush()
    assert "\n" not in str(caught.value)
    assert (tmp_path / "baselines").read_text() == "not a folder"


@pytest.mark.parametrize("folder", [DEVICE, "exact"])
def test_a_pipe_in_place_of_a_file_is_damage_and_is_not_waited_for(
    tmp_path: Path, folder: str
) -> None:
    stored(tmp_path, session(1), facts=(fact(),))
    path = tmp_path / folder / "tiled.json"
    path.unlink()
    os.mkfifo(path)

    error = refusal(tmp_path, folder)
    assert error is not None
    assert_one_sentence(error, path)
    assert "it is no regular file" in str(error)
    baselines = BaselineStore(tmp_path)
    baselines.append(session(4), SOURCE)
    baselines.update_exact(fact(16))
    assert [str(refused) for refused in baselines.flush().refused] == [str(error)]
    assert path.is_fifo()


def test_a_file_in_place_of_a_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / DEVICE).write_text("not a folder")
    with pytest.raises(BaselineError) as caught:
        BaselineStore(tmp_path).reference(DEVICE, "tiled", BENCHMARK)
    said = (
        f"it cannot be read: {tmp_path / DEVICE} is a file in the place of a folder: move it away"
    )
    assert said in str(caught.value)
    assert "git checkout" not in str(caught.value)


def test_a_flush_holds_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = []

    def write(path: Path, content: bytes) -> None:
        descriptor = os.open(tmp_path, os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(descriptor)
        held.append(path)

    monkeypatch.setattr(store, "write_atomically", write)
    baselines = BaselineStore(tmp_path)
    baselines.append(session(), SOURCE)
    baselines.flush()

    assert [path.suffix for path in held] == ["", ".cu", ".json"]


def _store_days(root: str, days: list[int]) -> None:
    for day in days:
        baselines = BaselineStore(Path(root))
        baselines.append(session(day), SOURCE)
        baselines.flush()


def test_two_processes_lose_nothing(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    root = str(tmp_path / "baselines")
    writers = [
        context.Process(target=_store_days, args=(root, days))
        for days in (list(range(1, 10)), list(range(11, 20)))
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()

    assert [writer.exitcode for writer in writers] == [0, 0]
    (found,) = BaselineStore(Path(root)).series(DEVICE, "tiled", BENCHMARK)
    assert sorted(int(s.date[8:10]) for s in found.sessions) == [*range(1, 10), *range(11, 20)]


# Versions


def test_a_newer_format_is_one_sentence_and_left_alone(tmp_path: Path) -> None:
    stored(tmp_path, session(1))
    path = tmp_path / DEVICE / "tiled.json"
    path.write_text(path.read_text().replace('"format": 2', '"format": 3'))
    before = path.read_bytes()
    baselines = BaselineStore(tmp_path)
    baselines.append(session(2), SOURCE)

    (error,) = baselines.flush().refused

    assert "its format is 3, newer than 2; upgrade pytest-gemm" in str(error)
    assert path.read_bytes() == before


def test_an_older_format_is_migrated_step_by_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored(tmp_path, session(1))
    path = tmp_path / DEVICE / "tiled.json"
    path.write_text(path.read_text().replace('"seed"', '"sd"'))

    def rename(data: dict[str, Any]) -> dict[str, Any]:
        for entry in data["sessions"][:-1]:
            entry["setup"]["seed"] = entry["setup"].pop("sd")
        return data

    monkeypatch.setattr(frame, "FORMAT", 4)
    monkeypatch.setattr(schema, "MIGRATIONS", {2: rename, 3: dict})

    baselines = stored(tmp_path, session(2))

    reference = baselines.reference(DEVICE, "tiled", BENCHMARK)
    assert reference is not None
    assert [s.seed for s in reference.sessions] == [0, 0]
    assert '"format": 4' in path.read_text()


def test_a_format_without_a_migration_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored(tmp_path, session(1))
    monkeypatch.setattr(frame, "FORMAT", 3)

    with pytest.raises(BaselineError, match="from format 2 to 3"):
        BaselineStore(tmp_path).reference(DEVICE, "tiled", BENCHMARK)


# Epochs, anchors, damage

LINES = 5
"""The file's first session stands in the line after so many."""


def edited(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def test_each_epoch_of_a_series_keeps_its_twenty(tmp_path: Path) -> None:
    old = {"compiler": "g++ 11"}
    stored(tmp_path, *(session(day, environment=old) for day in range(1, 23)))
    baselines = stored(tmp_path, *(session(day) for day in range(23, 29)))

    found = baselines.sessions(DEVICE, "tiled", BENCHMARK)

    assert [int(s.date[8:10]) for s in found] == [*range(3, 29)]
    assert len({s.program for s in found}) == 1
    assert len({s.epoch for s in found}) == 2


@pytest.mark.parametrize(
    "changes",
    [
        {"settings": {"dtype": "float32", "method": "another"}},
        {"environment": {"compiler": "g++ 13"}},
        {"environment": {"compiler": "g++ 12.2", "driver": "1"}},
        {"seed": 1},
        {"recipe": "normal-2"},
    ],
    ids=str,
)
def test_what_makes_times_incomparable_is_another_epoch(changes: dict[str, Any]) -> None:
    assert session(**changes).epoch != session().epoch
    assert session(**changes).program == session().program
    assert session(environment={"compiler": "g++ 12.2", "load": 9.0}).epoch == session().epoch


def test_the_medians_are_those_of_the_newest_epoch_alone(tmp_path: Path) -> None:
    other = "tiled-8x8x8-float32"
    baselines = stored(
        tmp_path,
        session(1, environment={"compiler": "g++ 11"}),
        session(2),
        session(3, environment={"compiler": "g++ 12.2", "load": 4.0}),
        session(4, benchmark=other, source=""),
        session(5, benchmark=other),
    )

    assert list(baselines.medians(DEVICE)) == [
        tuple(s.estimate.median for s in baselines.sessions(DEVICE, "tiled", BENCHMARK)[1:]),
        (baselines.sessions(DEVICE, "tiled", other)[1].estimate.median,),
    ]


def test_the_anchor_is_what_was_pinned_last(tmp_path: Path) -> None:
    baselines = stored(
        tmp_path,
        session(1, anchor="v1"),
        session(2, anchor="v2"),
        session(3, anchor="v2"),
        session(4),
    )

    anchor = baselines.anchor(DEVICE, "tiled", BENCHMARK)

    assert anchor is not None
    assert [(s.anchor, s.date[8:10]) for s in anchor.sessions] == [("v2", "02"), ("v2", "03")]
    assert baselines.anchor(DEVICE, "tiled", "tiled-8x8x8-float32") is None


def test_a_damaged_line_is_named_and_harms_its_own_benchmark_alone(tmp_path: Path) -> None:
    other = "tiled-8x8x8-float32"
    stored(tmp_path, session(1), session(2), session(3, benchmark=other))
    path = tmp_path / DEVICE / "tiled.json"
    edited(path, '"mad": ', '"mad": -')
    baselines = BaselineStore(tmp_path)

    with pytest.raises(BaselineError, match=r"tiled\.json: line 6: mad is -.*not negative"):
        baselines.reference(DEVICE, "tiled", BENCHMARK)
    assert baselines.reference(DEVICE, "tiled", other) is not None
    assert baselines.benchmarks(DEVICE) == (BENCHMARK, other)
    assert len(baselines.unreadable(DEVICE)) == 1
    baselines.append(session(4, benchmark=other), SOURCE)
    assert len(baselines.flush().refused) == 1


def test_a_file_without_sessions_is_no_baseline(tmp_path: Path) -> None:
    stored(tmp_path, session(1))
    path = tmp_path / DEVICE / "tiled.json"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:LINES], *lines[LINES + 1 :]]))

    with pytest.raises(BaselineError, match="holds no session"):
        BaselineStore(tmp_path).reference(DEVICE, "tiled", BENCHMARK)


def test_the_order_of_benchmarks_in_a_file_does_not_matter(tmp_path: Path) -> None:
    sizes = (4, 8, 16, 32)
    names = [f"tiled-{size}x{size}x{size}-float32" for size in sizes]
    stored(
        tmp_path, *(session(size % 31, benchmark=n) for size, n in zip(sizes, names, strict=True))
    )
    path = tmp_path / DEVICE / "tiled.json"
    lines = path.read_text().splitlines(keepends=True)
    moved = lines[LINES : LINES + 4]
    path.write_text("".join([*lines[:LINES], *reversed(moved), *lines[LINES + 4 :]]))

    baselines = BaselineStore(tmp_path)

    for size, name in zip(sizes, names, strict=True):
        (found,) = baselines.sessions(DEVICE, "tiled", name)
        assert found.date == session(size % 31).date


def test_an_update_drops_no_other_benchmark(tmp_path: Path) -> None:
    renamed = "tiled_old-64x64x64-float32"
    stored(tmp_path, session(1, benchmark=renamed), session(1))
    baselines = stored(tmp_path, *(session(day) for day in range(2, 31)))

    assert renamed in baselines.benchmarks(DEVICE)
    assert len(baselines.sessions(DEVICE, "tiled", renamed)) == 1


def test_reading_never_writes(tmp_path: Path) -> None:
    stored(tmp_path, session(1), session(2, source=""), facts=(fact(),))
    before = files(tmp_path)
    baselines = BaselineStore(tmp_path)
    baselines.reference(DEVICE, "tiled", BENCHMARK)
    baselines.anchor(DEVICE, "tiled", BENCHMARK)
    baselines.unreadable(DEVICE)
    list(baselines.medians(DEVICE))
    baselines.load_exact("tiled")
    baselines.flush()

    assert files(tmp_path) == before


@pytest.mark.parametrize(
    "layout",
    [
        lambda data: json.dumps(data),
        lambda data: json.dumps(data, indent=4),
        lambda data: json.dumps(data, separators=(",", ":")),
        lambda data: json.dumps(data, sort_keys=True, indent=1).replace("\n", "\r\n"),
    ],
    ids=["one line", "indented", "compact", "sorted"],
)
def test_another_layout_of_the_same_data_is_read_alike(
    tmp_path: Path, layout: Callable[[Any], str]
) -> None:
    given = session(2, benchmark='od"d\\ nämé-1x1x1-float32')
    before = stored(tmp_path, session(1), given, session(3, anchor="v1"), facts=(fact(), fact(8)))
    names = before.benchmarks(DEVICE)
    expected = [before.sessions(DEVICE, "tiled", name) for name in names]
    facts = before.load_exact("tiled")
    for path in tmp_path.glob("*/*.json"):
        path.write_bytes(layout(json.loads(path.read_text())).encode())

    after = BaselineStore(tmp_path)

    assert after.benchmarks(DEVICE) == names
    assert [after.sessions(DEVICE, "tiled", name) for name in names] == expected
    assert after.load_exact("tiled") == facts
    assert list(after.medians(DEVICE)) == list(before.medians(DEVICE))


BAD_VALUES = (None, True, "", "a\nb", "text", -1, 0, 0.0, -0.5, 1.5, 10**19, math.nan, math.inf)


def entry_places() -> list[tuple[str, ...]]:
    """Every key of a session's line, as a path."""
    entry = json.loads(schema.session_line(session()))
    inner = [(key, name) for key in ("conditions", "machine", "setup") for name in entry[key]]
    return [
        *((key,) for key in entry),
        *inner,
        ("deciles", "0"),
        ("deciles", "4"),
        ("deciles", "8"),
    ]


@pytest.mark.parametrize("place", entry_places(), ids="-".join)
def test_reading_quickly_accepts_nothing_that_reading_carefully_refuses(
    tmp_path: Path, place: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    line = schema.session_line(session(1))

    def refused(text: str, *, deciles: bool = True) -> str:
        try:
            lines = [
                schema.Line(*each)
                for lines in schema.split_lines([(1, line), (2, text)]).values()
                for each in lines
            ]
            schema.read_sessions(lines, DEVICE, "tiled", deciles=deciles)
        except UnusableError as error:
            return str(error)
        return ""

    quickly, texts = [], []
    for value in [*BAD_VALUES, [], {}, [[1]], {"a": {"b": 1}}, "missing", "twice"]:
        entry = json.loads(line)
        *outer, key = place
        holder = entry[outer[0]] if outer else entry
        key_or_index = int(key) if isinstance(holder, list) else key
        text = ""
        if value == "missing":
            del holder[key_or_index]
        elif value == "twice":
            text = line.replace(f'"{key}": ', f'"{key}": 1, "{key}": ', 1)
        else:
            holder[key_or_index] = value
        texts.append(text or json.dumps(entry))
        quickly.append(refused(texts[-1]))
        if "deciles" not in place:
            assert refused(texts[-1], deciles=False) == quickly[-1]
        assert not quickly[-1] or quickly[-1].startswith(("line 2", "it is not JSON"))
    monkeypatch.setattr(schema, "_read_quickly", lambda lines, deciles: None)

    assert [refused(text) for text in texts] == quickly
    assert any(quickly)


# Format 1

FORMAT_1 = f"""\
{{
  "device": "{DEVICE}",
  "format": 1,
  "kernel": "tiled",
  "sessions": [
    {{NEWER}},
    {{OTHER}},
    {{OLDER}}
  ]
}}
"""


def line_of_format_1(day: int, benchmark: str = BENCHMARK) -> str:
    given = session(day)
    estimate = given.estimate
    entry = {
        "benchmark": benchmark,
        "commit": None,
        "date": given.date,
        "deciles": list(estimate.deciles),
        "environment": dict(given.environment),
        "high": estimate.high,
        "launch": dict(given.launch),
        "launches": 4,
        "low": estimate.low,
        "mad": estimate.mad,
        "median": estimate.median,
        "n": estimate.n,
        "recipe": given.recipe,
        "seed": 0,
        "settings": dict(given.settings),
        "source": given.source,
    }
    return json.dumps(entry)


def store_of_format_1(root: Path) -> Path:
    path = root / DEVICE / "tiled.json"
    path.parent.mkdir(parents=True)
    text = FORMAT_1
    for name, line in (
        ("NEWER", line_of_format_1(2)),
        ("OTHER", line_of_format_1(3, "tiled-8x8x8-float32")),
        ("OLDER", line_of_format_1(1)),
    ):
        text = text.replace(f"{{{name}}}", line)
    path.write_text(text)
    exact = root / "exact" / "tiled.json"
    exact.parent.mkdir()
    line = schema.fact_line(fact())
    exact.write_text(
        f'{{\n  "facts": [\n    {line}\n  ],\n  "format": 1,\n  "kernel": "tiled"\n}}\n'
    )
    return path


def test_format_1_is_read_and_left_alone(tmp_path: Path) -> None:
    store_of_format_1(tmp_path)
    before = files(tmp_path)
    baselines = BaselineStore(tmp_path)

    assert baselines.sessions(DEVICE, "tiled", BENCHMARK) == [session(1), session(2)]
    assert baselines.sessions(DEVICE, "tiled", "tiled-8x8x8-float32") == [
        session(3, benchmark="tiled-8x8x8-float32")
    ]
    assert list(baselines.load_exact("tiled").values()) == [fact()]
    assert baselines.unreadable(DEVICE) == ()
    assert files(tmp_path) == before


def test_an_update_brings_format_1_to_the_present_one_and_loses_nothing(tmp_path: Path) -> None:
    path = store_of_format_1(tmp_path)
    baselines = stored(tmp_path, session(4), facts=(fact(8),))

    found = baselines.sessions(DEVICE, "tiled", BENCHMARK)

    assert [s.date[8:10] for s in found] == ["01", "02", "04"]
    assert len(baselines.sessions(DEVICE, "tiled", "tiled-8x8x8-float32")) == 1
    assert len(baselines.load_exact("tiled")) == 2
    assert '"format": 2' in path.read_text()
    assert len(path.read_text().splitlines()) == LINES + 4 + 3


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"n": 30', '"n": -1', "sessions[1]: n is -1"),
        ('"seed": 0, ', "", "sessions[1].setup lacks 'seed'"),
        ('"commit": null, ', "", "sessions[1] lacks 'commit'"),
        ('"commit": null', '"anchor": 1', "sessions[1] lacks 'commit'"),
    ],
)
def test_damage_in_format_1_is_named(tmp_path: Path, old: str, new: str, said: str) -> None:
    edited(store_of_format_1(tmp_path), old, new)
    (error,) = BaselineStore(tmp_path).unreadable(DEVICE)
    assert said in str(error)


def test_the_baselines_of_this_repository_can_be_read() -> None:
    baselines = BaselineStore(Path(__file__).parent.parent / "baselines")
    gpus = baselines.devices("cuda")
    assert gpus
    for device in gpus:
        assert baselines.unreadable(device) == ()
        for kernel, benchmark in baselines.names(device):
            reference = baselines.reference(device, kernel, benchmark)
            assert reference is not None
            assert len(reference.sessions) >= 5
            assert baselines.load_exact(kernel)
            for each in reference.sessions:
                assert baselines.source(each.source)


def test_a_large_store_is_loaded_judged_and_reported(tmp_path: Path) -> None:
    scale.make(tmp_path, 120, 4)

    found = scale.measure(tmp_path, 120)

    assert found["stored"] == 120
    assert found["sessions"] == 480
    assert found["outcomes"] == {"same": 120}


# Corruption

Corruption = Callable[[random.Random, bytes], bytes | None]


def truncated(rng: random.Random, content: bytes) -> bytes:
    return content[: rng.randrange(len(content))]


def bit_flipped(rng: random.Random, content: bytes) -> bytes:
    flipped = bytearray(content)
    for _ in range(rng.choice((1, 3, 20))):
        flipped[rng.randrange(len(flipped))] ^= 1 << rng.randrange(8)
    return bytes(flipped)


def wrong_value(rng: random.Random, content: bytes) -> bytes:
    data = json.loads(content)
    holder, key = rng.choice(places(data))
    holder[key] = rng.choice(
        [None, True, "", "text", -1, 0, 1.5, [], {}, [[]], math.nan, math.inf, 10**400, -(2**64)]
    )
    return json.dumps(data).encode()


def missing_key(rng: random.Random, content: bytes) -> bytes:
    data = json.loads(content)
    holder, key = rng.choice(places(data))
    del holder[key]
    return json.dumps(data).encode()


def unknown_key(rng: random.Random, content: bytes) -> bytes:
    data = json.loads(content)
    holder, _ = rng.choice([place for place in places(data) if isinstance(place[0], dict)])
    holder[rng.choice(["extra", "", "\ud800", "line\nbreak"])] = 1
    return json.dumps(data).encode()


def duplicate_key(rng: random.Random, content: bytes) -> bytes:
    key = rng.choice([b'"format"', b'"kernel"', b'"seed"', b'"benchmark"'])
    return content.replace(key, key + b": 1, " + key, 1)


def huge_number(rng: random.Random, content: bytes) -> bytes:
    number = rng.choice([b"1e999", b"-1e999", b"9" * 400, b"9" * 5000, b"1e-400"])
    key = rng.choice([b'"seed": ', b'"format": '])
    return content.replace(key, key + number + b", " + b'"x": ', 1)


def wrong_format(rng: random.Random, content: bytes) -> bytes:
    version = rng.choice([b"0", b"-1", b"1", b"3", b"99", b"1.0", b'"1"', b"null", b"true", b"[]"])
    return content.replace(b'"format": 2', b'"format": ' + version)


def nested(rng: random.Random, content: bytes) -> bytes:
    depth = rng.choice([10, 1000, 100_000])
    return content.replace(b'"seed": 0', b'"seed": ' + b"[" * depth + b"]" * depth, 1)


def not_a_number(rng: random.Random, content: bytes) -> bytes:
    return content.replace(b'"seed": 0', b'"seed": ' + rng.choice([b"NaN", b"Infinity"]), 1)


def replaced(rng: random.Random, content: bytes) -> bytes:
    return rng.choice([b"", b"\n", b"null", b"[]", b"1", b'"x"', b"{}", b"\xff\xfe", b"\0" * 9])


def not_utf8(rng: random.Random, content: bytes) -> bytes:
    place = rng.randrange(len(content))
    return content[:place] + rng.choice([b"\xff", b"\xc3\x28", b"\xed\xa0\x80"]) + content[place:]


def twice(rng: random.Random, content: bytes) -> bytes:
    return content + content


def directory(rng: random.Random, content: bytes) -> None:
    return None


CORRUPTIONS: tuple[Corruption, ...] = (
    truncated,
    bit_flipped,
    wrong_value,
    missing_key,
    unknown_key,
    duplicate_key,
    huge_number,
    wrong_format,
    nested,
    not_a_number,
    replaced,
    not_utf8,
    twice,
    directory,
)


def places(data: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) in a JSON value."""
    keys = data.keys() if isinstance(data, dict) else range(len(data))
    found = [(data, key) for key in keys]
    for key in keys:
        if isinstance(data[key], dict | list):
            found += places(data[key])
    return found


@pytest.mark.parametrize("seed", range(220))
@pytest.mark.parametrize("folder", [DEVICE, "exact"])
def test_a_corrupted_file_is_read_or_refused_in_one_sentence_and_never_overwritten(
    tmp_path: Path, folder: str, seed: int
) -> None:
    stored(tmp_path, session(1), session(2), session(3, source=""), facts=(fact(), fact(8)))
    path = tmp_path / folder / "tiled.json"
    corruption = CORRUPTIONS[seed % len(CORRUPTIONS)]
    content = corruption(random.Random(seed), path.read_bytes())
    path.unlink()
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
    before = files(tmp_path)

    error = refusal(tmp_path, folder)
    baselines = BaselineStore(tmp_path)
    baselines.append(session(4), SOURCE)
    baselines.update_exact(fact(16))
    flushed = baselines.flush()

    if error is None:
        assert flushed.refused == ()
        assert refusal(tmp_path, folder) is None
    else:
        assert_one_sentence(error, path)
        assert [str(refused) for refused in flushed.refused] == [str(error)]
        assert len(flushed.written) == 1, "the other file is written"
        name = f"{folder}/tiled.json"
        assert files(tmp_path).get(name) == before.get(name)
    if corruption in {truncated, duplicate_key, directory, wrong_format, not_utf8, twice, nested}:
        assert error is not None


def refusal(root: Path, folder: str) -> BaselineError | None:
    """Read everything that a run reads; any other exception escapes."""
    baselines = BaselineStore(root)
    try:
        if folder == "exact":
            for found in baselines.load_exact("tiled").values():
                assert found.digest
        else:
            for series in baselines.series(DEVICE, "tiled", BENCHMARK):
                for each in series.sessions:
                    assert_usable(each.estimate)
    except BaselineError as error:
        return error
    assert baselines.unreadable(DEVICE) == ()
    return None


def assert_usable(estimate: Estimate) -> None:
    for value in (estimate.median, estimate.low, estimate.high, *estimate.deciles):
        assert 0 < value < math.inf
    assert estimate.low <= estimate.median <= estimate.high
    assert 0 <= estimate.mad < math.inf
    assert estimate.n >= 1


def assert_one_sentence(error: BaselineError, path: Path) -> None:
    text = str(error)
    assert text.startswith(f"{path}: ")
    assert text.isprintable()
    assert f"git checkout -- {shlex.quote(str(path))}, or" in text
    assert "--gemm-baseline update" in text
    assert len(text.replace(str(path), "")) < 320
