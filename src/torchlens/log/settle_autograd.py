"""After the forward pass: decide which tensors stay connected to autograd and whose gradients are kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import ArgumentError
from ..options import Options
from .backward import listening

if TYPE_CHECKING:
    from .model_log import ModelLog


def settle_autograd(log: ModelLog, options: Options) -> None:
    """Let go of the tensors that were not saved, and listen to backward passes if gradients are wanted."""
    recording = log._recording
    connections = recording.connections
    assert connections is not None
    if options.train_mode and recording.complete and not connections.by_index and _is_trainable(log):
        raise ArgumentError(
            "train_mode=True, but nothing in this forward pass is connected to autograd, though there are parameters or "
            "inputs that require gradients; does the model run under torch.no_grad() or torch.inference_mode()?"
        )
    connections.keep_only({value.index for value in recording.values if _is_kept(value, options)})
    if recording.gradients is not None:
        recording.gradients.attach(recording, _wanted(log, options.save_gradients))
        listening.add(log)


def _is_kept(value: Any, options: Options) -> bool:
    begins = bool(options.save_gradients) and value.role == "output"  # a backward pass must begin somewhere
    return value.saved is not None or begins


def _is_trainable(log: ModelLog) -> bool:
    infos = log._recording.param_infos
    return any(info.trainable for info in infos) or any(
        value.role == "input" and value.grad_fn is not None for value in log._recording.values
    )


def _wanted(log: ModelLog, selection: Any) -> set[int] | None:
    """The indexes of the values whose gradients are kept; None for all."""
    if selection is True or selection == "all":
        return None
    keys = [selection] if isinstance(selection, (str, int)) else list(selection)
    places = [p for key in keys for p in (log._lookup.places(key) if isinstance(key, str) else [log._lookup.place(key)])]
    return {log.graph.entries[place].index for place in places}
