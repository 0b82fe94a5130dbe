"""A view as containers (the picture itself, and its groups), with every edge cut where it crosses a border.

An edge from a node in one group to a node in another leaves the first through a port in its border, passes between
the two groups and enters the second through a port. So each container can be laid out on its own, knowing only the
sizes and ports of what lies directly in it, and no edge gets lost between levels.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ...errors import ArgumentError
from ..view.elements import Text, View

#: Across, along, and how to get there from the point before: along a straight line or an S where this is None, else
#: along a line across at this height.
Point = tuple[float, float, float | None]

OUTSIDE = -1  # the end of a piece that lies at a port of its container


@dataclass(slots=True)
class Piece:
    """The part of an edge that lies in one container, from a child (or port) to a child (or port).

    Edges that carry the same value share their pieces, which draws them as one line that branches.
    """

    tail: int  # position among the container's children, or OUTSIDE
    head: int
    stream: int  # what flows: the same number for all edges that leave a node at the same place
    label: tuple[Text, ...] = ()  # in the middle
    head_label: tuple[Text, ...] = ()
    # the rest is found by the layout, in the container's own coordinates (across, along)
    label_size: tuple[float, float] = (0.0, 0.0)
    head_label_size: tuple[float, float] = (0.0, 0.0)
    path: list[int] = field(default_factory=list)  # the items in the layers that it passes
    slot: float = 0.0  # where it ends, from the axis of its head: first the line, then its last bit at the node itself
    port: float = 0.0
    points: list[Point] = field(default_factory=list)
    label_at: tuple[float, float] | None = None
    head_label_at: tuple[float, float] | None = None


@dataclass(slots=True)
class Container:
    """The picture (number 0) or a group (its place in the view, plus one)."""

    parent: int
    depth: int
    children: list[int] = field(default_factory=list)  # nodes by their number; container c as nodes + c
    pieces: dict[tuple[int, int, int, int], Piece] = field(default_factory=dict)


@dataclass(slots=True)
class EdgeStream:
    """One place where edges leave a node; a different label there makes a different place."""

    node: int
    label: tuple[Text, ...]
    backward: bool
    loops: bool = False  # an edge runs back to an earlier node


@dataclass(slots=True)
class ContainerTree:
    containers: list[Container]
    container_of: list[int]  # by node
    position: list[int]  # by node or nodes + container: the place among its siblings
    streams: list[EdgeStream]
    streams_of: dict[int, list[int]]  # by node
    routes: list[list[tuple[int, Piece]]]  # by edge: its pieces from tail to head, each with its container


def cut_into_containers(view: View) -> ContainerTree:
    """Containers in the view's order (outer before inner), and the pieces that each edge consists of."""
    number = {node.id: index for index, node in enumerate(view.nodes)}
    if len(number) < len(view.nodes):
        raise ArgumentError("two nodes of the view have the same id")
    strangers = {name for edge in view.edges for name in (edge.source, edge.target) if name not in number}
    if strangers:
        raise ArgumentError(f"an edge of the view joins {min(strangers)!r}, which is not one of its nodes")
    containers, container_of, position = _containers(view)
    tree = ContainerTree(containers, container_of, position, [], {}, [])
    numbers: dict[tuple[int, tuple[Text, ...], bool], int] = {}
    for index, edge in enumerate(view.edges):
        tail, head = number[edge.source], number[edge.target]
        tail_label, head_label = edge.tail_label, edge.head_label
        if edge.backward:  # lies beside the forward edge; only its arrow points the other way
            tail, head, tail_label, head_label = head, tail, head_label, tail_label
        stream = numbers.setdefault((tail, tail_label, edge.backward), len(numbers))
        if stream == len(tree.streams):
            tree.streams.append(EdgeStream(tail, tail_label, edge.backward))
            tree.streams_of.setdefault(tail, []).append(stream)
        if head <= tail:
            tree.streams[stream].loops = True
        tree.routes.append(_cut(tree, index, tail, head, stream, head_label, edge.label))
    return tree


def _containers(view: View) -> tuple[list[Container], list[int], list[int]]:
    containers = [Container(parent=-1, depth=0)]
    number: dict[str | None, int] = {None: 0}
    for group in view.groups:
        parent = number[group.parent]
        number[group.id] = len(containers)
        containers.append(Container(parent, containers[parent].depth + 1))

    nodes = len(view.nodes)
    position = [-1] * (nodes + len(containers))
    container_of = [number[node.group] for node in view.nodes]

    def enter(child: int, parent: int) -> None:
        children = containers[parent].children
        position[child] = len(children)
        children.append(child)

    def reach(container: int) -> None:  # a container stands where the first node in it stands
        while container and position[nodes + container] < 0:
            enter(nodes + container, containers[container].parent)
            container = containers[container].parent

    for node, container in enumerate(container_of):
        reach(container)
        enter(node, container)
    for container in range(1, len(containers)):
        reach(container)  # groups with nothing in them come last
    return containers, container_of, position


def _cut(
    tree: ContainerTree,
    index: int,
    tail: int,
    head: int,
    stream: int,
    head_label: tuple[Text, ...],
    label: tuple[Text, ...],
) -> list[tuple[int, Piece]]:
    """The edge's pieces: out of the tail's containers, across the innermost one that both are in, into the head's."""
    containers, position = tree.containers, tree.position
    nodes = len(tree.container_of)
    inside, into = tree.container_of[tail], tree.container_of[head]
    leaving, entering = position[tail], position[head]
    own = index if head_label or label else -1  # the piece at an end with a label is not shared
    first: list[tuple[int, Piece]] = []
    last: list[tuple[int, Piece]] = []
    while inside != into:
        if containers[inside].depth >= containers[into].depth:
            first.append((inside, _piece(containers[inside], leaving, OUTSIDE, stream, -1)))
            leaving, inside = position[nodes + inside], containers[inside].parent
        else:
            last.append((into, _piece(containers[into], OUTSIDE, entering, stream, own, head_label)))
            entering, into, head_label = position[nodes + into], containers[into].parent, ()
            own = index if label else -1
    first.append((inside, _piece(containers[inside], leaving, entering, stream, own, head_label, label)))
    return first + last[::-1]


def _piece(
    container: Container,
    tail: int,
    head: int,
    stream: int,
    own: int,
    head_label: tuple[Text, ...] = (),
    label: tuple[Text, ...] = (),
) -> Piece:
    """The piece between two places: a new one, or the one that another edge with the same value made."""
    key = tail, head, stream, own
    piece = container.pieces.get(key)
    if piece is None:
        piece = container.pieces[key] = Piece(tail, head, stream, label, head_label)
    return piece
