"""Which operations are passes of the same layer?

`keys.py` says when two operations are equal; `recurrence.py` finds the layers from that.
"""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING

import numpy as np

from .keys import Interned
from .program import Ints, has_twice, ints, ranks, where
from .recurrence import layers_of

if TYPE_CHECKING:
    from .graph import Graph


def group_layers(graph: Graph) -> None:
    """Give every entry its layer and its pass."""
    keys, param_keys = _keys(graph)
    if _may_repeat(keys, param_keys):
        graph.layer_of = layers_of(keys, param_keys, graph.edges)
        graph.pass_of = ranks(graph.layer_of) + 1
    else:
        graph.layer_of = np.arange(len(keys))
        graph.pass_of = np.ones(len(keys), np.int64)


def _may_repeat(keys: Ints, param_keys: Ints) -> bool:
    """Could anything recur? Not if no parameters are used twice and no operation comes twice between two such uses."""
    uses = param_keys >= 0
    if has_twice(param_keys[uses]):
        return True
    free = where((keys >= 0) & ~uses)
    return has_twice(uses.cumsum()[free] * (keys.max(initial=0) + 1) + keys[free])


def _keys(graph: Graph) -> tuple[Ints, Ints]:
    """For each entry a number that equal operations share, and one that uses of the same parameters share."""
    made_by = graph.made_by
    keys = np.concatenate((graph.call_keys, [-1]))[made_by]  # what no call made is equal to nothing
    keys[graph.with_role("output")] = -1
    places = where(keys >= 0)
    which = _places_in_results(graph, places)
    more = int(keys.max(initial=0)) + 1  # than any key
    numbers = Interned()
    for place, result in which.items():
        keys[place] = more + numbers[int(keys[place]), result]
    param_keys = np.full(len(keys), -1)
    places = places[graph.uses_params[made_by[places]]]
    users = made_by[places]
    names = [function.name for function in graph.functions]
    functions = map(names.__getitem__, graph.function_of[users].tolist())
    results = [which.get(place, 0) for place in places.tolist()] if which else repeat(0)
    uses = zip(functions, results, map(graph.params.__getitem__, users.tolist()), strict=False)
    param_keys[places] = ints(map(numbers.__getitem__, uses))
    return keys, param_keys


def _places_in_results(graph: Graph, places: Ints) -> dict[int, int]:
    """Which of the results of its call an entry is, if it is not the first."""
    calls, entries = graph.trace.calls, graph.entries
    among = places[graph.gives_several[graph.made_by[places]]].tolist()
    found = {place: calls[entries[place].call].outputs.index(entries[place]) for place in among}
    return {place: result for place, result in found.items() if result}
