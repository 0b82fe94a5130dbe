"""Keep a value without copying it, and apply the user's transform to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol
from weakref import ref

import torch
from torch import Tensor, is_grad_enabled
from torch.nn import Parameter

from .._torch import (
    FakeTensor,
    StorageWeakRef,
    as_class,
    call_with_grad,
    is_zero_tensor,
    lazy_copy,
    neg_view,
    references,
    set_grad_enabled,
    shares_lazily,
    storage_address,
    without_dispatch_modes,
)
from . import rng
from .records import MemoryLayout, Trace, Value
from .tensor_memory import address_of, inner_tensors, is_plain, layout_of, memory_behind, storage_of


class ValueSink(Protocol):
    """Receives values as soon as it is certain that they are selected."""

    def begin(self, trace: Trace) -> None: ...

    def put(self, value: Value) -> None: ...


class Keeper:
    """Keeps what tensors hold now, whatever happens to them later.

    Memory that this forward pass allocated is shared, copy-on-write: torch gives the first writer its own copy.
    Foreign memory must stay where it is, since raw pointers into it may exist (a NumPy view of an input, a captured
    graph over parameters), so a value in it is copied at once. So are values on devices for which torch does not
    guarantee copy-on-write.
    """

    def __init__(self) -> None:
        self.foreign: set[int] = set()  # storages that someone else may read or write at the address they have now
        self._guards: dict[int, StorageWeakRef] = {}

    def mark_foreign(self, tensor: Tensor) -> None:
        address = address_of(tensor)  # should another storage get it later, that costs a copy, and nothing else
        if address is not None:
            self.foreign.add(address)

    def mark_all_foreign(self, tensors: Sequence[Tensor]) -> None:
        """`mark_foreign` for many tensors at once: a model has hundreds of parameters."""
        try:
            self.foreign.update(map(storage_address, tensors))
        except RuntimeError:  # there is a sparse one
            for tensor in tensors:
                self.mark_foreign(tensor)

    def guard(self, tensor: Tensor) -> int | None:
        """The address of a tensor's storage. While the capture runs, no other storage will get the same address.

        A weak reference to the storage ensures that: it releases the memory, but not the object at that address.
        """
        address = address_of(tensor)
        if address is not None and address not in self._guards:
            try:
                self._guards[address] = StorageWeakRef(storage_of(tensor))
            except (RuntimeError, NotImplementedError):
                return address  # a class of its own without a storage to be had
        return address

    def is_there(self, address: int) -> bool:
        """Does the storage that was guarded at this address still exist?"""
        guard = self._guards.get(address)
        return guard is not None and not guard.expired()

    def keep(self, tensor: Tensor, fresh: bool = False) -> Tensor | None:
        """What `tensor` holds now, without its history; None if there is no memory behind it.

        `fresh` says that it lies in new memory of its own, as it is.
        """
        try:
            # A lazy copy of a quantized tensor would lose its quantizer; one of forward mode's zeros, which have no
            # memory, makes torch 2.6 crash.
            lazily = fresh or (storage_address(tensor) not in self.foreign and not is_zero_tensor(tensor))
            if lazily and not tensor.is_quantized and has_lazy_copies(tensor):
                if not fresh and (tensor.is_conj() or tensor.is_neg()):
                    return _through_the_bit(tensor, self.keep)
                history = tensor.requires_grad and is_grad_enabled()
                kept = _lazy_copy_without_history(tensor) if history else lazy_copy(tensor)
                return kept if type(kept) is type(tensor) else _of_the_class_of(tensor, kept)
        except (RuntimeError, TypeError):
            pass  # no storage of the plain kind: sparse, nested, from NumPy, in shared memory, a class of its own
        return copied(tensor)


class HiddenKeeper(Keeper):
    """Takes over from a keeper when the model enters a dispatch mode of its own, which must not see these calls."""

    def __init__(self, keeper: Keeper) -> None:
        self.foreign, self._guards = keeper.foreign, keeper._guards

    def keep(self, tensor: Tensor, fresh: bool = False) -> Tensor | None:
        with without_dispatch_modes():
            return super().keep(tensor, fresh)


def has_lazy_copies(tensor: Tensor) -> bool:
    """Does torch guarantee copy-on-write on this device? On others, some operations write to shared memory without
    copying it first."""
    return tensor.is_cpu or tensor.is_cuda or tensor.is_meta


def give_own_memory(tensors: Iterable[ref[Tensor]], ours: Mapping[int, int] = MappingProxyType({})) -> None:
    """Cut tensors loose from their lazy copies if the model, or the user, can still reach them.

    Torch can't enlarge memory that has lazy copies, as `torch.add(x, y, out=tensor)` may ask it to. Tensors that only
    autograd keeps are left alone: there are many, and nobody writes to them. `ours` says, by id, how often the log
    itself holds a tensor.
    """
    for reference in tensors:
        tensor = reference()
        if tensor is None or references(tensor) <= ours.get(id(tensor), 0):
            continue
        for part in inner_tensors(tensor).values() or (tensor,):
            try:
                if shares_lazily(part):
                    part.data_ptr()  # asking for the address to write to makes the memory its own
            except RuntimeError:  # no storage: sparse, nested, fake
                continue


def _lazy_copy_without_history(tensor: Tensor) -> Tensor:
    try:
        set_grad_enabled(False)  # a third of the cost of detaching
        return lazy_copy(tensor)
    finally:
        set_grad_enabled(True)


@dataclass(frozen=True)
class Transform:
    """What the options make of a value before it is stored."""

    postfunc: Callable[[Tensor], Any] | None = None
    keep_raw: bool = True
    device: torch.device | None = None
    dtype: torch.dtype | None = None

    def apply(self, value: Value) -> None:
        """Replace what was kept of a value by its transformed result. The value's shape, type and device stay known."""
        raw = value.saved
        assert raw is not None
        _ = value.facts  # from the tensor as it was
        value.transformed = self.made_of(raw)
        value.saved = self.moved(raw) if self.keep_raw else None

    def made_of(self, raw: Tensor) -> Any:
        """What the user's function makes of a value; None if there is none."""
        if self.postfunc is None:
            return None
        postfunc = self.postfunc  # which must not disturb the model's random numbers
        return rng.restoring(lambda: self.moved(postfunc(raw)))

    def moved(self, thing: Any) -> Any:
        if not isinstance(thing, Tensor):
            return thing
        floats = thing.is_floating_point() and not thing.is_quantized
        return thing.to(device=self.device, dtype=self.dtype if floats else None)


def copied(tensor: Tensor) -> Tensor | None:
    """A copy with the same strides: kernels traverse memory in stride order, and round accordingly.

    None for a tensor without memory (libraries that shard parameters free the memory and keep the tensor), and for a
    tensor of a class that can't be copied.
    """
    if is_plain(tensor):
        return _with_strides(tensor.clone(), tensor)
    layout = layout_of(tensor)
    if layout is not None and 0 <= memory_behind(tensor) < layout.itemsize * (layout.end + 1) and tensor.numel():
        return None
    try:
        copy = call_with_grad(False, _copied, tensor, layout)
    except TypeError:
        return None
    return copy if copy is None or type(copy) is type(tensor) else _of_the_class_of(tensor, copy)


def _copied(tensor: Tensor, layout: MemoryLayout | None) -> Tensor | None:
    if tensor.is_quantized:
        copy: Tensor = deepcopy(tensor.detach())  # a clone would lie in another order
        return copy
    if layout is None or type(tensor) not in (Tensor, Parameter):
        return tensor.clone()
    if tensor.is_conj() or tensor.is_neg():
        return _through_the_bit(tensor, lambda bare: _copied(bare, layout_of(bare)))
    if tensor.is_contiguous():
        return _with_strides(tensor.clone(), tensor)
    span = layout.end - layout.offset + 1
    if span > 4 * max(tensor.numel(), 1):  # a few elements spread over much memory
        return tensor.clone()
    memory = tensor.as_strided((span,), (1,), layout.offset).clone()
    return memory.as_strided(layout.size, layout.stride, 0)


def _with_strides(copy: Tensor, tensor: Tensor) -> Tensor:
    """Dimensions of size 1 may have any stride, and tell kernels which order is meant."""
    return copy if copy.stride() == tensor.stride() else copy.as_strided(tensor.size(), tensor.stride())


def _through_the_bit(tensor: Tensor, keep: Callable[[Tensor], Tensor | None]) -> Tensor | None:
    """Keep a tensor that is the conjugate or negative of what lies in its memory as such: kernels round differently."""
    turn = torch.conj if tensor.is_conj() else neg_view
    kept = keep(call_with_grad(False, turn, tensor))
    return None if kept is None else call_with_grad(False, turn, kept)


def _of_the_class_of(tensor: Tensor, copy: Tensor) -> Tensor:
    """A copy of a tensor as a tensor of the same class, with the same attributes. One that holds others is what it
    says that its copy is."""
    if isinstance(tensor, (Parameter, FakeTensor)) or inner_tensors(tensor):
        return copy
    copy = as_class(copy, type(tensor))
    vars(copy).update(vars(tensor))
    return copy
