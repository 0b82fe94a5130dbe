"""Are two tensors the same numbers, in one layout or in another?"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

#: What is larger stands for infinity: masks are filled with the lowest number of a type, or with -inf.
INFINITE = 1e30

#: Tensors of more elements are looked at piece by piece.
_LARGE = 1 << 20

#: Tensors of more dimensions (those of size 1 not counted) are not permuted: there would be too many ways.
_MOST_DIMENSIONS = 5


class Fit(NamedTuple):
    """One tensor laid out as another."""

    error: float  # how far they are apart
    how: str
    tensor: Tensor


def plain(tensor: Tensor) -> Tensor:
    """The values as dense numbers, real ones in float64."""
    tensor = tensor.detach()
    if tensor.is_quantized:
        tensor = tensor.dequantize()
    if tensor.layout is not torch.strided:
        tensor = tensor.to_dense()
    return torch.view_as_real(tensor.resolve_conj().to(torch.complex128)) if tensor.is_complex() else tensor.double()


def relative_error(one: Tensor, other: Tensor) -> float:
    """How far two tensors are apart, against their size: |a - b| / max(|a|, |b|); inf if they can't be compared.

    >>> relative_error(torch.tensor([3.0, 4.0]), torch.tensor([3.0, 4.0])), relative_error(torch.ones(2), torch.ones(3))
    (0.0, inf)

    What counts as infinite has to be infinite in both.
    """
    if one.is_nested or other.is_nested or one.shape != other.shape:
        return math.inf
    if one.is_meta or other.is_meta:  # without numbers
        return 0.0 if one.is_meta and other.is_meta else math.inf
    norms = [_norms(plain(x), plain(y)) for x, y in zip(pieces(one), pieces(other), strict=True)]
    difference, *sizes = (math.hypot(*each) for each in zip(*norms, strict=True))
    return 0.0 if difference == 0 else difference / max(sizes) if math.isfinite(difference) else math.inf


def _norms(one: Tensor, other: Tensor) -> tuple[float, float, float]:
    """Of the difference of two tensors, and of both, without what is infinite; inf if that is not the same."""
    norms = float((one - other).norm()), float(one.norm()), float(other.norm())
    if norms[1] < INFINITE and norms[2] < INFINITE:  # so neither is NaN
        return norms
    finite = one.abs() < INFINITE
    if not torch.equal(finite, other.abs() < INFINITE) or not torch.equal(one.isnan(), other.isnan()):
        return math.inf, 0.0, 0.0
    one, other = one[finite], other[finite]
    return float((one - other).norm()), float(one.norm()), float(other.norm())


def pieces(tensor: Tensor) -> tuple[Tensor, ...]:
    """A large tensor in pieces, so that what is computed of it never takes much memory."""
    if tensor.numel() <= _LARGE or tensor.layout is not torch.strided or tensor.is_quantized:
        return (tensor,)
    longest = max(range(tensor.dim()), key=lambda dimension: tensor.shape[dimension])
    return torch.tensor_split(tensor, min(tensor.shape[longest], math.ceil(tensor.numel() / _LARGE)), longest)


def best_fit(tensor: Tensor, shape_of: Tensor, good_enough: float = 1e-7) -> Fit | None:
    """One tensor laid out as another, as near to it as it gets; None if it has another number of elements."""
    best: Fit | None = None
    if tensor.is_nested or shape_of.is_nested or tensor.layout is not torch.strided:
        return None
    for how, laid_out in _layouts(tensor, shape_of.shape):
        error = relative_error(laid_out, shape_of)
        if how == "as it is" and error > good_enough and not _same_size(tensor, shape_of):
            return Fit(error, how, laid_out)  # other numbers: no order of them is equal
        if best is None or error < 0.7 * best.error or error <= good_enough:
            best = Fit(error, how, laid_out)
        if error <= good_enough:
            break
    return best


def _same_size(one: Tensor, other: Tensor) -> bool:
    sizes = float(plain(one).norm()), float(plain(other).norm())
    return abs(sizes[0] - sizes[1]) <= 1e-6 * max(sizes)


def laid_out_as(tensor: Tensor, shape: Sequence[int], how: str) -> Tensor:
    """A tensor in the layout that `fit` found for another of its shape."""
    return next((made for name, made in _layouts(tensor, shape) if name == how), tensor.reshape(tuple(shape)))


def _layouts(tensor: Tensor, shape: Sequence[int]) -> Iterator[tuple[str, Tensor]]:
    """The ways to lay a tensor out in a shape: as it is, reshaped, permuted before or after that."""
    shape = tuple(shape)
    if tensor.numel() != math.prod(shape):
        return
    if tuple(tensor.shape) == shape:
        yield "as it is", tensor
    else:
        yield "reshaped", tensor.reshape(shape)
    sizes = [size for size in shape if size != 1]
    for order in _permutations(len(sizes)):
        back = [order.index(dimension) for dimension in range(len(order))]
        yield f"reshaped, permuted {back}", tensor.reshape([sizes[d] for d in order]).permute(back).reshape(shape)
    squeezed = tensor.squeeze()
    for order in _permutations(squeezed.dim()):
        yield f"permuted {list(order)}", squeezed.permute(order).reshape(shape)


def _permutations(dimensions: int) -> Iterator[tuple[int, ...]]:
    """All but the one that changes nothing."""
    if dimensions <= _MOST_DIMENSIONS:
        yield from itertools.islice(itertools.permutations(range(dimensions)), 1, None)
