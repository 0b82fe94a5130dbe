"""The layout of one container: its children in layers, its edges between them.

Everything is in the container's own coordinates: `across` the flow, with 0 at the axis of the trunk, and `along` it,
with 0 at the border where edges come in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .container_tree import Container, EdgeStream
from .edge_routing import EdgeRouting
from .lanes import split
from .layer_items import add_layer_items
from .layering import layering_of, order_of
from .layout_types import PAD, Box, ContainerPlan
from .positions import place_items


@dataclass(slots=True)
class Arrangement:
    """The layout of a container: its own box for its parent, and where its children are (axis, start)."""

    box: Box
    places: list[tuple[float, float]]
    label: tuple[float, float] = (0.0, 0.0)  # the corner of its label that is nearest to the origin


def plan_layers(container: Container, streams: Sequence[EdgeStream]) -> ContainerPlan:
    pieces = list(container.pieces.values())
    order = order_of(len(container.children), pieces, streams)
    layer = layering_of(order, pieces)
    end = max(layer, default=0) + 1
    return ContainerPlan(order, layer, end, *split(pieces, layer, end))


def arrange(
    plan: ContainerPlan, boxes: Sequence[Box], label: tuple[float, float], upright: bool, root: bool
) -> Arrangement:
    """Lay out one container; `label` is the size of its own label, across and along."""
    if not boxes:
        return _framed(Box(20.0, 20.0, 20.0 + (label[1] if upright else 0.0), weight=0), [], label, upright)
    layer_items = add_layer_items(plan, boxes)
    routing = EdgeRouting(plan, boxes, layer_items, place_items(layer_items.items))
    routing.choose_slots()
    header = 0.0 if root or not upright else label[1]
    length = max(routing.heights(start=header, pad=0.0 if root else PAD), 0.0 if root or upright else label[1])
    places = routing.places()
    routing.draw(places, length)
    box = Box(routing.left, routing.right, length, sum(box.weight for box in boxes))
    box.entries, box.exits = routing.entry_ports, routing.exit_ports
    if root:
        return Arrangement(box, places)
    box.left, box.right = box.left + PAD, box.right + PAD
    return _framed(box, places, label, upright)


def _framed(box: Box, places: list[tuple[float, float]], label: tuple[float, float], upright: bool) -> Arrangement:
    """Reserve space for the group's own label where no line comes in."""
    across, along = label
    if not upright:
        box.left += across
        box.length = max(box.length, along)
        return Arrangement(box, places, (-box.left, 0.0))
    ports = sorted(box.entries.values())
    if not ports:
        box.right = max(box.right, across - box.left)
        return Arrangement(box, places, (-box.left, 0.0))
    for low, high in zip([-box.left, *ports], [*ports, box.right], strict=True):
        if high - low >= across:
            return Arrangement(box, places, (low, 0.0))
    more_left, more_right = across - (ports[0] + box.left), across - (box.right - ports[-1])
    if more_left <= more_right:
        box.left += more_left
        return Arrangement(box, places, (-box.left, 0.0))
    box.right += more_right
    return Arrangement(box, places, (ports[-1], 0.0))
