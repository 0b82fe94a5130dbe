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

#: Masks are also filled with -1e4, -65504, -1e9 ...: one number, or up to three if masks were added, by so much larger
#: than all else. They are of one order of magnitude, and each is the same to four digits wherever it stands.
LEAST_FILL, _FILL_FACTOR, _MOST_FILLS = 1e4, 1e3, 3
_FILL_SPREAD, _FILL_DIGITS = 1e-2, 1e4

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

    What counts as infinite has to be infinite in both. Where a mask was filled with a huge number, that number and all
    else are compared each by themselves, and the larger error counts: beside -1e9, nothing else would have a size.

    >>> scores, fill = torch.tensor([1.0, 2.0]), torch.full((6,), -1e9)
    >>> relative_error(torch.cat([scores, fill]), torch.cat([2 * scores, fill]))
    0.5
    """
    if one.is_nested or other.is_nested or one.shape != other.shape:
        return math.inf
    if one.is_meta or other.is_meta:  # without numbers
        return 0.0 if one.is_meta and other.is_meta else math.inf
    difference, size = _norms(one, other)
    if 0 < difference < math.inf and size >= LEAST_FILL:
        limit = min(fill_limit(one), fill_limit(other))
        groups = _norms(one, other, 0.0, limit), _norms(one, other, limit, INFINITE)
        if limit < INFINITE and all(math.isfinite(apart) for apart, _ in groups):
            return max(_ratio(*group) for group in groups)
    return _ratio(difference, size)


def _ratio(difference: float, size: float) -> float:
    return 0.0 if difference == 0 else difference / size if math.isfinite(difference) else math.inf


def _norms(one: Tensor, other: Tensor, low: float = 0.0, high: float = INFINITE) -> tuple[float, float]:
    """Of the difference of two tensors and of the larger one, of elements in a range of sizes, and of no others.

    The first is inf if these are not at the same places in both.
    """
    norms = [_piece_norms(plain(x), plain(y), low, high) for x, y in zip(pieces(one), pieces(other), strict=True)]
    difference, *sizes = (math.hypot(*each) for each in zip(*norms, strict=True))
    return difference, max(sizes)


def _piece_norms(one: Tensor, other: Tensor, low: float, high: float) -> tuple[float, float, float]:
    norms = float((one - other).norm()), float(one.norm()), float(other.norm())
    if low == 0 and norms[1] < high and norms[2] < high:  # so neither is NaN
        return norms
    inside = _is_between(one, low, high)
    if not torch.equal(inside, _is_between(other, low, high)) or not torch.equal(one.isnan(), other.isnan()):
        return math.inf, 0.0, 0.0
    one, other = one[inside], other[inside]
    return float((one - other).norm()), float(one.norm()), float(other.norm())


def _is_between(tensor: Tensor, low: float, high: float) -> Tensor:
    sizes = tensor.abs()
    return (sizes >= low) & (sizes < high)


def fill_limit(tensor: Tensor) -> float:
    """The size from which on elements are what a mask was filled with; `INFINITE` if there is no such number.

    >>> fill_limit(torch.tensor([0.5, 3.0, -1e9, -1e9])), fill_limit(torch.tensor([0.5, 3.0, -5.0]))
    (10000000.0, 1e+30)

    A fill value is much larger than all else, and the same wherever it stands, up to what was added to it. Several
    masks that were added make a few of them. Large activations, on the other hand, are all different.
    """
    found = [numbers[numbers.abs() < INFINITE] for numbers in (plain(piece).reshape(-1) for piece in pieces(tensor))]
    parts = [numbers for numbers in found if numbers.numel()]
    largest = max((float(numbers.abs().max()) for numbers in parts), default=0.0)
    if largest < LEAST_FILL:
        return INFINITE
    kinds: set[float] = set()
    rest = 0.0
    for numbers in parts:
        is_fill = numbers.abs() >= largest * _FILL_SPREAD
        rest = max(rest, float(numbers.masked_fill(is_fill, 0.0).abs().max()))
        if rest * _FILL_FACTOR > largest:
            return INFINITE
        kinds.update(torch.unique((numbers[is_fill] / largest * _FILL_DIGITS).round()).tolist())
    return largest * _FILL_SPREAD if rest > 0 and len(kinds) <= _MOST_FILLS else INFINITE


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
