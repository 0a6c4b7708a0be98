"""A run as one HTML page that asks the network for nothing.

Texts reach the page through Jinja's autoescape or, as data of the script, through its ``tojson``;
the script puts them in by ``textContent``. A content security policy names the two scripts by
their hashes: nothing else is run, and nothing can be loaded.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
import vl_convert

from pytest_gemm.report.document import Past
from pytest_gemm.report.figures import figures, notes, of_a_case
from pytest_gemm.report.marks import SHAPES, Figure
from pytest_gemm.report.model import STATES, Line, Report, alike, told_rate
from pytest_gemm.report.study import study_figures, study_notes
from pytest_gemm.report.text import percent, seconds

FOLDER = Path(__file__).parent / "page"

CARDS = 50
"""Most cases that are told one by one; all are in the table."""

Origins = dict[tuple[str, str, str, str], int]

MARKS = {
    **dict.fromkeys(("error", "slower", "drifted", "worse"), "✗"),
    **dict.fromkeys(("withheld", "inconclusive", "changed", "ungated"), "?"),
    **dict.fromkeys(("same", "ok", "stored"), "✓"),
    "faster": "↑", "new": "+", "skipped": "-",
}  # fmt: skip
"""Beside the colour of a state, for those who do not see it."""


def page(report: Report) -> str:
    """The page. It holds what ``report`` does and the libraries that draw it."""
    library, script = _library(), (FOLDER / "page.js").read_text(encoding="utf-8")
    drawn = [*figures(report), *study_figures(report.studies)]
    cards = _cards(report)
    text: str = _template().render(
        report=report,
        mark=MARKS,
        cards=cards[:CARDS],
        more=sum(cases for *_, cases in cards[CARDS:]),
        rows=[_cells(line) for line in report.lines],
        figures=drawn,
        notes=[*notes(report), *study_notes(report.studies)],
        data=_data(report, drawn),
        style=(FOLDER / "page.css").read_text(encoding="utf-8"),
        scripts=[library, script],
        hashes=[_hash(library), _hash(script)],
    )
    return text


def _cards(report: Report) -> list[tuple[int, Line, int]]:
    """What failed or calls for a look: its place among all lines, and of how many cases it is."""
    places = {id(line): place for place, line in enumerate(report.lines)}
    found = alike([*report.failing, *report.notable])
    return [(places[id(lines[0])], lines[0], len(lines)) for lines in found]


def _data(report: Report, drawn: list[Figure]) -> dict[str, Any]:
    """What the script needs and the page does not already say.

    ``origins`` are [program, epoch, commit, anchor] of stored sessions, each once: sessions are
    most of a large page.
    """
    origins: Origins = {}
    return {
        "figures": [figure.to_dict() for figure in drawn],
        "shapes": SHAPES,
        "templates": of_a_case(),
        "cases": [_case(line, origins) for line in report.lines],
        "origins": list(origins),
    }


def _case(line: Line, origins: Origins) -> dict[str, Any]:
    return {
        "title": line.title,
        "state": line.state,
        "headline": line.headline,
        "message": line.message,
        "facts": line.facts,
        "now": [line.median, line.low, line.high] if line.median else None,
        "samples": [_short(value) for value in line.samples],
        "history": [_session(past, line, origins) for past in line.history],
    }


def _origin(past: Past) -> tuple[str, str, str, str]:
    return past.program, past.epoch, past.commit, past.anchor


def _session(past: Past, line: Line, origins: Origins) -> list[int | float | None]:
    """Seconds since 1970, median, low, high, index of the origin; then the outer deciles."""
    origin = origins.setdefault(_origin(past), len(origins))
    seconds = int(datetime.fromisoformat(past.date).timestamp())
    times = [_short(value) for value in (past.median, past.low, past.high)]
    shown = past.deciles if line.samples else ()
    return [seconds, *times, origin, *map(_short, shown[:1] + shown[-1:])]


def _cells(line: Line) -> list[tuple[str, str, str]]:
    """Class, value to sort by, and text of each cell after the first."""
    part = line.rate / line.ceiling if line.rate and line.ceiling else None
    return list(_told(line, part))


def _told(line: Line, part: float | None) -> Iterator[tuple[str, str, str]]:
    yield "state", str(STATES.index(line.state)), line.state
    yield "number", _sortable(line.change), "" if line.change is None else percent(line.change)
    yield "", f"{line.size:g}", f"{line.problem} {line.dtype}".rstrip()
    yield "number", _sortable(line.median), seconds(line.median) if line.median else ""
    yield "number", _sortable(line.rate), told_rate(line)
    yield "number", _sortable(part), f"{100 * part:.0f} % of {line.reference}" if part else ""


def _sortable(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


def _short(value: float) -> float:
    return float(f"{value:.5g}")


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html.jinja")


@cache
def _library() -> str:
    """Vega, Vega-Lite and vega-embed, as text of a script element."""
    bundle = vl_convert.javascript_bundle()  # type: ignore[call-arg]  # its stub lacks the default
    return f"(() => {{{bundle}}})();".replace("</script", r"<\/script").replace("<!--", r"<\!--")


def _hash(script: str) -> str:
    digest = hashlib.sha256(script.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
