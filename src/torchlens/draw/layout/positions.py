"""The order of things within each layer, and their positions across it."""

from __future__ import annotations

from dataclasses import dataclass, field

GAP = 18.0  # between two boxes of a layer
LINE_GAP = 8.0  # between two lines, or a line and a box
PINNED = 1e6
LINE, TRUNK = 500.0, 100.0  # how much a line that passes layers, and a main path, want to be straight

PositionLink = tuple[int, float, float, float]  # the other item, offset here, offset there, weight


@dataclass(slots=True)
class Items:
    """What stands in the layers: children, lines that pass, and ports. Parallel lists, one entry per item."""

    left: list[float] = field(default_factory=list)  # extents across, from the item's axis
    right: list[float] = field(default_factory=list)
    box: list[bool] = field(default_factory=list)  # a child, not a line
    pinned: list[bool] = field(default_factory=list)  # belongs to the trunk, whose axis is at 0
    down: list[list[PositionLink]] = field(default_factory=list)  # to the layer before
    up: list[list[PositionLink]] = field(default_factory=list)  # to the layer after
    layers: list[list[int]] = field(default_factory=list)

    def add(self, layer: int, left: float, right: float, box: bool, pinned: bool) -> int:
        item = len(self.left)
        self.left.append(left)
        self.right.append(right)
        self.box.append(box)
        self.pinned.append(pinned)
        self.down.append([])
        self.up.append([])
        self.layers[layer].append(item)
        return item

    def link(self, lower: int, upper: int, lower_offset: float, upper_offset: float, weight: float) -> None:
        self.up[lower].append((upper, lower_offset, upper_offset, weight))
        self.down[upper].append((lower, upper_offset, lower_offset, weight))


def place_items(items: Items) -> list[float]:
    """The position across of every item."""
    if all(len(layer) <= 1 for layer in items.layers):
        return _one_above_the_other(items)
    _reduce_crossings(items)
    return _positions(items)


def _one_above_the_other(items: Items) -> list[float]:
    return [0.0] * len(items.left)


def _reduce_crossings(items: Items, sweeps: int = 4) -> None:
    """Barycentre sweeps: each item moves to the mean position of its neighbours in the layer before, then after."""
    layers = items.layers
    position = [0.0] * len(items.left)
    for layer in layers:
        for index, item in enumerate(layer):
            position[item] = index
    wide = [index for index, layer in enumerate(layers) if len(layer) > 1]
    for _ in range(sweeps):
        changed = False
        for indices, links in ((wide, items.down), (wide[::-1], items.up)):
            for index in indices:
                changed |= _sort_layer(layers[index], links, position)
        if not changed:
            return


def _sort_layer(layer: list[int], links: list[list[PositionLink]], position: list[float]) -> bool:
    wishes = []
    for item in layer:
        near = links[item]
        if not near:
            wishes.append(position[item])
        elif len(near) == 1:
            wishes.append(position[near[0][0]])
        else:
            wishes.append(sum([position[link[0]] for link in near]) / len(near))
    if wishes == sorted(wishes):
        return False
    layer.sort(key=dict(zip(layer, wishes, strict=True)).__getitem__)
    for index, item in enumerate(layer):
        position[item] = index
    return True


def _positions(items: Items, rounds: int = 2) -> list[float]:
    """Each layer in turn: as near to the neighbours as order and room allow."""
    layers, down, up = items.layers, items.down, items.up
    offsets = [_offsets(items, layer) for layer in layers]
    across = [0.0] * len(items.left)
    for layer, offset in zip(layers, offsets, strict=True):
        middle = offset[-1] / 2 if len(offset) > 1 else 0.0
        for item, at in zip(layer, offset, strict=True):
            across[item] = at - middle
    pinned = items.pinned
    forth = [
        (layer, offset)
        for layer, offset in zip(layers, offsets, strict=True)
        if len(layer) > 1 or (layer and not pinned[layer[0]])  # what is alone on the trunk stays where it is
    ]
    back = forth[::-1]
    for _ in range(rounds):
        before = across[:]
        _place_layers(forth, down, pinned, across)
        _place_layers(back, up, pinned, across)
        if all(-1.0 < now - then < 1.0 for now, then in zip(across, before, strict=True)):
            break
    both = [before + after for before, after in zip(down, up, strict=True)]
    _place_layers(forth, both, pinned, across)
    # a mean of both neighbours bends what should be straight: follow only one of them, and then only the other
    _place_layers(forth, _strong(down), pinned, across)
    _place_layers(back, _strong(up), pinned, across)
    return across


def _strong(links: list[list[PositionLink]]) -> list[list[PositionLink]]:
    """The links that should be straight."""
    return [[link for link in near if link[3] >= TRUNK] for near in links]


def _offsets(items: Items, layer: list[int]) -> list[float]:
    """Where each item stands when they are pushed together, the first at 0."""
    if len(layer) == 1:
        return [0.0]
    offsets, at = [], 0.0
    for index, item in enumerate(layer):
        if index:
            previous = layer[index - 1]
            gap = GAP if items.box[previous] and items.box[item] else LINE_GAP
            at += items.right[previous] + items.left[item] + gap
        offsets.append(at)
    return offsets


def _place_layers(
    layers: list[tuple[list[int], list[float]]],
    links: list[list[PositionLink]],
    pinned: list[bool],
    across: list[float],
) -> None:
    """Move each layer in turn as close as possible to the positions that its links ask for."""
    for layer, offsets in layers:
        starts, weights = [], []  # where the layer would begin if it were up to each of its items, and how strongly
        for item, offset in zip(layer, offsets, strict=True):
            if pinned[item]:
                start, weight = -offset, PINNED
            elif len(links[item]) == 1:
                other, here, there, weight = links[item][0]
                start = across[other] + there - here - offset
            elif links[item]:
                start = weight = 0.0
                for other, here, there, link_weight in links[item]:
                    start += (across[other] + there - here) * link_weight
                    weight += link_weight
                start = start / weight - offset
            else:
                start, weight = across[item] - offset, 1.0
            starts.append(start)
            weights.append(weight)
        if len(layer) == 2:  # as most layers of a long picture: the path and a line beside it
            low, high = starts
            if low >= high:
                less, more = weights
                low = high = (low * less + high * more) / (less + more)
            across[layer[0]], across[layer[1]] = low + offsets[0], high + offsets[1]
        else:
            for item, start, offset in zip(layer, _pooled(starts, weights), offsets, strict=True):
                across[item] = start + offset


def _pooled(wishes: list[float], weights: list[float]) -> list[float]:
    """The numbers nearest to the wishes none of which is smaller than the one before it (isotonic regression).

    >>> _pooled([3.0, 1.0, 9.0], [1.0, 1.0, 1.0])
    [2.0, 2.0, 9.0]
    """
    pools: list[tuple[float, float, int]] = []  # their common number, weight, and how many they are
    for at, weight in zip(wishes, weights, strict=True):
        count = 1
        while pools and pools[-1][0] >= at:
            before, more, members = pools.pop()
            at, weight, count = (at * weight + before * more) / (weight + more), weight + more, count + members
        pools.append((at, weight, count))
    return [at for at, _, count in pools for _ in range(count)]
