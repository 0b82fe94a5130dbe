"""A few numbers that tell tensors apart whatever their layout is."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from .layouts import INFINITE, LEAST_FILL, fill_limit, pieces, plain

#: A tensor with fewer elements, or with fewer different values, is equal to others by chance.
_FEW_ELEMENTS, _FEW_VALUES = 6, 4
_LOOKED_AT = 64

#: The mean of what fills a mask is a sum of huge numbers: it is known to so many digits.
_FILLS_ALIKE = 1e-9


class Fingerprint(NamedTuple):
    """Moments and extremes of the elements of a tensor, without those that stand for infinity or fill a mask."""

    elements: int
    infinite: int  # how many stand for infinity or fill a mask
    mean: float
    mean_size: float
    rms: float
    cube: float  # the mean of the third powers
    high: float
    low: float
    telling: bool  # varied enough that an equal one is no accident
    fill: float  # the mean of what fills a mask; 0 without it


def fingerprint(tensor: Tensor | None) -> Fingerprint:
    """
    >>> fingerprint(torch.tensor([[3.0], [4.0]]))[:3], fingerprint(torch.arange(24.0)).telling
    ((2, 0, 3.5), True)

    Reshaping and transposing change nothing but the last digits:

    >>> table = torch.rand(4, 6, dtype=torch.float64)
    >>> same_numbers(fingerprint(table), fingerprint(table.T.contiguous()), 1e-9)
    True
    """
    if tensor is None or tensor.is_nested or tensor.is_meta or tensor.numel() == 0:
        return Fingerprint(0, 0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, False, 0.0)
    count = tensor.numel() * (2 if tensor.is_complex() else 1)
    parts, fill = _parts(tensor, count)
    if not parts:
        return Fingerprint(count, count, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, False, 0.0)
    finite = sum(part.elements for part in parts)
    mean, mean_size, square, cube = (math.fsum(each) / finite for each in zip(*(p.sums for p in parts), strict=True))
    low, high = min(part.low for part in parts), max(part.high for part in parts)
    varied = len(set().union(*(part.examples for part in parts))) >= _FEW_VALUES
    telling = tensor.is_floating_point() and finite >= _FEW_ELEMENTS and low < high and varied
    return Fingerprint(count, count - finite, mean, mean_size, square**0.5, cube, high, low, telling, fill)


def _parts(tensor: Tensor, count: int) -> tuple[list[_Sums], float]:
    """The sums of each piece, and what a mask was filled with."""
    parts = _sums_below(tensor, count, INFINITE)
    limit = fill_limit(tensor) if any(max(part.high, -part.low) >= LEAST_FILL for part in parts) else INFINITE
    if limit == INFINITE:
        return parts, 0.0
    rest = _sums_below(tensor, count, limit)
    filled = sum(part.elements for part in parts) - sum(part.elements for part in rest)
    total = math.fsum([*(part.sums[0] for part in parts), *(-part.sums[0] for part in rest)])
    return rest, total / filled


def _sums_below(tensor: Tensor, count: int, limit: float) -> list[_Sums]:
    return [part for part in (_sums(piece, count, limit) for piece in pieces(tensor)) if part is not None]


class _Sums(NamedTuple):
    """Of one piece of a tensor, without what is larger than a limit."""

    elements: int
    low: float
    high: float
    sums: list[float]  # of the numbers, their sizes, squares and third powers
    examples: set[float]


def _sums(piece: Tensor, count: int, limit: float) -> _Sums | None:
    numbers = plain(piece).reshape(-1)
    low, high = (float(end) for end in numbers.aminmax())
    if not (low > -limit and high < limit):  # also if there is a NaN
        numbers = numbers[numbers.abs() < limit]
        if numbers.numel() == 0:
            return None
        low, high = (float(end) for end in numbers.aminmax())
    squares = numbers * numbers
    sums = torch.stack([numbers.sum(), numbers.abs().sum(), squares.sum(), torch.dot(squares, numbers)]).tolist()
    examples = set(numbers[:: max(1, count // _LOOKED_AT)].tolist())
    return _Sums(numbers.numel(), low, high, sums, examples)


def same_numbers(one: Fingerprint, other: Fingerprint, tolerance: float) -> bool:
    """Are they of the same numbers? A telling one may be of a repeated tensor; all others need the same count."""
    if one.telling != other.telling:
        return False
    if not one.telling and (one.elements, one.infinite) != (other.elements, other.infinite):
        return False
    if abs(one.fill - other.fill) > max(tolerance, _FILLS_ALIKE) * max(abs(one.fill), abs(other.fill)):
        return False
    size = max(one.rms, other.rms, 1e-300)
    near = tolerance * size
    if abs(one.rms - other.rms) > near or abs(one.mean_size - other.mean_size) > near:
        return False
    if abs(one.mean - other.mean) > near:
        return False
    largest = max(abs(one.high), abs(one.low), size)
    if abs(one.cube - other.cube) > 10 * near * largest**2:
        return False
    return max(abs(one.high - other.high), abs(one.low - other.low)) <= 10 * tolerance * largest


class FingerprintIndex:
    """Values by fingerprint. Those with the same one are a class."""

    def __init__(self, fingerprints: Mapping[int, Fingerprint], tolerance: float) -> None:
        self.fingerprints, self.tolerance = fingerprints, tolerance
        self._order = sorted(fingerprints, key=lambda key: (fingerprints[key].rms, key))
        self._sizes = [fingerprints[key].rms for key in self._order]
        self.classes: dict[int, int] = {}
        self.members: dict[int, list[int]] = {}
        for place, key in enumerate(self._order):
            number = self._class_before(place, fingerprints[key])
            self.classes[key] = number
            self.members.setdefault(number, []).append(key)
        for members in self.members.values():
            members.sort()

    def _class_before(self, place: int, wanted: Fingerprint) -> int:
        """The class of an equal one that comes before in the order of sizes; a new one if there is none."""
        for earlier in range(place - 1, max(-1, place - 40), -1):
            if wanted.rms - self._sizes[earlier] > 2 * self.tolerance * wanted.rms + 1e-300:
                break
            if same_numbers(wanted, self.fingerprints[self._order[earlier]], self.tolerance):
                return self.classes[self._order[earlier]]
        return len(self.members)

    def find(self, wanted: Fingerprint) -> list[int]:
        """The values with this fingerprint."""
        return list(self.each(wanted))

    def each(self, wanted: Fingerprint) -> Iterator[int]:
        """The same one by one, for those whom the first will do: of zeros there may be thousands."""
        margin = 2 * self.tolerance * wanted.rms + 1e-300
        for place in range(bisect_left(self._sizes, wanted.rms - margin), len(self._order)):
            if self._sizes[place] > wanted.rms + margin:
                break
            if same_numbers(wanted, self.fingerprints[self._order[place]], self.tolerance):
                yield self._order[place]


def equal_in(wanted: Fingerprint, others: Iterable[Fingerprint], tolerance: float) -> bool:
    """Is one of the others of the same numbers, and as many?"""
    return any(wanted.elements == other.elements and same_numbers(wanted, other, tolerance) for other in others)
