"""Operations that `torch.vmap` computes one sample at a time, computed for all of them at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from .._torch import push_mode, remove_modes
from ..capture.changes import between

T = TypeVar("T")


def with_batched_attention(work: Callable[[], T]) -> T:
    """What a function returns that is called inside `torch.vmap`."""
    mode = _BatchedAttention()
    return between(lambda frame: push_mode(mode), work, lambda: remove_modes(lambda other: other is mode))


class _BatchedAttention(TorchFunctionMode):
    """Attention inside `torch.vmap`: the samples become part of the batch that its kernels take anyway."""

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is torch.nn.functional.scaled_dot_product_attention:
            given = _given(args, kwargs or {})
            if given is not None:
                return _Attention.apply(*given)  # type: ignore[no-untyped-call]
        return func(*args, **(kwargs or {}))


def _given(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Any] | None:
    """Query, key, value, mask and the rest, if the call is of the common form: four dimensions, no dropout."""
    named = dict(zip(("query", "key", "value", "attn_mask", "dropout_p", "is_causal"), args, strict=False), **kwargs)
    query, key, value, mask = (named.pop(name, None) for name in ("query", "key", "value", "attn_mask"))
    of_four = all(isinstance(each, Tensor) and each.dim() == 4 for each in (query, key, value))
    fits = mask is None or mask.dim() == 2 or (mask.dim() == 4 and mask.shape[0] == 1)
    return (query, key, value, mask, named) if of_four and fits and not named.pop("dropout_p", 0.0) else None


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, options: dict[str, Any]) -> Tensor:
        return torch.nn.functional.scaled_dot_product_attention(query, key, value, mask, **options)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Nothing is kept: a sweep runs without autograd."""

    @staticmethod
    def vmap(
        info: Any, in_dims: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, options: Any
    ) -> tuple[Tensor, int]:
        size, samples = info.batch_size, len(query) if in_dims[0] is None else query.movedim(in_dims[0], 0).shape[1]
        if mask is not None and in_dims[3] is not None:
            mask = mask.movedim(in_dims[3], 0)
            mask = (mask.unsqueeze(1) if mask.dim() == 3 else mask.flatten(0, 1)).repeat_interleave(samples, 0)
        folded = [_folded(t, dim, size) for t, dim in zip((query, key, value), in_dims, strict=False)]
        result = _Attention.apply(*folded, mask, options)  # type: ignore[no-untyped-call]
        return result.unflatten(0, (size, -1)), 0


def _folded(tensor: Tensor, dim: int | None, size: int) -> Tensor:
    """The samples of all cells, one after the other."""
    stacked = tensor.expand(size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
    return stacked.flatten(0, 1)
