"""A run's reports as files: what a file holds follows from its name."""

from __future__ import annotations

from pathlib import Path

from pytest_gemm.baselines.files import write_text
from pytest_gemm.report.document import Document, parsed
from pytest_gemm.report.markdown import markdown
from pytest_gemm.report.model import report_of


def write_report(document: Document, path: Path) -> None:
    """Write a report. Raises ConfigError where the file cannot be written."""
    write_text(path, rendered(document, path.suffix))


def rendered(document: Document, suffix: str) -> str:
    """A report as text.

    Markdown and HTML are made from the JSON, so that they are the same when made from its file.
    """
    text = document.to_json()
    if suffix == ".json":
        return text
    report = report_of(parsed(text))
    if suffix == ".md":
        return markdown(report)
    from pytest_gemm.report.page import page

    return page(report)
