"""The order of things within each layer, and their positions across it."""

from __future__ import annotations

from dataclasses import dataclass, field

GAP = 18.0  # between two boxes of a layer
LINE_GAP = 8.0  # between two lines, or a line and a box
PINNED = 1e6
LINE, TRUNK = 500.0, 100.0  # how much a line that passes layers, and a main path, want to be straight

Link = tuple[int, float, float, float]  # the other item, offset here, offset there, weight


@dataclass(slots=True)
class Items:
    """What stands in the layers: children, lines that pass, and ports. Parallel lists, one entry per item."""

    left: list[float] = field(default_factory=list)  # extents across, from the item's axis
    right: list[float] = field(default_factory=list)
    box: list[bool] = field(default_factory=list)  # a child, not a line
    pinned: list[bool] = field(default_factory=list)  # belongs to the trunk, whose axis is at 0
    down: list[list[Link]] = field(default_factory=list)  # to the layer before
    up: list[list[Link]] = field(default_factory=list)  # to the layer after
    strong_down: list[list[Link]] = field(default_factory=list)  # those of them that should be straight
    strong_up: list[list[Link]] = field(default_factory=list)
    layers: list[list[int]] = field(default_factory=list)

    def add(self, layer: int, left: float, right: float, box: bool, pinned: bool) -> int:
        item = len(self.left)
        self.left.append(left)
        self.right.append(right)
        self.box.append(box)
        self.pinned.append(pinned)
        self.down.append([])
        self.up.append([])
        self.strong_down.append([])
        self.strong_up.append([])
        self.layers[layer].append(item)
        return item

    def link(self, lower: int, upper: int, lower_offset: float, upper_offset: float, weight: float) -> None:
        up, down = (upper, lower_offset, upper_offset, weight), (lower, upper_offset, lower_offset, weight)
        self.up[lower].append(up)
        self.down[upper].append(down)
        if weight >= TRUNK:
            self.strong_up[lower].append(up)
            self.strong_down[upper].append(down)


def place(items: Items) -> list[float]:
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


def _sort_layer(layer: list[int], links: list[list[Link]], position: list[float]) -> bool:
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
    _place_layers(forth, items.strong_down, pinned, across)
    _place_layers(back, items.strong_up, pinned, across)
    return across


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
    layers: list[tuple[list[int], list[float]]], links: list[list[Link]], pinned: list[bool], across: list[float]
) -> None:
    """Each layer in turn as near as can be to where its links want it (isotonic regression)."""
    for layer, offsets in layers:
        blocks: list[tuple[float, float, int]] = []  # wish times weight, weight, how many items
        for item, offset in zip(layer, offsets, strict=True):
            if pinned[item]:
                wish, weight = 0.0, PINNED
            else:
                wish = weight = 0.0
                for other, here, there, link_weight in links[item]:
                    wish += (across[other] + there - here) * link_weight
                    weight += link_weight
                if weight:
                    wish /= weight
                else:
                    wish, weight = across[item], 1.0
            total, count = (wish - offset) * weight, 1
            while blocks and blocks[-1][0] * weight >= total * blocks[-1][1]:
                more_total, more_weight, more = blocks.pop()
                total, weight, count = total + more_total, weight + more_weight, count + more
            blocks.append((total, weight, count))
        index = 0
        for total, weight, count in blocks:
            start = total / weight
            for _ in range(count):
                across[layer[index]] = start + offsets[index]
                index += 1
