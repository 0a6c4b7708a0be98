"""``--gemm-bench`` from end to end, with a scripted clock."""

from __future__ import annotations

import json
import os
import shlex
import xml.etree.ElementTree as ET
from pathlib import Path
from textwrap import dedent

import pytest

from pytest_gemm.case import Case
from pytest_gemm.options import Options
from pytest_gemm.record import Record
from pytest_gemm.result import Result
from pytest_gemm.session import GemmSession
from pytest_gemm.verdict import Verdict
from tests.conftest import KERNELS, TEST, Project
from tests.memory_backend import MemoryBackend

CASES = {
    "outer-16x16x16-float32",
    "outer-16x24x8-float32",
    "blas-16x16x16-float32",
    "blas-16x24x8-float32",
    "plus-16x16-float32",
}


def failed_cases(result: pytest.RunResult) -> set[str]:
    lines = [line for line in result.outlines if line.startswith("FAILED ")]
    return {line.partition("[")[2].partition("]")[0] for line in lines}


def test_the_first_run_says_new_and_how_to_store(project: Project) -> None:
    result = project.bench()
    assert result.ret == 0
    assert result.parseoutcomes() == {"passed": 5, "new": 5}
    assert "--gemm-baseline=update" in result.stdout.str()
    assert project.files() == {}


def test_an_update_stores_and_the_next_run_says_same(project: Project) -> None:
    """Also where kernels are declared in another order: they are compared by name."""
    seconds = {"outer": 0.010, "blas": 0.020, "plus": 0.030}
    project.script(seconds)
    update = project.bench("--gemm-baseline=update")
    assert update.parseoutcomes() == {"passed": 5, "stored": 5}
    stored = project.files()
    imports, *kernels = KERNELS.split("    @pytest_gemm")
    project.script(seconds, kernels="    @pytest_gemm".join([imports, *reversed(kernels)]))
    again = project.bench()
    assert again.ret == 0
    assert again.parseoutcomes() == {"passed": 5}
    assert again.stdout.str().count(" same") == 5
    assert project.files() == stored


def test_a_slower_kernel_fails_exactly_its_own_items(project: Project) -> None:
    project.store()
    stored = project.files()
    project.script({"outer": 0.013})
    result = project.bench()
    assert result.ret == 1
    assert result.parseoutcomes() == {"passed": 3, "failed": 2}
    assert failed_cases(result) == {c for c in CASES if c.startswith("outer")}
    result.stdout.fnmatch_lines(
        ["FAILED *outer-16x16x16-float32* outer on 16x16x16: slower by 30.0 %*"]
    )
    assert project.files() == stored


def test_one_disturbed_attempt_is_no_regression(project: Project) -> None:
    """Something else kept the machine busy for a while: the case is timed again."""
    project.store()
    kernels = KERNELS + (
        "\n    calls = []\n"
        "    def seconds(name):\n"
        "        calls.extend([name] * (name == 'plus'))\n"
        "        return 0.02 if name == 'plus' and len(calls) < 60 else 0.01\n"
    )
    project.script({}, kernels=kernels, per_call="seconds")
    result = project.bench("--gemm-report=out.json")
    assert result.parseoutcomes() == {"passed": 5}
    report = json.loads((project.path / "out.json").read_text(encoding="utf-8"))
    [plus] = [r for r in report["records"] if r["id"].startswith("plus")]
    assert plus["result"]["estimate"]["median"] == pytest.approx(0.01)


def test_a_slower_run_accepted_by_update_is_the_next_reference(project: Project) -> None:
    project.store()
    project.script({"outer": 0.013})
    assert project.bench("--gemm-baseline=update").ret == 0
    project.bench("--gemm-baseline=update")
    project.bench("--gemm-baseline=update")
    project.bench("--gemm-baseline=update")
    assert project.bench().ret == 0


def test_a_faster_kernel_passes_and_asks_to_be_stored(project: Project) -> None:
    project.store()
    project.script({"plus": 0.005})
    result = project.bench()
    assert result.ret == 0
    assert result.parseoutcomes() == {"passed": 5, "faster": 1}


def test_a_changed_source_is_compared_with_the_old_one(project: Project) -> None:
    """A commit that slows a kernel changes its source: that must not make it "new"."""
    project.store()
    slowed = KERNELS.replace("C[:] = A @ B", "C[:] = (A @ B)")
    project.script({"blas": 0.013}, kernels=slowed)
    result = project.bench()
    assert failed_cases(result) == {c for c in CASES if c.startswith("blas")}


def test_strict_fails_where_nothing_is_stored(project: Project) -> None:
    result = project.bench("--gemm-baseline=strict")
    assert result.ret == 1
    assert result.parseoutcomes() == {"failed": 5, "new": 5}


def test_strict_fails_for_a_vanished_kernel(project: Project) -> None:
    project.store()
    project.script({}, kernels=KERNELS.replace("def plus", "def renamed"))
    relaxed = project.bench()
    assert relaxed.ret == 0
    relaxed.stdout.fnmatch_lines(["*plus-16x16-float32*"])
    strict = project.bench("--gemm-baseline=strict", "-k", "outer or blas")
    assert strict.ret == 1
    strict.stdout.fnmatch_lines(["*plus-16x16-float32*"])


@pytest.mark.parametrize("args", [[], ["-n", "2"]])
def test_strict_fails_for_facts_of_a_vanished_kernel(project: Project, args: list[str]) -> None:
    """Also where nothing is timed."""
    project.run("--gemm-baseline=update")
    project.script({}, kernels=KERNELS.partition("    @pytest_gemm.kernel(op")[0])
    strict = project.run("--gemm-baseline=strict", "-k", "outer", *args)
    assert strict.ret == 1
    path = project.path / "baselines" / "exact" / "plus.json"
    assert [line for line in strict.outlines if line.startswith("ERROR: ")] == [
        f"ERROR: vanished: {path} is of no kernel of this project: delete it"
    ]


def test_strict_fails_for_a_vanished_problem(project: Project) -> None:
    project.store()
    project.script({}, kernels=KERNELS.replace('["16x16x16", "16x24x8"]', '["16x16x16"]'))
    assert project.bench("--gemm-baseline=strict").ret == 1
    # Other sizes are asked for: then only kernels can vanish.
    other = project.bench("--gemm-size=8")
    assert "is no case" not in other.stdout.str()


@pytest.mark.parametrize("args", [[], ["-n", "1"]])
def test_a_kernel_of_a_folder_that_is_not_run_has_not_vanished(
    project: Project, args: list[str]
) -> None:
    """A run of a part loads the conftest.py files of that part alone."""
    project.pytester.makeini("[pytest]\ntestpaths = a b")
    part = project.path / "b"
    for folder in (project.path / "a", part):
        folder.mkdir()
        (folder / "__init__.py").touch()
        (folder / "test_part.py").write_text(dedent(TEST))
    own = KERNELS.replace("def ", "def own_").replace('from="', 'from="own_')
    (part / "conftest.py").write_text(dedent(own))
    other = project.path / "b" / "c" / "conftest.py"
    other.parent.mkdir()
    other.write_text("import pytest_gemm.problem")
    assert project.bench("a", "b", "--gemm-baseline=update").parseoutcomes()["passed"] == 20
    alone = project.bench("a", "--gemm-baseline=strict", *args)
    assert "vanished:" not in alone.stdout.str()
    assert alone.ret == 0
    # One that declares nothing hides nothing.
    (part / "conftest.py").unlink()
    gone = project.bench("a", "--gemm-baseline=strict", *args)
    assert gone.ret == 1
    assert "vanished: own_plus-16x16-float32 is stored, but is no case" in gone.stdout.str()


def test_an_unreadable_digest_hides_no_regression(project: Project) -> None:
    project.store()
    path = project.path / "baselines" / "exact" / "outer.json"
    path.write_text("{", encoding="utf-8")
    for result in (project.bench(), project.run()):
        assert result.parseoutcomes() == {"passed": 5, "withheld": 2}
        result.stdout.fnmatch_lines(["outer on 16x16x16: withheld: *outer.json: it is not JSON *"])
    project.script({"outer": 0.013})
    assert project.bench().parseoutcomes() == {"passed": 3, "failed": 2}


SURPLUS = """
    @pytest_gemm.kernel(op="add", sizes=["16x16"], deterministic=True)
    def surplus(A, B, C):
        np.add(A, B, out=C)
"""


def test_the_printed_command_accepts_its_own_case_alone(project: Project) -> None:
    """The name of another kernel may contain this one's."""
    project.script({}, kernels=KERNELS + SURPLUS)
    project.store()
    project.script({"plus": 0.02, "surplus": 0.02}, kernels=KERNELS + SURPLUS)
    result = project.bench()
    accept, *_ = [x for x in result.outlines if x.strip().startswith("accept:") and "[plus" in x]
    pytest_, *arguments = shlex.split(accept.partition(":")[2])
    assert pytest_ == "pytest"
    assert project.run(*arguments).parseoutcomes() == {"passed": 1, "stored": 1}
    project.run(*arguments)
    assert failed_cases(project.bench()) == {"surplus-16x16-float32"}


def test_the_printed_command_repeats_sizes(project: Project) -> None:
    project.bench("--gemm-baseline=update", "--gemm-size=8")
    project.script({"plus": 0.02})
    result = project.bench("--gemm-size=8")
    repeat, *_ = [x for x in result.outlines if x.strip().startswith("repeat:")]
    assert project.run(*shlex.split(repeat.partition(":")[2])[1:]).parseoutcomes() == {"failed": 1}


def test_a_bench_without_cases_says_what_is_missing(project: Project) -> None:
    project.pytester.makepyfile(test_kernels="def test_other(): pass")
    result = project.bench()
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    strict = project.run("--gemm-baseline=strict")
    assert strict.ret == 0  # of other tests only
    for lines in (result, strict):
        lines.stdout.fnmatch_lines(["gemm: no test uses the fixture gemm*"])


@pytest.mark.parametrize("selection", [["-k", "nothing"], ["--deselect", "test_kernels.py"]])
def test_a_bench_whose_cases_are_all_deselected_says_so(
    project: Project, selection: list[str]
) -> None:
    result = project.bench(*selection)
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    result.stdout.fnmatch_lines(["gemm: 5 cases collected, and all deselected: see -k, -m and *"])
    assert "no test uses" not in result.stdout.str()
    assert "taken away" not in result.stdout.str()


DROPPING = """
def pytest_collection_modifyitems(items):
    items[:] = [item for item in items if "outer" not in item.name]
"""


def test_cases_that_a_conftest_drops_are_told(project: Project) -> None:
    project.script({}, kernels=dedent(KERNELS) + DROPPING)
    lost = "gemm: 2 cases taken away by a conftest.py or a plugin, and not reported as deselected: "
    result = project.run("--gemm-baseline=strict", "-k", "outer or plus")
    [line] = [line for line in result.outlines if "taken away" in line]
    assert line.startswith(lost + "test_kernels.py::test_gemm[outer-16x16x16-float32], test_")


def test_what_the_back_end_says_is_seen_at_once(project: Project) -> None:
    """Also inside a test, whose output is captured."""
    project.script({}, kernels=KERNELS, progress="building something that takes long")
    project.run().stdout.fnmatch_lines(["building something that takes long"])


def test_a_case_of_two_tests_is_one_session(project: Project) -> None:
    project.pytester.makepyfile(
        test_kernels="""
        def test_one(gemm):
            gemm.check()

        def test_two(gemm):
            gemm.check()
        """
    )
    assert project.bench("--gemm-baseline=update").parseoutcomes() == {"passed": 10, "stored": 10}
    (path,) = (project.path / "baselines").glob("host-*/plus.json")
    _, end = json.loads(path.read_text(encoding="utf-8"))["sessions"]
    assert end is None


def test_off_says_that_nothing_was_judged(project: Project) -> None:
    project.store()
    project.script({"outer": 0.1})
    result = project.bench("--gemm-baseline=off")
    assert result.ret == 0
    assert result.parseoutcomes() == {"passed": 5, "ungated": 5}


def test_an_unreadable_baseline_withholds_and_is_left_alone(project: Project) -> None:
    project.store()
    (path,) = (project.path / "baselines").glob("host-*/outer.json")
    path.write_text("{", encoding="utf-8")
    path.with_name("plus.json").write_text("")
    result = project.bench()
    assert result.parseoutcomes() == {"passed": 5, "withheld": 3}
    for name in ("outer", "plus"):
        result.stdout.fnmatch_lines([f"*withheld*{name}.json*"])
    strict = project.bench("--gemm-baseline=strict")
    assert failed_cases(strict) == {c for c in CASES if not c.startswith("blas")}
    update = project.bench("--gemm-baseline=update")
    assert update.ret == 1
    update.stdout.fnmatch_lines(["ERROR: *outer.json*"])
    assert path.read_text(encoding="utf-8") == "{"


def test_a_wrong_result_and_a_time_that_is_none_are_not_stored(project: Project) -> None:
    wrong = KERNELS.replace("C[:] = A @ B", "C[:] = A @ B + 1")
    times = "    def seconds(name): return float('nan') if name == 'plus' else 0.01\n"
    project.script({}, kernels=wrong + times, per_call="seconds")
    result = project.bench("--gemm-baseline=update")
    assert failed_cases(result) == {c for c in CASES if not c.startswith("outer")}
    stored = {name.rpartition("/")[2] for name in project.files() if name.endswith(".json")}
    assert stored == {"outer.json"}


@pytest.mark.parametrize("after", ["def test_gemm(gemm): gemm.check(); assert False", """
    import pytest
    @pytest.fixture
    def checked(gemm):
        yield
        assert False
    def test_gemm(gemm, checked): gemm.check()
"""])  # fmt: skip
def test_what_fails_after_its_check_is_not_stored(project: Project, after: str) -> None:
    project.pytester.makepyfile(test_kernels=dedent(after))
    result = project.bench("--gemm-baseline=update", "-k", "plus", "--gemm-report=out.json")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert "stored" not in result.parseoutcomes()
    assert not [name for name in project.files() if name.endswith(".json")]
    [record] = json.loads((project.path / "out.json").read_text(encoding="utf-8"))["records"]
    assert (record["outcome"], record["gate"]) == ("failed", "withheld")
    assert record["message"] == "plus-16x16-float32: its test failed where gemm.check() had passed"


def test_changed_bits_fail_until_accepted(project: Project) -> None:
    """A kernel that is right but sums in another order has another digest."""
    project.run("--gemm-baseline=update")
    turned = KERNELS.replace("range(A.shape[1])", "reversed(range(A.shape[1]))")
    project.script({}, kernels=turned)
    result = project.run()
    assert failed_cases(result) == {c for c in CASES if c.startswith("outer")}
    result.stdout.fnmatch_lines(["*bits*sha256:*"])
    assert project.run("--gemm-baseline=update").ret == 0
    assert project.run().ret == 0


DISTURBED = [
    {"slowdown": "hardware thermal"},
    {"foreign_utilisation": 40},
]


@pytest.mark.parametrize("conditions", DISTURBED, ids=str)
def test_a_disturbed_device_withholds_the_verdict_and_stores_nothing(
    project: Project, conditions: dict[str, object]
) -> None:
    project.store()
    stored = project.files()
    project.script({"plus": 0.05}, conditions=conditions)
    assert project.bench().parseoutcomes() == {"passed": 5, "withheld": 5}
    strict = project.bench("--gemm-baseline=strict")
    assert strict.parseoutcomes() == {"failed": 5, "withheld": 5}
    update = project.bench("--gemm-baseline=update")
    assert update.parseoutcomes() == {"passed": 5, "withheld": 5}
    assert project.files() == stored


def test_other_clocks_than_the_baselines_withhold_the_verdict(project: Project) -> None:
    project.script({}, conditions={"sm_clock": 1980, "canary_s": 1e-5})
    project.store()
    assert project.bench().parseoutcomes() == {"passed": 5}
    project.script({"plus": 0.05}, conditions={"sm_clock": 1200, "canary_s": 1e-5})
    result = project.bench()
    assert result.parseoutcomes() == {"passed": 5, "withheld": 5}
    result.stdout.fnmatch_lines(["plus on 16x16: withheld*1200 MHz*1980*"])
    project.script({"plus": 0.05}, conditions={"sm_clock": 1980, "canary_s": 2e-5})
    assert project.bench().parseoutcomes() == {"passed": 5, "withheld": 5}


def test_an_interrupted_run_stores_nothing(project: Project) -> None:
    project.pytester.makepyfile(
        test_kernels="""
        import pytest
        count = []
        def test_gemm(gemm):
            gemm.check()
            count.append(1)
            if len(count) == 3:
                raise KeyboardInterrupt
        """
    )
    result = project.bench("--gemm-baseline=update")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert project.files() == {}
    assert "partial" in result.stdout.str()


@pytest.mark.parametrize("args", [[], ["-d", "--tx", "popen"]])
def test_a_run_that_stops_at_a_failure_is_partial_too(project: Project, args: list[str]) -> None:
    wrong = KERNELS.replace("C[:] = A @ B", "C[:] = A @ B + 1")
    project.script({}, kernels=wrong)
    project.bench("--gemm-baseline=update", "-x", "--gemm-report=out.json", *args)
    assert project.files() == {}
    report = json.loads((project.path / "out.json").read_text(encoding="utf-8"))
    assert report["partial"] is True
    assert len(report["records"]) < 5


def test_the_report_of_a_run_without_any_case_is_empty_and_whole(project: Project) -> None:
    (project.path / "out.json").write_text("of an earlier run", encoding="utf-8")
    result = project.bench("--gemm-report=out.json", "-k", "nothing")
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    report = json.loads((project.path / "out.json").read_text(encoding="utf-8"))
    assert (report["records"], report["partial"]) == ([], False)


def test_what_cannot_be_written_is_not_called_stored(project: Project) -> None:
    (project.path / "baselines" / "host-scripted" / "plus.json").mkdir(parents=True)
    result = project.bench("--gemm-baseline=update")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert result.parseoutcomes() == {"passed": 5, "stored": 4, "ungated": 1}
    [row] = [line for line in result.outlines if line.startswith("plus ")]
    assert row.split()[-1] == "ungated"
    result.stdout.fnmatch_lines(["ERROR: *plus.json: it cannot be read (Is a directory); *"])


MANY = """
    import pytest_gemm

    @pytest_gemm.kernel(op="add", sizes=[f"{{n}}x8" for n in range(1, {count} + 1)])
    def plus(A, B, C):
        C[:] = A + B
"""


def slower(self: GemmSession, case: Case, function: object = None, target: str = "") -> Record:
    """What ``GemmSession.check`` says of a case that is found to be slower."""
    device = {"kind": "host", "name": "host-scripted", "description": "a CPU"}
    verdict = Verdict("slower", change=1.0)
    return Record(case, Result("passed", device=device), "failed", "slower", "slower", verdict)


@pytest.mark.parametrize("count", [1, 255, 256, 257])
def test_the_exit_code_is_one_however_many_regress(
    project: Project, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not their number, of which a process hands on the last byte alone."""
    monkeypatch.setattr("pytest_gemm.session.GemmSession.check", slower)
    monkeypatch.setattr("pytest_gemm.backends.open_backend", lambda *_: MemoryBackend())
    project.pytester.makeconftest(dedent(MANY.format(count=count)))
    in_process = ("-o", "gemm_in_process=true", "-p", "no:benchmark")
    result = project.pytester.runpytest_inprocess("--gemm-bench", "-q", "--tb=no", *in_process)
    assert result.ret == 1
    assert result.parseoutcomes() == {"failed": count}


def test_everything_else_is_deselected(project: Project) -> None:
    project.pytester.makepyfile(test_other="def test_other(): raise AssertionError")
    assert project.bench().parseoutcomes() == {"passed": 5, "new": 5, "deselected": 1}


def test_a_test_that_does_not_check_is_counted_as_ungated(project: Project) -> None:
    project.pytester.makepyfile(test_kernels="def test_gemm(gemm): assert gemm.kernel.name")
    assert project.bench().parseoutcomes() == {"passed": 5, "ungated": 5}
    assert project.bench("--gemm-baseline=strict").ret == 1


@pytest.mark.parametrize("args", [["-n", "2"], ["-n", "0"]])
def test_a_bench_under_xdist_is_as_without_it(project: Project, args: list[str]) -> None:
    project.bench("--gemm-baseline=update", "--gemm-report=stored.json")
    alone = project.files()
    for path in sorted((project.path / "baselines").rglob("*.json")):
        path.unlink()
    project.bench("--gemm-baseline=update", *args)
    assert project.files().keys() == alone.keys()

    project.script({"blas": 0.012})
    result = project.bench("--gemm-report=out.json", *args)
    assert result.ret == 1
    assert result.parseoutcomes() == {"passed": 3, "failed": 2}
    records = json.loads((project.path / "out.json").read_text())["records"]
    gates = {record["id"].partition("-")[0]: record["gate"] for record in records}
    assert gates == {"blas": "slower", "outer": "same", "plus": "same"}


def test_vanished_benchmarks_are_seen_under_xdist(project: Project) -> None:
    project.store()
    other = KERNELS.replace("def plus", "def sum_of").replace("np.add(A, B, out=C)", "C[:] = A + B")
    project.script({}, kernels=other)
    result = project.bench("-n", "2", "--gemm-baseline=strict")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*vanished: plus-16x16-float32 is stored*"])


def test_verification_runs_under_xdist_and_stores_its_digests(project: Project) -> None:
    result = project.run("-n", "2", "--gemm-baseline=update")
    assert result.ret == 0
    assert set(project.files()) >= {"exact/outer.json", "exact/plus.json"}


@pytest.mark.parametrize(
    "flags",
    [["-p", "no:benchmark"], ["-p", "no:xdist"], ["--benchmark-disable"], ["--benchmark-skip"],
     ["--benchmark-only"], ["-q"], ["-x"], ["--lf"], ["-p", "no:cacheprovider"],
     ["--gemm-bench", *["--gemm-baseline=auto", "--gemm-margin=0"] * 2]],
    ids=" ".join,
)  # fmt: skip
def test_the_gate_holds_whatever_else_is_on_the_command_line(
    project: Project, flags: list[str]
) -> None:
    project.store()
    project.script({"plus": 0.02})
    if "no:benchmark" in flags:
        result = project.run("--gemm-bench", *flags)
    else:
        result = project.bench(*flags)
    assert result.ret == 1
    assert failed_cases(result) == {"plus-16x16-float32"}


def test_pytest_benchmark_shows_our_times(project: Project) -> None:
    result = project.run("--gemm-bench", "--benchmark-json=out.json")
    assert result.ret == 0
    data = json.loads((project.path / "out.json").read_text(encoding="utf-8"))
    medians = {b["param"]: b["stats"]["median"] for b in data["benchmarks"]}
    assert medians == dict.fromkeys(CASES, pytest.approx(0.010, rel=1e-12))
    assert {b["group"] for b in data["benchmarks"]} == {
        "gemm 16x16x16", "gemm 16x24x8", "add 16x16",
    }  # fmt: skip
    result.stdout.fnmatch_lines(["*Median*"])


def test_the_report_holds_every_sample_and_verdict(project: Project) -> None:
    project.store()
    project.script({"plus": 0.02})
    project.bench("--gemm-report=out.json", f"--junit-xml={project.path / 'out.xml'}")
    report = json.loads((project.path / "out.json").read_text(encoding="utf-8"))
    assert {r["id"] for r in report["records"]} == CASES
    [plus] = [r for r in report["records"] if r["id"].startswith("plus")]
    assert plus["gate"] == "slower"
    assert plus["outcome"] == "failed"
    assert plus["verdict"]["change"] == pytest.approx(1.0)
    assert plus["result"]["samples"] == pytest.approx([0.02] * len(plus["result"]["samples"]))
    cases = ET.parse(project.path / "out.xml").getroot().iter("testcase")
    [case] = [c for c in cases if "plus" in c.get("name", "")]
    properties = {p.get("name"): p.get("value") for p in case.iter("property")}
    assert float(properties["gemm_median_s"] or 0) == pytest.approx(0.02)
    assert properties["gemm_verdict"] == "slower"
    assert case.find("failure") is not None


def test_what_cannot_be_compared_never_passes_a_strict_run_unseen(project: Project) -> None:
    project.run("--gemm-baseline=update")
    # The bits of blas may differ from run to run: no digest is stored.
    result = project.run("--gemm-baseline=strict")
    assert result.ret == 1
    assert result.parseoutcomes() == {"passed": 3, "failed": 2, "ungated": 2}
    result.stdout.fnmatch_lines(
        ["FAILED *blas-16x16x16-float32* blas on 16x16x16: ungated: *--gemm-bench*"]
    )


def test_a_test_without_a_check_never_passes_a_strict_run_unseen(project: Project) -> None:
    project.pytester.makepyfile(test_kernels="def test_gemm(gemm): pass")
    result = project.run("--gemm-baseline=strict", "-k", "plus")
    assert result.ret == 1
    assert result.parseoutcomes() == {"passed": 1, "ungated": 1, "deselected": 4}
    result.stdout.fnmatch_lines(["ERROR: ungated: *plus-16x16-float32* did not call check()"])


def test_the_summary_fits_and_says_that_it_is_the_cpu(project: Project) -> None:
    lines = project.bench().outlines
    start = next(i for i, line in enumerate(lines) if line.startswith("kernel"))
    assert max(len(line) for line in lines[start : start + 6]) <= 100
    assert any("CPU execution: not GPU times" in line for line in lines)
    [row] = [line for line in lines if line.startswith("blas") and "16x16x16" in line]
    assert "1.00x" in row


def test_the_header_names_device_compiler_and_baseline(project: Project) -> None:
    project.bench().stdout.fnmatch_lines(["gemm: *"])


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--gemm-size=0x3"], "--gemm-size"),
        (["--gemm-size=12x"], "--gemm-size"),
        (
            [f"--gemm-size={'9' * 5000}"],
            "is not a size: write N or MxNxK, each from 1 to 10^12 - 1",
        ),
        (["--gemm-report=out.txt"], ".json"),
        (["--gemm-report=nowhere/out.json"], "nowhere"),
        (["-o", "gemm_seed=x"], "gemm_seed"),
        (["-o", "gemm_time_cap=nan"], "gemm_time_cap"),
        (["-o", "gemm_margin=-1"], "gemm_margin"),
        (["--gemm-margin=-1"], "--gemm-margin = '-1' is not a number of at least 0"),
        (["--gemm-margin=2%"], "--gemm-margin = '2%' is not a number of at least 0"),
        (["--gemm-margin="], "--gemm-margin = '' is not a number of at least 0"),
        (["--gemm-device=cuda"], "--gemm-device=host"),
    ],
    ids=str,
)
def test_a_bad_option_is_one_usage_error(
    project: Project, flags: list[str], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = project.bench(*flags)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    errors = [line for line in result.errlines if line.startswith("ERROR")]
    assert len(errors) == 1
    assert words in errors[0]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--gemm-margin=100"], "--gemm-margin = '100': a margin is below 100 percent, or what "),
        (["-o", "gemm_margin=1e9"], "gemm_margin = '1e9': a margin is below 100 percent, or what "),
        (["-o", "gemm_baselines=tox.ini"], "tox.ini is no folder: name another"),
        (["-o", "gemm_baselines=tox.ini/a/b"], "tox.ini is no folder: name another one"),
        (
            ["-o", "gemm_in_process=maybe"],
            "gemm_in_process: invalid truth value 'maybe': write true or",
        ),
        (["-o", "gemm_kernels="], "gemm_kernels is empty: name folders with .cu kernels, or leave"),
    ],
    ids=str,
)
def test_a_setting_that_cannot_be_is_refused_at_the_start(
    pytester: pytest.Pytester, flags: list[str], words: str
) -> None:
    pytester.makeini("[pytest]")
    with pytest.raises(pytest.UsageError) as caught:
        pytester.parseconfigure(*flags)
    assert words in str(caught.value)


def test_names_that_no_file_and_no_folder_can_have(pytester: pytest.Pytester) -> None:
    pytester.mkdir("out.json")
    for flag, words in (
        ("-ogemm_baselines=a\0b", r"gemm_baselines = 'a\\x00b': no folder has such a name"),
        ("--gemm-report=out.json", "--gemm-report=out.json: that is a folder: name a file"),
    ):
        config = pytester.parseconfig(flag)
        with pytest.raises(pytest.UsageError, match=words):
            Options(config)


def test_a_folder_of_baselines_that_cannot_be_written_to_is_told_before_anything_runs(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked of the system, as tests may run as a user who may write anywhere."""
    asked = []

    def refuse(path: Path, mode: int) -> bool:
        if mode == os.F_OK:
            return path.exists()
        asked.append((path, mode))
        return False

    monkeypatch.setattr("os.access", refuse)
    usual = Options(pytester.parseconfig("-o", "gemm_baselines=")).baselines
    assert usual == pytester.path / "baselines"
    config = pytester.parseconfig("-o", "gemm_baselines=deep/er")
    assert Options(config).baselines == pytester.path / "deep" / "er"
    assert asked == []
    with pytest.raises(pytest.UsageError) as caught:
        pytester.parseconfigure("-o", "gemm_baselines=deep/er", "--gemm-baseline=update")
    assert str(caught.value) == (
        f"gemm_baselines = 'deep/er': the folder {pytester.path} cannot be written to, as "
        "--gemm-baseline=update must"
    )
    assert asked == [(pytester.path, os.W_OK | os.X_OK)]


def test_a_kernel_that_is_a_lambda_is_timed_and_new(project: Project) -> None:
    """Its entry holds no name by which it could be known again."""
    declared = """
    bare = pytest_gemm.kernel(name="bare", sizes=["16"])(lambda A, B, C: np.matmul(A, B, out=C))
    """
    project.script({}, KERNELS + declared)
    result = project.bench("-k", "bare")
    assert result.ret == 0
    assert result.parseoutcomes() == {"passed": 1, "new": 1, "deselected": 5}


def test_a_renamed_kernel_is_listed_with_its_new_name(project: Project) -> None:
    folder = project.path / "kernels"
    folder.mkdir()
    (project.path / "conftest.py").unlink()
    source = (Path(__file__).parent.parent / "kernels" / "naive.cu").read_text()
    sized = source.replace("// ///\n", '// sizes = ["16"]\n// ///\n', 1)
    (folder / "naive.cu").write_text(sized)
    run = ("--gemm-device=host", "-o", "gemm_time_cap=0.001")
    assert project.bench(*run, "--gemm-baseline=update").ret == 0
    (folder / "naive.cu").rename(folder / "plain.cu")
    result = project.bench(*run)
    result.stdout.fnmatch_lines(
        ["renamed: naive-16x16x16-float32 is plain-16x16x16-float32 now, by its source: *"]
    )
    assert project.bench(*run, "--gemm-baseline=strict").ret == 1

    (stored,) = (project.path / "baselines").glob("host-*/naive.json")
    stored.write_text(stored.read_text().replace('"entry"', '"damaged"'))
    project.bench(*run).stdout.fnmatch_lines(["vanished: naive-16x16x16-float32 is stored, *"])


SWEEP = """
    @pytest_gemm.kernel(op="add", sizes=["16x16"], sweep={"P": [1, 2]}, deterministic=True)
    def swept(A, B, C, P):
        np.add(A, B, out=C)
"""


def test_a_sweep_whose_function_has_another_name_is_renamed_variant_by_variant(
    project: Project,
) -> None:
    project.script({}, kernels=KERNELS + SWEEP)
    project.store()
    project.script({}, kernels=KERNELS + SWEEP.replace("swept", "brushed"))
    lines = project.bench().outlines
    renamed = [line.partition(" now, ")[0] for line in lines if line.startswith("renamed: ")]
    assert renamed == [
        f"renamed: swept[P:{p}]-16x16-float32 is brushed[P:{p}]-16x16-float32" for p in (1, 2)
    ]
