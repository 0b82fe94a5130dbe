"""Are two tensors the same, bit for bit? And if not, how far apart are they?"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .._torch import FakeTensor

#: What sparse tensors are made of.
_PARTS = {
    torch.sparse_coo: ("_indices", "_values"),
    torch.sparse_csr: ("crow_indices", "col_indices", "values"),
    torch.sparse_bsr: ("crow_indices", "col_indices", "values"),
    torch.sparse_csc: ("ccol_indices", "row_indices", "values"),
    torch.sparse_bsc: ("ccol_indices", "row_indices", "values"),
}

#: Types for which torch has no comparison, each with one that holds all its values.
_COMPARABLE = {torch.complex32: torch.complex64}
_COMPARABLE |= {dtype: torch.float32 for name, dtype in vars(torch).items() if name.startswith("float8")}


def same(one: Tensor, other: Tensor) -> bool:
    """Equal in shape, type, layout and every value; NaN equals NaN. Without values (meta, fake), the rest has to do."""
    if (one.layout, one.dtype, one.is_nested) != (other.layout, other.dtype, other.is_nested):
        return False
    if one.layout is torch.jagged:  # each has a length of its own for its ragged dimension, even if they agree
        return all(same(a, b) for a, b in zip(_jagged_parts(one), _jagged_parts(other), strict=True))
    if one.is_nested:
        parts = list(zip(one.unbind(), other.unbind(), strict=False))
        return one.size(0) == other.size(0) and all(same(a, b) for a, b in parts)
    if one.shape != other.shape or one.is_quantized != other.is_quantized or one.is_meta != other.is_meta:
        return False
    if without_values(one) or without_values(other):
        return True
    if one.layout in _PARTS:  # not as dense tensors: torch crashes on those whose indices make no sense
        return all(same(getattr(one, part)(), getattr(other, part)()) for part in _PARTS[one.layout])
    one, other = _plain(one), _plain(other)
    if torch.equal(one, other):
        return True
    if not (one.is_floating_point() or one.is_complex()) or not one.sum().isnan():
        return False  # without NaN, what is not equal is not the same: one look instead of five
    return bool(((one == other) | ((one != one) & (other != other))).all())


def _jagged_parts(tensor: Any) -> list[Tensor]:
    lengths = tensor.lengths()
    return [tensor.values(), tensor.offsets(), *([] if lengths is None else [lengths])]


def without_values(tensor: Tensor) -> bool:
    """Is this a tensor with a shape and a type only?"""
    return tensor.is_meta or isinstance(tensor, FakeTensor)


def difference(one: Tensor, other: Tensor) -> str:
    """In words: by how much, or in what, two tensors differ."""
    if one.is_nested or other.is_nested or one.shape != other.shape:
        return f"shape {_shape(one)} against {_shape(other)}"
    if one.dtype != other.dtype or one.layout != other.layout:
        return f"{one.dtype}, {one.layout} against {other.dtype}, {other.layout}"
    one, other = _plain(one), _plain(other)
    differ = ~((one == other) | ((one != one) & (other != other)))
    apart = (one.to(torch.complex128) - other.to(torch.complex128)).abs()[differ]
    return (
        f"{int(differ.sum())} of {differ.numel()} values, by at most {float(apart.max()) if apart.numel() else 0:.3g}"
    )


def _shape(tensor: Tensor) -> str:
    return "nested" if tensor.is_nested else str(tuple(tensor.shape))


def _plain(tensor: Tensor) -> Tensor:
    """The values as an ordinary dense tensor."""
    tensor = tensor.detach()
    if type(tensor) is not Tensor and type(tensor).__torch_dispatch__ is Tensor.__torch_dispatch__:
        tensor = tensor.as_subclass(Tensor)  # a subclass may define comparisons itself
    if tensor.is_quantized:
        return tensor.int_repr()
    if tensor.dtype.itemsize == 1 and tensor.is_floating_point():  # 8-bit floats know hardly any operation
        tensor = tensor.to(torch.float32)
    if tensor.layout is not torch.strided:
        tensor = tensor.to_dense()
    tensor = tensor.resolve_conj().resolve_neg()
    return tensor.to(_COMPARABLE.get(tensor.dtype, tensor.dtype))
