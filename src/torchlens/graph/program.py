"""The operations of a forward pass as arrays of integers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from struct import pack
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


def ints(numbers: Iterable[int]) -> Ints:
    """`np.array(numbers)` of Python's integers, in a quarter of the time."""
    members = tuple(numbers)
    return np.frombuffer(pack(f"{len(members)}q", *members), np.int64)


def bools(answers: Iterable[bool]) -> Bools:
    return np.frombuffer(bytes(list(answers)), np.bool_)


class Edges(NamedTuple):
    """Who feeds whom: the parents of node i are `sources[heads[i]:heads[i + 1]]`, in argument order."""

    heads: Ints
    sources: Ints

    @classmethod
    def of(cls, counts: Ints, sources: Ints) -> Edges:
        """So many parents for each node, all in one row."""
        return cls(np.concatenate(([0], np.cumsum(counts))), sources)

    @classmethod
    def read(cls, parents: Sequence[Sequence[int]]) -> Edges:
        return cls.of(ints(map(len, parents)), ints(chain.from_iterable(parents)))

    @property
    def counts(self) -> Ints:
        return np.diff(self.heads)

    def into(self, nodes: Ints) -> Edges:
        """The edges into these nodes alone, in their order."""
        counts = self.counts[nodes]
        return Edges.of(counts, self.sources[joined_ranges(self.heads[nodes], counts)])

    def among(self, nodes: Ints) -> Edges:
        """The edges from and to these nodes, which are numbered anew."""
        numbers = np.full(len(self.heads) - 1, -1)
        numbers[nodes] = np.arange(len(nodes))
        edges = self.into(nodes)
        sources = numbers[edges.sources]
        takers = np.repeat(np.arange(len(nodes)), edges.counts)
        return Edges.of(np.bincount(takers[sources >= 0], minlength=len(nodes)), sources[sources >= 0])

    def turned(self) -> Edges:
        """The other way round: the children of each node, in execution order."""
        size = len(self.heads) - 1
        takers = np.repeat(np.arange(size), self.counts)
        return Edges.of(np.bincount(self.sources, minlength=size), takers[np.argsort(self.sources, kind="stable")])

    def lists(self) -> list[list[int]]:
        sources: list[int] = self.sources.tolist()
        return [sources[start:stop] for start, stop in pairwise(self.heads.tolist())]


@dataclass(frozen=True)
class Program:
    """The operations as arrays; the parents of operation i are `sources[heads[i]:heads[i + 1]]`."""

    keys: Ints
    param_keys: Ints
    heads: Ints
    sources: Ints

    @classmethod
    def read(cls, keys: Ints, param_keys: Ints, edges: Edges) -> Program:
        return cls(np.where(keys >= 0, number_by_first_use(keys), -1), param_keys, *edges)

    @property
    def size(self) -> int:
        return len(self.keys)

    @property
    def joinable(self) -> Bools:
        """Operations that rules 2 and 3 may group."""
        return (self.keys >= 0) & (self.param_keys < 0)


def number_by_first_use(values: Ints) -> Ints:
    """Rename values to 0, 1, 2, ... in order of first appearance."""
    _, first, inverse = np.unique(values, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[inverse]


def ranks(values: Ints) -> Ints:
    """How many times each value occurred before."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    found = np.empty(len(values), np.int64)
    found[order] = np.arange(len(values)) - np.searchsorted(ordered, ordered)
    return found


def joined_ranges(starts: Ints, counts: Ints) -> Ints:
    """Join the ranges [start, start + count) into one array."""
    ends = np.cumsum(counts)
    return np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - ends + counts, counts)
