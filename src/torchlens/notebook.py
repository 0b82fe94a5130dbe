"""Pictures and progress bars: in a notebook pictures are inline, and no file is left behind."""

from __future__ import annotations

import importlib
import sys
import warnings
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    _ConcretePath = Path
else:
    _ConcretePath = type(Path())  # before Python 3.12, only the class of this system's paths can be derived from


def in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and getattr(shell, "kernel", None) is not None


def progress_bar(**options: Any) -> Any:
    """A bar of tqdm: a widget where a notebook can show one, else text. ImportError without tqdm."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of widgets that are not installed: the bar is text then
        return importlib.import_module("tqdm.auto").tqdm(**options)


def temporary_folder() -> Path:
    """A folder that is gone when the process ends."""
    return Path(_folder().name)


@cache
def _folder() -> TemporaryDirectory[str]:
    return TemporaryDirectory(prefix="torchlens-")


class InlinePicture:
    """A picture that shows itself in a notebook."""

    def __init__(self, svg: str, text: str) -> None:
        self._svg = svg
        self._text = text

    def __repr__(self) -> str:
        return self._text

    def _repr_svg_(self) -> str:
        return self._svg

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"image/svg+xml": self._svg, "text/plain": self._text}


class ShownPath(_ConcretePath):
    """The path of a picture that the notebook shows already: as the last line of a cell it adds nothing."""

    def _ipython_display_(self) -> None:
        pass


def show_inline(svg: str, text: str, path: Path) -> Path:
    """Show a picture below the cell; `text` stands for it where pictures can't be shown."""
    kept = "" if path.parent == temporary_folder() else f": {path}"
    importlib.import_module("IPython.display").display(InlinePicture(svg, f"{text}{kept}"))
    return ShownPath(path)
