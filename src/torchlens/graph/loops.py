"""Rule 3 of `recurrence.py`: parameter-free sequences that repeat back to back."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import chain, pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .program import Ints, Program, bools, joined_ranges, number_by_first_use, run_lengths, where

# Loops with a body of up to this many operations are searched exhaustively, one array comparison per length.
EXHAUSTIVE_PERIOD = 64
# Longer bodies are guessed from repeated contexts: the most frequent guesses within each doubling of the length.
GUESSES_PER_DOUBLING = 32
# Values handed from one pass to the next that are followed when asking whether a sequence feeds itself.
FOLLOWED_VALUES = 256


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


def fold_loops(program: Program) -> Ints:
    """Return for each operation its place: the first operation it is a repetition of by rule 3, or itself."""
    runs = _LoopFinder(program).runs()
    if not runs:
        return np.arange(program.size)
    root = list(range(program.size))

    def find(i: int) -> int:
        while root[i] != i:
            root[i] = root[root[i]]
            i = root[i]
        return i

    for period, start, stop in _choose_loops(runs, program.size):
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

    def __init__(self, program: Program) -> None:
        self.program = program
        size = program.size
        arity = run_lengths(program.heads)
        symbols = number_by_first_use(program.keys * (arity.max() + 1) + arity)
        barriers = where(~program.joinable)
        symbols[barriers] = -1 - barriers  # equal to nothing, so no run crosses one
        self.symbols = symbols
        bounds = np.concatenate(([-1], barriers, [size]))
        self.longest = int(run_lengths(bounds).max()) // 2
        self.stretch_stop = bounds[1:].repeat(run_lengths(bounds))[:size]
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
        if period <= EXHAUSTIVE_PERIOD and len(firsts):
            stretches = zip(firsts.tolist(), lengths.tolist(), strict=True)
            may = bools([self._may_feed_itself(first, first + length + period, period) for first, length in stretches])
            firsts, lengths = firsts[may], lengths[may]
        if not len(firsts):
            return []
        before = joined_ranges(firsts, lengths)  # the operations that are repeated one period later
        earliest = np.repeat(firsts, lengths)
        counts = self.program.heads[before + 1] - self.program.heads[before]
        which = np.repeat(np.arange(len(before)), counts)
        old = self.program.sources[joined_ranges(self.program.heads[before], counts)]
        new = self.program.sources[joined_ranges(self.program.heads[before + period], counts)]
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
        recurs = self.symbols[period:] == self.symbols[:-period]
        long_enough = recurs if period == 1 else recurs[1:] & recurs[:-1]
        if not long_enough.any():  # which is so for most periods, and soon seen
            return recurs[:0].astype(np.int64), recurs[:0].astype(np.int64)
        differ = where(~recurs)
        bounds = np.concatenate(([-1], differ, [len(self.symbols) - period]))
        firsts, lengths = bounds[:-1] + 1, run_lengths(bounds) - 1
        long = where(lengths >= period)
        firsts, lengths = firsts[long], lengths[long]
        explained = (self.cover_stop[firsts] >= firsts + lengths + period) & (period % self.cover_period[firsts] == 0)
        return firsts[~explained], lengths[~explained]

    def _may_feed_itself(self, start: int, stop: int, period: int) -> bool:
        """Whether an operation of this stretch depends on the one a period earlier: in no other is there a loop.

        Most stretches that only look like loops are told apart by this before arrays are made for them.
        """
        heads = self.program.heads[start : stop + 1].tolist()
        sources = self.program.sources[heads[0] : heads[-1]].tolist()
        depends: list[int] = []  # for each operation: bit d says that it depends on the operation d before it
        for number, (begin, end) in enumerate(pairwise(heads)):
            bits = 0
            for parent in sources[begin - heads[0] : end - heads[0]]:
                back = start + number - parent
                if back <= min(number, period):
                    bits |= (depends[number - back] | 1) << back
            if bits >> period & 1:
                return True
            depends.append(bits & (1 << period) - 1)
        return False

    def _feeds_itself(self, start: int, period: int) -> bool:
        """Whether an operation of the second pass depends on the same operation of the first pass."""
        second = start + period
        heads = self.program.heads[second : second + period + 1].tolist()
        sources = self.program.sources[heads[0] : heads[-1]].tolist()
        bits: dict[int, int] = {}  # values of the first pass that the second one reads
        depends: list[int] = []  # for each operation of the second pass, the bits it depends on
        for begin, end in pairwise(heads):
            mask = 0
            for parent in sources[begin - heads[0] : end - heads[0]]:
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
        if self.longest <= EXHAUSTIVE_PERIOD:
            return
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
