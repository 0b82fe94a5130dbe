"""Which values of two runs are equal, though the graphs are not.

Every value of the donor has a fingerprint; a value of the recipient is matched with the donor's class of the same one.
Among several, the one with equal parents, the same function and the nearest place in the order is its partner.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping

from torch import Tensor

from .findings import Finding
from .fingerprints import Fingerprint, FingerprintIndex, equal_in, fingerprint
from .layouts import best_fit, relative_error
from .sides import Side

Prints = Mapping[int, Fingerprint]


class Matching:
    """The recipient's values, and their partners among the donor's. Grafts change both as the search goes on."""

    def __init__(self, donor: Side, recipient: Side, tolerance: float, prints: Mapping[str, Prints]) -> None:
        self.donor, self.recipient, self.tolerance = donor, recipient, tolerance
        self.index = FingerprintIndex(prints[donor.name], tolerance)
        self.prints = dict(prints[recipient.name])
        self.partner: dict[int, int | None] = {}
        self.matched: Counter[int] = Counter()  # how many values of the recipient are in each class of the donor's
        self.grafts: dict[int, int] = {}  # of the donor, by the recipient's value
        self.constants = _equal_to_params(donor, recipient, self.index.fingerprints)
        self.recipient_constants = _equal_to_params(recipient, donor, self.prints)
        for i in recipient.ids:
            self._match(i)
        self.first_partner = dict(self.partner)

    # ---- one value ---------------------------------------------------------------------------------------------

    def class_of(self, i: int) -> int | None:
        """The donor's class that a value of the recipient belongs to."""
        partner = self.partner.get(i)
        return None if partner is None else self.index.classes[partner]

    def update(self, i: int, tensor: Tensor | None) -> None:
        """The recipient's value is another now."""
        self.prints[i] = fingerprint(tensor)
        before = self.class_of(i)
        if before is not None:
            self.matched[before] -= 1
        self._match(i)

    def put(self, i: int, donor: int, tensor: Tensor) -> None:
        """A value of the donor's was grafted."""
        self.update(i, tensor)
        before = self.class_of(i)
        if before is not None:
            self.matched[before] -= 1
        self.partner[i] = self.grafts[i] = donor
        self.matched[self.index.classes[donor]] += 1

    def _match(self, i: int) -> None:
        self.partner[i] = partner = self._best(i, self._candidates(i, self.prints[i]))
        if partner is not None:
            self.matched[self.index.classes[partner]] += 1

    def _candidates(self, i: int, wanted: Fingerprint) -> list[int]:
        found = self.index.find(wanted)
        if wanted.telling or not found:
            return found
        # Masks, zeros and whole numbers are alike by chance: they need the same function, or none of their own.
        donor, recipient, name = self.donor, self.recipient, self.recipient.function(i)
        same_function = [j for j in found if donor.function(j) == name]
        made = recipient.value(i).role == "op" and not recipient.is_view(i)
        return same_function or [j for j in found if not made or donor.is_view(j) or donor.value(j).role != "op"]

    def _best(self, i: int, candidates: list[int]) -> int | None:
        if len(candidates) < 2:
            return candidates[0] if candidates else None
        donor, recipient = self.donor, self.recipient
        parents = {self.class_of(p) for p in recipient.parents[i]} - {None}
        place = recipient.rank[i] / len(recipient.ids)

        def score(j: int) -> float:
            points = 4 * (self.index.fingerprints[j].elements == self.prints[i].elements)
            points += 3 * bool(parents & {self.index.classes[p] for p in donor.parents[j]})
            points += 2 * (donor.function(j) == recipient.function(i))
            points += donor.value(j).shape == recipient.value(i).shape
            return points - abs(donor.rank[j] / len(donor.ids) - place)

        return max(candidates, key=score)

    # ---- what does not agree -----------------------------------------------------------------------------------

    def is_good_donor(self, j: int) -> bool:
        return self.matched[self.index.classes[j]] > 0 or j in self.constants

    def is_good(self, i: int) -> bool:
        return self.partner.get(i) is not None or i in self.recipient_constants

    def output_error(self, donor: int, recipient: int) -> float:
        one, other = self.donor.values[donor], self.recipient.values[recipient]
        if one is None or other is None:
            return float("inf")
        if one.shape == other.shape:
            return relative_error(one, other)
        found = best_fit(one, other)
        return float("inf") if found is None else found.error

    def bad_outputs(self) -> list[tuple[int, int]]:
        pairs = zip(self.donor.outputs, self.recipient.outputs, strict=False)
        return [pair for pair in pairs if self.output_error(*pair) > self.tolerance]

    def bad_regions(self) -> tuple[list[int], list[int]]:
        """What has no partner and reaches a bad output through such values only, on both sides.

        Operations that are one here and several there, and meet again in equal values, are not among them.
        """
        bad = self.bad_outputs()
        return (
            upstream(self.donor, [a for a, _ in bad], self.is_good_donor),
            upstream(self.recipient, [b for _, b in bad], self.is_good),
        )


def upstream(side: Side, ends: list[int], stop: Callable[[int], bool], most: int | None = None) -> list[int]:
    """What some values are made of, up to those at which to stop; at most so many."""
    seen: set[int] = set()
    waiting = list(ends)
    while waiting and (most is None or len(seen) < most):
        i = waiting.pop()
        if i not in seen:
            seen.add(i)
            waiting += [p for p in side.parents[i] if p not in seen and not stop(p)]
    return sorted(seen)


def part_behind(side: Side, end: int, region: Collection[int]) -> list[int]:
    """The part of a region that a value is made of, itself included."""
    seen: set[int] = set()
    waiting = [end]
    while waiting:
        i = waiting.pop()
        if i not in seen and i in region:
            seen.add(i)
            waiting += side.parents[i]
    return sorted(seen)


def boundary(side: Side, region: Collection[int]) -> list[int]:
    """What a region is made of."""
    inside = set(region)
    return sorted({p for i in region for p in side.parents[i] if p not in inside})


def placed(matching: Matching, finding: Finding) -> Tensor | None:
    """The donor's value, laid out as the recipient's that it takes the place of."""
    one, other = matching.donor.values[finding.donor], matching.recipient.values[finding.recipient]
    if one is None or other is None or one.numel() != other.numel():
        return None
    if finding.kind == "order" or one.shape == other.shape:
        return one.reshape(other.shape).to(other.dtype)
    found = best_fit(one, other)
    return None if found is None else found.tensor.to(other.dtype)


def _equal_to_params(side: Side, other: Side, prints: Prints) -> set[int]:
    """Constants of one side that are parameters of the other: a buffer here, a parameter there."""
    tensors = {value.index: other.param(value) for value in other.trace.params}
    index = FingerprintIndex({key: fingerprint(tensor) for key, tensor in tensors.items()}, 1e-8)
    fixed = [i for i in side.ids if not side.comes_from_input(i)]
    return {i for i in fixed if equal_in(prints[i], [index.fingerprints[k] for k in index.find(prints[i])], 1e-8)}
