"""When the graph is known: which tensors stay connected to autograd, and whose gradients are kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor

from ..capture.following import Connections
from ..capture.keeping import Transform
from ..capture.records import Value
from ..capture.session import transform_of
from ..errors import ArgumentError
from ..selectors import Selection
from .apply_selection import label_of
from .backward_pass import listening

if TYPE_CHECKING:
    from .model_log import ModelLog


def apply_autograd_options(log: ModelLog) -> None:
    """Release the tensors that were not saved, and record backward passes if gradients are wanted."""
    trace = log._trace
    connections, options = trace.connections, log._options
    if connections is None:
        return
    if options.train_mode and trace.complete and not connections.by_index:
        raise ArgumentError(
            "train_mode=True, but nothing in this forward pass is connected to autograd, though parameters or inputs "
            "require gradients; does the model run under torch.no_grad() or torch.inference_mode()?"
            if _is_trainable(log)
            else "train_mode=True, but everything is frozen: no parameter and no input requires gradients, and nothing "
            "could be differentiated; call requires_grad_() on what is to be trained, or leave train_mode out"
        )
    begins = "output" if options.save_gradients else None  # a backward pass must begin somewhere
    connections.keep_only({v.index for v in trace.values if v.saved is not None or v.role == begins})
    transform = transform_of(options)
    if transform is not None:
        for value in trace.values:
            if value.saved is not None:
                _transform(log, value, transform, connections, strict=options.train_mode)
    if trace.gradients is not None:
        wanted = options.save_gradients if trace.complete else True
        trace.gradients.attach(trace, _wanted(log, wanted))
        listening.add(log)


def _is_trainable(log: ModelLog) -> bool:
    trace = log._trace
    inputs = [value for value in trace.values if value.role == "input"]
    return any(info.trainable for info in trace.param_infos) or any(v.grad_fn is not None for v in inputs)


def _transform(log: ModelLog, value: Value, transform: Transform, connections: Connections, *, strict: bool) -> None:
    """Make of a kept value what is wanted of it, through autograd where it has a history."""
    _ = value.facts  # from the tensor as it was
    connected = connections.tensor(value)
    raw = value.saved if connected is None else connected
    assert raw is not None
    try:
        made = transform.made_of(raw)
    except Exception as raised:
        error = f"activation_postfunc raised {type(raised).__name__} for {label_of(log, value)}: {raised}"
        raise ArgumentError(error) from raised
    if strict and connected is not None and transform.postfunc is not None and not _has_history(made):
        raise ArgumentError(
            f"train_mode=True, but what activation_postfunc returned for {label_of(log, value)} is not connected to "
            f"autograd: {_kind(made)}. It must be a differentiable function of the tensor"
        )
    value.transformed = made
    if _has_history(made):
        value.transformed, connections.transformed[value.index] = made.detach(), made
    if not transform.keep_raw:
        connections.drop(value)
        value.saved = None
        return
    moved = transform.moved(raw)
    if moved is not raw:
        value.saved = moved.detach()
        if connected is not None:
            connections.add(value, moved)


def _has_history(made: Any) -> bool:
    return isinstance(made, Tensor) and made.requires_grad


def _kind(made: Any) -> str:
    return f"a tensor of {made.dtype}" if isinstance(made, Tensor) else f"a {type(made).__name__}"


def _wanted(log: ModelLog, selection: bool | Selection) -> set[int] | None:
    """The indexes of the values whose gradients are kept; None for all."""
    if not isinstance(selection, Selection):
        return None
    places = log._lookup.chosen(selection, "save_gradients")
    return {log.graph.entries[place].index for place in places}
