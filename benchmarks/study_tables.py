"""Fill docs/studies.md with the tables and figures of stored studies.

    python benchmarks/study_tables.py

Between a line ``<!-- study FILE.json NAME -->`` and the next ``<!-- end -->`` stands the report of
that study, made from the file (a path in the repository); the figures are drawn into docs/figures.
Nothing between the two is written by hand. Where the file is not there, that is said. The findings
in the files are made anew from what was measured.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from pytest_gemm.studies.catalogue import STUDIES, report
from pytest_gemm.studies.document import Study, read, write
from pytest_gemm.studies.figures import figures

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "studies.md"
FIGURES = ROOT / "docs" / "figures"

_PLACE = re.compile(
    r"(?P<begin><!-- study (?P<file>\S+) (?P<name>\S+) -->\n).*?(?P<end><!-- end -->)", re.DOTALL
)


def files(text: str) -> list[Path]:
    """The files that the page is made from, those that are there."""
    names = dict.fromkeys(place["file"] for place in _PLACE.finditer(text))
    return [path for name in names if (path := ROOT / name).exists()]


def found_anew(study: Study) -> Study:
    """The study with the findings that follow from what was measured."""
    return replace(study, findings=dict(STUDIES[study.name].findings(study.measured)))


def filled(text: str) -> str:
    """The page with every place filled anew."""
    return _PLACE.sub(_fill, text)


def drawn(text: str) -> dict[str, str]:
    """The figures of the page by the name of their file."""
    found = {}
    for place in _PLACE.finditer(text):
        for study in _studies(place):
            found |= {f"{_stem(place)}-{name}.svg": svg for name, svg in figures(study)}
    return found


def _fill(place: re.Match[str]) -> str:
    studies = list(_studies(place))
    lines = [line for study in studies for line in _told(study, place)]
    if not studies:
        lines = [
            f"Not measured yet: `{place['file']}` is not there, or has no {place['name']}.",
            "",
        ]
    return place["begin"] + "\n".join(["", *lines]) + "\n" + place["end"]


def _told(study: Study, place: re.Match[str]) -> Iterator[str]:
    """The report without its heading, for which the page has its own, and its figures."""
    yield from list(report(study))[2:]
    for name, svg in figures(study):
        title = re.search(r"<title>(.*?)</title>", svg)
        assert title is not None
        yield f"![{title[1]}](figures/{_stem(place)}-{name}.svg)"
        yield ""


def _studies(place: re.Match[str]) -> Iterator[Study]:
    path = ROOT / place["file"]
    if path.exists():
        yield from (study for study in read(path) if study.name == place["name"])


def _stem(place: re.Match[str]) -> str:
    return Path(place["file"]).stem.removeprefix("studies-")


def main() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for path in files(text):
        path.write_text(write([found_anew(study) for study in read(path)]), encoding="utf-8")
    PAGE.write_text(filled(text), encoding="utf-8")
    FIGURES.mkdir(exist_ok=True)
    for name, svg in drawn(text).items():
        (FIGURES / name).write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main()
