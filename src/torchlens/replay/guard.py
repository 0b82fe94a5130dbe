"""Would the model have done the same with the new values?

What the model's Python code made of its tensors is not recorded, only what it read from them: the truth of a tensor, a
number, a list, an array. If it would read the same, it does the same; if not, what it would do is unknown. Shapes and
types are read without a trace, so these must be what they were.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterator
from typing import Any

import torch
from torch import Tensor

from ..capture.records import ReadEvent, Value
from ..capture.tensor_memory import version_of
from ..errors import DivergenceError
from ..graph.call_stacks import call_in_words
from ..graph.graph import Graph
from .same import difference, same, without_values

_INSTEAD = "what it would do then is not recorded: run the model itself, with tl.log_forward_pass"

#: What each function that reads a single thing gives. All others are taken to read everything.
_READINGS: dict[str, Callable[..., Any]] = {
    "__bool__": bool,
    "__complex__": complex,
    "__float__": float,
    "__index__": int,
    "__int__": int,
    "_local_scalar_dense": Tensor.item,
    "_nnz": lambda tensor: tensor._nnz(),
    "equal": torch.equal,
    "is_nonzero": bool,
    "item": Tensor.item,
}


class Guard:
    """Compares what the model read with what it would read now; raises `DivergenceError` where that differs."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.trace = graph.trace
        self._next = 0  # the first event that was not looked at

    def check_geometry(self, value: Value, tensor: Tensor) -> None:
        """A new tensor must have the shape and type of the value that it takes the place of."""
        for what, now, before in (
            ("shape", _shape(tensor), _logged_shape(value)),
            ("dtype", tensor.dtype, value.dtype),
        ):
            if now != before:
                raise DivergenceError(
                    f"{self._name(value)} now has {what} {now} instead of {before}; "
                    f"the model may have read that, and {_INSTEAD}"
                )

    def due(self, number: int, changed: Container[Value]) -> Iterator[ReadEvent]:
        """What was read before the call with this number, and may be another now. To be asked for one call after the
        other."""
        events = self.trace.events
        while self._next < len(events) and events[self._next].call <= number:
            event = events[self._next]
            self._next += 1
            if any(value in changed or value.role == "param" for value in event.values):
                yield event

    def check(self, event: ReadEvent, changed: Container[Value], tensor_of: Callable[[Value], Tensor | None]) -> None:
        """What was read must be read again."""
        reading = _READINGS.get(event.function)
        tensors = [tensor_of(value) for value in event.values]
        if reading is None or event.result is None or any(tensor is None for tensor in tensors):
            self._check_whole(event, changed, tensor_of)
            return
        now = reading(*[tensor.detach() for tensor in tensors if tensor is not None])
        if not _same_reading(now, event.result):
            what = f"the model read {self._names(event)} as {event.result} ({self._where(event)})"
            raise DivergenceError(f"{what}, and would now read {now}; {_INSTEAD}")

    def _check_whole(
        self, event: ReadEvent, changed: Container[Value], tensor_of: Callable[[Value], Tensor | None]
    ) -> None:
        """Everything that was read must be the same, bit for bit."""
        what = f"the model read {self._names(event)} ({self._where(event)})"
        for value in event.values:
            if value.role == "param":
                if self._has_changed(value, tensor_of):
                    raise DivergenceError(f"{what}, which has been written to since; {_INSTEAD}")
            elif value in changed:
                before, now = value.saved, tensor_of(value)
                if before is None or now is None:
                    raise DivergenceError(f"{what}, and it was not saved, so the two can't be compared; {_INSTEAD}")
                if not same(before, now.detach()):
                    raise DivergenceError(f"{what}, and would now read others: {difference(before, now)}; {_INSTEAD}")

    def _has_changed(self, param: Value, tensor_of: Callable[[Value], Tensor | None]) -> bool:
        kept = param.kept
        if tensor_of(param) is not kept and isinstance(kept, Tensor):
            return True
        return isinstance(kept, Tensor) and version_of(kept) != self.trace.param_versions[param.index]

    # ---- in words -------------------------------------------------------------------------------------------

    def _names(self, event: ReadEvent) -> str:
        return " and ".join([self._name(value) for value in event.values])

    def _name(self, value: Value) -> str:
        if value.role == "param":
            return f"the parameter {value.address}"
        place = self.graph.place.get(value.index)
        return f"a tensor of shape {tuple(value.shape)}" if place is None else self.graph.label(place)

    def _where(self, event: ReadEvent) -> str:
        return call_in_words(self.trace, event, event.function).replace(" (", ", ").removesuffix(")")


def _same_reading(now: Any, before: Any) -> bool:
    if type(now) is not type(before):
        return False
    if isinstance(now, complex):
        return _same_reading(now.real, before.real) and _same_reading(now.imag, before.imag)
    if not isinstance(now, float):
        return bool(now == before)
    if math.isnan(now) or math.isnan(before):
        return math.isnan(now) and math.isnan(before)
    return now == before and math.copysign(1, now) == math.copysign(1, before)


def _logged_shape(value: Value) -> Any:
    if not any(type(size) is not int or size < 0 for size in value.shape):
        return tuple(value.shape)
    saved = value.saved
    return tuple(value.shape) if saved is None else _shape(saved)


def _shape(tensor: Any) -> Any:
    """The sizes; those of all parts of a nested tensor, whose own are only symbols."""
    if tensor.layout is torch.jagged:
        offsets = tensor._offsets  # the method would make a view, which inference mode refuses
        return (*tensor._values.shape, tuple(offsets.shape if without_values(offsets) else offsets.tolist()))
    return tuple([_shape(part) for part in tensor.unbind()]) if tensor.is_nested else tuple(tensor.shape)
