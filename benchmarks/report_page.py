"""How large the page of a report is, and how long it takes to open: ``docs/report.md``.

    python benchmarks/report_page.py [CASES ...]

Cases are made up, each with 20 stored sessions. Opened in Chromium without a window: until the load
event, and until the second frame after it. Takes the extra ``test`` and Chromium.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

sys.path.append(str(Path(__file__).parent.parent))

from pytest_gemm.report.document import Document
from pytest_gemm.report.files import rendered
from tests.browser.conftest import CHROMIUM
from tests.reported import thousands

REPEATS = 5

FRAMES = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
LOADED = "performance.getEntriesByType('navigation')[0].loadEventEnd"


def main(counts: list[int]) -> None:
    path = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if path is None:
        raise SystemExit(f"none of {', '.join(CHROMIUM)} is installed")
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        for count in counts:
            tell(count, thousands(count), browser, Path(folder) / "page.html")
        browser.close()


def tell(count: int, document: Document, browser: Browser, path: Path) -> None:
    """Print a line for a number of cases."""
    started = time.perf_counter()
    text = rendered(document, ".html")
    taken = time.perf_counter() - started
    path.write_text(text, encoding="utf-8")
    loads, frames = zip(*(opened(browser, path) for _ in range(REPEATS)), strict=True)
    print(
        f"{count} cases: {len(text.encode()) / 1e6:.1f} MB, written in {taken:.1f} s; "
        f"load event after {sorted(loads)[REPEATS // 2]:.2f} s ({min(loads):.2f} ... "
        f"{max(loads):.2f}), second frame after {sorted(frames)[REPEATS // 2]:.2f} s"
    )


def opened(browser: Browser, path: Path) -> tuple[float, float]:
    """Seconds until the load event, and until the second frame after it."""
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    started = time.perf_counter()
    page.goto(path.as_uri())
    page.evaluate(FRAMES)
    frames = time.perf_counter() - started
    loaded: float = page.evaluate(LOADED) / 1e3
    page.close()
    return loaded, frames


if __name__ == "__main__":
    main([int(text) for text in sys.argv[1:]] or [1, 200, 2000])
