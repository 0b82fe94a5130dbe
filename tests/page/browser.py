"""A real browser: Debian's chromium, or one that the variable CHROMIUM names, driven by playwright."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")


def launched() -> Iterator[Any]:
    """The browser of a test run; a test that asks for it is skipped where there is none."""
    if CHROMIUM is None:
        pytest.skip("needs the program chromium: `make browser` installs it where it can")
    driver = pytest.importorskip(
        "playwright.sync_api", reason="needs the package playwright, which `make test` installs"
    )
    with driver.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


class Tab:
    """A page in the browser, with everything that it complained about or asked the network for."""

    def __init__(self, browser: Any, **options: Any) -> None:
        options = {"viewport": {"width": 1500, "height": 900}, "reduced_motion": "reduce"} | options
        self.context = browser.new_context(accept_downloads=True, **options)
        self.page = self.context.new_page()
        self.complaints: list[str] = []
        self.requests: list[str] = []  # also those that the content policy stopped
        self.sent: list[str] = []
        self.page.on("console", lambda message: self._complain(message))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("requestfinished", lambda request: self.sent.append(request.url))
        self.page.on("request", lambda request: self.requests.append(request.url))

    def _complain(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def open(self, path: Path, fragment: str = "") -> Tab:
        self.page.goto(f"{path.as_uri()}{fragment}")
        self.page.wait_for_selector("body.ready", timeout=20_000)
        return self

    def run(self, script: str, *arguments: Any) -> Any:
        return self.page.evaluate(script, *arguments)

    def key(self, key: str) -> None:
        self.page.keyboard.press(key)

    def closed(self) -> list[str]:
        """Close it; returns what went wrong, which is nothing: complaints, and requests beyond the file itself."""
        beyond = [url for url in self.requests if not url.startswith(("file:", "data:", "blob:"))]
        self.context.close()
        return self.complaints + beyond
