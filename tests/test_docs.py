"""The docs name every option and key, and their examples run."""

from __future__ import annotations

import configparser
import re
import runpy
import shlex
import tomllib
from pathlib import Path

import numpy
import pytest
import yaml

import pytest_gemm
from pytest_gemm.cli import main
from pytest_gemm.cli.init import project_files
from pytest_gemm.cuda_source import find_kernels
from pytest_gemm.declaration import read_kernel
from pytest_gemm.frontmatter import read_front_matter
from pytest_gemm.options import DECLARED, INI_KEYS
from pytest_gemm.schema import SIDECAR_KEYS
from tests.conftest import KERNELS, TEST, Project
from tests.pages import MARKS, ROOT, Block, Reader, blocks, pages

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


def anchors(path: Path) -> set[str]:
    """Of each heading, as GitHub and the site make them."""
    text = re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.M | re.S)
    headings = (re.sub(r"\[(.*?)\]\(.*?\)", r"\1", h) for h in re.findall(r"^#+ (.*)$", text, re.M))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_link_into_a_page_finds_its_heading() -> None:
    for path in pages():
        for target, anchor in re.findall(r"\]\(([\w./-]*)#([^)]+)\)", path.read_text("utf-8")):
            page = path.parent / target if target else path
            assert anchor in anchors(page), f"{path.name}: {target}#{anchor}"


def test_no_placeholder_is_left() -> None:
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]:
        assert not re.search(r"^(TABLE|TODO|FIXME|XXX)$", path.read_text("utf-8"), re.MULTILINE)


BLOCKS = [block for path in pages() for block in blocks(path)]


def test_each_block_says_what_it_is() -> None:
    for block in BLOCKS:
        if block.language in ("", "text"):
            assert not COMMAND.search(block.text), f"{block.place}: a command that nothing runs"
        assert set(block.marks) <= set(MARKS), block.place
        for key in ("not run", "file", "exit", "collected", "tested in", "printed for"):
            assert block.marks.get(key, "x"), f"{block.place}: {key} says nothing"


def is_run(block: Block) -> bool:
    return not {"not run", "tested in", "command"} & set(block.marks)


FOLLOWED = [
    path
    for path in pages()
    if any(is_run(b) and (b.commands or "file" in b.marks) for b in blocks(path))
]


SHORTER = {"tutorial-laptop": "-k 131x67x203"}
"""Options that leave out most cases of every run of a page."""


@pytest.mark.parametrize("path", FOLLOWED, ids=lambda path: path.stem)
def test_what_a_page_says_can_be_done(path: Path, tmp_path: Path) -> None:
    """From the top, in one folder; in short runs, without a process of their own for kernels."""
    options = f"-o gemm_time_cap=0.01 -o gemm_in_process=true {SHORTER.get(path.stem, '')}"
    reader = Reader(tmp_path, options)
    for block in filter(is_run, blocks(path)):
        reader.follow(block)


COMMAND = re.compile(r"^\$? ?(pytest|pytest-gemm|pip|python3?|git|sed|cd) ", re.MULTILINE)


def test_each_snippet_of_no_file_is_checked() -> None:
    """Python is run, front matter and TOML are read, YAML is what init writes."""
    checked = set()
    for block in filter(is_run, BLOCKS):
        match block.language if "file" not in block.marks else "file":
            case "python" | "py":
                if block.page not in {str(path.relative_to(ROOT)) for path in FOLLOWED}:
                    exec(block.text, {"np": numpy, "pytest_gemm": pytest_gemm, "__name__": "x"})
            case "cuda" | "c":
                name = {"path": block.page, "filename": "x.cu", "default_name": "x"}
                for table in read_front_matter(block.text, block.page):
                    read_kernel(table, source=block.text, **name)
                assert find_kernels(block.text), block.place
            case "toml":
                known = {*SIDECAR_KEYS, "kernel", "tool"}
                assert set(tomllib.loads(block.text)) <= known, block.place
            case "ini":
                settings = configparser.ConfigParser()
                settings.read_string(block.text)
                own = {key for section in settings.values() for key in section}
                assert own <= {name for name, *_ in INI_KEYS}, block.place
            case "yaml":
                assert block.text.encode() == project_files()[block.marks["as init writes it"]]
            case "" | "text" | "json" | "console" | "sh" | "file":
                pass
            case other:
                pytest.fail(f"{block.place}: nothing checks {other!r}")
        checked.add(block.language)
    assert checked >= {"python", "cuda", "toml", "yaml", "console"}


def test_what_another_module_tests_is_tested_there() -> None:
    for block in BLOCKS:
        if module := block.marks.get("tested in"):
            text = (ROOT / module).read_text(encoding="utf-8")
            assert Path(block.page).name in text, f"{block.place}: {module} reads it not"


def test_what_ci_runs_as_it_is() -> None:
    """.ci/run takes the commands from the README by this very mark."""
    marked = [block for block in BLOCKS if "command" in block.marks]
    assert [block.page for block in marked] == ["README.md", "README.md"]
    assert "<!-- command -->" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_the_failures_that_are_shown_are_those_that_are_printed(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", "1")
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    shown = [
        (line, block.marks["printed for"])
        for block in BLOCKS
        if "printed for" in block.marks
        for line in block.text.splitlines()
    ]
    assert len(shown) > 5
    for line, folder in shown:
        name = line.partition(" ")[0]
        source = (ROOT / folder / f"{name}.cu").read_text(encoding="utf-8")
        pytester.mkdir("kernels") if not (pytester.path / "kernels").exists() else None
        (pytester.path / "kernels" / f"{name}.cu").write_text(source, encoding="utf-8")
    pytester.makepyfile(test_kernels=TEST)
    run = pytester.runpytest_subprocess("--gemm-size=16", "-o", "gemm_launch_timeout=1")
    printed = run.stdout.str()
    for line, _ in shown:
        assert line in printed, line


# Options, keys and commands, also where they are not run


def everything() -> list[tuple[str, str]]:
    return [(path.name, path.read_text(encoding="utf-8")) for path in pages()]


def test_no_page_names_an_option_that_there_is_not() -> None:
    declared = dict(DECLARED)
    for page, text in everything():
        for flag, value in re.findall(r"(--gemm-[a-z]+(?:-[a-z]+)*)(?:=(\w+))?", text):
            assert flag in declared, f"{page}: {flag}"
            choices = declared[flag].get("choices")
            assert not (choices and value) or value in choices, f"{page}: {flag}={value}"
        for key in re.findall(r"-o (\w+)=", text):
            assert key in {name for name, *_ in INI_KEYS}, f"{page}: -o {key}"


def test_no_page_names_a_command_or_its_option_that_there_is_not(
    capsys: pytest.CaptureFixture[str],
) -> None:
    commands = [
        (block.place, command)
        for block in BLOCKS
        if block.language not in ("", "text", "json")
        for command in re.findall(r"(?<![\w'/])pytest-gemm ([^\n&|;#`]*)", block.text)
    ]
    assert len(commands) > 10
    for place, command in commands:
        words = shlex.split(command)
        plain = [word for word in words if not word.startswith("-")]
        with pytest.raises(SystemExit) as end:
            main([*plain[: 2 if plain[0] == "baseline" else 1], "--help"])
        told = capsys.readouterr().out
        assert end.value.code == 0, f"{place}: pytest-gemm {command}"
        for flag in (word.partition("=")[0] for word in words if word.startswith("--")):
            assert flag in told, f"{place}: pytest-gemm {command}: {flag}"


def test_no_page_names_an_extra_that_there_is_not() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = set(settings["project"]["optional-dependencies"])
    named = {e for _, text in everything() for e in re.findall(r"pytest-gemm\[([\w,]+)\]", text)}
    assert {"host", "cuda13"} <= named <= extras


# The site


def test_the_reference_of_front_matter_is_what_the_code_says() -> None:
    writer = runpy.run_path(str(ROOT / "docs" / "front_matter.py"))
    page = (ROOT / "docs" / "front-matter.md").read_text(encoding="utf-8")
    assert page == writer["page"](), "run: python docs/front_matter.py"
    assert re.findall(r"^\| `(\w+)` \|.* \| yes \|", page, re.MULTILINE)[: len(SIDECAR_KEYS)]


def test_the_site_has_every_page_once() -> None:
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    [home, *sections] = settings["nav"]
    listed = [home, *(p for s in sections for ps in s.values() for e in ps for p in e.values())]
    assert sorted(listed) == sorted(path.name for path in (ROOT / "docs").glob("*.md"))


def test_what_the_site_leaves_out_keeps_its_text() -> None:
    hook = runpy.run_path(str(ROOT / "docs" / "site.py"))["on_page_markdown"]
    text = "see [`a.py`](../x/a.py), [b](b.md#c)"
    assert hook(text, page=None) == "see `a.py`, [b](b.md#c)"
