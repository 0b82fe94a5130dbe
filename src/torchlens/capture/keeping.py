"""Keep a value without copying it, and make of it what the user wants to have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import Parameter

from .._torch import lazy_copy, storage_address
from . import rng
from .records import Layout, Recording, Value


class Sink(Protocol):
    """Where values go as soon as it is certain that they are wanted."""

    def begin(self, recording: Recording) -> None: ...

    def put(self, value: Value) -> None: ...


class Keeper:
    """Keeps what tensors hold now, whatever happens to them later.

    Memory that this forward pass allocated is shared with a lazy copy: whoever writes to it first, by whatever way,
    gets memory of his own. Foreign memory must stay where it is, since raw pointers into it may exist (a NumPy view of
    an input, a captured graph over parameters), so a value in it is copied at once.
    """

    def __init__(self) -> None:
        self.foreign: set[int] = set()  # storages that someone else may read or write at the address they have now

    def mark_foreign(self, tensor: Tensor) -> None:
        address = address_of(tensor)
        if address is not None:
            self.foreign.add(address)

    def keep(self, tensor: Tensor) -> Tensor:
        try:
            if storage_address(tensor) not in self.foreign and not tensor.is_quantized:  # it would lose its quantizer
                return lazy_copy(tensor.detach() if tensor.requires_grad else tensor)
        except RuntimeError:
            pass  # no storage of the plain kind: sparse, nested, from NumPy, in shared memory
        return copied(tensor)


@dataclass(frozen=True)
class Transform:
    """What is made of a value before it is stored."""

    postfunc: Callable[[Tensor], Any] | None = None
    keep_raw: bool = True
    device: torch.device | None = None
    dtype: torch.dtype | None = None

    def apply(self, value: Value) -> None:
        """Replace what was kept of a value by what is wanted of it. The value's shape, type and device stay known."""
        raw = value.saved
        assert raw is not None
        _ = value.facts  # from the tensor as it was
        if self.postfunc is not None:
            with rng.restored():  # a function that draws random numbers must not disturb the model's
                value.transformed = self._moved(self.postfunc(raw))
        value.saved = self._moved(raw) if self.keep_raw else None

    def _moved(self, thing: Any) -> Any:
        if not isinstance(thing, Tensor):
            return thing
        floats = thing.is_floating_point() and not thing.is_quantized
        return thing.to(device=self.device, dtype=self.dtype if floats else None)


def address_of(tensor: Tensor) -> int | None:
    """Where a tensor's storage is; None for layouts that have none."""
    try:
        return storage_address(tensor if tensor.layout is not torch.sparse_coo else tensor._values()) or None
    except RuntimeError:
        return None


def layout_of(tensor: Tensor) -> Layout | None:
    if tensor.layout is not torch.strided or tensor.is_nested:
        return None
    size, stride, offset = tensor.size(), tensor.stride(), int(tensor.storage_offset())
    return Layout(size, stride, offset, tensor.dtype.itemsize, tensor.is_conj())


def copied(tensor: Tensor) -> Tensor:
    """A copy with the same strides: kernels go through memory in their order, and round accordingly."""
    layout = layout_of(tensor)
    with torch.no_grad():
        if layout is None or tensor.is_contiguous() or tensor.is_quantized or type(tensor) not in (Tensor, Parameter):
            return tensor.clone()
        span = layout.end - layout.offset + 1
        if layout.conj or span > 4 * max(tensor.numel(), 1):  # a few elements spread over much memory
            return tensor.clone()
        memory = tensor.as_strided((span,), (1,), layout.offset).clone()
        return memory.as_strided(layout.size, layout.stride, 0)
