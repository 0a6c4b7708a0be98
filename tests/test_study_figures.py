"""Figures are SVG that holds all points and any name; the page of the studies is their files'."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from benchmarks import study_tables
from pytest_gemm.studies import cpu_vs_gpu
from pytest_gemm.studies.document import read
from pytest_gemm.studies.plot import HEIGHT, LEFT, RIGHT, TOP, WIDTH, Series, plot

SVG = "{http://www.w3.org/2000/svg}"


def places(svg: str, kind: str) -> list[tuple[float, ...]]:
    """Where the polylines' points are."""
    root = ElementTree.fromstring(svg)
    return [
        tuple(float(number) for number in point.split(","))
        for line in root.iter(f"{SVG}{kind}")
        for point in line.attrib["points"].split()
    ]


@pytest.mark.parametrize("log", [False, True])
def test_larger_values_lie_further_up_and_to_the_right(log: bool) -> None:
    svg = plot("title", "x", "y", [Series("a", [(1, 1), (10, 100), (100, 10_000)])], log=log)
    points = places(svg, "polyline")
    xs, ys = zip(*points, strict=True)
    assert list(xs) == sorted(xs)
    assert list(ys) == sorted(ys, reverse=True)
    assert all(LEFT <= x <= WIDTH - RIGHT for x in xs)
    assert all(TOP <= y <= HEIGHT for y in ys)
    if log:
        assert xs[1] - xs[0] == pytest.approx(xs[2] - xs[1], abs=0.2)
        assert ys[0] - ys[1] == pytest.approx(ys[1] - ys[2], abs=0.2)


def test_a_log_axis_has_powers_of_ten_and_a_linear_one_round_steps() -> None:
    series = [Series("a", [(1, 2e-5), (4000, 30)])]
    numbers = re.findall(r">([\d.e+-]+)</text>", plot("", "x", "y", series, log=True))
    assert numbers == ["1", "10", "100", "1000", "0.0001", "0.001", "0.01", "0.1", "1", "10"]
    series = [Series("a", [(1, 0.3), (32, 9)])]
    numbers = re.findall(r">([\d.e+-]+)</text>", plot("", "x", "y", series, log=False))
    assert numbers == ["0", "10", "20", "30", "0", "2", "4", "6", "8"]


def test_few_sizes_stand_themselves_at_a_log_axis() -> None:
    ladder = [(2.0**k, 8.0**k) for k in range(7, 13)]
    numbers = re.findall(r">(\d+)</text>", plot("", "x", "y", [Series("a", ladder)], log=True))
    assert numbers[:6] == ["128", "256", "512", "1024", "2048", "4096"]
    near = [(100.0, 1.0), (110.0, 2.0), (120.0, 3.0)]
    numbers = re.findall(r">(\d+)</text>", plot("", "x", "y", [Series("a", near)], log=True))
    assert "110" not in numbers


@pytest.mark.parametrize("points", [[(5, 3)], [(5, 3), (5, 3)], [(1, 0), (2, 0)]])
def test_points_that_are_one_are_drawn_too(points: list[tuple[float, float]]) -> None:
    assert len(places(plot("", "x", "y", [Series("a", points)], log=False), "polyline")) == len(
        points
    )


def test_names_are_text() -> None:
    name = '<script>alert("&")</script>'
    svg = plot(name, name, name, [Series(name, [(1, 1)]), Series("fit", [(1, 1)], True)], log=True)
    root = ElementTree.fromstring(svg)
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert texts.count(name) == 4
    assert not list(root.iter("script"))
    assert len(list(root.iter(f"{SVG}circle"))) == 2  # the point and its place in the legend


def test_a_plot_takes_a_point() -> None:
    with pytest.raises(ValueError, match="at least one point"):
        plot("", "x", "y", [Series("a", [])], log=True)


def test_the_findings_of_the_page_follow_from_what_was_measured() -> None:
    paths = study_tables.files(study_tables.PAGE.read_text(encoding="utf-8"))
    assert paths
    for study in (study for path in paths for study in read(path)):
        anew = study_tables.found_anew(study)
        assert _numbers(study.findings) == pytest.approx(_numbers(anew.findings), rel=1e-3)


def _numbers(value: object, name: str = "") -> dict[str, float]:
    """Every number in plain values, by where it stands."""
    if isinstance(value, dict):
        items: list[tuple[object, object]] = list(value.items())
    elif isinstance(value, list | tuple):
        items = list(enumerate(value))
    else:
        return {name: value} if isinstance(value, int | float) else {}
    return {k: v for key, own in items for k, v in _numbers(own, f"{name}.{key}").items()}


def test_the_page_is_what_the_stored_studies_say() -> None:
    text = study_tables.PAGE.read_text(encoding="utf-8")
    assert text.count("<!-- study ") == text.count("<!-- end -->") > 0
    assert study_tables.filled(text) == text, "run: python benchmarks/study_tables.py"
    drawn = study_tables.drawn(text)
    assert drawn
    for name, svg in drawn.items():
        assert (study_tables.FIGURES / name).read_text(encoding="utf-8") == svg
        ElementTree.fromstring(svg)


def test_the_words_of_the_page_have_the_numbers_that_are_stored() -> None:
    text = study_tables.PAGE.read_text(encoding="utf-8")
    words = re.sub(r"<!-- study .*?<!-- end -->", "", text, flags=re.DOTALL)
    words = " ".join(words.split())
    stored = [
        read(study_tables.ROOT / f"benchmarks/results/studies-{x}.json") for x in ("host", "h200")
    ]
    host, h200 = ({study.name: study for study in studies} for studies in stored)

    crossovers = {(x["op"], x["baseline"], x["way"]): x
                  for x in h200["cpu-vs-gpu"].findings["crossovers"]}  # fmt: skip
    for phrase, op, way in (
        ("pays** from n = {} on without transfers", "add", "alone"),
        ("by one launch between events, it pays from {}:", "add", "launch"),
        ("addition pays from {} on all the same", "add", "pinned"),
        ("with transfers** pays from {} on, in the paper from 91", "gemm", "pageable"),
    ):
        found = crossovers[op, "c", way]
        told = f"{found['size']:.0f} ({found['low']:.0f} ... {found['high']:.0f})"
        assert phrase.format(told) in words

    steps = {x["kernel"]: x for x in h200["ladder"].findings["steps"] if x["N"] == 4096}
    tiled, tiled32, blocked = (
        steps[name]["speedup"] for name in ("tiled", "tiled32", "register_blocked")
    )
    overall = steps["register_blocked"]["overall"]
    assert f"**Tiles** bring {tiled:.2f}, the note 1.6" in words
    assert f"together** {tiled32 * blocked:.2f}, the note 2.2; **overall** {overall:.2f}" in words
    assert f"halves the loads and brings {tiled32:.2f}" in words
    assert f"leaves them as they are and brings {blocked:.2f}" in words
    for device in (host, h200):
        start = device["ladder"].start
        times = start["first_launch_s"] / start["next_launch_s"]
        assert f"**The first launch** took {times:.1f} times as long as the next" in words

    rates = {m.op: 0.0 for m in h200["cpu-vs-gpu"].timed}
    for m in h200["cpu-vs-gpu"].timed:
        if m.side == "device":
            rates[m.op] = max(rates[m.op], cpu_vs_gpu.operations(m.op, m.N) / m.seconds / 1e9)
    assert (
        f"peak at {rates['add']:.0f} GFLOP/s for an addition and {rates['gemm']:.0f} for a "
        f"multiplication, in the paper at 10.0 and 20.1: {rates['add'] / 10.01:.0f} and "
        f"{rates['gemm'] / 20.1:.0f} times"
    ) in words
