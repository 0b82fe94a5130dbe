"""Rule 2 of `recurrence.py` for many passes at once, as long as no two places claim the same pass of a layer.

What `growth.py` does place by place has an order only where a join is refused. Where none has to be, its answer is a
closure: whatever stands at the same spot next to two passes of a layer is one layer. That is found here layer by layer,
all passes of it together.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .program import Ints, joined_ranges


class Sights(NamedTuple):
    """The neighbours of each place: `targets[heads[i]:heads[i + 1]]` are its children, for `i + size` its parents."""

    size: int
    heads: Ints
    targets: Ints
    spots: Ints  # where the target stands: direction, argument position, key and rank among equals
    viewers: Ints
    spot_count: int


class _Refused(Exception):
    """A join would put two operations at the same tick, or one at two: the order counts."""


def grow_at_once(sights: Sights, seeds: list[Ints]) -> Ints | None:
    """The layer of each place, or None if that depends on the order in which layers grow."""
    closure = _Closure(sights, seeds)
    looking = np.concatenate(seeds)
    try:
        while len(looking):
            looking = closure.look(looking)
    except _Refused:
        return None
    return closure.layer


class _Closure:
    """Layers and their clocks, as in `growth.py`; every place starts alone in a layer that carries its number."""

    def __init__(self, sights: Sights, seeds: list[Ints]) -> None:
        self.sights = sights
        self.layer = np.arange(sights.size)
        self.clock = np.zeros(sights.size, np.int64)
        self.members: dict[int, Ints] = {}  # of the layers that have more than one
        self.standing: dict[int, int] = {}  # layer and spot -> the first sight there
        self.moved: list[Ints] = []  # places that have to look around again
        for passes in seeds:
            self.members[int(passes[0])] = passes
            self.layer[passes], self.clock[passes] = passes[0], np.arange(len(passes))

    def look(self, places: Ints) -> Ints:
        """Join what these places see with what stands at the same spots; return those that have to look next."""
        sights, self.moved = self.sights, []
        rows = np.concatenate((places, places + sights.size))
        seen = joined_ranges(sights.heads[rows], sights.heads[rows + 1] - sights.heads[rows])
        spots = self.layer[sights.viewers[seen]] * sights.spot_count + sights.spots[seen]
        order = np.argsort(spots, kind="stable")
        seen, spots = seen[order], spots[order]
        bounds = np.flatnonzero(np.diff(spots, prepend=-1, append=-1))
        for start, stop in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            first = self.standing.setdefault(int(spots[start]), int(seen[start]))
            if stop - start > 1 or first != seen[start]:
                self._join(first, seen[start:stop])
        return np.unique(np.concatenate(self.moved)) if self.moved else places[:0]

    def _join(self, first: int, seen: Ints) -> None:
        """Let the targets of these sights join the layer of the first one's."""
        one, others = int(self.sights.targets[first]), self.sights.targets[seen]
        apart = np.flatnonzero(self.layer[others] != self.layer[one])
        if len(apart):
            names, at = np.unique(self.layer[others[apart]], return_index=True)
            alone = np.array([name not in self.members for name in names.tolist()], np.bool_)
            at = apart[at]
            if alone.any():
                self._take(int(self.layer[one]), others[at[alone]], self._later(first, seen[at[alone]]))
            for sight in seen[at[~alone]]:
                self._unite(one, int(self.sights.targets[sight]), int(self._later(first, sight)))
        if (self._later(first, seen)[others != one] != 0).any():
            raise _Refused

    def _later(self, first: int, seen: Ints) -> Ints:
        """How much later the targets ran after the first one than the viewers after its viewer."""
        clock, viewers, targets = self.clock, self.sights.viewers, self.sights.targets
        later: Ints = clock[targets[first]] - clock[viewers[first]] + clock[viewers[seen]] - clock[targets[seen]]
        return later

    def _take(self, layer: int, places: Ints, later: Ints) -> None:
        """Unite a layer with single places."""
        if layer not in self.members:
            self.members[layer] = np.array([layer])
            self.moved.append(self.members[layer])
        self.clock[places] += later
        self.layer[places] = layer
        self.members[layer] = np.concatenate((self.members[layer], places))
        self.moved.append(places)
        self._check(layer)

    def _unite(self, one: int, other: int, later: int) -> None:
        """Unite the layers of two places, the clock of the other's set `later`."""
        keep, move = int(self.layer[one]), int(self.layer[other])
        if keep == move:
            return
        members = [self.members.get(name, np.array([name])) for name in (keep, move)]
        if len(members[0]) < len(members[1]):
            keep, move, later, members = move, keep, -later, members[::-1]
        self.clock[members[1]] += later
        self.layer[members[1]] = keep
        self.members.pop(move, None)
        self.members[keep] = np.concatenate(members)
        self.moved.append(members[1])
        self._check(keep)

    def _check(self, layer: int) -> None:
        ticks = np.sort(self.clock[self.members[layer]])
        if (ticks[1:] == ticks[:-1]).any():
            raise _Refused
