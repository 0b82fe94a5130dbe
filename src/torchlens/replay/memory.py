"""What a tensor holds after others that share its memory were written to."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from ..capture.functions import ALIAS_UPDATE
from ..capture.records import Call, MemoryLayout
from ..capture.tensor_memory import layout_of
from .reasons import NotReplayable

#: Memory that is laid out may be so much larger than the tensors in it: a file may say anything.
_SMALL, _SPREAD = 1 << 30, 64

#: Every type fits a whole number of times into this many bytes.
_LARGEST_ITEM = 16


def laid_in_memory(call: Call, tensors: list[Tensor]) -> Tensor:
    """Lay tensors into memory one after the other, as they lay, and look at the part that is asked for."""
    own, *others = cast("tuple[MemoryLayout, ...]", call.kwargs["layouts"])
    layouts = [own, *others] if call.function is ALIAS_UPDATE else others
    if None in (own, *layouts) or len(layouts) != len(tensors):
        raise NotReplayable("a tensor changed or was made in a way that can't be repeated")
    if len(tensors) < 2 and call.function is ALIAS_UPDATE:
        raise NotReplayable("a tensor was changed by code that can't be observed")
    if any(layout.size != tensor.shape for layout, tensor in zip(layouts, tensors, strict=True)):
        raise NotReplayable("a tensor now has another shape than the one recorded for its memory")
    result = tensors[0].dtype if call.function is ALIAS_UPDATE else _result_type(call, tensors)
    size = max((layout.end + 1) * layout.itemsize for layout in (own, *layouts))
    if size > _SMALL + _SPREAD * sum(tensor.nbytes for tensor in tensors):
        raise NotReplayable(f"it would take {size:,} bytes of memory, far more than its tensors")
    memory = _memory(size, own.itemsize, result, tensors)
    for layout, tensor in zip(layouts, tensors, strict=True):
        _write(layout.of(_seen_as(memory, tensor.dtype)), tensor)
    return own.of(_seen_as(memory, result))


def _write(target: Tensor, tensor: Tensor) -> None:
    """Where an expanded tensor lies, all along a dimension is one element: torch refuses to write it several times."""
    for dimension, stride in enumerate(target.stride()):
        if stride == 0 and target.shape[dimension]:
            target, tensor = target.narrow(dimension, 0, 1), tensor.narrow(dimension, 0, 1)
    target.copy_(tensor)


def _result_type(call: Call, tensors: list[Tensor]) -> torch.dtype:
    """That of the logged result, unless all of them had one type, which may now be another."""
    logged = {value.dtype for value in (*call.args, *call.outputs)}
    return tensors[0].dtype if len(logged) == 1 else call.outputs[0].dtype


def _memory(size: int, itemsize: int, result: torch.dtype, tensors: list[Tensor]) -> Tensor:
    """Flat memory for tensors of these types: of their own type if that is one, of reals if they are complex."""
    device, dtypes = tensors[0].device, {result, *(tensor.dtype for tensor in tensors)}
    if len(dtypes) == 1:
        return torch.zeros(size // itemsize, dtype=result, device=device)
    real = {dtype.to_real() for dtype in dtypes}
    if len(real) == 1:
        (dtype,) = real
        return torch.zeros(2 * -(-size // dtype.itemsize // 2), dtype=dtype, device=device)
    if any(tensor.requires_grad for tensor in tensors):
        raise NotReplayable("memory was written to as another dtype, which autograd can't follow")
    return torch.zeros(-(-size // _LARGEST_ITEM) * _LARGEST_ITEM, dtype=torch.uint8, device=device)


def _seen_as(memory: Tensor, dtype: torch.dtype) -> Tensor:
    if memory.dtype == dtype:
        return memory
    return torch.view_as_complex(memory.view(-1, 2)) if memory.is_floating_point() else memory.view(dtype)


def laid_as(kept: Any, tensor: Tensor) -> Tensor:
    """A tensor with the strides of the one that was kept: whether later calls copy or alias depends on them."""
    plain = isinstance(kept, Tensor) and layout_of(kept) is not None and layout_of(tensor) is not None
    plain = plain and 0 not in kept.stride()  # an expanded one: what is there now may differ along that dimension
    if not plain or kept.shape != tensor.shape or kept.stride() == tensor.stride() or kept.is_quantized:
        return tensor
    if 0 in kept.stride():  # expanded: its elements share memory, and can't differ there
        return tensor
    memory = torch.empty_strided(kept.size(), kept.stride(), dtype=tensor.dtype, device=tensor.device)
    return memory.copy_(tensor)
