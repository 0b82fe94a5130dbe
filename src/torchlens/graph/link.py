"""Find the parents and children of every entry."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from ..capture.containers import all_plain
from ..capture.records import NUMBERS_AND_WORDS, Call, Trace, Value, argument_values
from .argument_row import VALUE, ArgumentRow, chosen
from .keys import call_keys, functions_in
from .program import Edges, Ints, bools, ints

if TYPE_CHECKING:
    from .graph import Graph


def link_entries(graph: Graph) -> None:
    """Every value becomes an entry; its parents are the values among the arguments of the call that made it."""
    trace = graph.trace
    graph.entries = list(trace.values)
    graph.made_by = ints([value.call for value in trace.values])
    graph.gives_several = np.bincount(graph.made_by + 1, minlength=len(trace.calls) + 1)[1:] > 1
    arguments = ArgumentRow.of(trace.calls)
    graph.functions, graph.function_of = functions_in(trace.calls)
    graph.call_keys = call_keys(trace.calls, arguments, graph.functions, graph.function_of)
    by_call = _parents_by_call(graph, arguments)
    graph.edges = by_call.into(np.where(graph.made_by >= 0, graph.made_by, len(trace.calls)))


def _parents_by_call(graph: Graph, arguments: ArgumentRow) -> Edges:
    """The values that each call uses, by index; a last row, without any, for what no call made."""
    calls = graph.trace.calls
    values, owners = arguments.values(), arguments.owners[arguments.kinds == VALUE]
    is_param = bools([value.role == "param" for value in values])
    graph.params = _params_by_call(len(calls), chosen(values, is_param), owners[is_param])
    plain = np.full(len(calls), True)
    plain[_looked_into(arguments, calls)] = False
    changed = [value.address is not None and value.role == "op" for value in chosen(values, ~is_param)]
    plain[owners[~is_param][bools(changed)]] = False
    rest = np.flatnonzero(~is_param & plain[owners])
    owners, sources = owners[rest], ints([value.index for value in values])[rest]
    more_owners: list[int] = []
    more_sources: list[int] = []
    for number in np.flatnonzero(~plain).tolist():
        indexes, graph.params[number] = _worked_with(calls[number], graph.trace)
        more_owners += [number] * len(indexes)
        more_sources += indexes
    if more_owners:
        owners, sources = np.append(owners, ints(more_owners)), np.append(sources, ints(more_sources))
        order = np.argsort(owners, kind="stable")
        owners, sources = owners[order], sources[order]
    owners, sources = _distinct(owners, sources)
    return Edges.of(np.bincount(owners, minlength=len(calls) + 1), sources)


def _params_by_call(total: int, params: list[Value], owners: Ints) -> list[tuple[Value, ...]]:
    """The parameters that each of so many calls works with; the owners are in order."""
    found: list[tuple[Value, ...]] = [()] * total
    bounds = np.flatnonzero(np.diff(owners, prepend=-1, append=-1)).tolist()
    for owner, (start, stop) in zip(owners[bounds[:-1]].tolist(), pairwise(bounds), strict=True):
        found[owner] = tuple(params[start:stop])
    return found


def _looked_into(arguments: ArgumentRow, calls: list[Call]) -> list[int]:
    """The calls whose values are not all among the positional arguments themselves."""
    among = [place for place, key in zip(arguments.others, arguments.index_keys, strict=True) if key is None]
    members = [arguments.members[place] for place in among]
    nested = [place for place, member in zip(among, members, strict=True) if not _is_plain_index(member)]
    named = [number for number in arguments.named if not _are_plain(calls[number].kwargs)]
    return [*named, *arguments.owners[nested].tolist()]


def _is_plain_index(member: Any) -> bool:
    return type(member) is tuple and all_plain(member)


def _are_plain(kwargs: Mapping[str, Any]) -> bool:
    return NUMBERS_AND_WORDS.issuperset(map(type, kwargs.values()))


def _distinct(owners: Ints, sources: Ints) -> tuple[Ints, Ints]:
    """Each source of a call once, where it comes first; the owners are in order."""
    among = np.flatnonzero(np.diff(owners, append=-1) == 0)  # all but the last of each call's
    pairs = owners * (sources.max(initial=0) + 1) + sources
    again = np.isin(pairs[among + 1], pairs[among])
    if not again.any():
        return owners, sources
    _, first = np.unique(pairs, return_index=True)
    first = np.sort(first)
    return owners[first], sources[first]


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
