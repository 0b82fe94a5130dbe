"""Edges as arrays: compared with lists of parents, on random graphs."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from torchlens.graph.ancestry import reached, unreached
from torchlens.graph.program import Edges, bounds, has_twice, number_by_first_use, ranks


@st.composite
def parent_lists(draw: st.DrawFn) -> list[list[int]]:
    """Each node's parents: distinct, and earlier than the node."""
    size = draw(st.integers(1, 12))
    return [draw(st.lists(st.integers(0, node - 1), unique=True, max_size=3)) if node else [] for node in range(size)]


def children_of(parents: list[list[int]]) -> list[list[int]]:
    return [[child for child, above in enumerate(parents) if node in above] for node in range(len(parents))]


@settings(deadline=None)
@given(parent_lists(), st.sets(st.integers(0, 11)))
def test_edges_are_what_the_lists_say(parents: list[list[int]], chosen: set[int]) -> None:
    edges = Edges.read(parents)
    keep = sorted(node for node in chosen if node < len(parents))
    nodes = np.array(keep, np.int64)
    assert edges.lists() == parents
    assert edges.turned().lists() == children_of(parents)
    assert edges.into(nodes).lists() == [parents[node] for node in keep]
    assert edges.among(nodes).lists() == [[keep.index(p) for p in parents[node] if p in keep] for node in keep]


@settings(deadline=None)
@given(parent_lists(), st.sets(st.integers(0, 11)))
def test_unreached_are_all_that_are_not_reached(parents: list[list[int]], chosen: set[int]) -> None:
    starts = [node for node in chosen if node < len(parents)]
    edges = Edges.read(parents)
    for back, forth in ((edges, edges.turned()), (edges.turned(), edges)):
        seen = reached(starts, forth.lists())
        assert unreached(starts, back, forth) == {node for node, known in enumerate(seen) if not known}


@settings(deadline=None)
@given(st.lists(st.integers(0, 3)))
def test_ranks_count_what_came_before(values: list[int]) -> None:
    assert ranks(np.array(values, np.int64)).tolist() == [values[:i].count(v) for i, v in enumerate(values)]


@settings(deadline=None)
@given(st.lists(st.integers(0, 3)))
def test_runs_and_numbers_are_what_a_loop_finds(values: list[int]) -> None:
    array = np.array(values, np.int64)
    begins = [i for i, value in enumerate(values) if i == 0 or values[i - 1] != value]
    firsts = list(dict.fromkeys(values))
    assert bounds(array).tolist() == [*begins, len(values)]
    assert number_by_first_use(array).tolist() == [firsts.index(value) for value in values]
    assert has_twice(array) == (len(firsts) < len(values))
