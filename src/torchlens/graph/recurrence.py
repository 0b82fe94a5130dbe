"""Decide which operations are passes of the same layer.

    layers = find_layers(keys=[-1, 0, 1, 0, 1], param_keys=[-1, 7, -1, 7, -1], parents=[[], [0], [1], [2], [3]])
    # input, fc, relu, fc, relu  ->  [0, 1, 2, 1, 2]

Three rules:

1. Operations that apply the same function to the same parameters are passes of one layer, always.
2. Equal parameter-free operations at the same place next to two passes of a layer are passes of one layer too.
   This spreads outward from the layers of rule 1, whether or not the passes follow each other in time.
3. A parameter-free sequence that repeats back to back, each pass working on what the pass before it made, is a
   loop: corresponding operations are passes of one layer.

The rules can pull an operation two ways. Four conventions settle it:

* *Loops fold before layers grow.* A loop inside the body of a recurrent layer counts as a single place of that
  body, so `fc, (sin, cos) x 4` executed 3 times is one `sin` layer of 12 passes, even if the 4 varies.
* *One pass, one use.* Two places of one body are never one layer. Every layer keeps a clock, the pass in which
  each of its operations ran, and a join that would put two operations at the same tick is refused. Whoever joins
  first stays: places after a pass are looked at before places ahead of it, nearer ones before farther ones.
* *The longest loop wins.* A shorter one may lie inside one pass of it or outside, and is cut where it straddles.
* *A sum of many tensors is no loop.* A loop of a single operation must read the same other operands every time.

Known limits: a parameter-free loop around an inner loop of varying length is no exact repetition, so only parts of
it are found; bodies longer than `EXHAUSTIVE_PERIOD` operations are found by a guess that rarely misses one.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

# Loops with a body of up to this many operations are searched exhaustively, one array comparison per length.
EXHAUSTIVE_PERIOD = 64
# Longer bodies are guessed from repeated contexts: the most frequent guesses within each doubling of the length.
GUESSES_PER_DOUBLING = 32
# Values handed from one pass to the next that are followed when asking whether a sequence feeds itself.
FOLLOWED_VALUES = 256


def find_layers(keys: Sequence[int], param_keys: Sequence[int], parents: Sequence[Sequence[int]]) -> list[int]:
    """Return the layer number of each operation, numbered by first appearance.

        find_layers(keys, param_keys, parents)  # [0, 1, 2, 1, 2, 3]: operations 1 and 3 are passes of layer 1

    Operations are numbered in execution order and `parents[i]` lists the operations whose outputs `i` reads, in
    argument order. Equal `keys` mean the same function with the same other arguments; -1 is equal to nothing.
    Equal `param_keys` mean the same function with the same parameters; -1 is an operation without parameters.
    """
    if not len(keys):
        return []
    program = _Program.read(keys, param_keys, parents)
    places = _fold_loops(program)
    layers = _grow_layers(program, places)
    numbers: list[int] = _number_by_first_use(layers).tolist()
    return numbers


@dataclass(frozen=True)
class _Program:
    """The operations as arrays; the parents of operation i are `sources[heads[i]:heads[i + 1]]`."""

    keys: Ints
    param_keys: Ints
    parents: Sequence[Sequence[int]]
    heads: Ints
    sources: Ints

    @classmethod
    def read(cls, keys: Sequence[int], param_keys: Sequence[int], parents: Sequence[Sequence[int]]) -> _Program:
        names = np.array(keys, np.int64)
        names = np.where(names >= 0, _number_by_first_use(names), -1)
        counts = np.fromiter(map(len, parents), np.int64, len(parents))
        heads = np.concatenate(([0], np.cumsum(counts)))
        sources = np.fromiter(chain.from_iterable(parents), np.int64, int(heads[-1]))
        return cls(names, np.array(param_keys, np.int64), parents, heads, sources)

    @property
    def size(self) -> int:
        return len(self.keys)

    @property
    def joinable(self) -> NDArray[np.bool_]:
        """Operations that rules 2 and 3 may group."""
        return (self.keys >= 0) & (self.param_keys < 0)


def _number_by_first_use(values: Ints) -> Ints:
    """Rename values to 0, 1, 2, ... in order of first appearance."""
    _, first, inverse = np.unique(values, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[inverse]


def _ranges(starts: Ints, counts: Ints) -> Ints:
    """Join the ranges [start, start + count) into one array."""
    ends = np.cumsum(counts)
    return np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - ends + counts, counts)


# ---------------------------------------------------------------------------------------------- rule 3: loops


class _Run(NamedTuple):
    """Operations start..stop - 1 repeat with a period; runs sort longest first."""

    minus_length: int  # of the whole passes; a last incomplete pass does not count
    period: int
    start: int
    stop: int

    @classmethod
    def over(cls, start: int, stop: int, period: int) -> _Run:
        return cls(-((stop - start) // period * period), period, start, stop)

    @property
    def whole_stop(self) -> int:
        return self.start - self.minus_length


def _fold_loops(program: _Program) -> Ints:
    """Return for each operation its place: the first operation it is a repetition of by rule 3, or itself."""
    root = list(range(program.size))

    def find(i: int) -> int:
        while root[i] != i:
            root[i] = root[root[i]]
            i = root[i]
        return i

    for period, start, stop in _choose_loops(_LoopFinder(program).runs(), program.size):
        for i in range(start + period, stop):
            earlier, later = sorted((find(i - period), find(i)))
            root[later] = earlier
    return np.array([find(i) for i in root], np.int64)


def _choose_loops(runs: list[_Run], size: int) -> Iterator[tuple[int, int, int]]:
    """Yield (period, start, stop) of the runs that are loops: longest first, nested or apart, never straddling."""
    runs.sort(reverse=True)
    pieces: list[_Run] = []
    block = [0] * size  # which pass of which loop an operation is in
    blocks = 1
    reach: dict[int, int] = {}  # first operation of a loop -> where the longest loop starting there ends
    tails = []
    while runs or pieces:
        run = heapq.heappop(pieces) if pieces and (not runs or pieces[0] < runs[-1]) else runs.pop()
        period, start, stop = run.period, run.start, run.whole_stop
        home = block[start]
        # No chosen loop is shorter than this run, so none hides between two ends that lie in the same pass.
        if home != block[stop - 1]:
            for piece in _cut(run, block):
                heapq.heappush(pieces, piece)
            continue
        yield period, start, stop
        tails.append((period, stop, next((i for i in range(stop, run.stop) if block[i] != home), run.stop)))
        for first in range(start, stop, period):
            block[first : first + period] = [blocks] * period
            blocks += 1
        reach.setdefault(start, stop)
    # A last incomplete pass belongs to its loop up to where another loop takes over.
    for period, start, stop in tails:
        yield period, start - period, next((i for i in range(start, stop) if reach.get(i, 0) > stop), stop)


def _cut(run: _Run, block: list[int]) -> Iterator[_Run]:
    """Split a run that straddles passes of chosen loops; keep the parts that still repeat."""
    start = run.start
    for i in range(run.start + 1, run.stop + 1):
        if i == run.stop or block[i] != block[start]:
            if i - start >= 2 * run.period:
                yield _Run.over(start, i, run.period)
            start = i


class _LoopFinder:
    """Finds every maximal stretch of operations that repeats and feeds itself.

    Operation i repeats operation i - period when their symbols are equal and each parent of i is the parent of
    i - period moved on by one period. Parents that did not move on are values from outside the loop, so both must
    come from before it: the stretch can start only after them. That makes a stretch a run of operations whose
    earliest permitted start is the same, and all of them are found by one running maximum.
    """

    def __init__(self, program: _Program) -> None:
        self.program = program
        size = program.size
        arity = np.diff(program.heads)
        symbols = _number_by_first_use(program.keys * (arity.max() + 1) + arity)
        barriers = np.flatnonzero(~program.joinable)
        symbols[barriers] = -1 - barriers  # equal to nothing, so no run crosses one
        self.symbols = symbols
        bounds = np.concatenate(([-1], barriers, [size]))
        self.longest = int(np.diff(bounds).max()) // 2
        self.stretch_stop = np.repeat(bounds[1:], np.diff(bounds))[:size]
        # The run of the shortest period that covers each operation: what it explains need not be searched again.
        self.cover_stop = np.zeros(size, np.int64)
        self.cover_period = np.ones(size, np.int64)

    def runs(self) -> list[_Run]:
        found: list[_Run] = []
        for period in chain(range(1, min(EXHAUSTIVE_PERIOD, self.longest) + 1), self._guess_long_periods()):
            for start, stop in self._repeats(period):
                if self._feeds_itself(start, period):
                    found.append(_Run.over(start, stop, period))
                    if stop - start >= 4 * period:  # room for the double of the period
                        self._cover(start, stop, period)
        return found

    def _cover(self, start: int, stop: int, period: int) -> None:
        fresh = self.cover_stop[start:stop] == 0
        self.cover_stop[start:stop][fresh] = stop
        self.cover_period[start:stop][fresh] = period

    def _repeats(self, period: int) -> list[tuple[int, int]]:
        """Return (start, stop) of the maximal runs of a period."""
        firsts, lengths = self._equal_stretches(period)
        if not len(firsts):
            return []
        before = _ranges(firsts, lengths)  # the operations that are repeated one period later
        earliest = np.repeat(firsts, lengths)
        counts = self.program.heads[before + 1] - self.program.heads[before]
        which = np.repeat(np.arange(len(before)), counts)
        old = self.program.sources[_ranges(self.program.heads[before], counts)]
        new = self.program.sources[_ranges(self.program.heads[before + period], counts)]
        limit = np.where(new - old == period, 0, np.maximum(old, new - period) + 1)
        if period == 1:
            another_operand = (new != old) & (new != before[which])
            limit[another_operand] = before[which[another_operand]] + 1
        fixed = np.flatnonzero(limit)
        np.maximum.at(earliest, which[fixed], limit[fixed])
        starts = np.maximum.accumulate(earliest)
        last = np.flatnonzero(np.append(starts[1:] != starts[:-1], True))
        starts, stops = starts[last], before[last] + period + 1
        long = stops - starts >= 2 * period
        return list(zip(starts[long].tolist(), stops[long].tolist(), strict=True))

    def _equal_stretches(self, period: int) -> tuple[Ints, Ints]:
        """Return the first operations and lengths of stretches whose symbols all recur one period later."""
        differ = np.flatnonzero(self.symbols[period:] != self.symbols[:-period])
        bounds = np.concatenate(([-1], differ, [len(self.symbols) - period]))
        firsts, lengths = bounds[:-1] + 1, np.diff(bounds) - 1
        long = np.flatnonzero(lengths >= period)
        firsts, lengths = firsts[long], lengths[long]
        explained = (self.cover_stop[firsts] >= firsts + lengths + period) & (period % self.cover_period[firsts] == 0)
        return firsts[~explained], lengths[~explained]

    def _feeds_itself(self, start: int, period: int) -> bool:
        """Whether an operation of the second pass depends on the same operation of the first pass."""
        second = start + period
        bits: dict[int, int] = {}  # values of the first pass that the second one reads
        depends: list[int] = []  # for each operation of the second pass, the bits it depends on
        for i in range(second, second + period):
            mask = 0
            for parent in self.program.parents[i]:
                if parent >= second:
                    mask |= depends[parent - second]
                elif parent >= start and (parent in bits or len(bits) < FOLLOWED_VALUES):
                    mask |= bits.setdefault(parent, 1 << len(bits))
            depends.append(mask)
        return any(depends[value - start] & bit for value, bit in bits.items())

    def _guess_long_periods(self) -> Iterator[int]:
        """Yield likely periods: how far apart the same `width` operations recur, for width 64, 128, 256, ...

        A repeated body of `period` operations shows the same context one period apart, and for a context of more
        than half the body it is rarely seen in between.
        """
        hashes = self.symbols.astype(np.uint64)
        factor, width = 0x9E3779B97F4A7C15, 1
        starts = np.arange(len(hashes))  # of contexts that still recur
        while width <= self.longest and len(starts):
            if width >= EXHAUSTIVE_PERIOD:
                starts, gaps = self._recurrences(starts, hashes, width)
                likely = (gaps > EXHAUSTIVE_PERIOD) & (gaps >= width) & (gaps < min(2 * width, self.longest + 1))
                periods, counts = np.unique(gaps[likely], return_counts=True)
                yield from periods[np.argsort(-counts, kind="stable")[:GUESSES_PER_DOUBLING]].tolist()
            hashes = hashes[:-width] * np.uint64(factor) + hashes[width:]
            factor, width = factor * factor % 2**64, width * 2

    def _recurrences(self, starts: Ints, hashes: NDArray[np.uint64], width: int) -> tuple[Ints, Ints]:
        """Return the starts of contexts that may recur when they are wider, and the gaps between recurrences."""
        starts = starts[self.stretch_stop[starts] >= starts + width]
        explained = self.cover_stop[starts] >= starts + width
        loose = starts[~explained]
        loose = loose[np.argsort(hashes[loose], kind="stable")]
        again = np.flatnonzero(hashes[loose[1:]] == hashes[loose[:-1]])
        first, second = loose[again], loose[again + 1]
        wider = np.zeros(self.program.size, np.bool_)
        wider[starts[explained]] = wider[first] = wider[second] = True
        return np.flatnonzero(wider), second - first


# ------------------------------------------------------------------------------- rules 1 and 2: growing layers


class _Sights(NamedTuple):
    """What each place sees: `targets[heads[i]:heads[i + 1]]` are its children, those of `i + size` its parents."""

    heads: list[int]
    targets: list[int]
    spots: list[int]  # where the target stands: direction, argument position, key and rank among equals
    viewers: list[int]
    spot_count: int


def _grow_layers(program: _Program, places: Ints) -> Ints:
    """Return a layer name for each operation: rule 1, then rule 2 over the places that rule 3 left."""
    seeds = _repeated_parameters(program)
    if not seeds:
        return places
    growth = _Growth(program.size)
    for passes in seeds:
        growth.seed(passes)
    growth.spread(_look_around(program, places), sorted(chain.from_iterable(seeds)))
    return np.array(growth.layer, np.int64)[places]


def _repeated_parameters(program: _Program) -> list[list[int]]:
    groups: dict[int, list[int]] = {}
    for i, key in enumerate(program.param_keys.tolist()):
        if key >= 0:
            groups.setdefault(key, []).append(i)
    return [passes for passes in groups.values() if len(passes) > 1]


def _look_around(program: _Program, places: Ints) -> _Sights:
    """List what every place sees that may join a layer."""
    size, counts = program.size, np.diff(program.heads)
    givers, takers = places[program.sources], np.repeat(places, counts)
    positions = np.arange(len(givers)) - np.repeat(program.heads[:-1], counts)
    viewers, targets = np.concatenate((givers, takers + size)), np.concatenate((takers, givers))
    kinds = program.keys[targets] * (2 * len(givers) + 2) + np.concatenate((2 * positions, 2 * positions + 1))
    # A folded loop is no neighbour of itself, and what it sees in each of its passes it sees once.
    seen = np.flatnonzero(program.joinable[targets] & (viewers % size != targets))
    viewers, targets, kinds = viewers[seen], targets[seen], _number_by_first_use(kinds[seen])
    lines = _number_by_first_use(viewers * len(kinds) + kinds)
    once = np.sort(np.unique(lines * size + targets, return_index=True)[1])
    viewers, targets, kinds, lines = viewers[once], targets[once], kinds[once], lines[once]
    spots = _number_by_first_use(kinds * len(kinds) + _ranks(lines))
    order = np.argsort(viewers, kind="stable")
    heads = np.searchsorted(viewers[order], np.arange(2 * size + 1))
    targets, spots, viewers = targets[order], spots[order], viewers[order] % size
    return _Sights(heads.tolist(), targets.tolist(), spots.tolist(), viewers.tolist(), len(kinds) + 1)


def _ranks(values: Ints) -> Ints:
    """Return how many times each value occurred before."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    ranks = np.empty(len(values), np.int64)
    ranks[order] = np.arange(len(values)) - np.searchsorted(ordered, ordered)
    return ranks


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

    def spread(self, sights: _Sights, seeds: list[int]) -> None:
        """Join what stands at the same spot next to two passes of a layer, until nothing joins any more.

        The first neighbour seen at a spot stands for it; later ones join its layer. A place that changes its layer
        looks around again, and since it is always the smaller layer that moves, it does so few times.
        """
        size, layer, clock = self.size, self.layer, self.clock
        heads, targets, spots, viewers, spot_count = sights
        standing: dict[int, int] = {}  # layer and spot -> the first sight there
        queue = deque(chain(seeds, (place + size for place in seeds)))
        while queue:
            row = queue.popleft()
            place = row % size
            base = layer[place] * spot_count
            for sight in range(heads[row], heads[row + 1]):
                first = standing.setdefault(base + spots[sight], sight)
                one, other = targets[first], targets[sight]
                if layer[one] != layer[other]:
                    # `other` ran as long after `one` as this pass ran after the pass next to `one`.
                    later = clock[one] + clock[place] - clock[viewers[first]] - clock[other]
                    for moved in self._join(layer[one], layer[other], later):
                        queue.append(moved)
                        queue.append(moved + size)

    def _join(self, one: int, other: int, later: int) -> list[int]:
        """Unite two layers, the clock of the other set `later`; return the places that have to look around."""
        pair = min(one, other) * self.size + max(one, other)
        if pair in self.apart:
            return []
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

    def _open(self, layer: int) -> list[int]:
        """Return the members of a layer, also of one that is still a single place."""
        if layer not in self.members:
            self.members[layer] = [layer]
            self.ticks.add(self.clock[layer] * self.size + layer)
        return self.members[layer]
