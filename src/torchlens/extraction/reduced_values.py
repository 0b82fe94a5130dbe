"""The values of layers on their way to a shard: which reductions each gets, and whether its rows can be stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ..errors import ArgumentError, LayerNotFoundError, StoreError, near
from ..words import counted
from . import reduce as reductions
from .chosen_layers import WantedValue
from .fit import Unfitted
from .input_source import noted, row_words, rows_in
from .plan import LayerPlan
from .reduce import Reduction


def reduction_of(wanted: WantedValue, reduce: Any) -> Any:
    """The reduction that was asked for a layer: by its name, by the selector that chose it, or for all."""
    if not isinstance(reduce, Mapping):
        return reduce
    return reduce.get(wanted.name, reduce.get(wanted.selector))


def check_keys(reduce: Any, wanted: list[WantedValue]) -> None:
    known = {each.name for each in wanted} | {each.selector for each in wanted}
    for key in reduce if isinstance(reduce, Mapping) else ():
        if key not in known:
            names = [str(name) for name in known]
            raise LayerNotFoundError(f"reduce: no layer {key!r} is extracted{near(str(key), names)}")


def made_for(
    name: str, reduces: list[Reduction], value: Tensor, rows: int | None, args: list[Any], kwargs: dict[str, Any]
) -> list[Reduction]:
    """Reductions that depend on the shape of the layer, made for it."""
    made: list[Any] = []
    for reduction in reduces:
        if isinstance(reduction, reductions.random_projection):
            reduction = reduction.made_for(value.shape[1:], rows)
        elif isinstance(reduction, reductions.pca):
            reduction = Unfitted(reduction, value)
        made.append(reduction)
        value = _applied(name, reduction, value, args, kwargs)
    return made


def _applied(name: str, reduction: Any, value: Tensor, args: list[Any], kwargs: dict[str, Any]) -> Tensor:
    try:
        if hasattr(reduction, "with_inputs"):
            made = reduction.with_inputs(value, args, kwargs)
        else:
            made = reduction(value)
    except Exception as error:
        raise noted(error, f"reducing {name}, of shape {list(value.shape)}, by {reduction!r}") from None
    if not isinstance(made, Tensor):
        raise ArgumentError(f"reduce: {reduction!r} returned {type(made).__name__} for {name}, not a tensor")
    return made


def reduced(name: str, value: Tensor, reduces: list[Reduction], args: list[Any], kwargs: dict[str, Any]) -> Tensor:
    """A value as it is to be stored, but for its type."""
    rows = rows_in([args, list(kwargs.values())])
    for reduction in reduces:
        value = _applied(name, reduction, value, args, kwargs)
    if not value.dim() or len(value) != rows:
        raise not_rows_first(name, value, rows)
    return value


def not_rows_first(name: str, value: Tensor, rows: int) -> ArgumentError:
    return ArgumentError(
        f"{name} has shape {list(value.shape)} for {counted(rows, 'sample')}: they are not along its first dimension; "
        f"reduce={{{name!r}: f}} with a function f can move them there"
    )


def check_range(layer: LayerPlan, value: Tensor, ids: Any, rows: list[int]) -> None:
    """Refuse to write infinity for a number that is only too large for float16."""
    if layer.torch_dtype != torch.float16 or value.dtype == torch.float16 or not value.numel():
        return
    low, high = (float(end) for end in torch.aminmax(value))
    if low > -_TOO_LARGE and high < _TOO_LARGE:
        return
    too_large = (value.abs() >= _TOO_LARGE) & value.isfinite()
    if bool(too_large.any()):
        row = rows[int(too_large.flatten(1).any(1).nonzero()[0])]
        raise StoreError(
            f"{layer.name} of {row_words(ids, row)} has {float(value[too_large][0]):.6g}, more than float16 can hold; "
            "dtype='bfloat16' or 'float32' can"
        )


_TOO_LARGE = 65520.0  # from here on float16 rounds to infinity
