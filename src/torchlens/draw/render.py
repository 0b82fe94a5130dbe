"""From a view to the bytes of a file, with Graphviz or without."""

from __future__ import annotations

import importlib.util
import warnings

from ..errors import ArgumentError, DrawingError, DrawingWarning
from . import builtin, graphviz
from .dot import to_dot
from .elements import View
from .options import FileFormat

#: Above this many nodes Graphviz is not even tried: it takes minutes or does not end.
MOST_NODES_FOR_GRAPHVIZ = 5000
SECONDS_FOR_GRAPHVIZ = 30.0


def check_renderer(renderer: str, fileformat: str) -> None:
    """Raise if nothing here can draw in this format."""
    if renderer == "graphviz" and fileformat != "dot" and not graphviz.is_there():
        raise ArgumentError(
            'renderer="graphviz" needs Graphviz: install its program dot, or `pip install "torchlens[graphviz]"`; '
            'renderer="builtin" needs nothing'
        )
    if fileformat == "png" and not _can_make_png(renderer):
        raise ArgumentError(
            'PNG needs a package more: `pip install "torchlens[png]"`, or Graphviz; svg and pdf need nothing'
        )


def _can_make_png(renderer: str) -> bool:
    has_resvg = importlib.util.find_spec("resvg_py") is not None
    return has_resvg or (renderer != "builtin" and graphviz.is_there())


def render(view: View, fileformat: FileFormat, renderer: str = "auto") -> bytes:
    """The picture as a file in one of the formats svg, pdf, png and dot."""
    if fileformat == "dot":
        return to_dot(view).encode()
    if renderer == "graphviz":
        return graphviz.render(to_dot(view), fileformat)
    if renderer == "auto" and graphviz.is_there() and len(view.nodes) <= MOST_NODES_FOR_GRAPHVIZ:
        try:
            return graphviz.render(to_dot(view), fileformat, SECONDS_FOR_GRAPHVIZ)
        except DrawingError as error:
            warnings.warn(f"{error}; drawn with the built-in layout instead", DrawingWarning, stacklevel=2)
    return builtin.render(view, fileformat)
