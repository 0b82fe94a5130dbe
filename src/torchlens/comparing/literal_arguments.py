"""The literal arguments of a call by name, with the defaults of those that were not given."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from .._torch import schemas_of
from ..capture.records import Call, values_in

#: Stands for an argument that holds tensors.
TENSOR = "a tensor"

#: They change nothing in what is computed, or only what is kept for later.
_OF_NO_CONSEQUENCE = {
    "cudnn_enable",
    "cudnn_enabled",
    "momentum",
    "inplace",
    "memory_format",
    "dtype",
    "device",
    "layout",
}


def arguments_by_name(call: Call) -> dict[str, Any]:
    """
    >>> from torchlens.capture.functions import Function
    >>> arguments_by_name(Call(Function("gelu"), (1,), {}, (), (), -1, (), 0, None, ()))
    {'input': 1, 'approximate': 'none'}
    """
    named = _schema(call.function.name.strip("_"))
    found: dict[str, Any] = {name: default for name, default in named.items() if default is not _REQUIRED}
    names = list(named)
    for position, argument in enumerate(call.args):
        found[names[position] if position < len(names) else f"argument {position}"] = _plain(argument)
    found |= {{"self": "input"}.get(name, name): _plain(argument) for name, argument in call.kwargs.items()}
    _fill_windows(call, found)
    order = [*names, *(name for name in found if name not in names)]
    return {name: found[name] for name in order if name in found and name not in _OF_NO_CONSEQUENCE}


def literals(call: Call) -> str:
    """What a call was given besides tensors and defaults, ready to append to its name: `(0.2887)`, `(dim=-1)`."""
    defaults = _schema(call.function.name.strip("_"))
    shown = []
    for name, value in arguments_by_name(call).items():
        if isinstance(value, (bool, int, float, str)) and value != TENSOR and value != defaults.get(name):
            number = f"{value:.4g}" if isinstance(value, float) else repr(value)
            shown.append(number if name in ("other", "value") or name.startswith("argument") else f"{name}={number}")
    return f"({', '.join(shown)})" if shown else ""


_REQUIRED = object()


@cache
def _schema(name: str) -> dict[str, Any]:
    """The names of an operator's arguments, each with its default."""
    for schema in schemas_of(f"aten::{name}"):
        return {
            {"self": "input"}.get(each.name, each.name): each.default_value if each.has_default_value() else _REQUIRED
            for each in schema.arguments
        }
    return {}


def _plain(argument: Any) -> Any:
    if isinstance(argument, torch.Tensor) or values_in(argument):
        return TENSOR
    return tuple(argument) if isinstance(argument, (list, torch.Size)) else argument


def _fill_windows(call: Call, found: dict[str, Any]) -> None:
    """`padding=1` of a convolution in two dimensions is `(1, 1)`."""
    if call.function.name.startswith("conv") and call.function.name[-1:].isdigit():
        dimensions = int(call.function.name[-1])
        for name in ("stride", "padding", "dilation"):
            value = found.get(name)
            if isinstance(value, int):
                found[name] = (value,) * dimensions
            elif isinstance(value, (list, tuple)) and len(value) == 1:
                found[name] = tuple(value) * dimensions
            elif isinstance(value, list):
                found[name] = tuple(value)
