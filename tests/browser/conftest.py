"""Chromium without a window, and axe-core, where they can be had.

``PYTEST_GEMM_NEEDS_BROWSER=1``: where Chromium cannot, tests fail instead of being skipped.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import pytest

from pytest_gemm.report.document import Document
from pytest_gemm.report.files import rendered

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")

AXE = "axe-core@4.11"


def unavailable(reason: str) -> NoReturn:
    if os.environ.get("PYTEST_GEMM_NEEDS_BROWSER") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    path = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if path is None:
        unavailable(f"no browser: none of {', '.join(CHROMIUM)} is installed")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        unavailable("playwright is not installed")
    with sync_playwright() as playwright:
        # Containers have none, and what is opened is ours.
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The text of axe-core, from npm; it is not kept."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("axe-core comes from npm, which is not installed")
    folder = tmp_path_factory.mktemp("axe")
    quiet = ("--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock")
    command = [npm, "install", "--prefix", str(folder), *quiet, AXE]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    script = folder / "node_modules" / "axe-core" / "axe.min.js"
    if run.returncode or not script.exists():
        unavailable(f"npm could not fetch {AXE}: {run.stderr.strip()[-300:]}")
    return script.read_text(encoding="utf-8")


@dataclass
class Opened:
    """A page in the browser; ``told`` is what its console said, ``asked`` what it requested."""

    page: Any
    told: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def watch(self) -> None:
        self.page.on("console", lambda message: self.told.append(message.text))
        self.page.on("pageerror", lambda error: self.told.append(str(error)))
        self.page.on("dialog", lambda dialog: self.told.append(f"dialog: {dialog.message}"))
        self.page.on("request", lambda request: self.asked.append(request.url))

    def draw_all(self) -> Any:
        """The places of figures, after each was in sight and was drawn."""
        self.page.wait_for_function(
            "!document.querySelector('details.card[open]:not([data-told])')"
        )
        plots = self.page.locator(".plot:visible")
        for i in range(plots.count()):
            plots.nth(i).scroll_into_view_if_needed()
            plots.nth(i).and_(self.page.locator("[data-drawn]")).wait_for()
        return plots


Open = Callable[..., Opened]


@pytest.fixture
def open_page(chromium: Any, tmp_path: Path) -> Iterator[Open]:
    """Open a document's page, or a page: ``open_page(document, width=390, scheme="dark")``."""
    contexts = []

    def open_document(
        shown: Document | str, *, width: int = 1440, scheme: str = "light", bypass_csp: bool = False
    ) -> Opened:
        path = tmp_path / "page.html"
        text = shown if isinstance(shown, str) else rendered(shown, ".html")
        path.write_text(text, encoding="utf-8")
        context = chromium.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, bypass_csp=bypass_csp
        )
        contexts.append(context)
        opened = Opened(context.new_page())
        opened.watch()
        opened.page.goto(path.as_uri())
        return opened

    yield open_document
    for context in contexts:
        context.close()
