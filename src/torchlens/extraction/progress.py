"""Progress while it runs, shown on a terminal or in a notebook only."""

from __future__ import annotations

import sys
from typing import Any

from ..notebook import in_notebook, progress_bar


class Progress:
    """A report before, a bar meanwhile, a summary at the end."""

    def __init__(self, wanted: bool | None) -> None:
        self.shown = _is_watched() if wanted is None else wanted
        self._bar: Any = None

    def say(self, text: str) -> None:
        if self.shown:
            # a notebook shows stderr as if something had gone wrong
            print(text, file=sys.stdout if in_notebook() else sys.stderr, flush=True)

    def begin(self, total: int | None, done: int) -> None:
        """Begin at what an earlier run has done, without counting that for the rate."""
        if self.shown:
            self._bar = progress_bar(total=total, initial=done, unit=" rows", dynamic_ncols=True)

    def advance(self, rows: int) -> None:
        if self._bar is not None:
            self._bar.update(rows)

    def end(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def _is_watched() -> bool:
    return sys.stderr.isatty() or in_notebook()
