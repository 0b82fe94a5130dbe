"""Boxes in a layer, and lines that pass through it, as items to place."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

from .container_tree import OUTSIDE, Piece
from .layering import trunk_of
from .layout_types import BESIDE, Box, ContainerPlan
from .positions import LINE, TRUNK, Items

BESIDE_TRUNK = 25.0  # how much a port wants to be near the trunk that it leads to


@dataclass(slots=True)
class LayerItems:
    """The items, and which of them are the children and the ports (by stream)."""

    items: Items
    children: list[int]
    entries: dict[int, int] = field(default_factory=dict)
    exits: dict[int, int] = field(default_factory=dict)


def add_layer_items(plan: ContainerPlan, boxes: Sequence[Box]) -> LayerItems:
    """Items for children, ports and passing lines; each direct piece gets its path through them."""
    return _ItemAdder(plan, boxes).add_all()


class _ItemAdder:
    def __init__(self, plan: ContainerPlan, boxes: Sequence[Box]) -> None:
        self.plan, self.boxes = plan, boxes
        trunk, self.mutual = trunk_of(plan.order, [box.weight for box in boxes])
        self.on_trunk = set(trunk)
        self.steps = set(itertools.pairwise(trunk))
        self.main_entry, self.main_exit = _main_streams(plan.direct, trunk[0], trunk[-1])
        self.items = Items(layers=[[] for _ in range(plan.end + 1)])
        self.layer_items = LayerItems(
            self.items,
            [
                self.items.add(plan.layer[child], box.left, box.right, True, child in self.on_trunk)
                for child, box in enumerate(boxes)
            ],
        )
        self.passing: dict[tuple[int, int, int, int], int] = {}  # the line that passes a layer

    def add_all(self) -> LayerItems:
        layer, end = self.plan.layer, self.plan.end
        for piece in self.plan.direct:
            first = 0 if piece.tail == OUTSIDE else layer[piece.tail]
            last = end if piece.head == OUTSIDE else layer[piece.head]
            previous, offset = self._start(piece)
            piece.path.append(previous)
            if last > first + 1:
                previous, offset = self._pass(piece, first, last, previous, offset)
            if piece.head == OUTSIDE:
                self._leave(piece, previous, offset, last - first)
            else:
                self._arrive(piece, previous, offset, last - first)
        return self.layer_items

    def _start(self, piece: Piece) -> tuple[int, float]:
        """The item where a piece begins, and the offset of the line from its axis."""
        if piece.tail != OUTSIDE:
            return self.layer_items.children[piece.tail], self.boxes[piece.tail].exits.get(piece.stream, 0.0)
        entries = self.layer_items.entries
        if piece.stream not in entries:
            entries[piece.stream] = self.items.add(0, 1.0, 1.0, False, piece.stream == self.main_entry)
        return entries[piece.stream], 0.0

    def _pass(self, piece: Piece, first: int, last: int, previous: int, offset: float) -> tuple[int, float]:
        """A line through each layer between; lines with the same origin share it until they part."""
        own = id(piece) if piece.label else 0
        pinned = (piece.tail, piece.head) in self.steps
        for layer in range(first + 1, last):
            key = piece.tail, piece.stream, layer, own
            item = self.passing.get(key)
            if item is None:
                right = BESIDE + piece.label_size[0] if own and layer == (first + last) // 2 else 1.0
                item = self.passing[key] = self.items.add(layer, 1.0, right, False, pinned)
                self.items.link(previous, item, offset, 0.0, 2.0 if layer == first + 1 else LINE)
            piece.path.append(item)
            previous, offset = item, 0.0
        return previous, offset

    def _leave(self, piece: Piece, previous: int, offset: float, distance: int) -> None:
        exits = self.layer_items.exits
        if piece.stream not in exits:
            exits[piece.stream] = self.items.add(self.plan.end, 1.0, 1.0, False, piece.stream == self.main_exit)
        beside = piece.tail in self.on_trunk and distance == 1
        self.items.link(previous, exits[piece.stream], offset, 0.0, BESIDE_TRUNK if beside else 2.0)
        piece.path.append(exits[piece.stream])

    def _arrive(self, piece: Piece, previous: int, offset: float, distance: int) -> None:
        child = self.layer_items.children[piece.head]
        piece.path.append(child)
        if distance > 1:
            weight = 2.0
        elif (piece.tail, piece.head) in self.mutual:  # axis to axis: ports may lie elsewhere
            self.items.link(previous, child, 0.0, 0.0, TRUNK)
            return
        else:
            weight = BESIDE_TRUNK if piece.tail == OUTSIDE and piece.head in self.on_trunk else 1.0
        self.items.link(previous, child, offset, self.boxes[piece.head].entries.get(piece.stream, 0.0), weight)


def _main_streams(pieces: Sequence[Piece], first: int, last: int) -> tuple[int, int]:
    """What enters the trunk at its first child, and leaves it at its last; -1 if nothing does."""
    entry = next((piece.stream for piece in pieces if piece.tail == OUTSIDE and piece.head == first), -1)
    leaving = next((piece.stream for piece in pieces if piece.head == OUTSIDE and piece.tail == last), -1)
    return entry, leaving
