"""Checks a layout as a reader of the picture would: what is wrong with it, in words.

`faults(view, layout)` is empty for a good layout. It knows nothing of how layouts are made.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator

from torchlens.draw.layout.layout import Layout, Rect, Route
from torchlens.draw.layout.measure import DEPTH, LEADING, NODE_SIZE, block_size, text_width
from torchlens.draw.view.elements import View

SLACK = 0.6  # points; positions are rounded when they are printed
CELL = 200.0


def faults(view: View, layout: Layout) -> list[str]:
    """Everything that is wrong with a layout."""
    scene = _Scene(view, layout)
    return [
        *_outside_picture(layout),
        *_overlaps(scene),
        *_members_outside(scene),
        *_text_outside(view, layout),
        *_bad_labels(scene),
        *_detached(scene),
        *_against_the_flow(scene),
        *_crossed(scene),
    ]


class _Scene:
    """A view with its layout: who lies in what, and what lies near a place."""

    def __init__(self, view: View, layout: Layout) -> None:
        self.view, self.layout = view, layout
        self.rect = {node.id: rect for node, rect in zip(view.nodes, layout.nodes, strict=True)}
        self.shape = {node.id: node.shape for node in view.nodes}
        self.group_rect = {group.id: rect for group, rect in zip(view.groups, layout.groups, strict=True)}
        self.parent = {group.id: group.parent for group in view.groups}
        self.group = {node.id: node.group for node in view.nodes}
        self.around = {node.id: self._chain(node.group) for node in view.nodes}
        first: dict[str, int] = {}  # a group stands where its first node stands
        for index, node in enumerate(view.nodes):
            for group in self.around[node.id]:
                first.setdefault(group, index)
        self.first = first
        self.number = {node.id: index for index, node in enumerate(view.nodes)}

    def _chain(self, group: str | None) -> list[str]:
        """The groups around something, innermost first."""
        chain = []
        while group is not None:
            chain.append(group)
            group = self.parent[group]
        return chain

    def branches(self, source: str, target: str) -> tuple[tuple[int, Rect], tuple[int, Rect]]:
        """The two siblings that hold the ends of an edge: their places in the order, and their boxes."""
        above, below = self.around[source][::-1], self.around[target][::-1]
        common = 0
        while common < min(len(above), len(below)) and above[common] == below[common]:
            common += 1

        def branch(node: str, chain: list[str]) -> tuple[int, Rect]:
            if common < len(chain):
                return self.first[chain[common]], self.group_rect[chain[common]]
            return self.number[node], self.rect[node]

        return branch(source, above), branch(target, below)

    def along(self, x: float, y: float) -> float:
        return {"bottomup": -y, "topdown": y, "leftright": x}[self.view.direction]


class Grid:
    """Finds the rectangles near a point or a rectangle."""

    def __init__(self, rects: Iterable[tuple[str, Rect]]) -> None:
        self._cells: dict[tuple[int, int], list[tuple[str, Rect]]] = defaultdict(list)
        for name, rect in rects:
            for cell in self._covered(rect):
                self._cells[cell].append((name, rect))

    @staticmethod
    def _covered(rect: Rect) -> Iterator[tuple[int, int]]:
        for column in range(int(rect.x // CELL), int((rect.x + rect.width) // CELL) + 1):
            for row in range(int(rect.y // CELL), int((rect.y + rect.height) // CELL) + 1):
                yield column, row

    def at(self, x: float, y: float) -> Iterator[str]:
        for name, rect in self._cells.get((int(x // CELL), int(y // CELL)), ()):
            if rect.x + SLACK < x < rect.x + rect.width - SLACK and rect.y + SLACK < y < rect.y + rect.height - SLACK:
                yield name

    def near(self, rect: Rect) -> set[str]:
        return {
            name for cell in self._covered(rect) for name, other in self._cells.get(cell, ()) if overlap(rect, other)
        }


def overlap(a: Rect, b: Rect) -> bool:
    return (
        a.x + SLACK < b.x + b.width
        and b.x + SLACK < a.x + a.width
        and a.y + SLACK < b.y + b.height
        and b.y + SLACK < a.y + a.height
    )


def inside(inner: Rect, outer: Rect) -> bool:
    return (
        inner.x >= outer.x - SLACK
        and inner.y >= outer.y - SLACK
        and inner.x + inner.width <= outer.x + outer.width + SLACK
        and inner.y + inner.height <= outer.y + outer.height + SLACK
    )


def samples(route: Route) -> Iterator[tuple[float, float]]:
    """Points on a route, close to each other."""
    x, y = route[0]
    yield x, y
    for command in route[1:]:
        to_x, to_y = command[-2:]
        count = 2 + int(math.hypot(to_x - x, to_y - y) / 6)
        for step in range(1, count + 1):
            t = step / count
            if len(command) == 2:
                yield x + (to_x - x) * t, y + (to_y - y) * t
            else:
                a, b, c, d = (1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t * t * (1 - t), t**3
                yield (
                    a * x + b * command[0] + c * command[2] + d * to_x,
                    a * y + b * command[1] + c * command[3] + d * to_y,
                )
        x, y = to_x, to_y


def _outside_picture(layout: Layout) -> Iterator[str]:
    whole = Rect(0, 0, layout.width, layout.height)
    for name, rects in (
        ("node", layout.nodes),
        ("group", layout.groups),
        ("group label", [label.rect for label in layout.group_labels]),
        ("edge label", [label.rect for label in layout.edge_labels]),
    ):
        for index, rect in enumerate(rects):
            if not all(map(math.isfinite, (rect.x, rect.y, rect.width, rect.height))) or not inside(rect, whole):
                yield f"{name} {index} is cut off by the picture"
    for index, route in enumerate(layout.edges):
        if not all(inside(Rect(x, y, 0, 0), whole) for x, y in samples(route)):
            yield f"edge {index} is cut off by the picture"


def _overlaps(scene: _Scene) -> Iterator[str]:
    siblings: dict[str | None, list[tuple[str, Rect]]] = defaultdict(list)
    for node, rect in scene.rect.items():
        siblings[scene.group[node]].append((f"node {node}", rect))
    for group, rect in scene.group_rect.items():
        siblings[scene.parent[group]].append((f"group {group}", rect))
    for members in siblings.values():
        grid = Grid(members)
        for name, rect in members:
            for other in grid.near(rect):
                if name < other:
                    yield f"{name} and {other} overlap"


def _members_outside(scene: _Scene) -> Iterator[str]:
    for node, rect in scene.rect.items():
        group = scene.group[node]
        if group is not None and not inside(rect, scene.group_rect[group]):
            yield f"node {node} is outside its group"
    for group, rect in scene.group_rect.items():
        parent = scene.parent[group]
        if parent is not None and not inside(rect, scene.group_rect[parent]):
            yield f"group {group} is outside its parent"
    for label in scene.layout.group_labels:
        if not inside(label.rect, scene.layout.groups[label.owner]):
            yield f"the label of group {label.owner} is outside it"


def _text_outside(view: View, layout: Layout) -> Iterator[str]:
    for node, rect, lines in zip(view.nodes, layout.nodes, layout.node_lines, strict=True):
        if "".join(line.text for line in lines).split() != "".join(line.text for line in node.lines).split() and (
            "".join("".join(line.text for line in lines).split())
            != "".join("".join(line.text for line in node.lines).split())
        ):
            yield f"text of node {node.id} got lost"
        depth = DEPTH if node.shape == "box3d" else 0.0
        width, height = rect.width - depth, rect.height - depth
        block = len(lines) * NODE_SIZE * LEADING
        for index, line in enumerate(lines):
            half = text_width(line.text, NODE_SIZE, line.bold) / 2
            for y in (index * NODE_SIZE * LEADING - block / 2, (index + 1) * NODE_SIZE * LEADING - block / 2):
                fits = abs(y) <= height / 2 and half <= width / 2
                if node.shape == "ellipse":
                    fits = fits and (2 * half / width) ** 2 + (2 * y / height) ** 2 <= 1
                if not fits:
                    yield f"a line of node {node.id} is wider than the node"


def _bad_labels(scene: _Scene) -> Iterator[str]:
    nodes = Grid((f"node {name}", rect) for name, rect in scene.rect.items())
    labels = {(label.lines, label.rect): f"label {index}" for index, label in enumerate(scene.layout.edge_labels)}
    places = [(name, rect) for (_, rect), name in labels.items()]
    groups = [(f"group label {label.owner}", label.rect) for label in scene.layout.group_labels]
    others = Grid([*places, *groups])
    for name, rect in [*places, *groups]:
        for other in nodes.near(rect):
            yield f"{name} overlaps {other}"
        for other in others.near(rect):
            if name < other:
                yield f"{name} overlaps {other}"
    for label in [*scene.layout.edge_labels, *scene.layout.group_labels]:
        width, height = block_size(label.lines, label.size)
        if width > label.rect.width + SLACK or height > label.rect.height + SLACK:
            yield f"a label of {label.owner} is cut"
    for index, edge in enumerate(scene.view.edges):
        wanted = sorted(line.text for lines in (edge.label, edge.head_label, edge.tail_label) for line in lines)
        shown = sorted(
            line.text for label in scene.layout.edge_labels if label.owner == index for line in label.lines
        ) if wanted else []  # fmt: skip
        if wanted != shown:
            yield f"edge {index} should say {wanted}, says {shown}"


def _on_outline(x: float, y: float, rect: Rect, shape: str) -> bool:
    if shape == "ellipse":
        a, b = rect.width / 2, rect.height / 2
        return abs(math.hypot((x - rect.x - a) / a, (y - rect.y - b) / b) - 1) * min(a, b) <= SLACK
    if not inside(Rect(x, y, 0, 0), rect):
        return False
    return min(abs(x - rect.x), abs(x - rect.x - rect.width), abs(y - rect.y), abs(y - rect.y - rect.height)) <= SLACK


def _detached(scene: _Scene) -> Iterator[str]:
    for index, (edge, route) in enumerate(zip(scene.view.edges, scene.layout.edges, strict=True)):
        for end, node, (x, y) in (("starts", edge.source, route[0]), ("ends", edge.target, route[-1][-2:])):
            if not _on_outline(x, y, scene.rect[node], scene.shape[node]):
                yield f"edge {index} {end} away from {node}"


def _against_the_flow(scene: _Scene) -> Iterator[str]:
    for index, (edge, route) in enumerate(zip(scene.view.edges, scene.layout.edges, strict=True)):
        if edge.backward or edge.source == edge.target:
            continue
        (first, a), (second, b) = scene.branches(edge.source, edge.target)
        if first > second:
            continue  # a loop runs back
        top = max(scene.along(a.x, a.y), scene.along(a.x + a.width, a.y + a.height))
        bottom = min(scene.along(b.x, b.y), scene.along(b.x + b.width, b.y + b.height))
        if top > bottom + SLACK:
            yield f"edge {index} does not lead onwards"
        at = [scene.along(x, y) for x, y in samples(route)]
        if any(later < earlier - SLACK for earlier, later in itertools.pairwise(at)):
            yield f"edge {index} turns back"


def _crossed(scene: _Scene) -> Iterator[str]:
    """Edges through nodes, through groups that they have no business in, and through labels."""
    nodes = Grid(scene.rect.items())
    groups = Grid(scene.group_rect.items())
    labels = Grid(
        (f"{index}", label.rect) for index, label in enumerate([*scene.layout.edge_labels, *scene.layout.group_labels])
    )
    for index, (edge, route) in enumerate(zip(scene.view.edges, scene.layout.edges, strict=True)):
        allowed = {*scene.around[edge.source], *scene.around[edge.target]}
        found = set()
        for x, y in samples(route):
            # an ellipse does not fill its box: its own edges may end inside the box
            found |= {f"node {node}" for node in nodes.at(x, y) if node not in (edge.source, edge.target)}
            found |= {f"group {group}" for group in groups.at(x, y) if group not in allowed}
            found |= {f"label {label}" for label in labels.at(x, y)}
            for node in {edge.source, edge.target}:
                if _well_inside(x, y, scene.rect[node], scene.shape[node]):
                    found.add(f"its own node {node}")
        yield from (f"edge {index} crosses {name}" for name in sorted(found))


def _well_inside(x: float, y: float, rect: Rect, shape: str) -> bool:
    a, b = rect.width / 2, rect.height / 2
    dx, dy = abs(x - rect.x - a), abs(y - rect.y - b)
    if shape == "ellipse":
        return math.hypot(dx / a, dy / b) < 1 - SLACK / min(a, b)
    return dx < a - SLACK and dy < b - SLACK
