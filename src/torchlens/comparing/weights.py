"""Parameters by content: equal, transposed, a part of another, or not the same."""

from __future__ import annotations

import torch
from torch import Tensor

from ..capture.records import Value
from .fingerprints import fingerprint, same_numbers
from .layouts import best_fit, relative_error
from .sides import Side

_EQUAL = 1e-6

#: A region of more operations is not computed again with another weight.
_FEW_STEPS = 8


def weight_notes(donor: Side, recipient: Side, j: int, i: int) -> list[str]:
    """What is different about the weights of two operations, in words; empty if they have the same."""
    unused, missing = _unlike(donor, recipient, j, i)
    notes = []
    for value in missing:
        other = next((v for v in unused if v.shape.numel() == value.shape.numel()), None)
        if other is None:
            notes.append(f"{recipient.name} uses {value.address}, for which {donor.name} has nothing here")
        else:
            unused.remove(other)
            notes.append(_difference(donor, recipient, other, value))
    return notes + [f"{donor.name} uses {v.address}, for which {recipient.name} has nothing here" for v in unused]


def used_transposed(side: Side, end: int, region: list[int], wanted: Tensor | None, tolerance: float) -> Value | None:
    """The square weight of a region with whose transpose its end is as wanted; None if there is none."""
    weights = [value for i in region for value in side.params(i)] if len(region) <= _FEW_STEPS else []
    for value in weights:
        tensor = side.param(value)
        if wanted is None or tensor is None or tensor.dim() < 2 or tensor.shape[-1] != tensor.shape[-2]:
            continue
        made = side.with_param(end, region, value, tensor.mT)
        found = None if made is None else best_fit(made, wanted)
        if found is not None and found.error <= tolerance:
            return value
    return None


def have_other_weights(donor: Side, recipient: Side, j: int, i: int) -> bool:
    """Is anything different about them?"""
    return any(_unlike(donor, recipient, j, i))


def _unlike(donor: Side, recipient: Side, j: int, i: int) -> tuple[list[Value], list[Value]]:
    """The weights of two operations that have no equal at the other."""
    theirs, own = donor.params(j), recipient.params(i)
    tensors, own_tensors = _tensors(donor, theirs), _tensors(recipient, own)
    if any(tensor is None for tensor in (*tensors, *own_tensors)):
        return [], []
    constants = [donor.values[p] for p in donor.parents[j] if not donor.comes_from_input(p)]
    constants += [recipient.values[p] for p in recipient.parents[i] if not recipient.comes_from_input(p)]
    respelled = donor.spelled(j) != recipient.spelled(i)
    missing = [v for v, t in zip(own, own_tensors, strict=True) if not _is_among(t, tensors + constants, respelled)]
    unused = [v for v, t in zip(theirs, tensors, strict=True) if not _is_among(t, own_tensors + constants, respelled)]
    if donor.function(j) != recipient.function(i) and not (missing and theirs):
        return [], []
    return unused, missing


def _tensors(side: Side, values: list[Value]) -> list[Tensor | None]:
    return [side.param(value) for value in values]


def _is_among(tensor: Tensor | None, others: list[Tensor | None], respelled: bool) -> bool:
    """Equal to one of them, to its transpose if the functions differ, or a part of one or made of one?"""
    if tensor is None:
        return True
    turned = [tensor.t()] if tensor.dim() == 2 and respelled else []
    return any(
        _equal(each, other) or is_part(each, other) or is_part(other, each)
        for other in others
        if other is not None
        for each in (tensor, *turned)
    )


def _equal(one: Tensor, other: Tensor) -> bool:
    return one.numel() == other.numel() and relative_error(one.reshape(other.shape), other) < _EQUAL


def is_part(small: Tensor, large: Tensor) -> bool:
    """Is one tensor a slice of the other, as a query weight is of a fused one?"""
    if small.dim() != large.dim() or small.numel() >= large.numel() or small.numel() == 0:
        return False
    unlike = [d for d in range(large.dim()) if small.shape[d] != large.shape[d]]
    if len(unlike) != 1 or large.shape[unlike[0]] % small.shape[unlike[0]]:
        return False
    return any(_equal(piece, small) for piece in torch.split(large, small.shape[unlike[0]], unlike[0]))


def _difference(donor: Side, recipient: Side, theirs: Value, own: Value) -> str:
    one, other = donor.param(theirs), recipient.param(own)
    assert one is not None and other is not None
    first, second = sorted([(donor.name, theirs.address), (recipient.name, own.address)])
    words = f"{first[0]}'s {first[1]} and {second[0]}'s {second[1]}"
    if one.dim() == 2 and tuple(one.t().shape) == tuple(other.shape) and _equal(one.t(), other):
        return f"{words} (one is the other transposed)"
    if same_numbers(fingerprint(one), fingerprint(other), _EQUAL) and one.reshape(-1).sort()[0].equal(
        other.reshape(-1).sort()[0]
    ):
        return f"{words} (the same numbers in a different order)"
    words += f" (relative difference {relative_error(one.reshape(other.shape), other):.1e})"
    constant = [name for name, tensor in ((donor.name, one), (recipient.name, other)) if _is_constant(tensor)]
    if constant:
        words += f"; {constant[0]}'s is the same number throughout: was it loaded?"
    return words + _elsewhere(donor, recipient, other, theirs)


def _is_constant(tensor: Tensor) -> bool:
    numbers = tensor.reshape(-1)
    first = numbers[:64]  # most are not, and a look at a few tells
    return len(numbers) > 1 and bool((first == first[0]).all()) and bool((numbers == first[0]).all())


def _elsewhere(donor: Side, recipient: Side, other: Tensor, but: Value) -> str:
    """Is it a weight that belongs elsewhere?"""
    if _is_constant(other):
        return ""
    for value in donor.trace.params:
        tensor = donor.param(value)
        if value is but or tensor is None:
            continue
        if _equal(tensor, other) or (tensor.dim() == 2 and _equal(tensor.t(), other)) or is_part(other, tensor):
            return f"; {recipient.name}'s is {donor.name}'s {value.address}"
    return ""
