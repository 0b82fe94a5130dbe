"""The argument of fastlog's predicates: what is known of one event."""

from __future__ import annotations

from typing import Any

import torch

from ..errors import near
from .events import NO_HISTORY, Event, History, Snapshot

#: In the order in which tables show them.
FIELDS = (
    "kind", "label", "layer_type", "layer_type_num", "func_name", "module_address", "module_type", "module_pass_index",
    "module_stack", "parent_labels", "tensor_shape", "tensor_dtype", "tensor_device", "output_index", "pass_index",
    "event_index", "sample_id", "recent_events", "recent_ops",
)  # fmt: skip


class RecordContext:
    """One event of a forward pass: the argument of predicates, and the metadata of a record.

    >>> def after_linear(ctx):
    ...     return ctx.layer_type == "relu" and ctx.recent_ops[-1].layer_type == "linear"
    >>> recording = tl.fastlog.record(model, x, keep_op=after_linear)
    >>> recording[0].context.label, recording[0].context.parent_labels
    ('relu_2_4', ('linear_1_3',))

    Everything is worked out when it is asked for. A context can't be changed.
    """

    __slots__ = ("_event", "_history")

    _event: Event
    _history: History | Snapshot

    def __init__(self, event: Event, history: History | Snapshot = NO_HISTORY) -> None:
        self._event = event
        self._history = history

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"RecordContext has no field {name!r}{near(name, FIELDS)}")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RecordContext) and self._event is other._event

    def __hash__(self) -> int:
        return id(self._event)

    def __repr__(self) -> str:
        shape = "" if self.tensor_shape is None else f"  {list(self.tensor_shape)}"
        return f"RecordContext({self.label}  {self.kind} {self.event_index} of pass {self.pass_index}{shape})"

    # ---- the event ------------------------------------------------------------------------------------------

    @property
    def kind(self) -> str:
        """ "op", "input", "buffer" (its first use in a pass), "module_enter" or "module_exit".

        "output" is a tensor that the model returned, if it was chosen by its path, its label or its number.
        """
        return self._event.kind

    @property
    def label(self) -> str:
        """The operation as counted in this pass, `relu_3_12`; of a module call, `features.1:1`.

        Passes of a recurrent layer are not grouped yet, so in recurrent models a full log numbers layers differently.
        """
        return self._event.label

    @property
    def layer_type(self) -> str | None:
        """The first part of the label; None for module calls."""
        return self._event.name[0].layer_type if self._event.name is not None else None

    @property
    def layer_type_num(self) -> int | None:
        """The second part of the label."""
        return self._event.name[1] if self._event.name is not None else None

    @property
    def func_name(self) -> str | None:
        """The function that was called, the dunder name of an operator: `__add__` for `x + y`."""
        return self._event.func_name

    @property
    def parent_labels(self) -> tuple[str, ...]:
        """The operations, inputs and buffers that the function was called with."""
        return self._event.parent_labels()

    @property
    def output_index(self) -> int | None:
        """Position among the tensors that were returned, if there are several."""
        return self._event.position

    @property
    def event_index(self) -> int:
        """Number among the events of the pass, from 0; a `Recorder` that keeps modules alone counts nothing else."""
        return self._event.number

    @property
    def pass_index(self) -> int:
        """Which forward pass; the first is 0."""
        return self._event.run.index

    @property
    def sample_id(self) -> Any:
        """What the pass was given as `Recorder.log(x, sample_id=...)`."""
        return self._event.run.sample_id

    # ---- the tensor -----------------------------------------------------------------------------------------

    @property
    def tensor_shape(self) -> tuple[int, ...] | None:
        """As the model has it, whatever is stored; None for a module call without a tensor."""
        return tuple(self._event.facts[0]) if self._event.facts is not None else None

    @property
    def tensor_dtype(self) -> torch.dtype | None:
        return self._event.facts[1] if self._event.facts is not None else None

    @property
    def tensor_device(self) -> torch.device | None:
        return self._event.facts[2] if self._event.facts is not None else None

    # ---- the module -----------------------------------------------------------------------------------------

    @property
    def module_address(self) -> str:
        """The innermost module; the model itself is "self"."""
        return (self._event.frame.address if self._event.frame is not None else "") or "self"

    @property
    def module_type(self) -> str | None:
        """The class of the innermost module; None for what is outside of the model, such as its inputs."""
        return self._event.frame.class_name if self._event.frame is not None else None

    @property
    def module_pass_index(self) -> int:
        """Which call of the module in this pass; the first is 1, as in `features.6:1`."""
        return self._event.frame.number if self._event.frame is not None else 1

    @property
    def module_stack(self) -> tuple[str, ...]:
        """The module calls around the event, from the model in: `("self:1", "features:1", "features.6:1")`."""
        return self._event.module_stack()

    # ---- what was before ------------------------------------------------------------------------------------

    @property
    def recent_events(self) -> tuple[RecordContext, ...]:
        """The events before this one in the same pass, at most `history_size`, the latest last.

        Contexts in a history have no history themselves.
        """
        return self._recent(0)

    @property
    def recent_ops(self) -> tuple[RecordContext, ...]:
        """The operations before this one in the same pass, at most `history_size`, the latest last."""
        return self._recent(1)

    def _recent(self, which: int) -> tuple[RecordContext, ...]:
        history = self._history
        events = history[which] if isinstance(history, tuple) else (history.events, history.ops)[which]
        return tuple([RecordContext(event) for event in events])


_new_context = RecordContext.__new__


def context_of(event: Event, history: History) -> RecordContext:
    """`RecordContext(event, history)` in half the time: one is made for every call that a predicate is asked about."""
    context = _new_context(RecordContext)
    context._event, context._history = event, history
    return context
