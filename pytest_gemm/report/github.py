"""What GitHub Actions shows: annotations at the kernels' lines, and a summary of the step.

https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pytest_gemm.includes import is_file
from pytest_gemm.report.model import Line, Report, alike

ANNOTATIONS = 10
"""GitHub shows no more errors of one step."""

SUMMARY_BYTES = 1024 * 1024
"""GitHub takes no larger summary of a step."""

_NAMED = re.compile(r": ([^:]+):([0-9]+): ")


def is_actions(environment: Mapping[str, str]) -> bool:
    """Whether this runs as a step of a GitHub workflow."""
    return environment.get("GITHUB_ACTIONS") == "true"


def errors(
    report: Report, root: Path, environment: Mapping[str, str], faults: Sequence[str] = ()
) -> Iterator[str]:
    """A command for each failed case and each fault of the run, for the standard output.

    Cases that failed for one reason have one. ``root`` is that of the report's paths. The last one
    counts those beyond the ``ANNOTATIONS`` that GitHub shows.
    """
    found = [
        (len(lines), _message(lines), {**_place(lines[0], root, environment), **_title(lines)})
        for lines in alike(report.failing)
    ]
    found += [(1, fault, {"title": "pytest-gemm"}) for fault in faults]
    shown = found if len(found) <= ANNOTATIONS else found[: ANNOTATIONS - 1]
    for _, message, properties in shown:
        yield _error(message, properties)
    if left := sum(cases for cases, *_ in found[len(shown) :]):
        yield _error(f"{left} more failed: see the summary of this step", {"title": "pytest-gemm"})


def add_summary(markdown: str, environment: Mapping[str, str]) -> str:
    """Add to the step's summary, if there is one; why that could not be done, or nothing."""
    path = environment.get("GITHUB_STEP_SUMMARY")
    if not path:
        return ""
    content = markdown.encode("utf-8", "replace")
    try:
        file = Path(path)
        there = file.stat().st_size if file.exists() else 0
        if there + len(content) > SUMMARY_BYTES:
            return f"the step's summary would be larger than {SUMMARY_BYTES} bytes: left out"
        with file.open("ab") as stream:
            stream.write(content + b"\n")
    except OSError as error:
        return f"{path}: it cannot be written ({error.strerror})"
    return ""


def _title(lines: Sequence[Line]) -> dict[str, str]:
    first, *others = lines
    more = f" and {len(others)} more" if others else ""
    return {"title": f"{first.title}{more}: {first.state}"}


def _message(lines: Sequence[Line]) -> str:
    first, *others = lines
    same = ", ".join(dict.fromkeys(line.problem for line in others))
    return f"{first.message.rstrip()}\n  the same on: {same}" if others else first.message


def _place(line: Line, root: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """File and line as GitHub knows them: relative to the checked-out repository.

    They are those that the message names: of the kernel's file, or of one that it includes;
    otherwise where the kernel is declared.
    """
    path, _, number = line.place.rpartition(":")
    if not path:
        return {}
    if named := _NAMED.search(line.headline):
        if Path(named[1]).name == Path(path).name:
            number = named[2]
        elif is_file(root / named[1]):
            path, number = named[1], named[2]
    file = (root / path).resolve()
    workspace = Path(environment.get("GITHUB_WORKSPACE") or root).resolve()
    if file.is_relative_to(workspace):
        file = file.relative_to(workspace)
    return {"file": file.as_posix(), "line": number}


def _error(message: str, properties: Mapping[str, str]) -> str:
    told = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    return f"::error {told}::{_escaped(message)}"


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _escaped(text).replace(":", "%3A").replace(",", "%2C")
