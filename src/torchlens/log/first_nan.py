"""Find the operation that made the first NaN or Inf."""

from __future__ import annotations

import torch
from torch import Tensor

from .._torch import grad_scope, no_torch_function, set_grad_enabled
from ..capture.records import Value
from ..errors import ArgumentError
from ..graph.graph import Graph


def first_not_finite(graph: Graph) -> int | None:
    """The first entry whose value has a NaN or Inf though no parent's has; None if there is none."""
    found: set[int] = set()
    with no_torch_function(), grad_scope():
        set_grad_enabled(False)
        for place, value in enumerate(graph.entries):
            if not _is_finite(graph, place, value):
                if found.isdisjoint(graph.parents[place]):
                    return place
                found.add(place)
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


def _parts(tensor: Tensor) -> list[Tensor]:
    """The values that a tensor holds, as tensors that `isfinite` takes."""
    if tensor.is_nested:
        return [part for member in tensor.unbind() for part in _parts(member)]
    if tensor.layout is torch.sparse_coo:
        tensor = tensor.coalesce().values()
    elif tensor.layout is not torch.strided:
        tensor = tensor.to_dense()
    return [tensor.float() if tensor.dtype.itemsize == 1 else tensor]
