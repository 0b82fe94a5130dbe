"""The formats of pictures: one row each, which options, messages and the command line read.

A new format is a file with a function from a `Picture` (or a `View`) to bytes, and a row here.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass

from ...capture.surroundings import without_collector
from ..view.elements import View
from .dot import print_dot
from .pdf import print_pdf
from .picture import Picture, picture_of
from .png import print_png
from .svg import print_svg


@dataclass(frozen=True)
class Format:
    """A format is known by its files' ending, without the dot."""

    ending: str
    print: Callable[[View], bytes]
    is_picture: bool = True  # Graphviz can draw it too, and a viewer shows it
    package: str = ""  # that must be installed to print it without Graphviz
    extra: str = ""  # of torchlens, which brings the package

    @property
    def is_available(self) -> bool:
        """Can it be printed here without Graphviz?"""
        return not self.package or importlib.util.find_spec(self.package) is not None


def laid_out(printer: Callable[[Picture], bytes]) -> Callable[[View], bytes]:
    """A printer of pictures as one of views: the built-in layout comes first."""

    @without_collector  # searching a layout's many small objects costs a third
    def print_view(view: View) -> bytes:
        return printer(picture_of(view))

    return print_view


FORMATS = {
    each.ending: each
    for each in (
        Format("svg", laid_out(print_svg)),
        Format("pdf", laid_out(print_pdf)),
        Format("png", laid_out(print_png), package="resvg_py", extra="png"),
        Format("dot", print_dot, is_picture=False),
    )
}


def endings_in_words(joined_by: str = "or", dotted: bool = False) -> str:
    """The endings in words.

    >>> endings_in_words()
    'svg, pdf, png or dot'
    """
    *first, last = [f".{ending}" if dotted else ending for ending in FORMATS]
    return f"{', '.join(first)} {joined_by} {last}"
