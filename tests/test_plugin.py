"""Collection, fixtures and manners: what a project sees of the plugin beside a bench."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from tests.conftest import KERNELS, TEST, Project

KERNEL_FOLDER = Path(__file__).parent.parent / "kernels"


@pytest.fixture
def cuda_project(pytester: pytest.Pytester) -> pytest.Pytester:
    """A project with two of the shipped kernels and the two-line test."""
    pytester.makepyfile(test_kernels=TEST)
    pytester.mkdir("kernels")
    for name in ("naive.cu", "block_size.cu"):
        pytester.path.joinpath("kernels", name).write_text((KERNEL_FOLDER / name).read_text())
    return pytester


def collected(result: pytest.RunResult) -> list[str]:
    return [line.partition("[")[2].removesuffix("]") for line in result.outlines if "::" in line]


def test_ids_are_by_name(cuda_project: pytest.Pytester) -> None:
    ids = collected(cuda_project.runpytest("--collect-only", "-q"))
    assert "naive-256x256x256-float32" in ids
    assert "block_size[SIDE:16]-128x128x128-float32" in ids
    assert len(ids) == 9


@pytest.mark.parametrize(
    ("expression", "count"),
    [
        ("naive-256x256x256-float32", 1),
        ("block_size[SIDE:16]-128x128x128-float32", 1),
        ("SIDE:1", 2),
        ("naive", 3),
        ("not naive", 6),
    ],
)
def test_ids_can_be_selected(cuda_project: pytest.Pytester, expression: str, count: int) -> None:
    result = cuda_project.runpytest("--collect-only", "-q", "-k", expression)
    assert len(collected(result)) == count


def test_the_marker_selects(cuda_project: pytest.Pytester) -> None:
    cuda_project.makepyfile(test_other="def test_other(): pass")
    result = cuda_project.runpytest("--collect-only", "-q", "-m", "gemm")
    assert len(collected(result)) == 9


def test_sizes_can_be_given(cuda_project: pytest.Pytester) -> None:
    result = cuda_project.runpytest(
        "--collect-only", "-q", "-k", "naive", "--gemm-size=64", "--gemm-size", "3x5x7"
    )
    assert collected(result) == ["naive-64x64x64-float32", "naive-3x5x7-float32"]


def test_collection_imports_no_numpy_and_compiles_nothing(
    cuda_project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda_project.makeconftest(
        """
        import sys
        def pytest_unconfigure():
            heavy = {"numpy", "scipy", "cupy", "subprocess"} & set(sys.modules)
            assert heavy <= {"subprocess"}, heavy
        """
    )
    cache = cuda_project.path / "cache"
    monkeypatch.setenv("PYTEST_GEMM_CACHE", str(cache))
    result = cuda_project.runpytest_subprocess("--collect-only", "-q", "-p", "no:hypothesispytest")
    assert result.ret == 0
    assert not cache.exists()


def test_a_cu_named_on_the_command_line_is_collected(cuda_project: pytest.Pytester) -> None:
    cuda_project.path.joinpath("kernels", "bad.cu").write_text("// /// gemm\n// x = 1\n// ///\n")
    result = cuda_project.runpytest_subprocess("kernels/naive.cu", "--gemm-size=33x20x7")
    result.assert_outcomes(passed=1)


def test_a_folder_of_kernels_is_left_alone(cuda_project: pytest.Pytester) -> None:
    assert cuda_project.runpytest("kernels").ret == pytest.ExitCode.NO_TESTS_COLLECTED


def test_a_bad_kernel_is_a_collection_error_of_its_file_alone(
    cuda_project: pytest.Pytester,
) -> None:
    cuda_project.path.joinpath("kernels", "bad.cu").write_text(
        "// /// gemm\n// blok = [16, 16]\n// ///\n"
        "__global__ void bad(const float* A, const float* B, float* C, int M, int N, int K) {}\n"
    )
    stopped = cuda_project.runpytest_subprocess("-k", "naive-256")
    stopped.assert_outcomes(errors=1)
    stopped.stdout.fnmatch_lines(["*kernels/bad.cu:2: *blok*block*"])
    going_on = cuda_project.runpytest_subprocess(
        "--continue-on-collection-errors", "--gemm-size=20x9x7"
    )
    going_on.assert_outcomes(passed=7, errors=1)
    named = cuda_project.runpytest_subprocess("kernels/bad.cu")
    named.assert_outcomes(errors=1)
    named.stdout.fnmatch_lines(["*kernels/bad.cu:2: *blok*block*"])


def test_where_every_kernel_is_bad_that_is_all_that_is_said(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_one=TEST)
    pytester.mkdir("kernels").joinpath("bad.cu").write_text("// /// gemm\n// blok = 1\n// ///\n")
    result = pytester.runpytest_subprocess("--continue-on-collection-errors")
    result.assert_outcomes(errors=1, skipped=1)
    result.stdout.fnmatch_lines(["*kernels/bad.cu:2: *blok*block*"])


def test_no_kernels_is_an_error_that_says_what_to_do(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_one=TEST, test_two=TEST)
    result = pytester.runpytest()
    result.assert_outcomes(errors=2)
    result.stdout.fnmatch_lines(["*no kernels found: put .cu files*"])


def test_kernels_of_a_module_named_in_ini(project: Project) -> None:
    project.script({}, kernels="")
    project.pytester.makepyfile(my_kernels=KERNELS)
    project.pytester.makeini("[pytest]\ngemm_modules = my_kernels\npythonpath = .")
    assert project.run().parseoutcomes() == {"passed": 5}
    project.pytester.makeini("[pytest]\ngemm_modules = not_there")
    result = project.run()
    assert result.parseoutcomes() == {"errors": 1}
    result.stdout.fnmatch_lines(["*gemm_modules: not_there cannot be imported*"])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def f(:", "SyntaxError: invalid syntax (broken.py, line 1)"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("raise SystemExit(3)", "SystemExit: 3"),
    ],
)
def test_a_module_named_in_ini_that_is_broken_is_one_sentence(
    project: Project, text: str, said: str
) -> None:
    project.pytester.makepyfile(broken=text)
    project.pytester.makeini("[pytest]\ngemm_modules = broken\npythonpath = .")
    sentence = f"gemm_modules: broken cannot be imported: {said}"
    result = project.run()
    assert result.parseoutcomes() == {"errors": 1}
    assert sentence in result.outlines
    bench = ("--gemm-bench", "--gemm-against=kernel:plus")
    against = project.pytester.runpytest_subprocess(*bench)
    assert against.ret == pytest.ExitCode.USAGE_ERROR
    assert f"ERROR: {sentence}" in against.errlines


def test_a_leading_dimension_that_a_size_cannot_have_spoils_no_other_kernel(
    project: Project,
) -> None:
    other = """
    @pytest_gemm.kernel(sizes=["16x16x16"], lda="K // (M - 16)")
    def odd(A, B, C):
        C[:] = A @ B
    """
    project.script({}, KERNELS + other)
    result = project.run("--continue-on-collection-errors")
    assert result.parseoutcomes() == {"passed": 5, "errors": 1}
    line = (project.path / "conftest.py").read_text().partition("def odd")[0].count("\n")
    said = f"conftest.py:{line}: odd: lda: 'K // (M - 16)' divides by zero for K = 16, M = 16"
    assert said in result.outlines


def test_a_debugger_and_another_machine_are_one_usage_error(project: Project) -> None:
    result = project.run("--gemm-device=ssh=nowhere")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --gemm-device=ssh=nowhere: with gemm_in_process, *"])


@pytest.mark.parametrize("args", [[], ["-n", "1"]])
def test_kernels_of_a_conftest_that_is_loaded_too_late_are_no_secret(
    project: Project, args: list[str]
) -> None:
    deep = project.path / "z" / "deep"
    deep.mkdir(parents=True)
    (deep / "test_deep.py").write_text(dedent(TEST))
    (deep / "conftest.py").write_text(dedent(KERNELS).replace("def ", "def deep_"))
    result = project.run(*args)
    assert result.ret == (pytest.ExitCode.TESTS_FAILED if args else pytest.ExitCode.INTERRUPTED)
    path, names = deep / "conftest.py", "deep_outer, deep_blas, deep_plus"
    result.stdout.fnmatch_lines([f"{path}: pytest loads it after the kernels *: move {names} to *"])
    # Where pytest is told to go there, it knows them from the start.
    assert project.run("z/deep", "-k", "deep_plus").parseoutcomes()["passed"] == 1


def test_plain_pytest_verifies_and_times_nothing(project: Project) -> None:
    result = project.run()
    assert result.ret == 0
    assert result.parseoutcomes() == {"passed": 5}
    assert "verdict" not in result.stdout.str()


def test_a_wrong_kernel_fails_with_a_first_line_complete_in_itself(project: Project) -> None:
    project.script({}, kernels=KERNELS.replace("C[:] = A @ B", "C[:] = A @ B; C[-1, -1] += 1"))
    result = project.run()
    assert result.parseoutcomes() == {"passed": 3, "failed": 2}
    result.stdout.fnmatch_lines(["FAILED *blas-16x16x16-float32* blas on *wrong*C[[]*[]] = *"])


def test_a_requirement_that_is_not_met_skips_with_its_reason(project: Project) -> None:
    kernels = KERNELS.replace('change="BLAS"', 'change="BLAS", requires=["K % 16 == 0"]')
    project.script({}, kernels=kernels)
    result = project.run("-rs")
    assert result.parseoutcomes() == {"passed": 4, "skipped": 1}
    result.stdout.fnmatch_lines(["SKIPPED*blas on 16x24x8: requires K % 16 == 0*"])


def test_strict_fails_where_a_stored_case_is_skipped(project: Project) -> None:
    project.bench("--gemm-baseline=update")
    kernels = KERNELS.replace('change="BLAS"', 'change="BLAS", requires=["K % 16 == 0"]')
    project.script({}, kernels=kernels)
    assert project.bench().parseoutcomes() == {"passed": 4, "skipped": 1}
    strict = project.bench("--gemm-baseline=strict")
    assert strict.parseoutcomes() == {"passed": 4, "failed": 1}
    (path,) = (project.path / "baselines").glob("host-*/blas.json")
    path.write_text("{", encoding="utf-8")
    unreadable = project.bench("--gemm-baseline=strict", "-k", "blas-16x24x8")
    assert unreadable.parseoutcomes() == {"failed": 1, "deselected": 4}
    unreadable.stdout.fnmatch_lines(["blas on 16x24x8: skipped*cannot be read*blas.json*"])


def test_fixtures_for_users_own_tests(project: Project) -> None:
    project.pytester.makepyfile(
        test_kernels="""
        import numpy as np

        def test_operands_and_device(gemm_operands, gemm_device):
            data = gemm_operands("8x4x3", recipe="integers")
            A = gemm_device.upload(data.A)
            assert (gemm_device.download(A) == data.A).all()
            assert data.A.shape == (8, 3)
            assert np.isnan(gemm_device.download(gemm_device.allocate(2, 5))).all()

        def test_registry(gemm_registry):
            assert set(gemm_registry.specs) == {"outer", "blas", "plus"}
            assert gemm_registry.specs["blas"].derived_from == "outer"

        def test_case(gemm):
            assert gemm.id.startswith(gemm.kernel.id)
            assert gemm.problem.M == 16
        """
    )
    result = project.run()
    assert result.parseoutcomes() == {"passed": 7}


def test_nothing_changes_in_a_project_without_kernels(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_plain(): pass")
    with_plugin = pytester.runpytest_subprocess()
    without = pytester.runpytest_subprocess("-p", "no:gemm")
    assert with_plugin.ret == without.ret == 0
    skip = ("plugins:", "=")
    lines = [[x for x in r.outlines if not x.startswith(skip)] for r in (with_plugin, without)]
    assert lines[0] == lines[1]


def test_without_the_plugin_the_fixture_is_unknown(project: Project) -> None:
    project.script({}, kernels="")
    result = project.pytester.runpytest_subprocess("-p", "no:gemm")
    result.stdout.fnmatch_lines(["*fixture 'gemm' not found*"])


def test_doctest_and_unittest_items_run_beside_ours(project: Project) -> None:
    project.pytester.makepyfile(
        test_other='''
        import unittest

        def double(x):
            """
            >>> double(2)
            4
            """
            return 2 * x

        class TestCase(unittest.TestCase):
            def test_it(self):
                assert double(1) == 2
        '''
    )
    assert project.run("--doctest-modules").parseoutcomes() == {"passed": 7}
    bench = project.bench("--doctest-modules")
    assert bench.parseoutcomes() == {"passed": 5, "new": 5, "deselected": 2}


def test_collect_only_of_a_bench_runs_nothing(project: Project) -> None:
    result = project.bench("--collect-only", "-q")
    assert len(collected(result)) == 5
    assert "not GPU times" not in result.stdout.str()


def test_last_failed_runs_the_failed_case_again(project: Project) -> None:
    project.bench("--gemm-baseline=update")
    project.script({"plus": 0.02})
    project.bench()
    again = project.bench("--lf")
    assert again.parseoutcomes() == {"failed": 1}


def test_the_fixture_says_where_it_can_be_named(project: Project) -> None:
    project.pytester.makepyfile(
        test_kernels="""
            def test_late(request):
                request.getfixturevalue("gemm")
        """
    )
    result = project.run()
    assert result.ret == 1
    result.stdout.fnmatch_lines(["the fixture gemm is one case of many: name it as an argument *"])


def test_check_is_called_once(project: Project) -> None:
    project.pytester.makepyfile(test_kernels=TEST + "        gemm.check()\n")
    result = project.run("-k", "plus")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["plus-16x16-float32: a test can call gemm.check() only once"])


def test_operands_that_do_not_fit_into_memory(project: Project) -> None:
    result = project.run("-k", "outer", "--gemm-size=99999999999x1x1")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["outer on 99999999999x1x1: *no memory for operands of * GiB*"])


def test_a_failed_case_leaves_no_unused_benchmark(project: Project) -> None:
    wrong = (
        KERNELS
        + """
    @pytest_gemm.kernel(sizes=["16x16x16"])
    def wrong(A, B, C):
        C[:] = 0
    """
    )
    project.script({}, wrong)
    result = project.bench("--benchmark-only", "-k", "wrong or plus")
    result.assert_outcomes(passed=1, failed=1)
