"""Everything that any picture of a log can show, for what lets the reader open and close modules.

Every entry is a node of its own here (`vis_gather=False`), and it is said which of them may be drawn as one.
A `View` is one state of it. In the terms of a view: an open module is a group, a closed one a node.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from ...capture.surroundings import without_collector
from .build import ViewBuilder
from .contents import Spot, is_shown_buffer
from .drawable import Drawable
from .elements import Group, Node, Text
from .fold import find_runs
from .gather import gather
from .module_boxes import BoxPath
from .theme import ROLES
from .view_options import ViewOptions


@dataclass(frozen=True)
class Hierarchy:
    """Nodes and groups are numbered; colours are the names of roles (`theme.ROLES`)."""

    nodes: list[Node]  # what becomes one node unless it is hidden in a closed module
    places: list[list[int]]  # the entries that each stands for
    passes: list[int]
    groups: list[Group]  # every module, open; outer ones before the ones inside them
    closed: list[Node]  # and closed
    boxes: list[BoxPath]
    runs: list[list[list[int]]]  # groups that repeat: blocks that follow each other and look the same
    gathers: list[Gather]


class Gather(NamedTuple):
    """Nodes of one box that can be drawn as one: the tensors of a container, the alike members of a wide fan."""

    nodes: list[int]
    lines: tuple[Text, ...]  # what the one says


@without_collector
def make_hierarchy(log: Drawable, mode: Literal["unrolled", "rolled"]) -> Hierarchy:
    """
    >>> hierarchy = make_hierarchy(log, "unrolled")
    >>> [node.lines[0].text for node in hierarchy.nodes][:2]
    ['input_1_0', 'add_1_1']
    """
    builder = ViewBuilder(log, ViewOptions(vis_mode=mode, vis_buffers="always", vis_gather=False), ROLES)
    contents = builder.contents
    boxes = contents.all_boxes
    numbers = {box: number for number, box in enumerate(boxes)}
    runs = find_runs(contents.graph, contents.module_boxes, contents.units)
    return Hierarchy(
        nodes=[builder.node(spot) for spot in contents.spots],
        places=[spot.places for spot in contents.spots],
        passes=[spot.passes for spot in contents.spots],
        groups=[builder.group(box) for box in boxes],
        closed=[builder.node(spot) for spot in _closed(builder)],
        boxes=boxes,
        runs=[[[numbers[box] for box in block] for block in blocks] for blocks in runs],
        gathers=_gathers(builder),
    )


def _gathers(builder: ViewBuilder) -> list[Gather]:
    contents = builder.contents
    number = {place: node for node, spot in enumerate(contents.spots) for place in spot.places}
    found = []
    for unit in gather(contents.graph, contents.module_boxes, contents.units):
        if unit.gathered in ("container", "fan"):
            spot = Spot(contents.label(unit.places[0]), unit.places, unit.path, gathered=unit.gathered)
            found.append(Gather(sorted({number[place] for place in unit.places}), builder.node(spot).lines))
    return found


def _closed(builder: ViewBuilder) -> list[Spot]:
    """Every module as the node it is when it is closed; it counts what a picture shows unless told otherwise."""
    contents, graph = builder.contents, builder.contents.graph
    members: dict[BoxPath, list[int]] = {box: [] for box in contents.all_boxes}
    for unit in contents.units:
        value = graph.entries[unit.places[0]]
        if value.role in ("buffer", "update") and not is_shown_buffer(graph, unit.places[0], "meaningful"):
            continue
        for depth in range(len(unit.path)):
            members[unit.path[: depth + 1]] += unit.places
    spots = [Spot(f"module {number}", members[box], box[:-1], box) for number, box in enumerate(contents.all_boxes)]
    if contents.module_boxes.rolled:
        for spot, box in zip(spots, contents.all_boxes, strict=True):
            spot.passes = len({contents.module_boxes.pass_in(box, place) for place in spot.places})
    builder.note_input(spots)
    return spots
