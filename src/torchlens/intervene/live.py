"""Edit values while a model runs: an observer of the capture."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from torch import Tensor

from ..capture.containers import paired, replace_tensors
from ..capture.context import AskLater, OpInProgress
from ..capture.functions import EDIT, UNEDITED, Function
from ..capture.keeping import Keeper
from ..capture.naming import layer_type_of, layer_types
from ..capture.observer import Arguments, Observer
from ..capture.records import NUMBERS_AND_WORDS, Applied, Intervention, ModuleCall, Trace, Value, facts_of
from ..errors import ArgumentError, LayerNotFoundError
from ..graph.graph import Graph
from ..selectors import NO, YES, Answer, Predicate, Returned, Seen
from .apply import apply_edit, check_reachable, remarks
from .edit_base import Moment
from .path import RunPath
from .sites import (
    ARGUMENT,
    Base,
    EditRequest,
    ModelNames,
    Sites,
    check_editable,
    donor_at,
    kinds_of,
    nothing_there,
    resolve_sites,
)

_NO_MORE = (EDIT, UNEDITED)


class LiveEdits(Observer):
    """Puts edited tensors in the place of those that the user's interventions choose.

    `finish` is to be called when the run is over: it raises where an edit never happened, and says what else there is
    to say.
    """

    def __init__(
        self, requests: list[EditRequest], base: Base | None, run_before: Callable[[], Base], allow_change: bool
    ) -> None:
        self.requests = requests
        self.base = base
        self._run_before = run_before  # makes a base, should one be needed
        self.allow_change = allow_change
        self.failure: BaseException | None = None  # the first; the model may have caught it
        self._edited: dict[str, Tensor] = {}  # those that were used, edited
        self._running: dict[int, Arguments] = {}  # the arguments of module calls, by their ids
        self._at_exit = 0  # how many edits had been applied when a module returned
        self._arguments: Arguments | None = None  # of the torch call that runs
        self._types: dict[str, tuple[int, ...]] = {}  # which requests mean all operations of a type

    def begin(self, trace: Trace, keeper: Keeper) -> None:
        self.trace, self.keeper = trace, keeper
        self.applied = [0] * len(self.requests)
        self.changed = [False] * len(self.requests)
        trace.interventions = [Intervention(request.site, request.edit) for request in self.requests]
        self._names = ModelNames(trace)
        self.sites: Sites = resolve_sites(self.requests, self._names, self.base_needed)
        self.only_modules, self.modules_asked = self.sites.only_modules, self.sites.modules.keys()
        self.path = RunPath(self.base.graph, self.sites) if self.base is not None else None
        self._functions = self.sites.functions(self.base)
        self._watches_arguments = bool(self.sites.edges or self.sites.addresses or self.sites.values)
        self._saves_arguments = any(request.edit.needs_arguments for request in self.requests)
        self._by_type = [(number, kind) for number, kind in self.sites.live if not kind.predicates()]
        self._by_predicate = [(number, kind) for number, kind in self.sites.live if kind.predicates()]

    def base_needed(self) -> Base:
        """The base; if there is none, one is made now."""
        if self.base is None:
            self.base = self._run_before()
        return self.base

    # ---- what capture asks and tells ------------------------------------------------------------------------

    def asks_of(self, function: Function) -> bool:
        if self._functions is None or self._by_predicate or function.name in self._functions:
            return True
        return any(self._of_type(each) for each in (*layer_types(function), "buffer"))  # any may write to a buffer

    def value(self, value: Value, tensor: Tensor, module_call: int) -> Tensor | None:
        if value.call >= 0 and self.trace.calls[value.call].function in _NO_MORE:
            return None
        numbers: list[int] = []
        if self.path is not None:
            self.path.follow(self.trace)
            numbers += self.sites.values.get(self.path.index(value), ())
        if self.sites.live:
            numbers += self._chosen(value, module_call)
        if not numbers or value.role in ("buffer", "param", "source"):
            return None
        label = self.path.label(value) if self.path is not None and self.base is not None else None
        before = self._kept(value, tensor)
        for number in numbers:
            moment = self._moment(number, value, module_call, label)
            tensor, before = self._edit(number, value, tensor, before, moment)
        return tensor

    def module_enter(self, call: ModuleCall, place: int, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        if self._saves_arguments and call.module in self.sites.modules:
            self._running[id(call)] = _copies(args, kwargs)

    def module_exit(self, call: ModuleCall, returned: list[tuple[Value, Tensor]]) -> list[Tensor] | None:
        asked = self.sites.modules.get(call.module)
        if asked is None:
            return None
        self._at_exit = len(self.trace.applied)
        arguments = self._running.pop(id(call), None)
        tensors = [tensor for _, tensor in returned]
        held: dict[int, Tensor | None] = {}  # what is there now, by position, as it is kept
        for number, kind in asked:
            for position in self._positions(call, kind, returned):
                value, tensor = returned[position][0], tensors[position]
                before = held[position] if position in held else self._kept(value, tensor)
                donor = partial(self._donated, call, position, len(returned))
                op = OpInProgress(self.trace, value, call.parent)
                moment = Moment(op, self.applied[number], donor, arguments, position)
                tensors[position], held[position] = self._edit(number, value, tensor, before, moment)
        return tensors

    def before_call(
        self, function: Function, args: Sequence[Any], kwargs: Mapping[str, Any], stored: Arguments
    ) -> Arguments | None:
        if self.path is not None:
            self.path.follow(self.trace)
        if self._watches_arguments and self._may_take_others(stored):
            args, kwargs = self._with_other_arguments(function, args, kwargs, stored)
        if self._saves_arguments:
            overwrites = function.written is not None or "out" in kwargs
            self._arguments = _copies(args, kwargs) if overwrites else (args, kwargs)
        return args, kwargs

    def moved(self, value: Value, new: Value) -> None:
        applied = self.trace.applied
        for place in range(self._at_exit, len(applied)):
            if applied[place].value is value:
                applied[place] = applied[place]._replace(value=new)

    # ---- which values ---------------------------------------------------------------------------------------

    def _chosen(self, value: Value, module_call: int) -> list[int]:
        layer_type = layer_type_of(value, self.trace.calls)
        numbers = list(self._of_type(layer_type))
        for number, kind in self._by_predicate:
            if kind.answer(Seen(layer_type, asked=partial(self._ask, value, module_call))) == YES:
                numbers.append(number)
        if numbers and value.call >= 0:
            check_editable(self.trace, value, layer_type)
        return numbers

    def _of_type(self, layer_type: str) -> tuple[int, ...]:
        """The requests that mean all operations of a type."""
        found = self._types.get(layer_type)
        if found is None:
            chosen = [number for number, kind in self._by_type if kind.answer(Seen(layer_type)) == YES]
            found = self._types[layer_type] = tuple(chosen)
        return found

    def _ask(self, value: Value, module_call: int, predicate: Predicate) -> Answer:
        try:
            return YES if predicate(OpInProgress(self.trace, value, module_call)) else NO
        except AskLater as asked:
            raise ArgumentError(
                f"{ARGUMENT}: a selector function asked for {asked}, which is known only after the run; give "
                "base=log, a log of the same run, and choose the labels in it"
            ) from None

    def _positions(self, call: ModuleCall, kind: Returned, returned: list[tuple[Value, Tensor]]) -> list[int]:
        chosen = [n for n in range(len(returned)) if kind.fits(call.module, call.number, n)]
        if len(chosen) > 1:
            address = self.trace.modules[call.module].address or "self"
            names = ", ".join(repr(f"{address}[{n}]") for n in chosen[:4])
            raise ArgumentError(f"{ARGUMENT}: {address} returned {len(returned)} tensors; say which: {names}")
        return chosen

    def _donated(self, call: ModuleCall, position: int, total: int, log: Any) -> Tensor:
        """What a call like this one returned in another log."""
        address = self.trace.modules[call.module].address or "self"
        return donor_at(log, f"{address}:{call.number}" + (f"[{position}]" if total > 1 else ""))

    # ---- arguments ------------------------------------------------------------------------------------------

    def _may_take_others(self, stored: Arguments) -> bool:
        """May anything among the arguments be edited? In doubt, yes: this is asked for every call."""
        if stored[1] or (self.path is not None and self.path.at in self.sites.edges):
            return True
        for argument in stored[0]:
            if type(argument) is Value:
                if argument.role == "source" or argument.address in self.sites.addresses:
                    return True
            elif type(argument) not in NUMBERS_AND_WORDS:
                return True
        return False

    def _with_other_arguments(
        self, function: Function, args: Sequence[Any], kwargs: Mapping[str, Any], stored: Arguments
    ) -> Arguments:
        """The arguments with edits along edges, of parameters, of buffers and of constants."""
        number = self.path.at if self.path is not None else -1
        edges = self.sites.edges.get(number, [])
        others: dict[int, Tensor] = {}
        for value, tensor in paired([*stored[0], *stored[1].values()], [*args, *kwargs.values()]):
            edited = self._standing(value, tensor)
            for request, parent in edges:
                if self.path is not None and self.path.is_same(parent, value):
                    edited = self._edit_edge(request, value, edited)
            if edited is not tensor:
                others[id(tensor)] = edited
        if not others:
            return args, kwargs
        self._check_not_written(function, args, kwargs, others)
        put = partial(replace_tensors, replace=lambda tensor: others.get(id(tensor), tensor))
        return tuple(map(put, args)), {name: put(argument) for name, argument in kwargs.items()}

    def _standing(self, value: Value, tensor: Tensor) -> Tensor:
        """What takes the place of a tensor that the model has without asking for it."""
        if value.role in ("param", "buffer"):
            key, numbers = value.address or "", self.sites.addresses.get(value.address or "", ())
        elif value.role == "source" and self.path is not None:
            key, numbers = f"source {value.index}", self.sites.values.get(self.path.index(value), ())
        else:
            return tensor
        if not numbers:
            return tensor
        if key not in self._edited:
            edited, kept = tensor, self._kept(value, tensor)
            for number in numbers:
                edited, kept = self._edit(number, value, edited, kept, self._moment(number, value, -1, None))
            self._edited[key] = edited
            value.kept, value._facts = kept, facts_of(edited)
            if value.role == "param":
                self.trace.param_versions[value.index] = value.kept._version if value.kept is not None else -1
        return self._edited[key]

    def _edit_edge(self, number: int, value: Value, tensor: Tensor) -> Tensor:
        moment = self._moment(number, value, -1, self.path.label(value) if self.path is not None else None)
        return self._edit(number, value, tensor, self.keeper.keep(tensor), moment, call=len(self.trace.calls))[0]

    def _check_not_written(
        self, function: Function, args: Sequence[Any], kwargs: Mapping[str, Any], others: Mapping[int, Tensor]
    ) -> None:
        targets = list(function.written(args, kwargs)) if function.written is not None else []
        if any(id(target) in others for target in [*targets, kwargs.get("out")]):
            raise ArgumentError(
                f"{ARGUMENT}: {function.name} writes to this argument in place, so its input can't be edited; edit its "
                "result instead"
            )

    # ---- editing --------------------------------------------------------------------------------------------

    def _moment(self, number: int, value: Value, module_call: int, label: str | None) -> Moment:
        donor = partial(donor_at, key=label or value.address or "")
        op = OpInProgress(self.trace, value, module_call)
        return Moment(op, self.applied[number], donor, self._arguments, value.position)

    def _kept(self, value: Value, tensor: Tensor) -> Tensor | None:
        """What a tensor holds, which is this value: most often it is kept already."""
        kept = value.kept if self.trace.values_kept and value.role != "param" else None
        return kept if isinstance(kept, Tensor) else self.keeper.keep(tensor)

    def _edit(
        self, number: int, value: Value, tensor: Tensor, before: Tensor | None, moment: Moment, call: int = -1
    ) -> tuple[Tensor, Tensor | None]:
        """The edited tensor, and what is kept of it. `before` is what is kept of the tensor."""
        try:
            check_reachable(self.requests[number], self.unreachable, self.trace.grad_enabled)
            edited, changes = apply_edit(self.requests[number], tensor, moment, self.allow_change)
        except Exception as raised:
            self.failure = self.failure or raised
            raise
        self.applied[number] += 1
        self.changed[number] |= changes
        if self.path is not None and call < 0:
            self.path.follow(self.trace)
            self.path.edited.add(self.path.index(value))
        after = self.keeper.keep(edited) if changes else before
        self.trace.applied.append(Applied(number, value, call, before, after))
        return edited, after

    # ---- the end --------------------------------------------------------------------------------------------

    def error_of(self, error: BaseException | None) -> BaseException | None:
        """What is to be raised: what an edit raised first, if it did. The model may have caught that or, as TorchScript
        does, made another error of it."""
        return self.failure if self.failure is not None and (error is None or isinstance(error, Exception)) else error

    def finish(self, graph: Callable[[], Graph]) -> None:
        """The run is over: raise where an edit never happened, note what changed nothing."""
        if self.path is not None:
            self.path.follow(self.trace)
        for number, applied in enumerate(self.applied):
            if not applied:
                raise LayerNotFoundError(self._never(number, graph()))
        if self.path is not None:
            self.path.finish(self.trace)
        self.trace.remarks += remarks(self.trace, self.requests, self.changed, self.trace.applied)

    def _never(self, number: int, graph: Graph) -> str:
        request = self.requests[number]
        if not isinstance(request.key, tuple) and not self._names.is_tensor(request.key):
            (kind, *_) = kinds_of(request.key, self._names.modules)
            if not kind.places(graph, lambda predicate: []):
                return nothing_there(kind, graph)
        return f"{ARGUMENT}: {request.site} was never reached"


def _copies(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Arguments:
    """Arguments as they are now: the call may overwrite them."""
    copied = replace_tensors([list(args), dict(kwargs)], lambda tensor: tensor.clone())
    return copied[0], copied[1]
