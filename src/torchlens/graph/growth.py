"""Rules 1 and 2 of `recurrence.py`: layers grow outward from parameters that are used again."""

from __future__ import annotations

from collections import deque
from itertools import chain

import numpy as np

from .closure import Sights, grow_at_once
from .program import Ints, Program, bounds, number_by_first_use, ranks, run_lengths, where

#: Where layers have so many passes on average, all passes are looked at together first: for few, arrays do not pay.
MANY_PASSES = 100


def grow_layers(program: Program, places: Ints) -> Ints:
    """Return a layer name for each operation: rule 1, then rule 2 over the places that rule 3 left."""
    seeds = _repeated_parameters(program)
    if not seeds:
        return places
    sights = look_around(program, places)
    grown = grow_at_once(sights, seeds) if sum(map(len, seeds)) >= MANY_PASSES * len(seeds) else None
    return (grow_in_turn(sights, seeds) if grown is None else grown)[places]


def grow_in_turn(sights: Sights, seeds: list[Ints]) -> Ints:
    growth = _Growth(sights.size)
    for passes in seeds:
        growth.seed(passes.tolist())
    growth.spread(sights, sorted(np.concatenate(seeds).tolist()))
    return np.array(growth.layer, np.int64)


def _repeated_parameters(program: Program) -> list[Ints]:
    users = where(program.param_keys >= 0)
    users = users[program.param_keys[users].argsort(kind="stable")]
    runs = bounds(program.param_keys[users])
    again = where(run_lengths(runs) > 1)
    return [users[start:stop] for start, stop in zip(runs[again].tolist(), runs[again + 1].tolist(), strict=True)]


def look_around(program: Program, places: Ints) -> Sights:
    """List what every place sees that may join a layer."""
    size, counts = program.size, np.diff(program.heads)
    givers, takers = places[program.sources], np.repeat(places, counts)
    positions = np.arange(len(givers)) - np.repeat(program.heads[:-1], counts)
    viewers, targets = np.concatenate((givers, takers + size)), np.concatenate((takers, givers))
    kinds = program.keys[targets] * (2 * len(givers) + 2) + np.concatenate((2 * positions, 2 * positions + 1))
    # A folded loop is no neighbour of itself, and what it sees in each of its passes it sees once.
    seen = np.flatnonzero(program.joinable[targets] & (viewers % size != targets))
    viewers, targets, kinds = viewers[seen], targets[seen], number_by_first_use(kinds[seen])
    lines = number_by_first_use(viewers * len(kinds) + kinds)
    if (places != np.arange(size)).any():
        once = np.sort(np.unique(lines * size + targets, return_index=True)[1])
        viewers, targets, kinds, lines = viewers[once], targets[once], kinds[once], lines[once]
    spots = number_by_first_use(kinds * len(kinds) + ranks(lines))
    order = np.argsort(viewers, kind="stable")
    heads = np.searchsorted(viewers[order], np.arange(2 * size + 1))
    return Sights(size, heads, targets[order], spots[order], viewers[order] % size, len(kinds) + 1)


class _Growth:
    """Layers of places that grow by joining; every place starts alone in a layer that carries its number."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.layer = list(range(size))
        self.clock = [0] * size  # the pass in which a place ran, on the clock of its layer
        self.members: dict[int, list[int]] = {}  # of the layers that have met another
        self.ticks: set[int] = set()  # layer and clock of all those members, as one number
        self.apart: set[int] = set()  # pairs of layers that were refused once, and stay so

    def seed(self, passes: list[int]) -> None:
        """Make the passes of one set of parameters a layer."""
        for clock, place in enumerate(passes):
            self.layer[place], self.clock[place] = passes[0], clock
            self.ticks.add(clock * self.size + passes[0])
        self.members[passes[0]] = passes

    def spread(self, sights: Sights, seeds: list[int]) -> None:
        """Join what stands at the same spot next to two passes of a layer, until nothing joins any more.

        The first neighbour seen at a spot stands for it; later ones join its layer. A place that changes its layer
        looks around again, and since it is always the smaller layer that moves, it does so few times.
        """
        size, layer, clock = self.size, self.layer, self.clock
        heads, targets = sights.heads.tolist(), sights.targets.tolist()
        spots, viewers, spot_count = sights.spots.tolist(), sights.viewers.tolist(), sights.spot_count
        standing: dict[int, int] = {}  # layer and spot -> the first sight there
        queue = deque(chain(seeds, (place + size for place in seeds)))
        while queue:
            row = queue.popleft()
            if heads[row] == heads[row + 1]:
                continue
            place = row % size
            base = layer[place] * spot_count
            for sight in range(heads[row], heads[row + 1]):
                first = standing.setdefault(base + spots[sight], sight)
                if first == sight:
                    continue
                one, other = targets[first], targets[sight]
                if layer[one] != layer[other]:
                    # `other` ran as long after `one` as this pass ran after the pass next to `one`.
                    later = clock[one] + clock[place] - clock[viewers[first]] - clock[other]
                    for moved in self._join(layer[one], layer[other], later):
                        queue.append(moved)
                        queue.append(moved + size)

    def _join(self, one: int, other: int, later: int) -> list[int]:
        """Unite two layers, the clock of the other set `later`; return the places that have to look around."""
        pair = one * self.size + other if one < other else other * self.size + one
        if pair in self.apart:
            return []
        if other not in self.members and len(self.members.get(one, ())) > 1:
            return self._take(one, other, later, pair)
        keep, move = one, other
        if len(self._open(keep)) < len(self._open(move)):
            keep, move, later = move, keep, -later
        kept, moved = self.members[keep], self.members[move]
        ticks = [(self.clock[place] + later) * self.size + keep for place in moved]
        if not self.ticks.isdisjoint(ticks):
            self.apart.add(pair)
            return []
        for place in moved:
            self.layer[place] = keep
            self.clock[place] += later
        self.ticks.update(ticks)
        newcomers = moved if len(kept) > 1 else kept + moved
        kept.extend(self.members.pop(move))
        return newcomers

    def _take(self, layer: int, place: int, later: int, pair: int) -> list[int]:
        """Unite a layer with a single place, as above: that is most of the work."""
        clock = self.clock[place] + later
        tick = clock * self.size + layer
        if tick in self.ticks:
            self.apart.add(pair)
            return []
        self.ticks.add(tick)
        self.layer[place], self.clock[place] = layer, clock
        self.members[layer].append(place)
        return [place]

    def _open(self, layer: int) -> list[int]:
        """Return the members of a layer, also of one that is still a single place."""
        if layer not in self.members:
            self.members[layer] = [layer]
            self.ticks.add(self.clock[layer] * self.size + layer)
        return self.members[layer]
