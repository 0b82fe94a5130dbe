"""The page about versions is what the command wrote."""

from __future__ import annotations

from tests.jobs import Results
from tests.versions.__main__ import DOCUMENT, RESULTS, page


def test_the_page_is_what_the_runs_gave() -> None:
    assert page(Results(RESULTS)) == DOCUMENT.read_text(encoding="utf-8"), "python -m tests.versions writes it"


def test_every_skip_has_a_reason_that_can_be_read() -> None:
    for name, result in Results(RESULTS).found.items():
        assert all(len(reason.split()) > 4 for reason in result.get("skipped", ())), name
