"""Which layers are meant, and a forward pass that keeps them and nothing else.

Labels need the whole graph, so the first batch runs once under the tracer that records the structure and counts as the
light one does. What was chosen there is known from then on by how the light tracer counts it.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import ArgumentError, FidelityWarning, LayerNotFoundError
from ..fastlog.preview import dry_run
from ..fastlog.recorder import Recorder, addresses_of
from ..log.model_log import ModelLog
from ..selectors import Selection, Selector, described, split_pass


@dataclass(frozen=True)
class Wanted:
    """One value of each forward pass."""

    name: str  # in the store
    label: str  # in a log
    source: str  # the operation or module call, as the light path counts them
    position: int | None  # among the tensors of a module call
    is_module: bool
    selector: Any = None  # by which it was chosen


# ---- choosing -----------------------------------------------------------------------------------------------


def resolve(model: nn.Module, args: list[Any], kwargs: dict[str, Any], layers: Any) -> list[Wanted]:
    """The values that the selectors mean, in the order in which they were asked for."""
    selectors = Selection.checked(layers, "layers").selectors
    if not selectors:
        raise ArgumentError("layers: nothing is asked for")
    run = dry_run(model, args, kwargs, keep_op=lambda context: False)._run
    log = ModelLog(run.structure)
    finder = _Finder(log, run.events, run.values_of)
    addresses = addresses_of(model)
    found: dict[tuple[str, int | None], Wanted] = {}
    for selector in selectors:
        for wanted in finder.wanted(selector, addresses):
            found.setdefault((wanted.source, wanted.position), wanted)
    return list(found.values())


class _Finder:
    """Finds what a selector means in a run of which all events are known."""

    def __init__(self, log: ModelLog, events: Sequence[Any], values_of: Mapping[int, list[int]]) -> None:
        self._log = log
        self._ops: dict[int, str] = {}  # values by index
        self._exits: dict[int, list[tuple[str, int, int]]] = {}  # module, position, how many
        for event in events:
            for position, value in enumerate(values_of.get(event.number, ())):
                if event.name is not None:
                    self._ops[value] = event.label
                elif event.kind == "module_exit":
                    total = len(values_of[event.number])
                    self._exits.setdefault(value, []).append((event.label, position, total))

    def wanted(self, selector: Selector, addresses: Mapping[str, str]) -> list[Wanted]:
        module = _module_named(selector, addresses)
        places = self._places(selector)
        found = [replace(self._one(place, module), selector=selector) for place in places]
        alone = len(found) == 1 and isinstance(selector, str)
        return [replace(found[0], name=str(selector))] if alone else found

    def _places(self, selector: Selector) -> list[int]:
        log = self._log
        if callable(selector):
            chosen = [place for place in range(len(log.graph.entries)) if selector(log._op(place))]
            if not chosen:
                raise LayerNotFoundError(f"layers: nothing is chosen by {described(selector)}")
            return chosen
        return log._lookup.chosen(selector)

    def _one(self, place: int, module: str | None) -> Wanted:
        """The value at a place of the graph, by the module that was named or by its operation."""
        graph = self._log.graph
        label, value = graph.label(place), graph.entries[place]
        if value.role == "output":  # the same tensor as the operation before
            value = graph.entries[graph.parents[place][0]]
        for call, position, total in self._exits.get(value.index, ()) if module is not None else ():
            if split_pass(call)[0] == module:
                name = f"{call}[{position}]" if total > 1 else call
                return Wanted(name, label, call, position if total > 1 else None, True)
        if value.index not in self._ops:
            raise ArgumentError(f"layers: {label} is a value that the model only hands on; choose what was computed")
        return Wanted(label, label, self._ops[value.index], None, False)


def _module_named(selector: Selector, addresses: Mapping[str, str]) -> str | None:
    """The module that a selector names, by the address that events have."""
    if not isinstance(selector, str):
        return None
    address = addresses.get(split_pass(selector)[0].partition("[")[0])
    return None if address is None else address or "self"


# ---- running ------------------------------------------------------------------------------------------------


class Forward:
    """Runs a model on batches, as far as the last layer that is wanted.

    >>> with Forward(model, resolve(model, [x], {}, ["fc"])) as forward:
    ...     values = forward([x], {})
    >>> values["fc"].shape
    torch.Size([5, 5])
    """

    def __init__(self, model: nn.Module, wanted: Sequence[Wanted]) -> None:
        self._wanted = wanted
        modules = [each.source for each in wanted if each.is_module]
        operations = [each.source for each in wanted if not each.is_module]
        self._recorder = Recorder(
            model, keep_op=operations or None, keep_module=modules or None, stop_after=[*modules, *operations]
        )

    def __enter__(self) -> Forward:
        self._recorder.__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FidelityWarning)  # what is not found was an error already
            self._recorder.__exit__(*raised)

    def __call__(self, args: list[Any], kwargs: dict[str, Any]) -> dict[str, Tensor]:
        """The values of a batch, by name."""
        try:
            self._recorder.log(args, kwargs)
        finally:
            records = self._recorder.take()
        found = {
            (record.label, record.position if ":" in record.label else None): record.activation for record in records
        }
        values: dict[str, Tensor] = {}
        for wanted in self._wanted:
            value = found.get((wanted.source, wanted.position))
            if value is None:
                raise LayerNotFoundError(
                    f"{wanted.name}: the model took another way for this batch and did not compute {wanted.source}; "
                    "a module's address is found on every way that calls the module"
                )
            values[wanted.name] = value
        return values


# ---- what the model is called with --------------------------------------------------------------------------


class Calling:
    """How a batch is given to the model: a tensor, a tuple of arguments, a dict of keywords; on its device."""

    def __init__(self, model: nn.Module) -> None:
        self._name = type(model).__name__
        self.device = next((tensor.device for tensor in (*model.parameters(), *model.buffers())), torch.device("cpu"))
        self._fewest, self._most, self._names = _positions(model)
        self.left_out = 0  # elements of a tuple that the model does not take, such as labels

    def __call__(self, value: Any) -> tuple[list[Any], dict[str, Any]]:
        value = _moved(value, self.device)
        if isinstance(value, Mapping):
            taken = self._names is None or set(value) <= self._names
            return ([], dict(value)) if taken else ([value], {})
        if not isinstance(value, (tuple, list)):
            return [value], {}
        if self._fewest <= len(value) == self._most or len(value) == self._fewest:
            return list(value), {}
        if len(value) > self._most:
            self.left_out = len(value) - int(self._most)
            return list(value[: int(self._most)]), {}
        raise ArgumentError(
            f"inputs: each sample has {len(value)} parts, and {self._name} needs {self._fewest} arguments but could "
            f"take {self._most}: say which are meant, such as preprocess=lambda sample: sample[:{self._fewest or 1}]"
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
