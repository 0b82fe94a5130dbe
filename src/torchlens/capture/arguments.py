"""What a model is called with, as the user gave it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from ..errors import ArgumentError


def model_arguments(model: Any, input_args: Any, input_kwargs: Any) -> tuple[list[Any], dict[str, Any]]:
    """The positional and keyword arguments for the model."""
    if not isinstance(model, nn.Module):
        raise ArgumentError(f"the first argument must be the model, an nn.Module, not {_kind(model)}")
    if input_kwargs is not None and not isinstance(input_kwargs, Mapping):
        raise ArgumentError(f"input_kwargs must be a dict of keyword arguments, not {_kind(input_kwargs)}")
    if input_args is None:
        args = []
    elif type(input_args) in (list, tuple):
        args = list(input_args)
    else:
        args = [input_args]
    return args, dict(input_kwargs or {})


def _kind(thing: Any) -> str:
    return f"a class ({thing.__name__})" if isinstance(thing, type) else f"of type {type(thing).__name__}"
