"""A laid out view as shapes and words, in the order they are painted; the printers print this and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain, pairwise
from typing import NamedTuple

from ..layout.layout import Label, Layout, Rect, Route, lay_out
from ..layout.measure import (
    BASELINE,
    DEPTH,
    LEADING,
    NODE_SIZE,
    NOTE_SIZE,
    TITLE_SIZE,
    block_size,
    text_width,
    wrapped,
)
from ..view.elements import Edge, Legend, Node, Text, View

MARGIN = 16.0
ARROW_LENGTH, ARROW_WIDTH = 8.0, 6.0
BAR = 24.0, 10.0  # one step of a legend


class Style(NamedTuple):
    """How a shape is painted."""

    fill: str | None
    line: str | None
    pen: float = 1.0
    dashed: bool = False
    fill2: str | None = None  # a gradient from left (fill) to right (fill2)


class Words(NamedTuple):
    """A line of text on a baseline."""

    x: float
    y: float
    text: str
    width: float
    size: float
    bold: bool
    color: str
    centred: bool  # x is its middle, else its left end


class Rectangle(NamedTuple):
    rect: Rect
    style: Style


class Ellipse(NamedTuple):
    rect: Rect  # around it
    style: Style


class Curve(NamedTuple):
    route: Route
    style: Style
    closed: bool = False


Shape = Rectangle | Ellipse | Curve


@dataclass(slots=True)
class Mark:
    """Shapes and words that belong together, with their tooltip.

    `id` is that of the node or group that it shows, or `source -> target` of the edge; a label has that of its owner.
    """

    id: str
    shapes: list[Shape]
    words: list[Words] = field(default_factory=list)
    tooltip: str = ""


@dataclass(slots=True)
class Picture:
    """A heading and a graph. A picture can be printed more than once."""

    view: View
    layout: Layout
    width: float
    height: float
    heading: Mark
    origin: tuple[float, float]  # of the graph
    gradients: set[tuple[str, str]]  # all that fills are painted in

    @property
    def background(self) -> str:
        return self.view.background

    @property
    def graph(self) -> Iterator[Mark]:
        """The marks in the order they are painted, in the graph's own coordinates; made anew each time, not kept."""
        each = self.view, self.layout
        return chain(_groups(*each), _edges(*each), _nodes(*each), _labels(*each))


def picture_of(view: View) -> Picture:
    """Lay out a view and turn it into shapes and words."""
    layout = lay_out(view)
    heading, heading_width, heading_height = _heading(view)
    width = max(layout.width, heading_width)
    left, top = MARGIN + (width - layout.width) / 2, MARGIN + heading_height
    gradients = {(node.fill, node.fill2) for node in view.nodes if node.fill and node.fill2}
    gradients |= {(s.style.fill, s.style.fill2) for s in heading.shapes if s.style.fill and s.style.fill2}
    height = top + layout.height + MARGIN
    return Picture(view, layout, width + 2 * MARGIN, height, heading, (left, top), gradients)


# ---- the graph ------------------------------------------------------------------------------------------------


def _groups(view: View, layout: Layout) -> Iterator[Mark]:
    for group, rect in zip(view.groups, layout.groups, strict=True):
        yield Mark(group.id, [Rectangle(rect, Style(group.fill, group.line, group.pen, group.dashed))])


def _edges(view: View, layout: Layout) -> Iterator[Mark]:
    for edge, route in zip(view.edges, layout.edges, strict=True):
        yield Mark(edge.id, _arrow(edge, route))


def _arrow(edge: Edge, route: Route) -> list[Shape]:
    """The line, which ends inside the arrow's head, and the head, in the direction of the line's last bit."""
    end = route[-1]
    x, y = end[-2:]
    from_x, from_y = end[-4:-2] if len(end) > 2 else route[-2][-2:]
    length = max(abs(x - from_x), abs(y - from_y))
    right, down = ((x - from_x) / length, (y - from_y) / length) if length > 0 else (0.0, 1.0)
    scale = 0.75 + 0.25 * edge.pen
    back, half = ARROW_LENGTH * scale, ARROW_WIDTH * scale / 2
    foot_x, foot_y = x - right * back, y - down * back
    head: Route = [
        (x, y),
        (foot_x - down * half, foot_y + right * half),
        (foot_x + down * half, foot_y - right * half),
    ]
    line = route
    if len(end) == 2 and length > back:  # a thick line would show beside the tip
        line = [*route[:-1], (x - right * back * 0.6, y - down * back * 0.6)]
    line_style, head_style = _arrow_styles(edge.line, edge.pen, edge.dashed)
    return [Curve(line, line_style), Curve(head, head_style, closed=True)]


@lru_cache(maxsize=1_000)
def _arrow_styles(line: str, pen: float, dashed: bool) -> tuple[Style, Style]:
    return Style(None, line, pen, dashed), Style(line, None)


def _nodes(view: View, layout: Layout) -> Iterator[Mark]:
    for node, rect, lines in zip(view.nodes, layout.nodes, layout.node_lines, strict=True):
        yield Mark(node.id, _outline(node, rect), _node_words(node, rect, lines), node.tooltip)


def _outline(node: Node, rect: Rect) -> list[Shape]:
    style = Style(node.fill, node.line, node.pen, node.dashed, node.fill2)
    if node.shape == "ellipse":
        return [Ellipse(rect, style)]
    if node.shape == "box":
        return [Rectangle(rect, style)]
    front = _front(rect)
    left, top, right, bottom = front.x, front.y, front.x + front.width, front.y + front.height
    far_right, far_top = right + DEPTH, top - DEPTH
    roof: Route = [(left, top), (left + DEPTH, far_top), (far_right, far_top), (right, top)]
    side: Route = [(right, top), (far_right, far_top), (far_right, bottom - DEPTH), (right, bottom)]
    return [Curve(roof, style, closed=True), Curve(side, style, closed=True), Rectangle(front, style)]


def _front(rect: Rect) -> Rect:
    return Rect(rect.x, rect.y + DEPTH, rect.width - DEPTH, rect.height - DEPTH)


def _node_words(node: Node, rect: Rect, lines: tuple[Text, ...]) -> list[Words]:
    x, y, width, height = _front(rect) if node.shape == "box3d" else rect
    middle = x + width / 2
    baseline = y + (height - len(lines) * NODE_SIZE * LEADING) / 2 + NODE_SIZE * BASELINE
    words = []
    for line in lines:
        if line.text:
            length = text_width(line.text, NODE_SIZE, line.bold)
            words.append(Words(middle, baseline, line.text, length, NODE_SIZE, line.bold, node.font, True))
        baseline += NODE_SIZE * LEADING
    return words


def _labels(view: View, layout: Layout) -> Iterator[Mark]:
    """Labels of groups and edges; the label that several edges share is painted once."""
    for label in layout.group_labels:
        group = view.groups[label.owner]
        yield Mark(group.id, [], _block(label, group.font))
    seen = set()
    for label in layout.edge_labels:
        edge = view.edges[label.owner]
        if (label.lines, label.rect) not in seen:
            seen.add((label.lines, label.rect))
            yield Mark(edge.id, [], _block(label, view.font if edge.line == "#000000" else edge.line))


def _block(label: Label, color: str) -> list[Words]:
    return _set(label.lines, label.rect.x, label.rect.y, label.size, color)


def _set(lines: tuple[Text, ...], x: float, y: float, size: float, color: str) -> list[Words]:
    """Lines set from the left, one under the other; y is the top."""
    return [
        Words(
            x,
            y + size * (BASELINE + index * LEADING),
            line.text,
            text_width(line.text, size, line.bold),
            size,
            line.bold,
            color,
            False,
        )
        for index, line in enumerate(lines)
        if line.text
    ]


# ---- what stands above it --------------------------------------------------------------------------------------


def _heading(view: View) -> tuple[Mark, float, float]:
    """Title, notes and legend, one under the other; with width and height."""
    mark = Mark("heading", [])
    width, y = 0.0, MARGIN
    notes = tuple(Text(note) for note in view.notes)
    for lines, size in ((wrapped(view.title, TITLE_SIZE, 900.0), TITLE_SIZE), (wrapped(notes, NOTE_SIZE), NOTE_SIZE)):
        if lines:
            mark.words += _set(lines, MARGIN, y, size, view.font)
            block_width, block_height = block_size(lines, size)
            width, y = max(width, block_width), y + block_height + 8
    if view.legend:
        legend_width, legend_height = _legend(mark, view.legend, y, view.font)
        width, y = max(width, legend_width), y + legend_height + 8
    return mark, width, y - MARGIN + (8 if y > MARGIN else 0)


def _legend(mark: Mark, legend: Legend, y: float, font: str) -> tuple[float, float]:
    """The name of what is coloured, then a bar of the colours between its two ends."""
    size = NOTE_SIZE
    mark.words += _set((Text(legend.title, True),), MARGIN, y, size, font)
    y += size * LEADING + 2
    mark.words += _set((Text(legend.low),), MARGIN, y, size, font)
    x = start = MARGIN + text_width(legend.low, size) + 6
    step, height = BAR
    colors = legend.colors if len(legend.colors) > 1 else legend.colors * 2
    for color, following in pairwise(colors):
        # each step reaches a little under the next, so that no gap shows between them
        reach = step + (0.5 if x < start + step * (len(colors) - 2) else 0.0)
        mark.shapes.append(Rectangle(Rect(x, y + 1, reach, height), Style(color, None, fill2=following)))
        x += step
    mark.shapes.append(Rectangle(Rect(start, y + 1, x - start, height), Style(None, font, 0.5)))
    mark.words += _set((Text(legend.high),), x + 6, y, size, font)
    width = max(x + 6 + text_width(legend.high, size), MARGIN + text_width(legend.title, size, True)) - MARGIN
    return width, size * LEADING * 2 + 2
