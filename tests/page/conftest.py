from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.page.browser import Tab, launched

import torchlens as tl


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Not for the whole session: while the driver runs, no other test of this process could use asyncio."""
    yield from launched()


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Iterator[Callable[..., Tab]]:
    """A function that opens the page of a log (or of a text); afterwards nothing may have gone wrong in it."""
    tabs: list[Tab] = []

    def open_page(log: tl.ModelLog | str, fragment: str = "", browser_options: Any = None, **options: Any) -> Tab:
        path = tmp_path / f"page{len(tabs)}.html"
        if isinstance(log, str):
            path.write_text(log, encoding="utf-8")
        else:
            log.to_html(path, **options)
        tab = Tab(browser, **(browser_options or {})).open(path, fragment)
        tabs.append(tab)
        return tab

    yield open_page
    assert [complaint for tab in tabs for complaint in tab.closed()] == []
