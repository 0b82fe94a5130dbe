"""Which children of a container stand side by side, and which of them form its trunk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .container_tree import OUTSIDE, EdgeStream, Piece


@dataclass(slots=True)
class Order:
    """The pieces that order the children: from an earlier child to a later one."""

    before: list[list[tuple[int, int]]]  # by child: those it comes after, with the least distance in layers
    after: list[list[tuple[int, int]]]
    entered: bytearray  # has an edge from outside
    linked: bytearray  # has any edge at all


def order_of(count: int, pieces: Sequence[Piece], streams: Sequence[EdgeStream]) -> Order:
    before: list[list[tuple[int, int]]] = [[] for _ in range(count)]
    after: list[list[tuple[int, int]]] = [[] for _ in range(count)]
    entered, linked = bytearray(count), bytearray(count)
    for piece in pieces:
        tail, head = piece.tail, piece.head
        if tail != OUTSIDE:
            linked[tail] = 1
        if head != OUTSIDE:
            linked[head] = 1
            if tail == OUTSIDE:
                entered[head] = 1
            elif OUTSIDE < tail < head and not streams[piece.stream].backward:
                distance = 2 if piece.label else 1  # room for the label between them
                before[head].append((tail, distance))
                after[tail].append((head, distance))
    return Order(before, after, entered, linked)


def layering_of(order: Order, pieces: Sequence[Piece]) -> list[int]:
    """The layer of each child, from 1: as early as its inputs allow, then close to its consumers if that is free."""
    count = len(order.before)
    layer = [1] * count
    for child in range(count):
        for earlier, distance in order.before[child]:
            if layer[earlier] + distance > layer[child]:
                layer[child] = layer[earlier] + distance
    for child in range(count - 1, -1, -1):
        after = order.after[child]
        # moving it up shortens the edges above it and lengthens those below
        if after and len(order.before[child]) + order.entered[child] <= len(after):
            layer[child] = max(layer[child], min(layer[later] - distance for later, distance in after))
    _spread_unlinked(order, layer)
    return _without_empty(layer, pieces)


def _spread_unlinked(order: Order, layer: list[int]) -> None:
    """Children without any edge form a block instead of one long row."""
    alone = [child for child in range(len(layer)) if not order.linked[child]]
    across = max(4, round(len(alone) ** 0.5))
    for index, child in enumerate(alone):
        layer[child] = 1 + index // across


def _without_empty(layer: list[int], pieces: Sequence[Piece]) -> list[int]:
    used = set(layer)
    if len(used) == max(layer, default=0):
        return layer
    used.update(layer[piece.tail] + 1 for piece in pieces if piece.label and piece.tail < piece.head)
    new = {old: index for index, old in enumerate(sorted(used), start=1)}
    return [new[old] for old in layer]


def trunk_of(order: Order, weights: Sequence[int]) -> tuple[list[int], set[tuple[int, int]]]:
    """The heaviest path through the container, and all pairs of children that are each other's heaviest neighbours."""
    count = len(weights)
    above, best_after = [0] * count, [-1] * count
    for child in range(count - 1, -1, -1):
        most = 0
        for later, _ in order.after[child]:
            if above[later] > most:
                most, best_after[child] = above[later], later
        above[child] = most + weights[child]
    below, best_before = [0] * count, [-1] * count
    for child in range(count):
        most = 0
        for earlier, _ in order.before[child]:
            if below[earlier] > most:
                most, best_before[child] = below[earlier], earlier
        below[child] = most + weights[child]

    mutual = {(child, later) for child, later in enumerate(best_after) if later >= 0 and best_before[later] == child}
    middle = max(range(count), key=lambda child: above[child] + below[child] - weights[child])
    trunk = [middle]
    while best_before[trunk[-1]] >= 0:
        trunk.append(best_before[trunk[-1]])
    trunk.reverse()
    while best_after[trunk[-1]] >= 0:
        trunk.append(best_after[trunk[-1]])
    return trunk, mutual
