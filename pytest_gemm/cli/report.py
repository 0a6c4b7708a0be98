"""``pytest-gemm report``: the reports of a run that is over, and of studies."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_gemm.cli.commands import Commands
from pytest_gemm.errors import ConfigError
from pytest_gemm.versioned import damage_told, read_json

if TYPE_CHECKING:
    from pytest_gemm.report.document import Document
    from pytest_gemm.studies.document import Study


def add(commands: Commands) -> None:
    parser = commands.add_parser(
        "report",
        help="a page or Markdown of a run's results and of studies, without running anything",
        description="Write a report of what pytest --gemm-report=FILE.json and pytest-gemm study "
        "--out=FILE.json have written. Nothing is run or stored.",
    )
    parser.add_argument(
        "files",
        nargs="+",
        type=Path,
        metavar="FILE.json",
        help="results of one run, of studies, or both",
    )
    parser.add_argument(
        "out", type=Path, metavar="OUT", help="the file to write: .html, .md or a new .json"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from pytest_gemm.report.files import write_report
    from pytest_gemm.report.formats import refused

    out: Path = arguments.out
    if reason := refused(out):
        raise ConfigError(f"{out}: {reason}")
    if out.suffix == ".json" and out.exists():
        # Its results would be lost, where all that was forgotten is the name of the report.
        raise ConfigError(f"{out}: it is there already; name a file that is not")
    names = " and ".join(map(str, arguments.files))
    with damage_told(f"{names}: what it holds", "measure again"):
        document, studies = _read(arguments.files)
        if out.suffix == ".md":
            _write_markdown(document, studies, out)
        else:
            write_report(document, out)
    print(f"written to {out}")
    return 0


def _read(paths: list[Path]) -> tuple[Document, list[Study]]:
    """The run, with the studies in it, and the studies themselves. Raises ConfigError."""
    import json
    from dataclasses import replace

    from pytest_gemm.report.document import Document, read
    from pytest_gemm.studies import document as study

    studies = [one for path in paths if _is_study(path) for one in study.read(path)]
    runs = [path for path in paths if not _is_study(path)]
    if len(runs) > 1:
        names = " and ".join(map(str, runs))
        raise ConfigError(f"{names}: a report is of one run; leave out one of them")
    plain = tuple(json.loads(study.write(studies))["studies"])
    if runs:
        found = read(runs[0])
        return replace(found, studies=(*found.studies, *plain)), studies
    if not studies:
        raise ConfigError(f"{' and '.join(map(str, paths))}: no study is in it")
    date = max(one.date for one in studies)
    return Document(date, None, "off", False, (), (), studies=plain), studies


def _is_study(path: Path) -> bool:
    """Whether the file holds studies; what is wrong with it otherwise is said by who reads it."""
    from pytest_gemm.studies.document import FORMAT

    try:
        data = read_json(path)
    except ConfigError:
        return False
    return isinstance(data, dict) and data.get("format") == FORMAT


def _write_markdown(document: Document, studies: list[Study], out: Path) -> None:
    from pytest_gemm.baselines.files import write_text
    from pytest_gemm.report.files import rendered
    from pytest_gemm.studies.catalogue import report

    parts = [rendered(document, ".md")] if document.records else []
    parts += ["\n".join(report(study)) for study in studies]
    write_text(out, "\n".join(parts))
