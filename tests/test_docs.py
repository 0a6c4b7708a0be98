"""The docs name every option and key, and their examples run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pytest_gemm.options import DECLARED, INI_KEYS
from tests.conftest import KERNELS, Project

ROOT = Path(__file__).parent.parent
RUNNING = (ROOT / "docs" / "running.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")


def code_blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


def test_every_option_and_key_is_documented_and_no_other() -> None:
    rows = re.findall(r"^\| `(-*\w[\w-]*)`", RUNNING, flags=re.MULTILINE)
    documented = {name for name in rows if name.startswith(("--gemm", "gemm_"))}
    assert documented == {flag for flag, _ in DECLARED} | {name for name, *_ in INI_KEYS}


def test_the_defaults_are_those_of_the_code() -> None:
    for name, _, default, _ in INI_KEYS:
        [shown] = re.findall(rf"^\| `{name}` \| (.*?) \|", RUNNING, flags=re.MULTILINE)
        if isinstance(default, str) and default:
            assert shown == f"`{default}`"


def test_the_example_of_the_fixtures_runs(project: Project) -> None:
    [example] = code_blocks(RUNNING, "python")
    project.script({}, kernels=KERNELS)
    project.pytester.makepyfile(test_kernels=example)
    assert project.run().parseoutcomes() == {"passed": 8}


def test_the_kernel_and_the_test_of_the_readme_run(pytester: pytest.Pytester) -> None:
    [kernel] = code_blocks(README, "c")
    [test] = code_blocks(README, "python")
    folder = pytester.mkdir("kernels")
    folder.joinpath("naive.cu").write_text(kernel, encoding="utf-8")
    pytester.makepyfile(test_kernels=test)
    result = pytester.runpytest_subprocess("-W", "error", "--gemm-size=33x17x20")
    assert result.parseoutcomes() == {"passed": 1}


def test_every_link_of_the_docs_leads_somewhere() -> None:
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text(encoding="utf-8")):
            assert (path.parent / target).exists(), f"{path.name}: {target}"


def test_no_placeholder_is_left() -> None:
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]:
        assert not re.search(r"^(TABLE|TODO|FIXME|XXX)$", path.read_text("utf-8"), re.MULTILINE)
