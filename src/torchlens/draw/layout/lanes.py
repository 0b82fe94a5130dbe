"""Edges that skip many layers, or run back in a loop, lie in lanes beside the layers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from .container_tree import OUTSIDE, Piece

LONG = 14  # an edge over more layers than this lies in a lane


@dataclass(slots=True)
class Lane:
    """A line along the side: from one source to many targets (a bus), or from many sources to one (a gathering)."""

    first: int  # the layers it passes
    last: int
    pieces: list[Piece] = field(default_factory=list)
    column: int = 0


def split(pieces: Sequence[Piece], layer: Sequence[int], end: int) -> tuple[list[Piece], list[Lane]]:
    """The pieces that pass between the layers, and the lanes of the others. `end` is the layer of the way out."""

    def ends(piece: Piece) -> tuple[int, int]:
        first = 0 if piece.tail == OUTSIDE else layer[piece.tail]
        return first, end if piece.head == OUTSIDE else layer[piece.head]

    direct: list[Piece] = []
    sideways: list[Piece] = []
    for piece in pieces:
        first, last = ends(piece)
        (direct if 0 < last - first <= LONG else sideways).append(piece)
    if not sideways:
        return direct, []

    from_source = Counter((piece.tail, piece.stream) for piece in sideways)
    to_target = Counter(piece.head for piece in sideways)
    lanes: dict[tuple[int, int, int], Lane] = {}
    for piece in sideways:
        source = piece.tail, piece.stream
        first, last = ends(piece)
        gathered = piece.head != OUTSIDE and to_target[piece.head] > max(4, from_source[source]) and first < last
        key = (0, piece.head, 0) if gathered else (1, *source)
        lane = lanes.setdefault(key, Lane(first, last))
        if first >= last:  # a loop: it turns beyond both ends
            first, last = last - 1, first + 1
        lane.first, lane.last = min(lane.first, first), max(lane.last, last)
        lane.pieces.append(piece)
    return direct, list(lanes.values())


def assign_columns(lanes: list[Lane]) -> int:
    """Give each lane the innermost column that is free over its whole length; returns how many columns there are."""
    free: list[int] = []
    busy: list[tuple[int, int]] = []
    columns = 0
    for lane in sorted(lanes, key=lambda lane: (lane.first, lane.last)):
        while busy and busy[0][0] < lane.first:
            heappush(free, heappop(busy)[1])
        if not free:
            heappush(free, columns)
            columns += 1
        lane.column = heappop(free)
        heappush(busy, (lane.last, lane.column))
    return columns
