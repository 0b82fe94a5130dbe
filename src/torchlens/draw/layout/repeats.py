"""Containers that look alike are laid out once.

A model repeats its blocks, so most containers of a large picture have the same boxes, joined in the same way, as one
before. They differ only in which streams (`container_tree.py`) flow through them, and where they lie.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Sequence

from .arrange import Arrangement, arrange, plan_layers
from .container_tree import Container, EdgeStream, Piece
from .layout_types import Box


class Repeats:
    """Lays out the containers of one picture."""

    def __init__(self, streams: Sequence[EdgeStream], upright: bool) -> None:
        self._streams, self._upright = streams, upright
        self._known: dict[Hashable, tuple[Arrangement, list[Piece], list[int]]] = {}

    def arrange(self, container: Container, boxes: Sequence[Box], label: tuple[float, float]) -> Arrangement:
        """The layout of a container that is not the root and has no labels in the middle of its edges."""
        pieces = list(container.pieces.values())
        numbers: dict[int, int] = {}  # the streams, numbered as they come
        looks = self._looks(pieces, numbers), tuple([_looks_of(box, numbers) for box in boxes]), label
        known = self._known.get(looks)
        if known is not None:
            return _repeated(*known, pieces, list(numbers))
        arranged = arrange(plan_layers(container, self._streams), boxes, label, self._upright, root=False)
        self._known[looks] = arranged, pieces, list(numbers)
        return arranged

    def _looks(self, pieces: list[Piece], numbers: dict[int, int]) -> Hashable:
        number, streams = numbers.setdefault, self._streams
        return tuple(
            [
                (p.tail, p.head, number(p.stream, len(numbers)), streams[p.stream].backward, p.head_label_size)
                for p in pieces
            ]
        )


def _looks_of(box: Box, numbers: dict[int, int]) -> Hashable:
    size = box.left, box.right, box.length, box.weight, box.half, box.oval, box.tail_room, box.head_room, box.converges
    if not (box.entries or box.exits):
        return size
    ports = [
        tuple([(numbers[stream], at) for stream, at in ends.items()])
        for ends in (box.entries, box.exits, box.exit_ports)
    ]
    return (size, *ports)


def _repeated(
    first: Arrangement, its_pieces: list[Piece], its_streams: list[int], pieces: list[Piece], streams: list[int]
) -> Arrangement:
    """The same layout for other pieces and streams."""
    for piece, original in zip(pieces, its_pieces, strict=True):
        piece.points, piece.head_label_at = original.points, original.head_label_at
    stream = dict(zip(its_streams, streams, strict=True))
    box = dataclasses.replace(
        first.box,
        entries={stream[its]: at for its, at in first.box.entries.items()},
        exits={stream[its]: at for its, at in first.box.exits.items()},
    )
    return Arrangement(box, first.places, first.label)
