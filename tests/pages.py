"""The fenced blocks of a Markdown page, and what the comments above them say of them."""

from __future__ import annotations

import os
import re
import subprocess
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
FENCE = re.compile(
    r"(?P<marks>(?:^<!-- .*? -->\n)*)^```(?P<language>.*)\n(?P<text>(?:.*\n)*?)^```$", re.MULTILINE
)
MARK = re.compile(r"<!-- (?P<key>[\w ]+?)(?:: (?P<value>.*?))? -->")
MARKS = {
    "not run": "why tests do not run it",
    "file": "the file that it is written to, from the page's folder",
    "collected": "why its runs of pytest collect only",
    "exit": "the exit code of its last command",
    "command": "run as it is by .ci/run",
    "tested in": "the test module that reads it from the page",
    "printed for": "the folder of tests with the kernels that it is printed for",
    "from the run above": "printed by the commands of the block before",
    "as init writes it": "a file of a new project",
}
OURS = re.compile("GITHUB_|PYTEST_(XDIST|CURRENT)")
"""Variables that say of this very run what a reader's own runs would take for theirs."""


@dataclass(frozen=True)
class Block:
    """A fenced block; ``line`` is that of its fence, from 1."""

    page: str
    line: int
    language: str
    text: str
    marks: Mapping[str, str]

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def commands(self) -> list[str]:
        """What a person types: lines after a prompt, or in ``sh`` all of them."""
        lines = self.text.splitlines()
        if self.language == "console":
            return [line[2:] for line in lines if line.startswith("$ ")]
        return lines if self.language == "sh" else []

    @property
    def shown(self) -> list[str]:
        """The lines of output that are the same in every run: those without a number."""
        lines = self.text.splitlines() if self.language == "console" else []
        return [s for s in map(str.strip, lines) if s and s[0] != "$" and not re.search(r"\d", s)]


def pages() -> list[Path]:
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]


def blocks(path: Path) -> list[Block]:
    text = path.read_text(encoding="utf-8")
    return [
        Block(
            str(path.relative_to(ROOT)),
            text.count("\n", 0, match.end("marks")) + 1,
            match["language"],
            match["text"],
            {mark["key"]: mark["value"] or "" for mark in MARK.finditer(match["marks"])},
        )
        for match in FENCE.finditer(text)
    ]


@dataclass
class Reader:
    """Somebody who reads a page from the top and does what it says, in one folder.

    ``options`` are added to every run of pytest.
    """

    folder: Path
    options: str = ""
    output: str = ""

    def __post_init__(self) -> None:
        self.here = self.folder

    def follow(self, block: Block) -> None:
        """Write a file, run commands, or look whether what is shown was printed."""
        if name := block.marks.get("file"):
            path = self.here / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")
        elif block.language == "python":
            self.run(block, f"python - <<'END'\n{block.text}END")
        elif block.commands:
            self.run(block, "\n".join(block.commands))
            printed = [line.strip() for line in self.output.splitlines()]
            for line in block.shown:
                assert line in printed, f"{block.place}: {line!r} is not in {self.output}"
        elif "from the run above" in block.marks:
            for line in block.text.splitlines():
                assert line in self.output, f"{block.place}: {line!r} is not in {self.output}"

    def run(self, block: Block, script: str) -> None:
        """In the folder where the last block ended; ``set -e`` ends it at the first failure."""
        end = self.folder / ".end"
        collect = ("--collect-only",) if "collected" in block.marks else ()
        done = subprocess.run(
            ["bash", "-c", f"set -e\n{script}\npwd > '{end}'"],
            cwd=self.here,
            env={
                **{name: text for name, text in os.environ.items() if not OURS.match(name)},
                "PATH": f"{sysconfig.get_path('scripts')}:{os.environ['PATH']}",
                "GIT_CONFIG_GLOBAL": os.devnull,
                **{f"GIT_{who}_NAME": "a reader" for who in ("AUTHOR", "COMMITTER")},
                **{f"GIT_{who}_EMAIL": "reader@example.org" for who in ("AUTHOR", "COMMITTER")},
                "CI": "1",
                "PYTEST_ADDOPTS": " ".join((self.options, *collect)),
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        self.output = done.stdout
        wanted = int(block.marks.get("exit", "0"))
        assert done.returncode == wanted, f"{block.place}: exit {done.returncode}\n{self.output}"
        if end.exists():
            self.here = Path(end.read_text(encoding="utf-8").strip())
            end.unlink()
