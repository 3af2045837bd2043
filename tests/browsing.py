"""Chromium, driven by Playwright, for tests and pictures of the dashboard."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from needs import needed

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Page

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PATIENCE = 120_000.0  # milliseconds; enough for a busy machine
DESK, PHONE = {"width": 1280, "height": 860}, {"width": 390, "height": 844}
NEED = "SUPERHOSTS_NEED_CHROMIUM"


@contextlib.contextmanager
def chromium(profile: Path) -> Iterator[BrowserContext]:
    program = needed("chromium", NEED)
    sync_playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed").sync_playwright
    with sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            profile, executable_path=program, headless=True, args=[*FLAGS], viewport=DESK, reduced_motion="reduce"
        )
        context.set_default_timeout(PATIENCE)
        try:
            yield context
        finally:
            context.close()


class Visit:
    def __init__(self, context: BrowserContext, url: str) -> None:
        self.url = url
        self.problems: list[str] = []
        self.requested: list[str] = []
        self.page: Page = context.new_page()
        self.page.on("console", lambda message: self._note(message.type, message.text))
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("request", lambda request: self.requested.append(request.url))

    def _note(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.problems.append(text)

    def open(self, path: str = "") -> Page:
        """Open a section by itself, and wait until it shows something."""
        self.page.goto("about:blank")
        self.page.goto(f"{self.url}#/{path}")
        self.page.wait_for_selector("body[data-ready]")
        return self.page

    def expect_refusal(self) -> None:
        """Take no notice of a refused request: browsers log them."""
        self.problems = [text for text in self.problems if "status of 400" not in text]

    def close(self) -> None:
        """Close the page. Raise AssertionError if anything went wrong, or it asked another server."""
        self.page.close()
        assert self.problems == []
        assert [url for url in self.requested if not url.startswith((self.url, "about:", "data:"))] == []


def axe_source() -> str:
    """Return the script that checks accessibility, or skip."""
    path = os.environ.get("SUPERHOSTS_AXE", "")
    if not path or not Path(path).is_file():
        assert not os.environ.get("SUPERHOSTS_NEED_AXE"), "axe-core is not here"
        pytest.skip("SUPERHOSTS_AXE names no axe.min.js: npm pack axe-core has it")
    return Path(path).read_text(encoding="utf-8")


def violations(page: Page, source: str) -> list[Any]:
    """Return what axe-core finds on a page: rule, and the elements that break it."""
    # A test may add scripts through the debugger, which the page's own policy does not stop.
    page.evaluate(source)
    found = page.evaluate(
        "() => axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'best-practice']})"
    )
    return [(each["id"], [node["html"][:200] for node in each["nodes"]]) for each in found["violations"]]
