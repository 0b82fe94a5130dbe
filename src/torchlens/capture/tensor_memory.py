"""Where a tensor lies in memory, what else lies there, and how often that was written to."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import Parameter

from .._torch import data_address, storage_address
from .records import MemoryLayout

UNVERSIONED = -1  # the version of memory made in inference mode, which counts no writes

_COMPRESSED = (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)

_new_layout = tuple.__new__  # a third of the time that `MemoryLayout(...)` takes


def address_of(tensor: Tensor) -> int | None:
    """Where a tensor's storage is, of a sparse one that of its values; None for layouts that have none."""
    try:
        return storage_address(tensor) or None
    except RuntimeError:
        return _address_of_values(tensor)


def _address_of_values(tensor: Tensor) -> int | None:
    try:
        if tensor.layout is torch.sparse_coo:
            return storage_address(tensor._values()) or None
        return storage_address(tensor.values()) or None if tensor.layout in _COMPRESSED else None
    except RuntimeError:
        return None


def storage_of(tensor: Tensor) -> torch.UntypedStorage:
    return (tensor if tensor.layout is not torch.sparse_coo else tensor._values()).untyped_storage()


def lies_outside(tensor: Tensor) -> bool:
    """Is this memory of NumPy's, of a file, of another process? Then it may change without torch."""
    try:
        return not storage_of(tensor).resizable()
    except (RuntimeError, NotImplementedError):
        return False  # sparse in another layout, a wrapper


def layout_of(tensor: Tensor) -> MemoryLayout | None:
    if tensor.layout is not torch.strided or tensor.is_nested:
        return None
    offset = int(tensor.storage_offset())
    fields = (tensor.size(), tensor.stride(), offset, tensor.dtype.itemsize, tensor.is_conj() or tensor.is_neg())
    return _new_layout(MemoryLayout, fields)


def memory_behind(tensor: Tensor) -> int:
    """Bytes of the memory behind a tensor, -1 if that can't be said."""
    try:
        return tensor.untyped_storage().nbytes()
    except RuntimeError:
        return -1


def is_plain(tensor: Tensor) -> bool:
    """Does a tensor lie in memory as it is, one element after the other, without a history?"""
    plain = type(tensor) is Tensor and not tensor.requires_grad and tensor.layout is torch.strided
    plain = plain and not (tensor.is_nested or tensor.is_quantized or tensor.is_conj() or tensor.is_neg())
    return plain and tensor.is_contiguous() and _has_memory(tensor)


def _has_memory(tensor: Tensor) -> bool:
    try:
        return data_address(tensor) != 0
    except RuntimeError:  # a wrapper of torch.func's
        return False


def own_memory(tensor: Tensor) -> int:
    """Cut `tensor` loose from its lazy copies; return where its memory is now, 0 if it has none."""
    try:
        return tensor.data_ptr()  # asking for the address to write to makes the memory its own
    except RuntimeError:
        return 0  # fake, sparse


def version_of(tensor: Tensor | None) -> int:
    """How often the memory of a tensor was written to, as far as that is counted."""
    try:
        return UNVERSIONED if tensor is None else tensor._version
    except RuntimeError:
        return UNVERSIONED


def inner_tensors(tensor: Tensor) -> dict[str, Tensor]:
    """The tensors that a tensor is made of, by attribute, if it is of a class that holds others; else none."""
    if type(tensor) is Tensor or type(tensor) is Parameter or not hasattr(tensor, "__tensor_flatten__"):
        return {}
    names, _ = tensor.__tensor_flatten__()
    return {name: getattr(tensor, name) for name in names if isinstance(getattr(tensor, name), Tensor)}


def covers(one: MemoryLayout, other: MemoryLayout) -> bool:
    """Does a layout have every element of another one in the same memory?"""
    reaches = one.offset <= other.offset and other.end <= one.end
    return reaches and one.is_dense and one.itemsize == other.itemsize


def overlap(one: MemoryLayout | None, other: MemoryLayout | None) -> bool:
    """Do two layouts of the same memory have an element in common?"""
    if one is None or other is None or one.itemsize != other.itemsize:
        return True
    if one.end < other.offset or other.end < one.offset or 0 in one.size or 0 in other.size:
        return False
    for layout, within in ((one, other), (other, one)):
        if within.is_dense and (within.offset <= layout.offset <= within.end or layout.end <= within.end):
            return True  # its first or its last element
    touched = torch.zeros(max(one.end, other.end) + 1, dtype=torch.bool, device="cpu")
    one.of(touched).fill_(True)
    return bool(other.of(touched).any())


def differ(saved: Tensor | None, tensor: Tensor) -> bool | None:
    """Is the tensor no longer what was saved? None if that can't be known."""
    try:
        if saved is None or saved.shape != tensor.shape or (saved.dtype, saved.device) != (tensor.dtype, tensor.device):
            return None
        now = tensor.detach()
        return not saved.equal(now) and not bool(((saved == now) | ((saved != saved) & (now != now))).all())
    except RuntimeError:
        return None  # sparse, fake, nested: not to be compared
