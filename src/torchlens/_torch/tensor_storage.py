"""Tensors and their memory: storages, lazy copies, references, unusual layouts."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import parameter as _parameter

from .call_state import inference_scope
from .modes import without_dispatch_modes, without_torch_function
from .private_name import LOGGING, Nothing, never, private

FakeTensor: Any = private("torch._subclasses.fake_tensor.FakeTensor", instead=Nothing)

#: Lets go of a storage's memory, but not of the address of what describes it. `expired()` tells when it is gone.
StorageWeakRef: Any = private("torch.multiprocessing.reductions.StorageWeakRef", part=LOGGING)

#: What the parameters of a lazy module are until its first call.
UninitializedTensorMixin = (_parameter.UninitializedParameter, _parameter.UninitializedBuffer)


def _storage_object(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


#: Where a tensor's storage object lives: equal for tensors that share memory. Raises for layouts without storage.
storage_address = private("torch._C._storage_address", instead=_storage_object)


def _copy(tensor: Tensor) -> Tensor:
    return tensor.clone()


#: A copy that shares memory until someone asks to write on either side. Raises where memory is not torch's own.
lazy_copy: Callable[[Tensor], Tensor] = private("torch._lazy_clone", instead=_copy)
if not hasattr(torch._C, "_is_cow_tensor"):  # who can't tell a lazy copy could not undo it
    lazy_copy = _copy


def shares_lazily(tensor: Tensor) -> bool:
    """Does a tensor share its memory with lazy copies, or is it one?"""
    try:
        return bool(_is_lazy(tensor))
    except RuntimeError:  # of a class of its own, without memory
        return False


_is_lazy: Callable[[Tensor], bool] = private("torch._C._is_cow_tensor", instead=never)

#: Is this one of the zeros without memory that forward-mode differentiation makes?
is_zero_tensor: Callable[[Tensor], bool] = private("torch.Tensor._is_zerotensor", instead=never)


def references(tensor: Tensor) -> int:
    """How many references Python has to a tensor, besides those of this function and its caller.

    While autograd keeps a tensor for the backward pass, torch itself holds one. Before torch 2.10 it does so only when
    nobody else does, which is not to be told apart.
    """
    held_by_torch = _torch_holds_what_it_uses() and tensor._use_count() > 1  # type: ignore[attr-defined]
    return sys.getrefcount(tensor) - _counted_for_asking() - held_by_torch


@lru_cache
def _counted_for_asking() -> int:
    """How often something counts that one local variable holds: with Python 3.14, which borrows arguments, less often.

    The calls are those of `references`: a local variable is handed to a function, which hands it to `getrefcount`.
    """

    def count(thing: object) -> int:
        return sys.getrefcount(thing)

    held_once = object()
    return count(held_once)


@lru_cache
def _torch_holds_what_it_uses() -> bool:
    """Does torch hold a Python reference to a tensor that it uses itself, whoever else holds one?"""
    with without_torch_function(), inference_scope(False):
        tensor = torch.empty(1, device="cpu")
        before = sys.getrefcount(tensor)
        view = tensor.view(1)  # which refers to it, but not from Python
        return hasattr(view, "_use_count") and sys.getrefcount(tensor) == before + 1


def as_class(tensor: Tensor, kind: type[Tensor], as_subclass: Callable[..., Any] = Tensor.as_subclass) -> Tensor:
    """`tensor.as_subclass(kind)`, also where torch (2.4) refuses that while a dispatch mode is on."""
    made: Tensor
    try:
        made = as_subclass(tensor, kind)
    except RuntimeError:
        with without_dispatch_modes():
            made = as_subclass(tensor, kind)
    return made


#: The negative of a tensor without touching its memory, as `x.conj().imag` is.
neg_view: Any = private("torch._neg_view", instead=torch.neg)


def _begin_of_memory(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


#: Where the memory behind a tensor begins. Asking for it does not end the sharing of a lazy copy.
data_address: Callable[[Tensor], int] = private("torch._C._data_address", instead=_begin_of_memory)

_QUANTIZED = "reading a saved quantized tensor"
make_per_tensor_quantized: Callable[..., Tensor] = private("torch._make_per_tensor_quantized_tensor", part=_QUANTIZED)
make_per_channel_quantized: Callable[..., Tensor] = private("torch._make_per_channel_quantized_tensor", part=_QUANTIZED)


def jagged_parts(tensor: Any) -> tuple[Tensor, Tensor, Tensor | None, list[int | None]]:
    """What a nested tensor of the jagged layout is made of: values, offsets, lengths; then the jagged dimension and,
    where they are known, the shortest and the longest length."""
    lengths = [tensor._maybe_min_seqlen, tensor._maybe_max_seqlen]
    return tensor._values, tensor._offsets, tensor._lengths, [tensor._ragged_idx, *lengths]
