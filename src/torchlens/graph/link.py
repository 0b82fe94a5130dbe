"""Find the parents and children of every entry."""

from __future__ import annotations

from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING

import numpy as np

from ..capture.containers import PLAIN, all_plain
from ..capture.records import Call, Trace, Value, argument_values
from .program import Edges

if TYPE_CHECKING:
    from .graph import Graph

#: The arguments of a call, in a third of the time that `call.args` and `call.kwargs` take.
_arguments = itemgetter(Call._fields.index("args"), Call._fields.index("kwargs"))


def link_entries(graph: Graph) -> None:
    """Every value becomes an entry; its parents are the values among the arguments of the call that made it."""
    trace = graph.trace
    graph.entries = list(trace.values)
    graph.made_by = np.fromiter(map(attrgetter("call"), trace.values), np.int64, len(trace.values))
    by_call = _parents_by_call(graph)
    graph.edges = by_call.into(np.where(graph.made_by >= 0, graph.made_by, len(trace.calls)))


def _parents_by_call(graph: Graph) -> Edges:
    """The values that each call works with, by index; a last row, without any, for what no call made."""
    trace = graph.trace
    graph.params = [()] * len(trace.calls)
    counts, sources = [], []
    for number, (args, kwargs) in enumerate(map(_arguments, trace.calls)):
        indexes: list[int] = []
        params: tuple[Value, ...] = ()
        plain = not kwargs
        for argument in args:
            if type(argument) is Value:
                if argument.role == "param":
                    params += (argument,)
                else:
                    indexes.append(argument.index)
                    plain = plain and (argument.address is None or argument.role != "op")
            elif type(argument) not in PLAIN and not (type(argument) is tuple and all_plain(argument)):
                plain = False
        if not plain:
            indexes, params = _worked_with(trace.calls[number], trace)
        if len(indexes) > 1:
            indexes = list(dict.fromkeys(indexes))
        if params:
            graph.params[number] = params
        sources += indexes
        counts.append(len(indexes))
    return Edges.of(np.array([*counts, 0], np.int64), np.array(sources, np.int64))


def _worked_with(call: Call, trace: Trace) -> tuple[list[int], tuple[Value, ...]]:
    """The values that a call works with, by index, and the parameters; also those that an earlier call has changed."""
    values = [value for _, value in argument_values(call)]
    params: list[Value] = []
    for value in values:
        if value.role == "param":
            params.append(value)
        elif value.address is not None and value.role == "op":
            params += [param for param in trace.params if param.address == value.address]
    return [value.index for value in values if value.role != "param"], tuple(params)
