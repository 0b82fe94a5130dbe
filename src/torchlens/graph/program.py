"""The operations of a forward pass as arrays of integers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Program:
    """The operations as arrays; the parents of operation i are `sources[heads[i]:heads[i + 1]]`."""

    keys: Ints
    param_keys: Ints
    parents: Sequence[Sequence[int]]
    heads: Ints
    sources: Ints

    @classmethod
    def read(cls, keys: Sequence[int], param_keys: Sequence[int], parents: Sequence[Sequence[int]]) -> Program:
        names = np.array(keys, np.int64)
        names = np.where(names >= 0, number_by_first_use(names), -1)
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


def number_by_first_use(values: Ints) -> Ints:
    """Rename values to 0, 1, 2, ... in order of first appearance."""
    _, first, inverse = np.unique(values, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[inverse]
