"""The page as a browser shows it."""

from __future__ import annotations

import base64
from typing import Any

import pytest

pytest.importorskip("jinja2", reason="the extra 'report' is not installed")
pytest.importorskip("vl_convert", reason="the extra 'report' is not installed")

from pytest_gemm.report.document import Document
from pytest_gemm.report.files import rendered
from tests.browser.conftest import Open, Opened
from tests.reported import HOSTILE, document, everything, same, slower, thousands
from tests.test_report_page import STUDIES

WIDTHS = (390, 1440)
SCHEMES = ("light", "dark")

COLOURS = """async (image) => {
  const loaded = new Image();
  loaded.src = image;
  await loaded.decode();
  const canvas = new OffscreenCanvas(loaded.width, loaded.height).getContext("2d");
  canvas.drawImage(loaded, 0, 0);
  const { data } = canvas.getImageData(0, 0, loaded.width, loaded.height);
  const counts = new Map();
  for (let i = 0; i < data.length; i += 4) {
    const colour = (data[i] << 16) | (data[i + 1] << 8) | data[i + 2];
    counts.set(colour, (counts.get(colour) || 0) + 1);
  }
  return [counts.size, Math.max(...counts.values()) / (data.length / 4)];
}"""


def full() -> Document:
    run = everything()
    return Document(**{**vars(run), "studies": tuple(STUDIES)})


def is_blank(page: Any, element: Any, canvas: Any) -> bool:
    """Whether an element is of one colour, but for a few pixels."""
    image = base64.b64encode(element.screenshot()).decode()
    colours, largest = canvas.evaluate(COLOURS, f"data:image/png;base64,{image}")
    return bool(colours < 10 or largest > 0.995)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_the_page_is_drawn_without_an_error_or_a_request(
    open_page: Open, chromium: Any, width: int, scheme: str
) -> None:
    opened = open_page(full(), width=width, scheme=scheme)
    page = opened.page
    page.locator("#verdicts summary").nth(1).click()
    plots = opened.draw_all()
    # Rates of two operations, a roofline, a ladder, a sweep; four of studies; two of the case.
    assert plots.count() == 11
    canvas = chromium.new_page()
    blank = [i for i in range(plots.count()) if is_blank(page, plots.nth(i), canvas)]
    canvas.close()
    assert blank == []
    assert crowded(page) == []
    assert opened.told == []
    assert opened.asked == [page.url]
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == {"light": "rgb(247, 247, 245)", "dark": "rgb(15, 15, 14)"}[scheme]


def crowded(page: Any) -> list[str]:
    """Neighbouring labels of an axis that are no three pixels apart."""
    found: list[str] = page.evaluate("""() => {
      const near = [];
      for (const axis of document.querySelectorAll(".plot .role-axis-label")) {
        const labels = [...axis.querySelectorAll("text")].filter((text) =>
          text.getAttribute("opacity") !== "0" &&
          !text.getAttribute("transform").includes("rotate"));
        const boxes = labels.map((text) => text.getBoundingClientRect());
        boxes.slice(1).forEach((box, i) => {
          const before = boxes[i];
          const apart = Math.max(box.left - before.right, before.left - box.right,
                                 box.top - before.bottom, before.top - box.bottom);
          if (apart < (box.top === before.top ? 3 : -6)) {
            near.push(`${labels[i].textContent} ${labels[i + 1].textContent}: ${apart}`);
          }
        });
      }
      return near;
    }""")
    return found


def column(page: Any, index: int) -> list[str]:
    found: list[str] = page.locator(
        f"#cases tbody tr:visible > :nth-child({index})"
    ).all_inner_texts()
    return found


def test_the_table_is_sorted_and_searched(open_page: Open) -> None:
    page = open_page(everything()).page
    assert column(page, 2)[:2] == ["✗ error", "✗ slower"]

    page.get_by_role("button", name="rate").click()
    values = page.locator("#cases tbody tr").evaluate_all(
        "rows => rows.map(row => row.cells[5].dataset.v)"
    )
    # What was not measured is last.
    assert values[-1] == ""
    rates = [float(value) for value in values[:-1]]
    assert rates == sorted(rates)
    page.get_by_role("button", name="rate").click()
    assert page.locator("th[aria-sort=descending]").inner_text().startswith("rate")
    first = page.locator("#cases tbody tr").first
    assert first.inner_text().startswith("block_size[SIDE:32]")
    page.get_by_role("button", name="kernel", exact=True).click()
    names = column(page, 1)
    assert names[0] == "add"
    # SIDE:4 before SIDE:16.
    assert names[2:6] == [f"block_size[SIDE:{side}]" for side in (4, 8, 16, 32)]

    page.get_by_label("Search").fill("TILED 1024")
    assert sorted(column(page, 1)) == ["tiled", "tiled32"]
    assert page.get_by_role("status").inner_text() == "2 of 23 shown"
    page.locator("#state").select_option("slower")
    assert column(page, 1) == ["tiled32"]
    page.get_by_label("Search").fill("nothing of the kind")
    assert column(page, 1) == []
    assert page.get_by_role("status").inner_text() == "0 of 23 shown"


def test_what_failed_is_a_click_from_the_top(open_page: Open) -> None:
    opened = open_page(everything())
    page = opened.page
    summary = page.locator("#verdicts summary").nth(1)
    assert summary.bounding_box()["y"] < 900
    summary.click()
    card = page.locator("#verdicts details").nth(1)
    assert "decided by" in card.inner_text()
    assert card.locator(".plot").count() == 2
    for plot in (0, 1):
        card.locator(".plot[data-drawn] svg").nth(plot).wait_for()
    assert crowded(page) == []


def test_any_case_opens_from_the_table(open_page: Open) -> None:
    opened = open_page(everything())
    page = opened.page
    page.get_by_label("Search").fill("naive 256")
    page.get_by_role("button", name="naive").click()
    dialog = page.get_by_role("dialog")
    assert dialog.get_by_role("heading").first.inner_text() == "naive on 256x256x256"
    assert "smallest slowdown that is found" in dialog.inner_text()
    dialog.locator(".plot[data-drawn] svg").wait_for()
    page.keyboard.press("Escape")
    assert not dialog.is_visible()
    assert opened.told == []


def test_one_chooses_among_many_kernels(open_page: Open) -> None:
    many = [same(f"k{i:02}", 0.001 * (i + 1), size=n) for i in range(12) for n in (64, 128)]
    opened = open_page(document(*many))
    page = opened.page
    plot = opened.draw_all().first
    legend = plot.locator(".role-legend-label text")
    assert legend.all_text_contents() == [f"k{i:02}" for i in range(8)]

    def box(name: str) -> Any:
        return page.get_by_role("checkbox", name=name)

    page.get_by_text("Choose what is shown (8 of 12)").click()
    assert box("k11").is_disabled()
    box("k00").uncheck()
    box("k11").check()
    plot.locator(".role-legend-label text", has_text="k11").wait_for()
    assert legend.all_text_contents() == [*(f"k{i:02}" for i in range(1, 8)), "k11"]
    assert opened.told == []


def test_hostile_names_are_text_everywhere(open_page: Open) -> None:
    hostile = [
        slower(name, 0.2 + i / 10, size=size)
        for size in (256, 512)
        for i, name in enumerate(HOSTILE)
    ]
    opened = open_page(document(*hostile), width=390)
    page = opened.page
    for i in range(len(HOSTILE)):
        page.locator("#verdicts summary").nth(i).click()
    opened.draw_all()
    script = HOSTILE[0]
    page.locator(".plot[data-figure] path[aria-label*=alert]").last.hover(force=True)
    tip = page.locator("#vg-tooltip-element.visible")
    tip.wait_for()
    assert script in tip.inner_text()
    assert tip.locator("script, img, a").count() == 0
    page.get_by_label("Search").fill("alert(1)")
    assert column(page, 1) == [script, script]
    page.locator("#cases tbody .name:visible").first.click()
    assert page.locator("#h-case").inner_text() == f"{script} on 256x256x256"
    assert page.locator("script").count() == 3
    assert opened.told == []
    assert opened.asked == [page.url]
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_axe_finds_nothing(open_page: Open, axe: str) -> None:
    opened = open_page(full(), width=390, bypass_csp=True)
    page = opened.page
    for summary in page.locator("#verdicts summary").all():
        summary.click()
    opened.draw_all()
    page.evaluate(axe)
    assert violations(opened) == []
    page.emulate_media(color_scheme="dark")
    assert violations(opened, "color-contrast") == []
    page.locator("#cases .name").nth(1).click()
    page.locator("dialog .plot[data-drawn] svg").first.wait_for()
    assert violations(opened) == []


def violations(opened: Opened, *rules: str) -> list[str]:
    options = {"runOnly": list(rules)} if rules else {}
    found = opened.page.evaluate("options => axe.run(options)", options)["violations"]
    return [f"{v['id']}: {v['nodes'][0]['html'][:200]}" for v in found]


def test_two_thousand_cases_are_a_page(open_page: Open) -> None:
    text = rendered(thousands(2000), ".html")
    assert len(text.encode()) <= 10_000_000
    opened = open_page(text)
    page = opened.page
    assert page.locator("#cases tbody tr").count() == 2000
    page.get_by_label("Search").fill("kernel_007 640")
    assert page.get_by_role("status").inner_text() == "1 of 2000 shown"
    assert opened.told == []
