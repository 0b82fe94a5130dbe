"""Show a page inside a notebook, or in the browser."""

from __future__ import annotations

import base64
import html
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..draw.draw_options import DrawOptions
from ..draw.output.formats import FORMATS
from ..draw.show import open_in_viewer
from ..draw.view.build import make_view
from ..draw.view.drawable import Drawable
from ..errors import ArgumentError
from ..notebook import in_notebook
from .write import write_page


class Exploration:
    """A page that shows itself in a notebook.

    Where a notebook is not trusted, the front end removes the frame with the page, and the picture under it becomes
    visible.
    """

    def __init__(self, page: str, picture: bytes, title: str, height: int, variable: str) -> None:
        self._page, self._picture, self._title, self._height = page, picture, title, height
        self._variable = variable

    def __repr__(self) -> str:
        return f"Exploration of {self._title}: {self._variable}.to_html(path) writes it to a file"

    def _repr_html_(self) -> str:
        picture = base64.b64encode(self._picture).decode("ascii")
        title = html.escape(self._title)
        return (
            f'<div style="position: relative; width: 100%; height: {self._height}px; overflow: hidden">'
            f'<img src="data:image/svg+xml;base64,{picture}" alt="{title}" height="{self._height}">'
            f'<iframe srcdoc="{html.escape(self._page)}" sandbox="allow-scripts allow-downloads" title="{title}" '
            'style="position: absolute; inset: 0; width: 100%; height: 100%; border: 0; background: white">'
            "</iframe></div>"
        )

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"text/html": self._repr_html_(), "text/plain": repr(self)}


def explore(log: Drawable, page: str, height: int) -> Exploration | Path:
    """The page of a log inline in a notebook; elsewhere in the browser."""
    options = DrawOptions(vis_direction="topdown", vis_nesting_depth=1, vis_fold_repeats=True)
    return explore_page(page, height, log.model_name, lambda: FORMATS["svg"].print(make_view(log, options)))


def explore_page(
    page: str, height: int, title: str, picture: Callable[[], bytes], variable: str = "log"
) -> Exploration | Path:
    """A page inline in a notebook; elsewhere written to a temporary file and opened in the browser.

    `picture` draws the fallback for notebooks that are not trusted; `variable` is the name of the object in messages.
    """
    if isinstance(height, bool) or not isinstance(height, int) or height < 100:
        raise ArgumentError(f"height must be a number of pixels, 100 or more, not {height!r}")
    if in_notebook():
        return Exploration(page, picture(), title, height, variable)
    folder = Path(tempfile.mkdtemp(prefix="torchlens-"))
    path = write_page(page, folder / "model.html")
    open_in_viewer(path)
    return path
