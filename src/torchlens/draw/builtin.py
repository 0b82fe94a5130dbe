"""The renderer that needs no Graphviz: a view as SVG, PDF or PNG."""

from __future__ import annotations

from typing import Literal

from ..capture.surroundings import collector_held_off
from .elements import View
from .pdf import print_pdf
from .picture import picture_of
from .png import print_png
from .svg import print_svg

PRINTERS = {"svg": print_svg, "pdf": print_pdf, "png": print_png}


def render(view: View, fileformat: Literal["svg", "pdf", "png"]) -> bytes:
    """The picture of a view, as the contents of a file.

    >>> from torchlens.draw.elements import Edge, Node, Text, View
    >>> nodes = Node("a", (Text("input_1_0"),)), Node("b", (Text("relu_1_1"),))
    >>> svg = render(View((Text("Model", bold=True),), nodes, (Edge("a", "b"),)), "svg")
    >>> svg[:4], svg.count(b"<ellipse")
    (b'<svg', 2)
    """
    with collector_held_off():  # searching a layout's many small objects costs a third
        return PRINTERS[fileformat](picture_of(view))
