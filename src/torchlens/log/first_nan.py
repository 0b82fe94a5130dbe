"""Find the operation that made the first NaN or Inf."""

from __future__ import annotations

import torch
from torch import Tensor

from .._torch import grad_scope, set_grad_enabled, without_torch_function
from ..capture.records import Value
from ..errors import ArgumentError
from ..graph.graph import Graph


def first_not_finite(graph: Graph) -> int | None:
    """The first entry whose value has a NaN or Inf though no parent's has; None if there is none.

    Masks are made of -inf on purpose. Such a mask counts only where nothing else is found, and it is in the output.
    """
    masks: set[int] = set()
    with without_torch_function(), grad_scope():
        set_grad_enabled(False)
        for place, value in enumerate(graph.entries):
            if not _is_finite(graph, place, value):
                if not _is_mask(graph, place, value, masks):
                    return place
                masks.add(place)
    if any(graph.entries[place].role == "output" for place in masks):
        return min(masks)
    return None


def _is_finite(graph: Graph, place: int, value: Value) -> bool:
    if not (value.dtype.is_floating_point or value.dtype.is_complex):
        return True
    saved = value.saved
    if saved is None or saved.is_meta or saved.dtype is not value.dtype:
        how = (
            "was not saved" if saved is None else f"was saved as {saved.dtype}" if not saved.is_meta else "has no data"
        )
        raise ArgumentError(
            f"first_nan needs every value, and that of {graph.label(place)} {how}; log with layers_to_save='all' and "
            "save the values as they are"
        )
    return all(bool(torch.isfinite(part).all()) for part in _parts(saved))


def _is_mask(graph: Graph, place: int, value: Value, masks: set[int]) -> bool:
    """Is -inf all that is not finite, and was it given: as a tensor, as an argument, or by a mask before?"""
    saved = value.saved
    if saved is None or value.dtype.is_complex or not all(map(_only_minus_infinity, _parts(saved))):
        return False
    if value.call < 0 or not masks.isdisjoint(graph.parents[place]):
        return True
    call = graph.trace.calls[value.call]
    return any(argument == -torch.inf for argument in (*call.args, *call.kwargs.values()) if type(argument) is float)


def _only_minus_infinity(part: Tensor) -> bool:
    return bool((torch.isfinite(part) | (part == -torch.inf)).all())


def _parts(tensor: Tensor) -> list[Tensor]:
    """The values that a tensor holds, as tensors that `isfinite` takes."""
    if tensor.is_nested:
        return [part for member in tensor.unbind() for part in _parts(member)]
    if tensor.layout is torch.sparse_coo:
        tensor = tensor.coalesce().values()
    elif tensor.layout is not torch.strided:
        tensor = tensor.to_dense()
    return [tensor.float() if tensor.dtype.itemsize == 1 else tensor]
