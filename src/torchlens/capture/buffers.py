"""Restore a model's buffers after runs that should not change them: drawing, metadata, dry runs.

In training mode a forward pass changes them: the running statistics of batch norm, the vectors of spectral norm.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from .._torch import UninitializedTensorMixin, grad_scope, inference_scope, set_grad_enabled, without_torch_function
from .changes import Changes
from .modules import distinct_modules


class _Kept(NamedTuple):
    buffer: Tensor
    memory: Tensor  # where it lies; `.data = ...` puts it elsewhere
    copy: Tensor
    version: int | None  # None for an inference tensor, which has none


_Registered = tuple[nn.Module, dict[str, Tensor | None]]


class BuffersKept:
    """While this change holds, the forward pass may write to the buffers; undoing it restores them."""

    def __init__(self, model: nn.Module) -> None:
        self.key: Hashable = (id(model), "buffers")
        self._model = model
        self._before: tuple[list[_Registered], list[_Kept]] | None = None

    @classmethod
    def of(cls, model: nn.Module) -> Changes:
        return Changes([cls(model)])

    def make(self) -> None:
        if self._before is None:
            with without_torch_function(), grad_scope():
                set_grad_enabled(False)
                registered = [(module, dict(module._buffers.items())) for _, module in distinct_modules(self._model)]
                found = {
                    id(tensor): tensor for _, buffers in registered for tensor in buffers.values() if tensor is not None
                }
                self._before = registered, [_kept(tensor) for tensor in found.values() if _has_values(tensor)]

    def undo(self) -> None:
        registered, kept = self._before or ([], [])
        with without_torch_function():
            for module, buffers in registered:
                if not isinstance(module, torch.jit.ScriptModule):
                    _register(module._buffers, buffers)
            for each in kept:
                _put_back(each)


def _has_values(tensor: Tensor) -> bool:
    return not isinstance(tensor, UninitializedTensorMixin) and not tensor.is_meta


def _kept(tensor: Tensor) -> _Kept:
    alias = tensor.detach()
    return _Kept(tensor, alias, alias.clone(), None if tensor.is_inference() else tensor._version)


def _register(now: dict[str, Tensor | None], before: dict[str, Tensor | None]) -> None:
    if list(now) != list(before) or any(now[name] is not tensor for name, tensor in before.items()):
        now.clear()
        now.update(before)


def _is_moved(kept: _Kept) -> bool:
    return kept.buffer.layout is torch.strided and not kept.buffer.is_set_to(kept.memory)


def _is_changed(kept: _Kept) -> bool:
    """Compares contents as well: a write through `.data` counts no version."""
    if kept.version is not None and kept.buffer._version != kept.version:
        return True
    try:
        return not torch.equal(kept.memory, kept.copy)
    except (RuntimeError, NotImplementedError):  # a kind of tensor that can't be compared
        return True


def _put_back(kept: _Kept) -> None:
    with inference_scope(kept.buffer.is_inference()):
        set_grad_enabled(False)
        if _is_moved(kept):
            kept.buffer.data = kept.memory
        if _is_changed(kept):
            kept.buffer.copy_(kept.copy)
