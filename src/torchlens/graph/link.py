"""Find the parents and children of every entry."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from ..capture.containers import all_plain
from ..capture.records import NUMBERS_AND_WORDS, Call, Trace, Value, argument_values
from .argument_row import VALUE, ArgumentRow, chosen
from .keys import call_keys, functions_in
from .program import Bools, Edges, Ints, bools, bounds, has_twice, ints

if TYPE_CHECKING:
    from .graph import Graph


def link_entries(graph: Graph) -> None:
    """Every value becomes an entry; its parents are the values among the arguments of the call that made it."""
    trace = graph.trace
    graph.entries = list(trace.values)
    graph.made_by = ints([value.call for value in trace.values])
    graph.gives_several = np.bincount(graph.made_by + 1, minlength=len(trace.calls) + 1)[1:] > 1
    called, args, kwargs = islice(zip(*trace.calls, strict=True), 3) if trace.calls else ((), (), ())
    arguments = ArgumentRow.of(args, kwargs)
    graph.functions, graph.function_of = functions_in(called)
    graph.call_keys = call_keys(trace.calls, arguments, graph.functions, graph.function_of)
    graph.edges = _parents_by_call(graph, arguments).into(graph.made_by)  # -1 is the last row, which has none


def _parents_by_call(graph: Graph, arguments: ArgumentRow) -> Edges:
    """The values that each call uses, by index; a last row, without any, for what no call made."""
    calls = graph.trace.calls
    values, owners = arguments.values(), arguments.owners[arguments.kinds == VALUE]
    is_param = bools([value.role == "param" for value in values])
    graph.params = _params_by_call(len(calls), chosen(values, is_param), owners[is_param])
    owners, sources = owners[~is_param], ints([value.index for value in chosen(values, ~is_param)])
    again = {*_looked_into(arguments), *owners[_are_changed(sources, graph.trace)].tolist()}
    if again:
        owners, sources = _one_by_one(graph, sorted(again), owners, sources)
    owners, sources = _distinct(owners, sources)
    return Edges.of(np.bincount(owners, minlength=len(calls) + 1), sources)


def _one_by_one(graph: Graph, numbers: list[int], owners: Ints, sources: Ints) -> tuple[Ints, Ints]:
    """The values that the calls use, where these calls among them are looked at one by one."""
    calls = graph.trace.calls
    is_plain = np.full(len(calls), True)
    is_plain[numbers] = False
    rest = is_plain[owners]
    more_owners: list[int] = []
    more_sources: list[int] = []
    for number in numbers:
        indexes, graph.params[number] = _worked_with(calls[number], graph.trace)
        more_owners += [number] * len(indexes)
        more_sources += indexes
    owners = np.concatenate((owners[rest], ints(more_owners)))
    sources = np.concatenate((sources[rest], ints(more_sources)))
    order = owners.argsort(kind="stable")
    return owners[order], sources[order]


def _are_changed(values: Ints, trace: Trace) -> Bools:
    """Which of these values are of parameters or buffers that an earlier call has written to?"""
    changed = [value.index for value in trace.values if value.address is not None and value.role == "op"]
    return np.isin(values, changed) if changed else np.zeros(len(values), np.bool_)


def _params_by_call(total: int, params: list[Value], owners: Ints) -> list[tuple[Value, ...]]:
    """The parameters that each of so many calls works with; the owners are in order."""
    found: list[tuple[Value, ...]] = [()] * total
    runs, row = bounds(owners), tuple(params)
    for owner, (start, stop) in zip(owners[runs[:-1]].tolist(), pairwise(runs.tolist()), strict=True):
        found[owner] = row[start:stop]
    return found


def _looked_into(arguments: ArgumentRow) -> list[int]:
    """The calls whose values are not all among the positional arguments themselves."""
    among = [place for place, key in zip(arguments.others, arguments.index_keys, strict=True) if key is None]
    members = [arguments.members[place] for place in among]
    nested = [place for place, member in zip(among, members, strict=True) if not _is_plain_index(member)]
    named = [number for number in arguments.named if not _are_plain(arguments.kwargs[number])]
    return [*named, *arguments.owners[nested].tolist()]


def _is_plain_index(member: Any) -> bool:
    return type(member) is tuple and all_plain(member)


def _are_plain(kwargs: Mapping[str, Any]) -> bool:
    return NUMBERS_AND_WORDS.issuperset(map(type, kwargs.values()))


def _distinct(owners: Ints, sources: Ints) -> tuple[Ints, Ints]:
    """Each source of a call once, where it comes first; the owners are in order."""
    pairs = owners * (sources.max(initial=0) + 1) + sources
    if not has_twice(pairs):
        return owners, sources
    first = np.sort(np.unique(pairs, return_index=True)[1])
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
