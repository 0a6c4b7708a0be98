from __future__ import annotations

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from pytest_gemm.baselines import BaselineStore
from pytest_gemm.cli import adopt, main
from pytest_gemm.cli.project import baselines_folder
from pytest_gemm.errors import ConfigError, DeviceBusyError
from tests.test_baselines import BENCHMARK, DEVICE, SOURCE, fact, files, session, stored

OTHER = "tiled-8x8x8-float32"
GPU = "NVIDIA-H200"


class Command:
    """``pytest-gemm baseline`` on one folder."""

    def __init__(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.root = root
        self.capsys = capsys
        self.error = ""

    def __call__(self, *words: str, code: int = 0) -> list[str]:
        """Its output's lines; ``error`` is what it said on standard error."""
        assert main(["baseline", *words, "--baselines", str(self.root)]) == code
        output, self.error = self.capsys.readouterr()
        return output.splitlines()


@pytest.fixture
def baseline(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    root = tmp_path / "baselines"
    stored(
        root,
        *(session(day) for day in range(1, 6)),
        session(6, benchmark=OTHER),
        session(7, device=GPU),
        facts=(fact(64), fact(8)),
    )
    return Command(root, capsys)


def sessions(root: Path, benchmark: str = BENCHMARK, device: str = DEVICE) -> list[Any]:
    return BaselineStore(root).sessions(device, "tiled", benchmark)


def days(root: Path, benchmark: str = BENCHMARK) -> list[int]:
    return [int(s.date[8:10]) for s in sessions(root, benchmark)]


# The command


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from pytest_gemm.cli import main\n"
        "try: main(['baseline', '--help'])\n"
        "except SystemExit as end: assert end.code == 0\n"
        "print(*sorted({'numpy', 'scipy', 'pytest', '_pytest', 'cupy'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "prune" in run.stdout
    assert run.stdout.splitlines()[-1] == ""


def test_a_missing_package_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(arguments: object) -> int:
        raise ModuleNotFoundError("No module named 'numpy'", name="numpy")

    monkeypatch.setattr(adopt, "run", run)
    assert main(["adopt", "mul.cu"]) == 1
    assert capsys.readouterr().err == "pytest-gemm: numpy is missing; see: pytest-gemm doctor\n"


def test_the_entry_point_is_installed() -> None:
    from importlib.metadata import entry_points

    (command,) = entry_points(group="console_scripts", name="pytest-gemm")
    assert command.load() is main


@pytest.mark.parametrize(
    ("words", "works"),
    [
        ("adopt x.cu", "adopt.source.read_source"),
        ("calibrate", "backends.choice.choose_backend"),
        ("profile", "backends.choice.choose_backend"),
        ("study all", "backends.choice.choose_backend"),
    ],
)
def test_ctrl_c_is_one_line(
    words: str,
    works: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    for module in ("session", "adopt.search"):  # lest these keep what is patched
        import_module(f"pytest_gemm.{module}")
    monkeypatch.setattr(f"pytest_gemm.{works}", interrupted)
    monkeypatch.chdir(tmp_path)
    Path("x.cu").touch()
    assert main(words.split()) == 130
    expected = "pytest-gemm: interrupted; what was not finished was not written\n"
    assert capsys.readouterr() == ("", expected)


@pytest.mark.parametrize("words", [[], ["nonsense"], ["baseline"], ["baseline", "list", "--x"]])
def test_a_wrong_command_exits_with_2(words: list[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code == 2


def test_what_is_missing_is_only_what_is_required(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["baseline", "pin"])
    assert end.value.code == 2
    assert capsys.readouterr().err.endswith("arguments are required: RELEASE\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["show", "tiled-64x64x64-float16"], f"did you mean {BENCHMARK}?"),
        (["show", "?"], "see: pytest-gemm baseline list"),
        (["list", "--device", "H100"], f"nothing is stored for 'H100': there is {GPU}, {DEVICE}"),
        (["diff"], "the name of a benchmark, or --since REV"),
        (["diff", BENCHMARK, "--until", "HEAD"], "or --since REV"),
        (["diff", BENCHMARK, "newest", "--since", "HEAD"], "not both"),
        (["diff", BENCHMARK, "2024"], "no session is '2024'; there are 2025-01-07T12:00:00Z to"),
        (["diff", BENCHMARK, "anchor"], "no session is 'anchor'"),
        (["prune", "--remove"], "name at least one"),
        (["pin", "\n"], "cannot name a release"),
        (["unpin"], "either names of benchmarks or --all"),
        (["unpin", BENCHMARK, "--all"], "either names of benchmarks or --all"),
    ],
)
def test_a_mistake_is_one_sentence_and_changes_nothing(
    baseline: Command, words: list[str], said: str
) -> None:
    before = files(baseline.root)
    assert baseline(*words, code=2) == []
    assert baseline.error.startswith("pytest-gemm: ")
    assert said in baseline.error
    assert baseline.error.count("\n") == 1
    assert files(baseline.root) == before


def test_a_missing_folder_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["baseline", "list"]) == 2
    assert "--gemm-baseline=update" in capsys.readouterr().err


def test_output_that_nobody_reads_is_no_error(baseline: Command) -> None:
    code = "import sys; from pytest_gemm.cli import main; sys.exit(main())"
    words = ["baseline", "list", "--baselines", str(baseline.root)]
    run = subprocess.Popen(
        [sys.executable, "-c", code, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert run.stdout is not None
    assert run.stderr is not None
    run.stdout.close()
    assert run.stderr.read() == b""
    assert run.wait() == 0
    run.stderr.close()


# Where the folder is


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pyproject.toml", "[tool.pytest.ini_options]\ngemm_baselines = 'stored'\n"),
        ("pyproject.toml", "[tool.pytest]\ngemm_baselines = 'stored'\n"),
        ("pytest.toml", "[pytest]\ngemm_baselines = 'stored'\n"),
        ("pytest.ini", "[pytest]\ngemm_baselines = stored\n"),
        (".pytest.ini", "[pytest]\ngemm_baselines = stored\n"),
        ("tox.ini", "[tox]\nenvlist = py\n[pytest]\ngemm_baselines = stored\n"),
        ("setup.cfg", "[tool:pytest]\ngemm_baselines = stored\n"),
    ],
)
def test_the_folder_is_the_projects(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "pyproject.toml").write_text("[project]\nname = 'x'\n")

    assert baselines_folder(tmp_path / "a" / "b") == tmp_path / "stored"


def test_the_nearest_settings_count(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\ngemm_baselines = far\n")
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "pytest.ini").write_text("")

    assert baselines_folder(inner) == inner / "baselines"


def test_settings_that_cannot_be_read_are_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool")
    with pytest.raises(ConfigError, match=r"pyproject\.toml: it cannot be read") as caught:
        baselines_folder(tmp_path)
    assert "\n" not in str(caught.value)


# list


def test_list_names_devices_benchmarks_sessions_dates_and_anchors(baseline: Command) -> None:
    stored(baseline.root, session(8, environment={"compiler": "g++ 13"}))
    baseline("pin", "v1.0", OTHER)

    assert [line.split() for line in baseline("list")] == [
        [f"{GPU}:", "1", "benchmarks"],
        ["benchmark", "sessions", "earlier", "newest", "anchor"],
        [BENCHMARK, "1", "2025-01-07"],
        [f"{DEVICE}:", "2", "benchmarks"],
        ["benchmark", "sessions", "earlier", "newest", "anchor"],
        [BENCHMARK, "1", "5", "2025-01-08"],
        [OTHER, "1", "2025-01-06", "v1.0"],
    ]
    assert len(baseline("list", "--device", GPU)) == 3


def test_what_cannot_be_read_is_said_and_the_rest_listed(baseline: Command) -> None:
    path = baseline.root / DEVICE / "tiled.json"
    text = path.read_text()
    path.write_text(text.replace('"n": 30', '"n": 0', 1))

    lines = baseline("list", code=1)

    assert any(OTHER in line for line in lines)
    assert "tiled.json: line 6: n is 0" in baseline.error
    baseline("show", OTHER, code=1)
    before = files(baseline.root)
    baseline("pin", "v1", OTHER, code=1)
    assert files(baseline.root) == before


def test_an_empty_folder_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert Command(tmp_path, capsys)("list") == [f"{tmp_path}: nothing is stored"]


# show


def test_show_gives_sessions_with_medians_intervals_and_conditions(baseline: Command) -> None:
    stored(baseline.root, session(8, environment={"compiler": "g++ 13", "sm_clock": 1980}))

    lines = baseline("show", BENCHMARK, "--device", DEVICE)

    assert lines[0] == f"{BENCHMARK} on {DEVICE}"
    assert "compiler g++ 12.2" in lines[1]
    assert re.fullmatch(
        r"    2025-01-01 12:00:00  1.00 ms  -0.05 % to \+0.05 %  30 x 4  no commit +load 0.25",
        lines[2],
    )
    assert [line.split()[0] for line in lines[2:7]] == [f"2025-01-{day:02}" for day in range(1, 6)]
    assert lines[7] == "  not comparable with those before: compiler g++ 12.2 -> g++ 13"
    assert lines[8].endswith("sm_clock 1980")


# diff


def test_diff_compares_two_sessions(baseline: Command) -> None:
    lines = baseline("diff", BENCHMARK, "2025-01-02", "2025-01-05", "--device", DEVICE)
    assert [line.split()[:2] for line in lines[1:3]] == [
        ["old", "2025-01-02"],
        ["new", "2025-01-05"],
    ]
    assert lines[3:] == ["  change of the median: +0.30 %"]


def test_diff_is_against_the_anchor_or_the_session_before(baseline: Command) -> None:
    def old() -> str:
        return baseline("diff", BENCHMARK, "--device", DEVICE)[1].split()[1]

    assert old() == "2025-01-04"
    baseline("pin", "v1.0", BENCHMARK)
    stored(baseline.root, session(9))
    assert old() == "2025-01-05"


def test_diff_never_gives_a_change_across_epochs(baseline: Command) -> None:
    stored(baseline.root, session(8, environment={"compiler": "g++ 13", "load": 0.5}))
    lines = baseline("diff", BENCHMARK, "--device", DEVICE)
    assert lines[3] == "  not comparable: compiler g++ 12.2 -> g++ 13"
    assert not any("change of" in line for line in lines)


def test_diff_says_that_the_kernel_changed(baseline: Command) -> None:
    stored(baseline.root, session(8, source=""))
    lines = baseline("diff", BENCHMARK, "--device", DEVICE)
    assert lines[3] == "  change of the median: +0.30 %"
    assert lines[4].startswith("  another kernel: source ")


def git(root: Path, *arguments: str) -> None:
    command = ["git", "-c", "user.name=x", "-c", "user.email=x@example.org", *arguments]
    subprocess.run(command, cwd=root, check=True, capture_output=True)


def test_diff_compares_two_revisions(baseline: Command) -> None:
    root = baseline.root
    git(root.parent, "init", "-b", "main")
    (root.parent / "README").write_text("before")
    git(root.parent, "add", "README")
    git(root.parent, "commit", "-m", "nothing stored")
    git(root.parent, "add", ".")
    git(root.parent, "commit", "-m", "sessions")
    stored(root, session(8), session(9, benchmark="tiled-4x4x4-float32"))
    baseline("pin", "v1.0", BENCHMARK, "--device", DEVICE)
    baseline("prune", OTHER, "--remove", "--yes")

    rows = [line.split() for line in baseline("diff", "--since", "HEAD")]
    assert rows == [
        [DEVICE, "tiled-4x4x4-float32", "new", "stored"],
        [DEVICE, BENCHMARK, "+0.30", "%", "1", "added,", "anchor", "none", "->", "v1.0"],
        [DEVICE, OTHER, "gone", "now", "not", "stored"],
    ]
    assert len(baseline("diff", "--since", "HEAD~1", "--until", "HEAD")) == 3
    assert baseline("diff", "--since", "HEAD", "--until", "HEAD") == ["nothing changed"]
    assert baseline("diff", "--since", "nowhere", code=2) == []
    assert "git knows no commit" in baseline.error
    assert baseline.error.count("\n") == 1


def test_a_busy_device_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def busy(arguments: object) -> int:
        raise DeviceBusyError("process 7 has the device")

    monkeypatch.setattr("pytest_gemm.cli.calibrate.run", busy)
    assert main(["calibrate"]) == 1
    assert capsys.readouterr().err == "pytest-gemm: process 7 has the device\n"


def test_a_revision_is_never_taken_for_an_option(baseline: Command) -> None:
    git(baseline.root.parent, "init")
    baseline("diff", "--since=--output=stolen", code=2)
    assert "git knows no commit" in baseline.error
    assert not list(baseline.root.parent.rglob("stolen*"))


# pin


def test_a_pinned_session_outlives_any_number_of_others(baseline: Command) -> None:
    lines = baseline("pin", "v1.0", BENCHMARK, "--device", DEVICE)
    assert lines == [f"{BENCHMARK} on {DEVICE}: 5 sessions pinned for v1.0"]

    stored(baseline.root, *(session(day, source="") for day in range(10, 32)))
    baseline("prune", "--keep", "1", "--series", "1", "--yes")

    assert days(baseline.root) == [1, 2, 3, 4, 5, 31]
    anchor = BaselineStore(baseline.root).anchor(DEVICE, "tiled", BENCHMARK)
    assert anchor is not None
    assert [s.date[8:10] for s in anchor.sessions] == ["01", "02", "03", "04", "05"]


def test_an_old_anchor_is_no_part_of_its_series(baseline: Command) -> None:
    baseline("pin", "v1.0", BENCHMARK)
    stored(baseline.root, *(session(day) for day in range(8, 32)))

    reference = BaselineStore(baseline.root).reference(DEVICE, "tiled", BENCHMARK)

    assert reference is not None
    assert len(reference.sessions) == 20
    assert not any(s.anchor for s in reference.sessions)
    assert len(days(baseline.root)) == 25


def test_a_new_pin_replaces_the_old_one_and_unpin_takes_it_away(baseline: Command) -> None:
    baseline("pin", "v1.0")
    stored(baseline.root, session(8, environment={"compiler": "g++ 13"}))
    lines = baseline("pin", "v2.0", BENCHMARK, "--device", DEVICE)
    assert lines == [f"{BENCHMARK} on {DEVICE}: 1 sessions pinned for v2.0 (was v1.0)"]
    assert [s.anchor for s in sessions(baseline.root)] == [None] * 5 + ["v2.0"]
    assert [s.anchor for s in sessions(baseline.root, OTHER)] == ["v1.0"]

    assert len(baseline("unpin", "--all")) == 3
    assert not any(s.anchor for s in sessions(baseline.root))
    assert BaselineStore(baseline.root).anchor(DEVICE, "tiled", BENCHMARK) is None


# prune


def test_prune_says_what_goes_and_writes_only_with_yes(baseline: Command) -> None:
    before = files(baseline.root)
    lines = baseline("prune", "--keep", "2")
    assert lines == [
        f"{BENCHMARK} on {DEVICE}: 3 of 5 sessions go",
        "nothing is written without --yes",
    ]
    assert files(baseline.root) == before

    baseline("prune", "--keep", "2", "--yes")

    assert days(baseline.root) == [4, 5]
    assert days(baseline.root, OTHER) == [6]
    assert baseline("prune", "--keep", "2", "--yes") == ["nothing to prune"]


def test_prune_keeps_every_series_and_epoch_unless_told(baseline: Command) -> None:
    stored(baseline.root, session(8, source=""), session(9, environment={"compiler": "g++ 13"}))
    baseline("prune", "--keep", "1", "--yes")
    assert days(baseline.root) == [5, 8, 9]
    baseline("prune", "--keep", "1", "--series", "1", "--yes")
    assert days(baseline.root) == [5, 9]


@pytest.mark.parametrize("count", ["0", "-1", "x", "1.5", "²"])
def test_a_count_is_at_least_1(baseline: Command, count: str) -> None:
    with pytest.raises(SystemExit) as end:
        main(["baseline", "prune", f"--keep={count}"])
    assert end.value.code == 2


def test_a_benchmark_is_removed_only_when_named_and_not_pinned(baseline: Command) -> None:
    baseline("pin", "v1.0", BENCHMARK, "--device", GPU)
    before = files(baseline.root)
    assert "nothing" in baseline("prune", "--yes")[-1]
    baseline("prune", BENCHMARK, "--remove", "--yes", code=2)
    assert "unpin it before" in baseline.error
    assert files(baseline.root) == before

    baseline("unpin", BENCHMARK)
    baseline("prune", BENCHMARK, "--remove", "--yes", "--device", GPU)

    assert not (baseline.root / GPU / "tiled.json").exists()
    store = BaselineStore(baseline.root)
    assert store.benchmarks(DEVICE) == (BENCHMARK, OTHER)
    assert len(store.load_exact("tiled")) == 2, "another device still has it"
    baseline("prune", BENCHMARK, "--remove", "--yes")
    assert [f.benchmark for f in BaselineStore(baseline.root).load_exact("tiled").values()] == [
        OTHER
    ]


def test_what_is_removed_can_be_stored_again(baseline: Command) -> None:
    baseline("prune", BENCHMARK, OTHER, "--remove", "--yes")
    assert not list(baseline.root.glob("*/tiled.json"))
    stored(baseline.root, session(10))
    assert days(baseline.root) == [10]
    assert BaselineStore(baseline.root).source(session().source) == SOURCE
    assert sessions(baseline.root)[0]._replace(estimate=session(10).estimate) == session(10)
