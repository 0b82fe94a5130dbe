"""Where an edit is to happen: from what users write to values, edges, modules and parameters.

Some sites can be told while the model runs (what a module returned, a type of operation, most functions). A label or a
number only the whole graph has: it is looked up in a base, a run of the same model, whose path the run to be edited
must follow up to there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
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
    Modules,
    ModuleTable,
    Named,
    Returned,
    Selection,
    Selector,
    Word,
    compile,
    is_several,
    kind_of,
    selector_text,
)
from .edit_base import Edit
from .edits import as_edit

ARGUMENT = "interventions"

#: What stands in a log without a call that could be edited.
_NOT_MADE = (ALIAS_UPDATE, IMPLICIT_VIEW, WRAP, UNWRAP, EDIT, UNEDITED)

#: Functions with much inside; and how to come by that.
_FUSED = {
    "_native_multi_head_attention", "_transformer_encoder_layer_fwd", "gru", "lstm", "rnn_relu", "rnn_tanh",
    "scaled_dot_product_attention",
}  # fmt: skip
_WRITTEN_OUT = "examples/written_out.py has attention, LSTM and GRU in plain operations"


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
        raise ArgumentError('interventions must be a dict from sites to edits, such as {"fc": tl.edits.zero()}')
    requests = []
    for key, edit in given.items():
        if isinstance(key, tuple):
            if len(key) != 2:
                raise ArgumentError(f"interventions: an edge must be a pair (parent, child), not {key!r}")
            checked: Any = tuple([_checked_key(end) for end in key])
        else:
            checked = _checked_key(key)
        requests.append(EditRequest(checked, _site(checked), as_edit(edit)))
    return requests


def _checked_key(key: Any) -> Selector:
    if is_several(key):
        raise ArgumentError(f"{ARGUMENT}: {key!r} is not one selector; tl.any_of(...) makes one of several")
    return Selection.checked(key, ARGUMENT).selectors[0]


def _site(key: Any) -> str:
    if isinstance(key, tuple):
        return " -> ".join(_site(end) for end in key)
    return key if isinstance(key, str) else selector_text(key)


@dataclass
class Sites:
    """Everything that is to be edited, each with the numbers of the requests that ask for it."""

    modules: dict[int, list[tuple[int, Returned]]] = field(default_factory=dict)  # what these return
    live: list[tuple[int, Kind]] = field(default_factory=list)  # decided by the operation as it happens
    values: dict[int, list[int]] = field(default_factory=dict)  # by their index in the base
    addresses: dict[str, list[int]] = field(default_factory=dict)  # parameters and buffers
    edges: dict[int, list[tuple[int, Value]]] = field(default_factory=dict)  # by the call in the base: its parents

    @property
    def only_modules(self) -> bool:
        return not (self.live or self.values or self.addresses or self.edges)

    def functions(self, base: Base | None) -> set[str] | None:
        """The functions that make what is known by its place in the base, or use it along an edge; None for any."""
        trace = base.graph.trace if base is not None else Trace("")
        values = [trace.values[index] for index in self.values]
        if self.addresses or any(value.role == "source" for value in values):
            return None
        calls = {value.call for value in values if value.call >= 0}.union(self.edges)
        return {trace.calls[call].function.name for call in calls}


def kinds_of(key: Any, modules: ModuleTable) -> list[Kind]:
    """The selector in its parts: what modules returned is edited when they return, all else when it is made."""
    kind = kind_of(key, modules, ARGUMENT)
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


class ModelNames:
    """What keys can name before a model has run: its modules, parameters and buffers."""

    def __init__(self, trace: Trace) -> None:
        self.modules = Modules(trace.modules)
        self._infos = [*trace.param_infos, *trace.buffer_infos]

    @cached_property
    def tensors(self) -> set[str]:
        """All addresses of parameters and buffers."""
        return {address for info in self._infos for address in info.all_addresses}

    def is_tensor(self, key: Any) -> bool:
        """Is it the address of a parameter or buffer?"""
        return isinstance(key, str) and key not in self.modules.numbers and key in self.tensors


def resolve_sites(requests: list[EditRequest], names: ModelNames, base: Callable[[], Base]) -> Sites:
    """All sites. Those that only a graph can tell are looked up in the base, which is not asked for otherwise."""
    sites = Sites()
    for number, request in enumerate(requests):
        if isinstance(request.key, tuple):
            for call, parent in edges_of(request, base()):
                sites.edges.setdefault(call, []).append((number, parent))
        elif names.is_tensor(request.key):
            sites.addresses.setdefault(request.key, []).append(number)
        else:
            _resolve_selector(number, request, kinds_of(request.key, names.modules), base, sites)
    return sites


def _resolve_selector(
    number: int, request: EditRequest, kinds: list[Kind], base: Callable[[], Base], sites: Sites
) -> None:
    for kind in kinds:
        live = is_live(kind)
        if live and isinstance(kind, Returned):
            for module in kind.numbers:
                sites.modules.setdefault(module, []).append((number, kind))
        elif live and not request.edit.needs_label:
            sites.live.append((number, kind))
        else:
            graph, found = base().graph, places_of(kind, base())
            if not found and len(kinds) == 1:
                raise LayerNotFoundError(nothing_there(kind, graph))
            for place in found:
                _add_value(number, graph, graph.entries[place], sites)


def nothing_there(kind: Kind, graph: Graph) -> str:
    """Why a selector chooses nothing that could be edited."""
    fused = sorted({call.function.name for call in graph.trace.calls} & _FUSED)
    why = f"{ARGUMENT}: {kind.nothing(graph)}"
    if not fused:
        return why
    inside = f"What happens inside {' and '.join(fused)} can't be reached: it is one call; {_WRITTEN_OUT}"
    return f"{why}{'' if why.endswith('?') else '.'} {inside}"


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
            f"{ARGUMENT}: {label} is not a call that the model made: it stands for what a tensor holds after a change "
            "through an alias; edit the operation that made the change"
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
        raise LayerNotFoundError(f"{ARGUMENT}: no edge {request.site}: the first is not a parent of the second")
    yield from found


def _parents(key: Any, base: Base) -> set[Value]:
    graph = base.graph
    for param in graph.trace.params:
        if param.address == key:
            return {param}
    found = {graph.entries[place] for kind in kinds_of(key, graph.modules) for place in places_of(kind, base)}
    if not found:
        raise LayerNotFoundError(nothing_there(kinds_of(key, graph.modules)[0], graph))
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
            raise LayerNotFoundError(nothing_there(kind, graph))
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
