"""Where an edit is to happen: from what users write to values, edges, modules and parameters.

Some sites can be told while the model runs (what a module returned, a type of operation, most functions). A label or a
number only the whole graph has: it is looked up in a base, a run of the same model, whose path the run to be edited
must follow up to there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch import Tensor

from ..capture.functions import ALIAS_UPDATE, EDIT, IMPLICIT_VIEW, UNEDITED, UNWRAP, WRAP
from ..capture.records import Trace, Value, argument_values
from ..errors import ArgumentError, LayerNotFoundError
from ..graph.graph import Graph
from ..selectors import (
    AnyOf,
    Asked,
    Asking,
    Kind,
    ModuleTable,
    Named,
    Returned,
    Selection,
    Word,
    compile,
    selector_text,
)
from .edits import Edit, as_edit

ARGUMENT = "interventions"

#: What stands in a log without a call that could be edited.
_NOT_MADE = (ALIAS_UPDATE, IMPLICIT_VIEW, WRAP, UNWRAP, EDIT, UNEDITED)


class Base(NamedTuple):
    """A run in which labels and numbers are looked up."""

    graph: Graph
    asked: Asked  # which entries a predicate chooses


class EditRequest(NamedTuple):
    """One of the user's interventions."""

    key: Any
    site: str  # as written
    edit: Edit


def checked_requests(given: Any) -> list[EditRequest]:
    """What a user gave as `interventions`, checked as far as that is possible without a model."""
    if not isinstance(given, Mapping) or not given:
        raise ArgumentError('interventions is a dict from where to what, such as {"fc": tl.edits.zero()}')
    requests = []
    for key, edit in given.items():
        if isinstance(key, tuple):
            if len(key) != 2:
                raise ArgumentError(f"interventions: an edge is a pair (parent, child), not {key!r}")
            for end in key:
                Selection.checked(end, ARGUMENT)
        else:
            Selection.checked(key, ARGUMENT)
        requests.append(EditRequest(key, _site(key), as_edit(edit)))
    return requests


def _site(key: Any) -> str:
    if isinstance(key, tuple):
        return " -> ".join(_site(end) for end in key)
    return key.strip() if isinstance(key, str) else selector_text(key)


@dataclass
class Sites:
    """Everything that is to be edited, each with the numbers of the requests that ask for it."""

    modules: dict[int, list[tuple[int, Returned]]] = field(default_factory=dict)  # what these return
    live: list[tuple[int, Kind]] = field(default_factory=list)  # decided by the operation as it happens
    values: dict[int, list[int]] = field(default_factory=dict)  # by their index in the base
    addresses: dict[str, list[int]] = field(default_factory=dict)  # parameters and buffers
    edges: dict[int, list[tuple[int, Value]]] = field(default_factory=dict)  # by the call in the base: its parents


def kinds_of(key: Any, modules: ModuleTable) -> list[Kind]:
    """The selector in its parts: what modules returned is edited when they return, all else when it is made."""
    (kind,) = compile(Selection.checked(key, ARGUMENT), modules, ARGUMENT).kinds
    if type(kind) is not AnyOf:
        return [kind]
    pattern = isinstance(key, str)  # one with a dot can't fit a label
    return [member for member in kind.members if not (pattern and "." in key and not member.of_modules)]


def is_live(kind: Kind) -> bool:
    """Can it be told while the model runs what is meant?"""
    if isinstance(kind, Named):
        return not kind.is_label
    if isinstance(kind, Word):
        return kind.by_type and not kind.is_path
    return isinstance(kind, (Returned, Asking))


def needs_base(request: EditRequest, modules: ModuleTable, tensors: Mapping[str, Any]) -> bool:
    """Is a run needed in which the site can be looked up?"""
    if isinstance(request.key, tuple):
        return True
    if is_address(request.key, modules, tensors):
        return False
    kinds = kinds_of(request.key, modules)
    outside = request.edit.needs_label and not all(isinstance(kind, Returned) for kind in kinds)
    return outside or not all(is_live(kind) for kind in kinds)


def is_address(key: Any, modules: ModuleTable, tensors: Mapping[str, Any]) -> bool:
    """Is it the address of a parameter or buffer?"""
    return isinstance(key, str) and key.strip() in tensors and key.strip() not in modules.numbers


def resolve_sites(
    requests: list[EditRequest], modules: ModuleTable, tensors: Mapping[str, Any], base: Base | None
) -> Sites:
    """All sites; with a graph, those that only a graph can tell."""
    sites = Sites()
    for number, request in enumerate(requests):
        if isinstance(request.key, tuple):
            assert base is not None
            for call, parent in edges_of(request, base):
                sites.edges.setdefault(call, []).append((number, parent))
        elif is_address(request.key, modules, tensors):
            sites.addresses.setdefault(request.key.strip(), []).append(number)
        else:
            _resolve_selector(number, request, modules, base, sites)
    return sites


def _resolve_selector(number: int, request: EditRequest, modules: ModuleTable, base: Base | None, sites: Sites) -> None:
    for kind in kinds_of(request.key, modules):
        if isinstance(kind, Returned) and is_live(kind):
            for module in kind.numbers:
                sites.modules.setdefault(module, []).append((number, kind))
        elif is_live(kind) and not request.edit.needs_label:
            sites.live.append((number, kind))
        else:
            assert base is not None
            found = places_of(kind, base)
            if not found and len(kinds_of(request.key, modules)) == 1:
                raise LayerNotFoundError(f"{ARGUMENT}: {kind.nothing(base.graph)}")
            for place in found:
                _add_value(number, base.graph, base.graph.entries[place], sites)


def places_of(kind: Kind, base: Base) -> list[int]:
    return sorted(kind.places(base.graph, base.asked))


def _add_value(number: int, graph: Graph, value: Value, sites: Sites) -> None:
    check_editable(graph.trace, value, graph.label(graph.place[value.index]))
    if value.role == "buffer":
        assert value.address is not None
        sites.addresses.setdefault(value.address, []).append(number)
    else:
        sites.values.setdefault(value.index, []).append(number)


def check_editable(trace: Trace, value: Value, label: str) -> None:
    if value.call >= 0 and trace.calls[value.call].function in _NOT_MADE:
        raise ArgumentError(
            f"{ARGUMENT}: {label} is no call of the model's: it stands for what a tensor holds after a change through "
            "an alias. Edit the operation that made the change"
        )


def edges_of(request: EditRequest, base: Base) -> Iterator[tuple[int, Value]]:
    """The calls of the child that take the parent, with the parent."""
    parent_key, child_key = request.key
    graph, parents = base.graph, _parents(parent_key, base)
    calls = {call for kind in kinds_of(child_key, graph.modules) for call in _calls(kind, base)}
    found = [
        (call, value)
        for call in sorted(calls)
        for value in dict.fromkeys(value for _, value in argument_values(graph.trace.calls[call]))
        if value in parents
    ]
    if not found:
        raise LayerNotFoundError(f"{ARGUMENT}: no edge {request.site}: the one is no parent of the other")
    yield from found


def _parents(key: Any, base: Base) -> set[Value]:
    graph = base.graph
    for param in graph.trace.params:
        if param.address == key:
            return {param}
    found = {graph.entries[place] for kind in kinds_of(key, graph.modules) for place in places_of(kind, base)}
    if not found:
        raise LayerNotFoundError(f"{ARGUMENT}: {kinds_of(key, graph.modules)[0].nothing(graph)}")
    return found


def _calls(kind: Kind, base: Base) -> Iterator[int]:
    """The calls that a child means: the one that made it; of a module, all that were made inside."""
    graph = base.graph
    if isinstance(kind, Returned):
        for call in kind.calls(graph):
            yield from range(graph.modules.calls[call].start, graph.modules.calls[call].stop)
    else:
        found = places_of(kind, base)
        if not found:
            raise LayerNotFoundError(f"{ARGUMENT}: {kind.nothing(graph)}")
        yield from (graph.entries[place].call for place in found if graph.entries[place].call >= 0)


def donor_at(log: Any, key: str) -> Tensor:
    """What another log holds at a place."""
    graph = log.graph
    (kind,) = compile(Selection.checked(key, "the other log"), graph.modules, "the other log").kinds
    places = sorted(kind.places(graph, lambda predicate: []))
    if len(places) != 1:
        raise LayerNotFoundError(f"the other log has no {key!r}, so there is nothing to take from it")
    saved: Tensor | None = graph.entries[places[0]].saved
    if saved is None:
        raise ArgumentError(f"the other log has not saved {key!r}; log it with layers_to_save")
    return saved
