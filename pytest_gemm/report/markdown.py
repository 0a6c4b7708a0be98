"""A run in Markdown: what a pull request needs, the verdicts on top.

Authors' words are shown as code, where neither Markdown nor a mention of somebody works.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pytest_gemm.markdown import NOTHING, code, plain, table
from pytest_gemm.report.model import Line, Report, alike, told_rate
from pytest_gemm.report.text import percent, seconds

LOOKED_AT = 30
"""Most cases that are told one by one."""

ROWS = 200
"""Most rows of the table of all; a comment on GitHub has at most 65,536 characters."""

ALIKE = 6
"""Most problems that are named of cases that failed for one reason."""

CHARACTERS = 400
"""Most characters of one message or name."""


def markdown(report: Report) -> str:
    """The whole report; one line says what the run came to."""
    return "\n".join(_parts(report)).rstrip() + "\n"


def _parts(report: Report) -> Iterator[str]:
    failing, notable = report.failing, report.notable
    mark = "❌" if failing else "⚠️" if report.partial or report.missing else "✅"
    yield f"## {mark} {plain(report.title)}"
    yield ""
    yield f"{report.summary or 'nothing ran'}."
    yield ""
    if report.partial:
        yield "**Interrupted: these results are partial.**"
        yield ""
    yield from _looked_at("Failed", failing)
    yield from _looked_at("Worth a look", notable)
    if report.missing:
        yield from _list("Not judged", [code(_short(line), cell=False) for line in report.missing])
    timed = [line for line in report.lines if line.median is not None]
    if timed:
        yield from _folded(f"All {len(timed)} times", _table(timed))
    yield from _folded("Conditions", (f"- {plain(k)}: {code(v)}" for k, v in report.facts))


def _looked_at(title: str, lines: Sequence[Line]) -> Iterator[str]:
    if not lines:
        return
    timed = [line for line in lines if line.change is not None]
    yield f"### {title}"
    yield ""
    if timed:
        yield from _cut(table(_HEADING, map(_row, timed[:LOOKED_AT])), len(timed), LOOKED_AT)
    # A change stands in the table; whatever else is wrong takes words.
    told = alike(x for x in lines if x.change is None or x.state == "error" or x.excuse)
    if told:
        left = sum(map(len, told[LOOKED_AT:]))
        yield from _cut(map(_told, told[:LOOKED_AT]), LOOKED_AT + left)
        yield ""
    reasons = [line for line in timed if line.fails and line.message][:LOOKED_AT]
    if reasons:
        yield from _folded("How it was decided, and what to do", _messages(reasons))


def _told(lines: Sequence[Line]) -> str:
    """What happened, and to which cases where it is the same for several."""
    first, *others = lines
    text = f"- {code(_short(first.headline), cell=False)}"
    if first.excuse:
        text += f": {plain(_short(first.excuse))}"
    if not others:
        return text
    problems = list(dict.fromkeys(code(_short(line.problem)) for line in lines))
    shown = [*problems[:ALIKE], *(["..."] if problems[ALIKE:] else [])]
    return f"{text} ({len(lines)} cases: {', '.join(shown)})"


def _messages(lines: Sequence[Line]) -> Iterator[str]:
    for line in lines:
        fence = "`" * (3 + _longest_run(line.message))
        yield f"{fence}text"
        yield from map(_visible, line.message.splitlines())
        yield fence


_HEADING = ["kernel", "problem", "time", "was", "change", "between", "rate", "verdict"]


def _row(line: Line) -> list[str]:
    change, low, high = (
        NOTHING if value is None else percent(value)
        for value in (line.change, line.change_low, line.change_high)
    )
    return [
        code(_short(line.kernel)),
        code(_short(line.problem)),
        seconds(line.median) if line.median else NOTHING,
        seconds(line.baseline) if line.baseline else NOTHING,
        f"**{change}**" if line.fails else change,
        NOTHING if line.change_low is None else f"{low} and {high}",
        told_rate(line) or NOTHING,
        line.state,
    ]


def _table(lines: Sequence[Line]) -> Iterator[str]:
    ordered = sorted(lines, key=lambda line: (line.order, -line.size))
    yield from _cut(table(_HEADING, map(_row, ordered[:ROWS])), len(ordered), ROWS)


def _cut(lines: Iterator[str], count: int, most: int = LOOKED_AT) -> Iterator[str]:
    """The lines, and how many of ``count`` they leave out."""
    yield from lines
    if count > most:
        yield f"- and {count - most} more, which are in the JSON and HTML reports"
        yield ""


def _list(title: str, lines: Sequence[str]) -> Iterator[str]:
    yield f"### {title}"
    yield ""
    yield from _cut((f"- {line}" for line in lines[:LOOKED_AT]), len(lines))
    yield ""


def _folded(title: str, lines: Iterator[str]) -> Iterator[str]:
    yield f"<details><summary>{title}</summary>"
    yield ""
    yield from lines
    yield ""
    yield "</details>"
    yield ""


def _short(text: str) -> str:
    text = _visible(" ".join(text.split()))
    return text if len(text) <= CHARACTERS else f"{text[: CHARACTERS - 3]}..."


def _visible(line: str) -> str:
    """A line without what cannot be seen, such as a change of the writing's direction."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in line)


def _longest_run(text: str) -> int:
    """The longest run of backticks."""
    longest = run = 0
    for character in text:
        run = run + 1 if character == "`" else 0
        longest = max(longest, run)
    return longest
