"""Pairs of values whose exchange may heal a difference, those with the smallest regions first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from .findings import Finding
from .fingerprints import same_numbers
from .layouts import relative_error
from .matching import Matching, Prints, boundary, part_behind
from .sides import Side
from .weights import have_other_weights

#: How far into what differs the search looks, on each side: from its beginning, and back from its end.
_DEPTH, _BACK = 20, 8


class Candidate(NamedTuple):
    finding: Finding
    size: int  # operations in the regions of both sides, views not counted


def region_candidates(matching: Matching, donor_region: list[int], region: list[int]) -> list[Candidate]:
    """All candidates, in the order in which they are worth trying."""
    donor, recipient = matching.donor, matching.recipient
    near = [j for j in _ends(donor_region) if donor.function(j) != "output"]
    own = [i for i in _ends(region) if recipient.function(i) != "output"]
    pairs = [
        *_pairs(matching, near, own, set(donor_region), set(region)),
        *_missing(matching, near, set(donor_region)),
        *_extra(matching, own),
        *_reordered(matching, boundary(recipient, region)),
    ]
    sizes = _sizes(donor, {j for j, _, _ in pairs}, set(donor_region))
    own_sizes = _sizes(recipient, {i for _, i, _ in pairs}, set(region))
    found = [Candidate(Finding(j, i, kind, 0.0), sizes[j] + own_sizes[i]) for j, i, kind in pairs]
    return sorted(found, key=lambda each: _order(matching, each))


def _ends(region: list[int]) -> list[int]:
    return region[:_DEPTH] + region[max(_DEPTH, len(region) - _BACK) :]


def _order(matching: Matching, candidate: Candidate) -> tuple[int, bool, int]:
    j, i = candidate.finding.donor, candidate.finding.recipient
    return candidate.size, matching.donor.function(j) != matching.recipient.function(i), j + i


def _sizes(side: Side, ends: set[int], region: set[int]) -> dict[int, int]:
    return {end: sum(not side.is_view(i) for i in part_behind(side, end, region)) for end in ends}


def _pairs(
    matching: Matching, near: list[int], own: list[int], donor_region: set[int], region: set[int]
) -> Iterator[tuple[int, int, str]]:
    donor, recipient = matching.donor, matching.recipient
    marks, prints = matching.index.fingerprints, matching.prints
    first_j = [j for j in near if not _is_handed_on(donor, j, donor_region, marks, matching.tolerance)]
    first_i = [i for i in own if not _is_handed_on(recipient, i, region, prints, matching.tolerance)]
    for i in first_i:
        for j in first_j:
            # Masks and whole numbers heal by chance: only those of one function are tried.
            known = marks[j].telling or prints[i].telling or donor.function(j) == recipient.function(i)
            if known and marks[j].elements == prints[i].elements and not _has_better_weights(matching, j, i, near):
                yield j, i, "region"


def _is_handed_on(side: Side, i: int, region: set[int], prints: Prints, tolerance: float) -> bool:
    """Does it only hand on the numbers of another in the region?"""
    return side.is_view(i) and any(
        p in region and same_numbers(prints[p], prints[i], tolerance) for p in side.parents[i]
    )


def _has_better_weights(matching: Matching, j: int, i: int, near: list[int]) -> bool:
    """Does the pair have different weights, while another operation nearby has the right ones?"""
    donor, recipient = matching.donor, matching.recipient
    if donor.function(j) != recipient.function(i) or not donor.params(j) or not recipient.params(i):
        return False
    if not have_other_weights(donor, recipient, j, i):
        return False
    return any(not have_other_weights(donor, recipient, other, i) for other in near if donor.params(other))


def _missing(matching: Matching, near: list[int], donor_region: set[int]) -> Iterator[tuple[int, int, str]]:
    """A step of the donor's that the recipient does not have."""
    donor = matching.donor
    holders = _by_class(matching)
    for j in near:
        if any(not donor.parents[k] for k in part_behind(donor, j, donor_region)):
            continue
        count = matching.index.fingerprints[j].elements
        for parent in donor.parents[j]:
            alike = [i for i in holders.get(matching.index.classes[parent], ()) if matching.prints[i].elements == count]
            yield from ((j, i, "missing") for i in alike[-4:])


def _by_class(matching: Matching) -> dict[int, list[int]]:
    holders: dict[int, list[int]] = {}
    for i in matching.recipient.ids:
        number = matching.class_of(i)
        if number is not None:
            holders.setdefault(number, []).append(i)
    return holders


def _extra(matching: Matching, own: list[int]) -> Iterator[tuple[int, int, str]]:
    """A step of the recipient's that the donor does not have."""
    for i in own:
        for parent in matching.recipient.parents[i]:
            number = matching.class_of(parent)
            members = matching.index.members[number][-2:] if number is not None else []
            for j in members:
                if matching.index.fingerprints[j].elements == matching.prints[i].elements:
                    yield j, i, "extra"


def _reordered(matching: Matching, edge: list[int]) -> Iterator[tuple[int, int, str]]:
    """The same numbers in another order."""
    donor, recipient = matching.donor, matching.recipient
    for i in edge:
        number = matching.class_of(i)
        for j in matching.index.members[number] if number is not None else ():
            one, other = donor.values[j], recipient.values[i]
            if one is None or other is None or one.shape != other.shape:
                continue
            if relative_error(one, other) > 1e-6:
                yield j, i, "order"
