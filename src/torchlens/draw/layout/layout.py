"""The position of everything in a view.

Each container is laid out on its own, the inner ones first (`arrange.py`); then all positions are put together and
turned into the direction of the view. Linear in the number of nodes and edges but for sorting.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..view.elements import Text, View
from .arrange import Arrangement, arrange, plan_layers
from .container_tree import OUTSIDE, ContainerTree, Piece, Point, cut_into_containers
from .edge_routing import slots_width
from .lanes import LONG
from .layout_types import ARROW, ASIDE, BESIDE, CONVERGE, Box, ContainerPlan
from .measure import EDGE_SIZE, GROUP_SIZE, NODE_SIZE, block_size, node_size, wrapped
from .repeats import Repeats

ROUND = 14.0  # the radius of a corner
CURVE = 0.45  # makes a cubic curve a quarter of a circle

#: The first holds the start (x, y); then each is the end of a straight line (x, y) or two control points and the end
#: of a cubic curve.
Route = list[tuple[float, ...]]


class Rect(NamedTuple):
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Label:
    """Lines of text, set from the left in their own rectangle; `owner` is the number of an edge or a group."""

    owner: int
    lines: tuple[Text, ...]
    rect: Rect
    size: float


@dataclass(slots=True)
class Layout:
    """Positions in the picture's coordinates, y downwards; lists are parallel to those of the view."""

    width: float
    height: float
    nodes: list[Rect]
    node_lines: list[tuple[Text, ...]]
    groups: list[Rect]
    group_labels: list[Label]
    edges: list[Route]  # each ends at the tip of its arrow
    edge_labels: list[Label]


def lay_out(view: View) -> Layout:
    """The layout of a view; its upper left corner is at (0, 0)."""
    upright = view.direction != "leftright"
    tree = cut_into_containers(view)
    plans = _place_middle_labels(tree, upright)
    lines = [wrapped(node.lines, NODE_SIZE) for node in view.nodes]
    boxes = _node_boxes(view, tree, lines, upright)
    group_lines = [wrapped(group.lines, GROUP_SIZE) for group in view.groups]

    nodes = len(view.nodes)
    repeats = Repeats(tree.streams, upright)
    arranged: list[Arrangement] = []
    for index in range(len(tree.containers) - 1, -1, -1):
        container = tree.containers[index]
        inside = [boxes[child] for child in container.children]
        room = _turned(*_group_label_room(group_lines[index - 1]), upright) if index else (0.0, 0.0)
        if index in plans:
            arrangement = arrange(plans[index], inside, room, upright, root=not index)
        else:
            arrangement = repeats.arrange(container, inside, room)
        arranged.append(arrangement)
        boxes[nodes + index] = arrangement.box
    return _Assembly(view, tree, arranged[::-1], boxes, lines, group_lines).layout()


def _turned(width: float, height: float, upright: bool) -> tuple[float, float]:
    """Width and height as sizes across and along the flow, or the other way round."""
    return (width, height) if upright else (height, width)


def _group_label_room(lines: Sequence[Text]) -> tuple[float, float]:
    width, height = block_size(lines, GROUP_SIZE)
    return width + 18, height + 8


def _place_middle_labels(tree: ContainerTree, upright: bool) -> dict[int, ContainerPlan]:
    """A label in the middle has its room between two layers; on an edge that has no such place it goes to the head.

    Returns the plans of the root and of the containers with such labels, which were needed for that.
    """
    plans: dict[int, ContainerPlan] = {}
    for number, container in enumerate(tree.containers):
        labelled = [(edge, piece) for (_, _, _, edge), piece in container.pieces.items() if piece.label]
        if labelled or not number:
            plans[number] = plan_layers(container, tree.streams)
        for edge, piece in labelled:
            if 2 <= plans[number].layer[piece.head] - plans[number].layer[piece.tail] <= LONG:
                piece.label_size = _turned(*block_size(piece.label, EDGE_SIZE), upright)
            else:
                _, last = tree.routes[edge][-1]
                last.head_label = piece.label + last.head_label
                piece.label = ()
    for container in tree.containers:
        for piece in container.pieces.values():
            if piece.head_label:
                piece.head_label_size = _turned(*block_size(piece.head_label, EDGE_SIZE), upright)
    return plans


def _node_boxes(view: View, tree: ContainerTree, lines: list[tuple[Text, ...]], upright: bool) -> list[Box]:
    boxes = []
    for node, text in zip(view.nodes, lines, strict=True):
        across, along = _turned(*node_size(text, node.shape), upright)
        half = across / 2
        weight = 1 if node.dashed else 10  # the main path leads from the input
        boxes.append(Box(half, half, along, weight, half, node.shape == "ellipse"))
    for node_number, streams in tree.streams_of.items():
        if len(streams) > 1 or tree.streams[streams[0]].label or tree.streams[streams[0]].backward:
            _make_exits(boxes[node_number], tree, streams, upright)
    for container in tree.containers:
        labelled: dict[int, list[Piece]] = {}  # by child: all that arrive where a label stands
        for piece in container.pieces.values():
            if piece.head != OUTSIDE and container.children[piece.head] < len(boxes):
                boxes[container.children[piece.head]].head_room = ARROW
                if piece.head_label:
                    labelled[piece.head] = []
        if labelled:
            for piece in container.pieces.values():
                if piece.head in labelled:
                    labelled[piece.head].append(piece)
            for child, pieces in labelled.items():
                _make_room_for_labels(boxes[container.children[child]], pieces)
    boxes.extend(Box(0.0, 0.0, 0.0) for _ in tree.containers)
    return boxes


def _make_exits(box: Box, tree: ContainerTree, streams: list[int], upright: bool) -> None:
    """Places side by side where lines leave a node, with room for the labels there; loops turn off to the right."""
    streams.sort(key=lambda stream: (tree.streams[stream].backward, tree.streams[stream].loops))
    sizes = [_turned(*block_size(tree.streams[stream].label, EDGE_SIZE), upright) for stream in streams]
    tallest = max(along for _, along in sizes)
    if any(tree.streams[stream].backward for stream in streams):
        box.tail_room = ARROW  # theirs point at this side
    if not tallest:  # the forward edges leave in the middle, the backward ones beside them
        box.exits = {stream: min(index * ASIDE, 0.7 * box.half) for index, stream in enumerate(streams)}
        return
    widths = [ASIDE + (across + BESIDE if across else 0.0) for across, _ in sizes]
    total = sum(widths)
    at = -total / 2 if len(streams) > 1 else -ASIDE / 2
    exits = {}
    for stream, width in zip(streams, widths, strict=True):
        exits[stream] = at + ASIDE / 2
        at += width
    box.exits = exits
    farthest = max(map(abs, exits.values()))
    converges = farthest > 0.7 * box.half
    if converges:
        box.exit_ports = {stream: offset * 0.7 * box.half / farthest for stream, offset in exits.items()}
    box.left, box.right = max(box.left, total / 2 if len(streams) > 1 else 0.0), max(box.right, at)
    box.tail_room = max(box.tail_room, tallest + 3) + (CONVERGE if converges else 0.0)


def _make_room_for_labels(box: Box, pieces: list[Piece]) -> None:
    """Where lines arrive at a node."""
    tallest = max(piece.head_label_size[1] for piece in pieces)
    if len(pieces) == 1:
        box.right = max(box.right, BESIDE + pieces[0].head_label_size[0] + ASIDE / 2)
    else:
        half = slots_width(pieces) / 2
        box.converges = half > 0.7 * box.half
        box.left, box.right = max(box.left, half), max(box.right, half)
    box.head_room = max(ARROW, tallest + 3 + (ARROW + CONVERGE if box.converges else 0.0))


class _Assembly:
    """Puts the containers' layouts together, in the coordinates of the picture."""

    def __init__(
        self,
        view: View,
        tree: ContainerTree,
        arranged: list[Arrangement],
        boxes: list[Box],
        lines: list[tuple[Text, ...]],
        group_lines: list[tuple[Text, ...]],
    ) -> None:
        self.view, self.tree, self.arranged, self.boxes = view, tree, arranged, boxes
        self.lines, self.group_lines = lines, group_lines
        self.upright = view.direction != "leftright"
        root = arranged[0].box
        self.breadth, self.length = root.left + root.right, root.length
        self.flipped = view.direction == "bottomup"
        self.origin = [(0.0, 0.0)] * len(arranged)  # by container: its axis and start
        self.at: list[tuple[float, float]] = [(0.0, 0.0)] * len(boxes)
        self.origin[0] = (root.left, 0.0)
        for index, container in enumerate(tree.containers):
            across, along = self.origin[index]
            for child, (axis, start) in zip(container.children, arranged[index].places, strict=True):
                self.at[child] = across + axis, along + start
                if child >= len(view.nodes):
                    self.origin[child - len(view.nodes)] = self.at[child]

    def layout(self) -> Layout:
        width, height = _turned(self.breadth, self.length, self.upright)
        nodes = [self._node_rect(number) for number in range(len(self.view.nodes))]
        groups = [self._box_rect(number) for number in range(len(nodes) + 1, len(self.boxes))]
        return Layout(
            width,
            height,
            nodes,
            self.lines,
            groups,
            [self._group_label(number) for number in range(1, len(self.arranged))],
            [self._route(number) for number in range(len(self.view.edges))],
            [label for number in range(len(self.view.edges)) for label in self._labels(number)],
        )

    def _rect(self, across: float, along: float, breadth: float, length: float) -> Rect:
        if not self.upright:
            return Rect(along, across, length, breadth)
        return Rect(across, self.length - along - length if self.flipped else along, breadth, length)

    def _node_rect(self, number: int) -> Rect:
        (axis, start), box = self.at[number], self.boxes[number]
        return self._rect(axis - box.half, start, 2 * box.half, box.length)

    def _box_rect(self, number: int) -> Rect:
        (axis, start), box = self.at[number], self.boxes[number]
        return self._rect(axis - box.left, start, box.left + box.right, box.length)

    def _group_label(self, container: int) -> Label:
        lines = self.group_lines[container - 1]
        room = _turned(*_group_label_room(lines), self.upright)
        (axis, start), (across, along) = self.origin[container], self.arranged[container].label
        rect = self._rect(axis + across, start + along, *room)
        inner = Rect(rect.x + 9, rect.y + 4, rect.width - 18, rect.height - 8)
        return Label(container - 1, lines, inner, GROUP_SIZE)

    # ---- edges -------------------------------------------------------------------------------------------------

    def _labels(self, number: int) -> list[Label]:
        edge = self.view.edges[number]
        if not (edge.label or edge.head_label or edge.tail_label):
            return []
        found = []
        for container, piece in self.tree.routes[number]:
            if piece.label and piece.label_at:
                found.append(self._edge_label(number, piece.label, container, piece.label_at))
            if piece.head_label and piece.head_label_at:
                found.append(self._edge_label(number, piece.head_label, container, piece.head_label_at))
        _, first = self.tree.routes[number][0]
        stream = self.tree.streams[first.stream]
        if stream.label:
            (axis, start), box = self.at[stream.node], self.boxes[stream.node]
            away = 1.0 + (CONVERGE if box.exit_ports else 0.0)
            at = axis + box.exits[first.stream] + BESIDE, start + box.length + away
            found.append(self._edge_label(number, stream.label, None, at))
        return found

    def _edge_label(self, edge: int, lines: tuple[Text, ...], container: int | None, at: tuple[float, float]) -> Label:
        across, along = self.origin[container] if container is not None else (0.0, 0.0)
        size = _turned(*block_size(lines, EDGE_SIZE), self.upright)
        return Label(edge, lines, self._rect(across + at[0], along + at[1], *size), EDGE_SIZE)

    def _route(self, number: int) -> Route:
        points: list[Point] = []
        for container, piece in self.tree.routes[number]:
            across, along = self.origin[container]
            for u, v, track in piece.points:
                points.append((across + u, along + v, None if track is None else along + track))
        route = _line(points)
        if not self.upright:
            route = [tuple(c[i ^ 1] for i in range(len(c))) for c in route]
        elif self.flipped:
            far = self.length
            route = [
                (c[0], far - c[1]) if len(c) == 2 else (c[0], far - c[1], c[2], far - c[3], c[4], far - c[5])
                for c in route
            ]
        return _reversed(route) if self.view.edges[number].backward else route


def _line(points: list[Point]) -> Route:
    """Straight along the flow, curved where the line changes its place across."""
    u, v, _ = points[0]
    route: Route = [(u, v)]
    last = len(points) - 1
    for index in range(1, last + 1):
        to_u, to_v, track = points[index]
        far = to_u - u
        if -0.5 < far < 0.5:
            if index < last and -0.5 < points[index + 1][0] - to_u < 0.5:
                continue  # the line goes on straight
            route.append((to_u, to_v))
        elif track is None:
            middle = (v + to_v) / 2
            route.append((u, middle, to_u, middle, to_u, to_v))
        else:
            _turn_twice(route, u, v, to_u, to_v, track)
        u, v = to_u, to_v
    return route


def _turn_twice(route: Route, u: float, v: float, to_u: float, to_v: float, track: float) -> None:
    """Along the flow to the track, on it across, and along the flow again, with round corners."""
    sign = 1.0 if to_u > u else -1.0
    room = abs(to_u - u) / 2
    first, second = min(ROUND, room, abs(track - v)), min(ROUND, room, abs(to_v - track))
    up, on = (1.0 if track > v else -1.0), (1.0 if to_v > track else -1.0)
    if abs(track - v) > first:
        route.append((u, track - up * first))
    turned = u + sign * first
    route.append((u, track - up * first * CURVE, u + sign * first * CURVE, track, turned, track))
    if 2 * room > first + second:
        route.append((to_u - sign * second, track))
    route.append((to_u - sign * second * CURVE, track, to_u, track + on * second * CURVE, to_u, track + on * second))
    if abs(to_v - track) > second:
        route.append((to_u, to_v))


def _reversed(route: Route) -> Route:
    ends = [command[-2:] for command in route]
    back: Route = [ends[-1]]
    for index in range(len(route) - 1, 0, -1):
        command = route[index]
        back.append(ends[index - 1] if len(command) == 2 else (*command[2:4], *command[:2], *ends[index - 1]))
    return back
