"""Edit a finished log: compute what lies downstream of the edits, without the model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from copy import copy
from functools import cached_property, partial
from typing import Any

from torch import Tensor

from .._torch import grad_scope, set_grad_enabled
from ..capture.containers import rebuild, reconstructed
from ..capture.context import OpInProgress
from ..capture.functions import ALIAS_UPDATE, ESCAPES
from ..capture.keeping import copied
from ..capture.records import Applied, Call, Intervention, Trace, Value, argument_values, facts_of
from ..errors import ArgumentError, LayerNotFoundError, ReplayError
from ..graph.graph import Graph
from ..replay.downstream import Downstream, Edits
from ..replay.same import same
from ..selectors import Returned
from .again import AppliedEdits
from .apply import apply_edit, remarks
from .edit_base import Moment
from .sites import ARGUMENT, Base, EditRequest, check_editable, donor_at, edges_of, kinds_of, nothing_there, places_of


class EditPlan:
    """Which values and edges of a graph are to be edited, by which requests."""

    def __init__(self, base: Base, requests: list[EditRequest]) -> None:
        self.base, self.requests = base, requests
        self.values: dict[Value, list[int]] = {}
        self.edges: dict[tuple[int, Value], list[int]] = {}
        params = {param.address: param for param in base.graph.trace.params}
        for number, request in enumerate(requests):
            if request.edit.is_backward:
                raise ArgumentError(f"{ARGUMENT}: {request.edit!r} needs a run of the model: log_forward_pass")
            if isinstance(request.key, tuple):
                for edge in edges_of(request, base):
                    self.edges.setdefault(edge, []).append(number)
            elif isinstance(request.key, str) and request.key.strip() in params:
                self.values.setdefault(params[request.key.strip()], []).append(number)
            else:
                for value in self._chosen(request):
                    self.values.setdefault(value, []).append(number)

    @classmethod
    def of(cls, base: Base, values: Iterable[Value]) -> EditPlan:
        """A plan for values that somebody else edits."""
        plan = cls(base, [])
        plan.values = {value: [] for value in values}
        return plan

    def _chosen(self, request: EditRequest) -> Iterable[Value]:
        graph = self.base.graph
        found: dict[Value, None] = {}
        kinds = kinds_of(request.key, graph.modules)
        for kind in kinds:
            places = places_of(kind, self.base)
            if isinstance(kind, Returned):
                found |= dict.fromkeys(value for call in kind.calls(graph) for value in self._returned(kind, call))
            else:
                found |= dict.fromkeys(graph.entries[place] for place in places)
        if not found:
            raise LayerNotFoundError(nothing_there(kinds[0], graph))
        for value in found:
            check_editable(graph.trace, value, graph.label(graph.place[value.index]))
        return found

    def _returned(self, kind: Returned, number: int) -> list[Value]:
        """What a module call returned, if nobody else has it."""
        trace = self.base.graph.trace
        call = trace.module_calls[number]
        chosen = [v for n, v in enumerate(call.exited) if kind.fits(call.module, call.number, n)]
        address = trace.modules[call.module].address or "self"
        if len(chosen) > 1:
            raise ArgumentError(f"{ARGUMENT}: {address} returned {len(chosen)} tensors; say which: '{address}[0]'")
        for value in chosen:
            inside = trace.calls[value.call + 1 : call.stop]
            used = any(parent is value for each in inside for _, parent in argument_values(each))
            if value.role != "op" or value.call < call.start or used:
                raise ReplayError(
                    f"{address} returned a tensor that is also used elsewhere, and the log can't tell which uses to "
                    "edit; run the model instead: log_forward_pass(..., interventions=...)"
                )
        return chosen

    def check(self) -> None:
        """Refuse what can't be edited afterwards."""
        self._check_alone()
        self.begin()

    def begin(self) -> tuple[dict[Value, None], set[int]]:
        """The values to edit as they were saved, and the calls to compute in any case."""
        given = {value: None for value in self.values if value.call < 0}
        changed, calls = set(given), {call for call, _ in self.edges}
        for number, call in enumerate(self.base.graph.trace.calls):
            affected = number in calls or any(value in changed for _, value in argument_values(call))
            for value in call.outputs:
                if value in self.values and not affected:
                    given[value] = None
                if affected or value in self.values:
                    changed.add(value)
            if affected and call.function is ALIAS_UPDATE:
                self._check_aliases()
        return given, calls

    def _check_alone(self) -> None:
        """A value can be edited afterwards if the log tells who has it."""
        trace = self.base.graph.trace
        unsure = [v for v in self.values if v.call >= 0 and not trace.calls[v.call].function.fresh]
        uses = Counter(v for call in trace.calls for _, v in argument_values(call)) if unsure else Counter()
        for value in unsure:
            call = trace.calls[value.call]
            returned = any(_may_be_same(parent, value) for _, parent in argument_values(call))
            if call.written and (value.address is not None or self._is_exposed()):
                self._refuse(value, "lies in memory that is also used in ways that are not logged")
            if not call.written and returned and uses[value] > 1:  # it may be its argument, under a new label
                self._refuse(value, "may be used under two names, and the log does not tell which is meant where")

    def _is_exposed(self) -> bool:
        """Was memory handed out, to NumPy for example?"""
        return any(event.function in ESCAPES for event in self.base.graph.trace.events)

    def _check_aliases(self) -> None:
        """An edited view is no view any more: what is written to it, or to its base, does not reach the other."""
        for value in self.values:
            call = self.base.graph.trace.calls[value.call] if value.call >= 0 else None
            if call is None or not (call.function.fresh or call.written):
                self._refuse(
                    value, "may share memory with what the model writes to later, and an edited tensor does not"
                )

    def _refuse(self, value: Value, why: str) -> None:
        graph = self.base.graph
        label = value.address if value.role == "param" else graph.label(graph.place[value.index])
        raise ReplayError(f"{label} {why}; run the model instead: log_forward_pass(..., interventions=...)")


class PlannedEdits(Edits):
    """Applies edits to values as they are computed again, and those of an edited log once more."""

    def __init__(self, plan: EditPlan, allow_change: bool = False) -> None:
        self.plan, self.allow_change = plan, allow_change
        self.graph = plan.base.graph
        self.applied: list[Applied] = []
        self.changed = [False] * len(plan.requests)
        self._counts = [0] * len(plan.requests)
        self._earlier = EarlierEdits(self.graph)

    def argument(self, call: int, value: Value, tensor: Tensor) -> Tensor:
        tensor = self._earlier.argument(call, value, tensor)
        return self.edit(value, tensor, self.plan.edges.get((call, value), ()), call)

    def result(self, value: Value, tensor: Tensor) -> Tensor:
        return self.edit(value, self._earlier.result(value, tensor), self.plan.values.get(value, ()))

    def edit(self, value: Value, tensor: Tensor, numbers: Iterable[int], call: int = -1) -> Tensor:
        for number in numbers:
            before = tensor
            moment = self._moment(number, value)
            tensor, changes = apply_edit(self.plan.requests[number], tensor, moment, self.allow_change)
            self._counts[number] += 1
            self.changed[number] |= changes
            self.applied.append(Applied(number, value, call, before, tensor))
        return tensor

    def _moment(self, number: int, value: Value) -> Moment:
        trace, arguments = self.graph.trace, None
        label = value.address if value.role == "param" else self.graph.label(self.graph.place[value.index])
        call = trace.calls[value.call] if value.call >= 0 else None
        if self.plan.requests[number].edit.needs_arguments:
            if call is None or isinstance(kinds_of(self.plan.requests[number].key, self.graph.modules)[0], Returned):
                raise ReplayError("swap needs the arguments of a call, and those of modules are not logged")
            arguments = (rebuild(call.args, _saved), {name: _saved(each) for name, each in call.kwargs.items()})
        op = OpInProgress(trace, value, call.module_call if call is not None else -1)
        return Moment(op, self._counts[number], partial(donor_at, key=label or ""), arguments, value.position)


class EarlierEdits(Edits):
    """The edits that a log was made with, applied once more when it is computed again."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.applied = AppliedEdits(graph.trace)
        self._calls = {call for call, _ in self.applied.of_edge}

    def concern(self, number: int, call: Call) -> bool:
        return number in self._calls or any(value in self.applied.of_value for value in call.outputs)

    def argument(self, call: int, value: Value, tensor: Tensor) -> Tensor:
        for applied in self.applied.of_edge.get((call, value), ()):
            tensor = self.applied.again(self.graph, applied, tensor)
        return tensor

    def result(self, value: Value, tensor: Tensor) -> Tensor:
        for applied in self.applied.of_value.get(value, ()):
            tensor = self.applied.again(self.graph, applied, tensor)
        return tensor


def _saved(argument: Any) -> Any:
    return argument.saved if isinstance(argument, Value) else rebuild(argument, _saved)


def intervened(base: Base, requests: list[EditRequest], allow_change: bool = False) -> tuple[Trace, Graph]:
    """The trace and the graph that the log would have with these edits; they share what did not change."""
    graph, plan = base.graph, EditPlan(base, requests)
    edits = PlannedEdits(plan, allow_change)
    with grad_scope():
        set_grad_enabled(False)
        plan.check()
        given, calls = plan.begin()
        edited = {value: edits.edit(value, _known(graph, value), plan.values[value]) for value in given}
        run = Downstream(graph, edited, calls=calls, edits=edits)
        new = {**edited, **dict(run.values())}
    return _Rebuilt(graph, new, edits).made()


def _known(graph: Graph, value: Value) -> Tensor:
    saved = value.saved
    if saved is None:
        raise ReplayError(f"{graph.label(graph.place[value.index])} was not saved, so it can't be edited afterwards")
    return saved.detach()


class _Rebuilt:
    """A trace and a graph with other tensors for some values; all records that do not refer to these are shared."""

    def __init__(self, graph: Graph, new: dict[Value, Tensor], edits: PlannedEdits) -> None:
        self.graph, self.edits = graph, edits
        self.new: dict[Value, Value] = {value: _with_tensor(value, tensor) for value, tensor in new.items()}

    def value(self, value: Value) -> Value:
        return self.new.get(value, value)

    def made(self) -> tuple[Trace, Graph]:
        old, edits = self.graph.trace, self.edits
        trace = copy(old)
        trace.values = [self.value(value) for value in old.values]
        trace.params = [self.value(value) for value in old.params]
        trace.param_versions = [
            0 if param in self.new else version for param, version in zip(old.params, old.param_versions, strict=True)
        ]
        trace.calls = [self._call(call) for call in old.calls]
        trace.module_calls = [self._module_call(call) for call in old.module_calls]
        trace.events = [event._replace(values=tuple(map(self.value, event.values))) for event in old.events]
        trace.output = reconstructed(old.output, Value, self.value)
        trace.connections = trace.gradients = None
        earlier = len(old.interventions)
        trace.interventions = [*old.interventions, *(Intervention(r.site, r.edit) for r in edits.plan.requests)]
        shifted = [each._replace(intervention=each.intervention + earlier) for each in edits.applied]
        trace.applied = [each._replace(value=self.value(each.value)) for each in [*old.applied, *shifted]]
        graph = self._graph(trace)
        ours = [each._replace(intervention=each.intervention - earlier) for each in trace.applied[len(old.applied) :]]
        trace.remarks = [*old.remarks, *remarks(trace, edits.plan.requests, edits.changed, ours)]
        return trace, graph

    def _call(self, call: Call) -> Call:
        touched = any(value in self.new for value in (*call.outputs, *call.written))
        if not touched and not any(value in self.new for _, value in argument_values(call)):
            return call
        return call._replace(
            args=rebuild(call.args, self._argument),
            kwargs={name: self._argument(argument) for name, argument in call.kwargs.items()} or call.kwargs,
            outputs=tuple(map(self.value, call.outputs)),
            written=tuple(map(self.value, call.written)),
        )

    def _argument(self, argument: Any) -> Any:
        return self.value(argument) if isinstance(argument, Value) else rebuild(argument, self._argument)

    def _module_call(self, call: Any) -> Any:
        new = copy(call)
        new.entered, new.exited = tuple(map(self.value, call.entered)), tuple(map(self.value, call.exited))
        return new

    def _graph(self, trace: Trace) -> Graph:
        new = copy(self.graph)
        for name in list(vars(new)):  # what is derived from the values is derived again when it is asked for
            if isinstance(getattr(Graph, name, None), cached_property):
                del vars(new)[name]
        new.trace = trace
        new.entries = [self.value(value) for value in self.graph.entries]
        new.params = [tuple(map(self.value, params)) for params in self.graph.params]
        return new


def _with_tensor(value: Value, tensor: Tensor) -> Value:
    new = copy(value)
    new.kept = tensor if tensor.is_inference() else copied(tensor.detach())
    new._facts, new.transformed = facts_of(tensor), None
    return new


def _may_be_same(parent: Value, value: Value) -> bool:
    """May a call have returned an argument itself? Not if what they hold differs."""
    if parent.facts != value.facts:
        return False
    before, after = parent.saved, value.saved
    return before is None or after is None or same(before, after)
