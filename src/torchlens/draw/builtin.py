"""The renderer that needs no Graphviz: a view as SVG, PDF or PNG."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

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
    with no_garbage_collection():
        return PRINTERS[fileformat](picture_of(view))


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """A layout makes many small objects, none of them garbage: searching them again and again costs a third."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
