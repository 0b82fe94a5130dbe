"""Which layers are selected, and a forward pass that keeps them and nothing else.

Labels need the whole graph, so the first batch runs once under the tracer that records the structure and counts as the
light one does. What was chosen there is known from then on by how the light tracer counts it.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..errors import ArgumentError, LayerNotFoundError, SeveralOutputsWarning, warn
from ..fastlog.events import Frame
from ..fastlog.light_edits import LightEdits
from ..fastlog.preview import PreviewedRun, dry_run
from ..fastlog.recorder import Recorder
from ..fastlog.recording import Record
from ..log.model_log import ModelLog
from ..selectors import Kind, Returned, Selection, Selector, compile


@dataclass(frozen=True)
class WantedValue:
    """One value of each forward pass."""

    name: str  # in the store
    label: str  # in a log
    source: str  # the operation or module call, as the light path counts them
    position: int | None  # among the tensors of a module call
    is_module: bool
    selector: Any = None  # by which it was chosen
    way: str = ""  # how the light path came to the operation in the first batch: every other batch must come so, too
    is_edited_later: bool = False  # than the light path would keep it


# ---- choosing -----------------------------------------------------------------------------------------------


def resolve_layers(
    model: nn.Module, args: list[Any], kwargs: dict[str, Any], layers: Any, interventions: Any = None
) -> list[WantedValue]:
    """The values that the selectors match, in the order in which they were given."""
    selectors = Selection.checked(layers, "layers").selectors
    if not selectors:
        raise ArgumentError('layers is empty: name modules or operations, such as ["layer4", "relu_1", nn.Linear]')
    preview = dry_run(model, args, kwargs, keep_op=lambda context: False, interventions=interventions)
    edited = module_edits(model, interventions).by_module if interventions is not None else ()
    finder = _Finder(preview._run, edited)
    found: dict[tuple[str, int | None], WantedValue] = {}
    for selector in selectors:
        for wanted in finder.wanted(selector):
            found.setdefault((wanted.source, wanted.position), wanted)
    return list(found.values())


def module_edits(model: nn.Module, interventions: Any) -> LightEdits:
    """Interventions that the light path can make: of what modules return. Raises if there are others."""
    edits = LightEdits(interventions, model, allow_change=False)
    if edits.of_operations:
        raise ArgumentError("interventions: operations are edited in full runs")
    return edits


class _Exit(NamedTuple):
    """A tensor among those that a module call returned."""

    frame: Frame
    position: int
    total: int


class _Finder:
    """Finds what a selector means in a run of which all events are known."""

    def __init__(self, run: PreviewedRun, edited: Collection[int]) -> None:
        self._log = ModelLog(run.structure)
        self._edited = edited  # the numbers of modules
        self._ops: dict[int, str] = {}  # labels of the light path, by value
        self._exits: dict[int, list[_Exit]] = {}
        for event in run.events:
            values = run.values_of.get(event.number, ())
            for position, value in enumerate(values):
                if event.name is not None:
                    self._ops[value] = event.label.rpartition("_")[0]
                elif event.kind == "module_exit" and event.frame is not None:
                    self._exits.setdefault(value, []).append(_Exit(event.frame, position, len(values)))

    def wanted(self, selector: Selector) -> list[WantedValue]:
        (kind,) = compile(Selection((selector,)), self._log.graph.modules, "layers").kinds
        found = [replace(self._one(place, kind), selector=selector) for place in self._places(kind)]
        alone = len(found) == 1 and isinstance(selector, str)
        return [replace(found[0], name=str(selector))] if alone else found

    def _places(self, kind: Kind) -> list[int]:
        """The entries that it matches; the first tensor of a module that returned several, as in a log."""
        graph, lookup = self._log.graph, self._log._lookup
        places, remark = kind.single(graph, lookup._asked) if isinstance(kind, Returned) else (set(), None)
        if remark is not None:
            warn(f"layers: {remark}", SeveralOutputsWarning)
        return sorted(places) or lookup.chosen(Selection((kind.said,)), "layers")

    def _one(self, place: int, kind: Kind) -> WantedValue:
        """The value at a place of the graph: by the module, if that was asked for, or by its operation."""
        graph = self._log.graph
        label, value = graph.label(place), graph.entries[place]
        if value.role == "output":  # the same tensor as the operation before
            value = graph.entries[graph.parents[place][0]]
        exits = self._exits.get(value.index, [])
        for place, (frame, position, total) in enumerate(exits, 1):
            if isinstance(kind, Returned) and kind.fits(frame.module, frame.number, position):
                name = frame.label if len(graph.modules.calls_of[frame.module]) > 1 else frame.address or "self"
                end = f"[{position}]" if total > 1 else ""
                where = (frame.label, position if total > 1 else None)
                return WantedValue(name + end, label, *where, True, is_edited_later=self._are_edited(exits[place:]))
        if value.index not in self._ops:
            raise ArgumentError(f"layers: {label} was not computed in the forward pass, so it can't be extracted")
        return WantedValue(label, label, self._ops[value.index], None, False, is_edited_later=self._are_edited(exits))

    def _are_edited(self, exits: Sequence[_Exit]) -> bool:
        return any(each.frame.module in self._edited for each in exits)


# ---- running ------------------------------------------------------------------------------------------------


class Forward:
    """Runs a model on batches, as far as the last layer that is wanted and the last edit.

    >>> with Forward(model, resolve_layers(model, [x], {}, ["fc"])) as forward:
    ...     values = forward([x], {})
    >>> values["fc"].shape
    torch.Size([5, 5])
    """

    def __init__(self, model: nn.Module, wanted: Sequence[WantedValue], interventions: Any = None) -> None:
        self.wanted = list(wanted)
        modules = [each.source for each in wanted if each.is_module]
        operations = [each.source for each in wanted if not each.is_module]
        self._recorder = Recorder(
            model,
            keep_op=operations or None,
            keep_module=modules or None,
            stop_after=[*modules, *operations, *(interventions or ())],
            interventions=interventions,
        )
        self._edits = self._recorder._edits

    def __enter__(self) -> Forward:
        self._recorder.__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        try:
            self._recorder.close()
        finally:
            self._recorder.close()
        self._recorder.finish()  # what is not found was an error already

    def __call__(self, args: list[Any], kwargs: dict[str, Any]) -> dict[str, Tensor]:
        """The values of a batch, by name."""
        if self._edits is not None:
            self._edits.restart()
        try:
            self._recorder.log(args, kwargs)
        finally:
            records = {_key(record): record for record in self._recorder.take()}
        if self._edits is not None:
            self._edits.check()
        values: dict[str, Tensor] = {}
        for place, wanted in enumerate(self.wanted):
            record = records.get((wanted.source, wanted.position))
            way = _way(record) if record is not None and not wanted.is_module else ""
            if record is None or record.activation is None or wanted.way not in ("", way):
                raise LayerNotFoundError(
                    f"{wanted.name}: the model took a different path in this batch than in the first, and did not "
                    "compute it at the same point; a module's address is found on every path that calls the module"
                )
            self.wanted[place] = wanted if wanted.way else replace(wanted, way=way)
            values[wanted.name] = record.activation
        return values


def _key(record: Record) -> tuple[str, int | None]:
    """Operations are told by their number among their type: a full tracer counts a few values more than a light one."""
    is_module = record._event.name is None
    return (record.label, record.position) if is_module else (record.label.rpartition("_")[0], None)


def _way(record: Record) -> str:
    """Where in the model an operation was, and what it was computed from."""
    context = record.context
    assert context is not None
    return f"{context.label} {context.func_name} {context.module_stack} {context.parent_labels}"


# ---- what the model is called with --------------------------------------------------------------------------


class Calling:
    """How a batch is given to the model: a tensor, a tuple of arguments, a dict of keywords; on its device."""

    def __init__(self, model: nn.Module) -> None:
        self._name = type(model).__name__
        self.device = next((tensor.device for tensor in (*model.parameters(), *model.buffers())), torch.device("cpu"))
        self._fewest, self._most, self._names = _positions(model)
        self.remark = ""  # how a dict was given, for messages
        self.left_out = 0  # elements of a tuple that the model does not take, such as labels

    def __call__(self, value: Any) -> tuple[list[Any], dict[str, Any]]:
        value = _moved(value, self.device)
        if isinstance(value, Mapping):
            unknown = sorted(map(str, set(value) - self._names)) if self._names is not None else []
            if not unknown:
                return [], dict(value)
            self.remark = f", its dict as one argument: {self._name} has none named {unknown[0]!r}"
            return [value], {}
        if not isinstance(value, (tuple, list)):
            return [value], {}
        if self._fewest <= len(value) == self._most or len(value) == self._fewest:
            return list(value), {}
        if len(value) > self._most:
            self.left_out = len(value) - int(self._most)
            return list(value[: int(self._most)]), {}
        raise ArgumentError(
            f"inputs: each sample has {len(value)} parts; {self._name} needs {self._fewest} arguments, but could "
            f"take {self._most}. Choose the parts with preprocess=, such as preprocess=lambda sample: "
            f"sample[:{self._fewest or 1}]"
        )


def _positions(model: nn.Module) -> tuple[int, float, set[str] | None]:
    """How many positional arguments a model needs and can take, and the names that it knows; None for any."""
    try:
        parameters = list(inspect.signature(model.forward).parameters.values())
    except (TypeError, ValueError):
        return 0, float("inf"), None
    places = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    most = float("inf") if any(p.kind == p.VAR_POSITIONAL for p in parameters) else len(places)
    names = None if any(p.kind == p.VAR_KEYWORD for p in parameters) else {p.name for p in parameters}
    return sum(p.default is p.empty for p in places), most, names


def _moved(value: Any, device: torch.device) -> Any:
    if isinstance(value, Tensor):
        return value.to(device, non_blocking=True)
    if isinstance(value, Mapping):
        return {name: _moved(member, device) for name, member in value.items()}
    if isinstance(value, (tuple, list)):
        return [_moved(member, device) for member in value]
    return value
