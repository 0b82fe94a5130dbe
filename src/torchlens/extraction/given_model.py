"""The model that a user gave: made, if it is a function; refused, if its values would depend on other samples."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from torch import nn
from torch.nn.parameter import is_lazy

from ..errors import ArgumentError, warn


def built(model: Any) -> nn.Module:
    """The model, or what the function that was given makes."""
    if not isinstance(model, nn.Module) and callable(model):
        model = _made(model)
    if not isinstance(model, nn.Module):
        raise ArgumentError(
            f"the first argument must be the model, an nn.Module, or a function that makes one, not {model!r}"
        )
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if tensor.is_meta or is_lazy(tensor):
            raise ArgumentError(f"{name!r} of the model has no values yet; load its weights, or run it once, before")
    for name, module in model.named_modules():
        if module.training and getattr(module, "track_running_stats", False):
            raise ArgumentError(
                f"{name or 'the model'} ({type(module).__name__}) is in training mode: it would mix the samples of a "
                "batch, and change with each; call model.eval() first"
            )
    _warn_of_dropout(model)
    return model


def _made(factory: Callable[..., Any]) -> Any:
    try:
        inspect.signature(factory).bind()
    except TypeError as error:
        raise ArgumentError(
            f"the first argument is a function, which is called without arguments to make the model ({error}); give "
            "an nn.Module if it is the model itself"
        ) from None
    return factory()


_DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)


def _warn_of_dropout(model: nn.Module) -> None:
    for name, module in model.named_modules():
        if module.training and isinstance(module, _DROPOUTS) and module.p:
            warn(
                f"{name or 'the model'} ({type(module).__name__}) is in training mode and zeroes random elements of "
                "what is stored; call model.eval() to turn dropout off"
            )
            return


class WatchedState:
    """Parameters and buffers before a forward pass: `warn_if_changed` after it compares."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._before = _state(model)

    def warn_if_changed(self) -> None:
        """A forward pass that leaves the model changed gives values that depend on what ran before."""
        now = _state(self._model)
        changed = [name for name in now if now[name] != self._before.get(name)]
        if changed:
            warn(
                f"the model changes {changed[0]!r} with every forward pass: what is stored depends on which batches "
                "ran before, so a run that was resumed or shared may differ from one in one go"
            )


def _state(model: nn.Module) -> dict[str, tuple[int, int]]:
    """Which tensor each name stands for, and how often it was written to."""
    return {
        name: (id(tensor), -1 if tensor.is_inference() else tensor._version)
        for name, tensor in (*model.named_parameters(), *model.named_buffers())
    }
