"""From a view to the bytes of a file, with Graphviz or without."""

from __future__ import annotations

from ...errors import ArgumentError, DrawingError, DrawingWarning, warn
from ..view.elements import View
from . import graphviz
from .dot import to_dot
from .formats import FORMATS

#: Above this many nodes Graphviz is not even tried: it takes minutes or does not end.
MOST_NODES_FOR_GRAPHVIZ = 5000
SECONDS_FOR_GRAPHVIZ = 30.0


def check_renderer(renderer: str, fileformat: str) -> None:
    """Raise if nothing here can draw in this format."""
    if renderer == "graphviz" and FORMATS[fileformat].is_picture and not graphviz.is_there():
        raise ArgumentError(
            'renderer="graphviz" needs Graphviz: install its program dot, or `pip install "forwardlens[graphviz]"`; '
            'renderer="builtin" needs nothing'
        )
    needed = FORMATS[fileformat]
    if not needed.is_available and (renderer == "builtin" or not graphviz.is_there()):
        free = ", ".join(each.ending for each in FORMATS.values() if not each.package)
        raise ArgumentError(
            f"Writing {needed.ending.upper()} needs the extra `{needed.extra}`: "
            f"pip install 'forwardlens[{needed.extra}]', or Graphviz and renderer=\"graphviz\"; {free} need no extra"
        )


def render(view: View, fileformat: str, renderer: str = "auto") -> bytes:
    """The picture of a view, as the contents of a file.

    >>> from torchlens.draw.view.elements import Edge, Node, Text, View
    >>> nodes = Node("a", (Text("input_1_0"),)), Node("b", (Text("relu_1_1"),))
    >>> svg = render(View((Text("Model", bold=True),), nodes, (Edge("a", "b"),)), "svg", "builtin")
    >>> svg[:4], svg.count(b"<ellipse")
    (b'<svg', 2)
    """
    wanted = FORMATS[fileformat]
    if not wanted.is_picture or renderer == "builtin":
        return wanted.print(view)
    if renderer == "graphviz":
        return graphviz.run_graphviz(to_dot(view), fileformat)
    if graphviz.is_there() and len(view.nodes) <= MOST_NODES_FOR_GRAPHVIZ:
        try:
            return graphviz.run_graphviz(to_dot(view), fileformat, SECONDS_FOR_GRAPHVIZ)
        except DrawingError as error:
            warn(f"{error}; drawn with the built-in layout instead", DrawingWarning)
    return wanted.print(view)
