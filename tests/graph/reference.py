"""The three recurrence rules, spelled out with plain loops and no regard for speed.

    layers = reference_layers(keys, param_keys, parents)

Everything is recomputed by scanning all operations, so that each function can be read next to its rule.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

Parents = Sequence[Sequence[int]]


def reference_layers(keys: Sequence[int], param_keys: Sequence[int], parents: Parents) -> list[int]:
    places = fold_loops(keys, param_keys, parents)
    names = grow_layers(keys, param_keys, parents, places)
    order = list(dict.fromkeys(names))
    return [order.index(name) for name in names]


# Rule 3 ------------------------------------------------------------------------------------------------------


def repeats(keys: Sequence[int], parents: Parents, start: int, stop: int, period: int) -> bool:
    """Every operation does what the one a period earlier did, to inputs that moved on or came from before."""
    for i in range(start + period, stop):
        if keys[i] != keys[i - period] or len(parents[i]) != len(parents[i - period]):
            return False
        for old, new in zip(parents[i - period], parents[i], strict=True):
            moved_on = new == old + period
            from_before = old < start and new < start + period
            if not moved_on and not from_before:
                return False
            if period == 1 and new not in (old, i - 1):
                return False  # a one-operation loop has to read the same other operands
    return True


def depends(parents: Parents, target: int, source: int, start: int) -> bool:
    """Whether the target is computed from the source through operations from `start` on."""
    if target == source:
        return True
    return any(parent >= start and depends(parents, parent, source, start) for parent in parents[target])


def is_loop(
    keys: Sequence[int], param_keys: Sequence[int], parents: Parents, start: int, stop: int, period: int
) -> bool:
    free = all(keys[i] >= 0 and param_keys[i] < 0 for i in range(start, stop))
    return (
        free
        and repeats(keys, parents, start, stop, period)
        and any(depends(parents, i + period, i, i) for i in range(start, start + period))
    )


def maximal_loops(keys: Sequence[int], param_keys: Sequence[int], parents: Parents) -> Iterator[tuple[int, int, int]]:
    size = len(keys)
    for period in range(1, size // 2 + 1):
        reached = 0
        for start in range(size):
            stops = range(size, start + 2 * period - 1, -1)
            stop = next((s for s in stops if is_loop(keys, param_keys, parents, start, s, period)), 0)
            if stop > reached:
                yield start, stop, period
                reached = stop


def fold_loops(keys: Sequence[int], param_keys: Sequence[int], parents: Parents) -> list[int]:
    """Return the first operation that each operation repeats: longest loops first, never straddling another."""
    size = len(keys)
    waiting = list(maximal_loops(keys, param_keys, parents))
    address: list[tuple[object, ...]] = [() for _ in range(size)]  # the passes an operation is nested in
    chosen = []
    while waiting:
        # The incomplete last pass of a loop gives it no precedence.
        waiting.sort(key=lambda loop: (-((loop[1] - loop[0]) // loop[2] * loop[2]), loop[2], loop[0]))
        start, stop, period = waiting.pop(0)
        whole = start + (stop - start) // period * period
        if any(address[i] != address[start] for i in range(start, whole)):
            waiting += pieces(address, start, stop, period)
            continue
        while any(address[i] != address[start] for i in range(whole, stop)):
            stop -= 1
        chosen.append((start, whole, stop, period))
        for i in range(start, whole):
            address[i] = (*address[i], (start, period, (i - start) // period))
    place = list(range(size))
    for start, whole, stop, period in chosen:
        intruders = [s for s, w, _, _ in chosen if whole <= s < stop < w]
        for i in range(start + period, min([stop, *intruders])):
            kept, gone = sorted((place[i - period], place[i]))
            place = [kept if p == gone else p for p in place]
    return place


def pieces(address: list[tuple[object, ...]], start: int, stop: int, period: int) -> Iterator[tuple[int, int, int]]:
    bounds = [start, *(i for i in range(start + 1, stop) if address[i] != address[i - 1]), stop]
    for first, last in pairwise(bounds):
        if last - first >= 2 * period:
            yield first, last, period


# Rules 1 and 2 -----------------------------------------------------------------------------------------------


def neighbours(
    keys: Sequence[int], param_keys: Sequence[int], parents: Parents, places: list[int], place: int, up: bool
) -> dict[tuple[bool, int, int, int], int]:
    """Map spot -> place for the parameter-free children (or, going up, parents) of a place."""
    seen: list[tuple[int, int]] = []
    for i, sources in enumerate(parents):
        for position, source in enumerate(sources):
            viewer, target = (i, source) if up else (source, i)
            if places[viewer] != place or places[target] == place:
                continue
            if keys[target] >= 0 and param_keys[target] < 0 and (position, places[target]) not in seen:
                seen.append((position, places[target]))
    spots: dict[tuple[bool, int, int, int], int] = {}
    for position, target in seen:
        rank = sum(1 for spot in spots if spot[:3] == (up, position, keys[target]))
        spots[up, position, keys[target], rank] = target
    return spots


def grow_layers(keys: Sequence[int], param_keys: Sequence[int], parents: Parents, places: list[int]) -> list[int]:
    """Return a name for the layer of each operation; a layer maps its places to the pass in which each ran."""
    size = len(keys)
    layers: list[dict[int, int]] = []
    for key in dict.fromkeys(k for k in param_keys if k >= 0):
        passes = [i for i in range(size) if param_keys[i] == key]
        layers.append({place: clock for clock, place in enumerate(passes)})
    grouped = {place for layer in layers for place in layer}
    layers += [{place: 0} for place in sorted(set(places) - grouped)]
    layer_of = {place: layer for layer in layers for place in layer}
    seeds = sorted(place for layer in layers for place in layer if param_keys[place] >= 0 and len(layer) > 1)
    queue = [(place, False) for place in seeds] + [(place, True) for place in seeds]
    first_at: dict[tuple[int, tuple[bool, int, int, int]], tuple[int, int]] = {}  # by layer and spot
    refused: list[set[int]] = []
    while queue:
        place, up = queue.pop(0)
        for spot, other in neighbours(keys, param_keys, parents, places, place, up).items():
            viewer, one = first_at.setdefault((id(layer_of[place]), spot), (place, other))
            kept, moved = layer_of[one], layer_of[other]
            if kept is moved or {id(kept), id(moved)} in refused:
                continue
            later = kept[one] + layer_of[place][place] - layer_of[place][viewer] - moved[other]
            if len(kept) < len(moved):
                kept, moved, later = moved, kept, -later
            if {clock + later for clock in moved.values()} & set(kept.values()):
                refused.append({id(kept), id(moved)})
                continue
            newcomers = [*kept, *moved] if len(kept) == 1 else list(moved)
            for member, clock in moved.items():
                kept[member] = clock + later
                layer_of[member] = kept
            queue += [(member, direction) for member in newcomers for direction in (False, True)]
    return [min(layer_of[place]) for place in places]
