"""An independent copy of a trace, for `copy.deepcopy(log)`."""

from __future__ import annotations

from copy import copy, deepcopy
from dataclasses import fields
from typing import Any

from torch import Tensor

from .containers import rebuild
from .keeping import copied
from .records import ModuleCall, NotRebuilt, ReadEvent, Trace, Value


def copied_trace(trace: Trace, memo: dict[int, Any]) -> Trace:
    """A copy whose values, and what was kept of them, are its own.

    What a trace only refers to is shared: the model's parameters, torch's functions, files, and tensors that
    are connected to autograd. Backward passes to come are noted by the original alone.
    """
    for value in trace.values:
        memo[id(value)] = _copied_value(value)
    for value in trace.params:
        memo[id(value)] = copy(value)

    def renewed(thing: Any) -> Any:
        return memo[id(thing)] if isinstance(thing, Value) else rebuild(thing, renewed)

    new = copy(trace)
    for each in fields(trace):
        held = getattr(trace, each.name)
        if isinstance(held, list):
            setattr(new, each.name, [_renewed_record(record, renewed) for record in held])
    new.completeness, new.connections = deepcopy(trace.completeness), deepcopy(trace.connections)
    new.gradients, new.output = deepcopy(trace.gradients), _copied_output(trace.output, memo)
    return new


def _copied_value(value: Value) -> Value:
    new = copy(value)
    if isinstance(value.kept, Tensor):
        kept = copied(value.kept)
        new.kept = value.kept if kept is None else kept
    if isinstance(value.transformed, Tensor) and not value.transformed.requires_grad:
        new.transformed = copied(value.transformed)
    return new


def _renewed_record(record: Any, renewed: Any) -> Any:
    """A call, an event, a module call or whatever else there is a list of, with the values of the copy in it."""
    if isinstance(record, ModuleCall):
        new = copy(record)
        new.entered, new.exited = renewed(record.entered), renewed(record.exited)
        return new
    if isinstance(record, ReadEvent):
        return record._replace(values=renewed(record.values))
    return renewed(record)


def _copied_output(output: Any, memo: dict[int, Any]) -> Any:
    try:
        return deepcopy(output, memo)
    except Exception as raised:  # whatever the copying of the user's object raises
        return NotRebuilt(f"{type(output).__name__} can't be copied: {type(raised).__name__}: {raised}")
