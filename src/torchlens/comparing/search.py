"""The first place where two runs part: rules from the certain to the likely.

input    the models were given other numbers, and what differs depends on them
order    an input of what differs is matched, in the same shape, with the same numbers in another order
direct   the same function of equal parents with another result: the definition of guilt
region   the smallest piece of both graphs whose end, taken from the donor, lets the recipient go on as the donor does
"""

from __future__ import annotations

from collections.abc import Iterator

from .candidates import Candidate, region_candidates
from .findings import Finding
from .fingerprints import fingerprint, same_numbers
from .layouts import best_fit, relative_error
from .matching import Matching, boundary, part_behind, placed

#: How many calls are computed to see whether a graft helps: after a doubt about order, and for each region.
_FAR, _NEAR = 80, 16
_MOST_TRIED = 200
_MOST_BOUNDARY = 16

#: Equal element by element.
_EQUAL = 1e-6


class Search:
    """One step of the search, in the matching as it is now."""

    def __init__(self, matching: Matching) -> None:
        self.matching = matching
        self.donor, self.recipient = matching.donor, matching.recipient
        self.donor_region, self.region = matching.bad_regions()
        self.in_donor_region, self.in_region = set(self.donor_region), set(self.region)

    def find(self) -> Finding | None:
        """The first difference; None if nothing can be said."""
        finding = self._input() or self._order() or self._direct() or self._region() or self._fallback()
        if finding is not None:
            self._complete(finding)
        return finding

    def _complete(self, finding: Finding) -> None:
        donor, recipient = self.donor, self.recipient
        if finding.kind == "region":
            finding.donor = self._before_views(donor, finding.donor, self.in_donor_region)
            finding.recipient = self._before_views(recipient, finding.recipient, self.in_region)
        finding.error = distance(self.matching, finding.donor, finding.recipient)
        finding.donor_region = part_behind(donor, finding.donor, self.in_donor_region) or [finding.donor]
        finding.recipient_region = part_behind(recipient, finding.recipient, self.in_region) or [finding.recipient]

    def _before_views(self, side: object, i: int, region: set[int]) -> int:
        """Up to where the numbers were made that views only hand on."""
        which = self.donor if side is self.donor else self.recipient
        prints = self.matching.index.fingerprints if which is self.donor else self.matching.prints
        while which.is_view(i) and len(which.parents[i]) == 1:
            (parent,) = which.parents[i]
            if parent not in region or not same_numbers(prints[parent], prints[i], self.matching.tolerance):
                break
            i = parent
        return i

    # ---- inputs --------------------------------------------------------------------------------------------------

    def _input(self) -> Finding | None:
        """Also one that only one of the models uses: a mask of ones may change what the other does at all."""
        for j, i in zip(self.donor.inputs, self.recipient.inputs, strict=False):
            differ = self.donor.value(j).shape == self.recipient.value(i).shape and not self._is_alike(j, i)
            if differ and i not in self.matching.grafts and (j in self.in_donor_region or i in self.in_region):
                return Finding(j, i, "source", 0.0)
        return None

    def _is_alike(self, j: int, i: int) -> bool:
        return same_numbers(self.matching.index.fingerprints[j], self.matching.prints[i], self.matching.tolerance)

    # ---- the same numbers in another order -----------------------------------------------------------------------

    def _order(self) -> Finding | None:
        for i in boundary(self.recipient, self.region)[:_MOST_BOUNDARY]:
            j = self._reordered(i)
            if j is None or i in self.matching.grafts:
                continue
            j, i = self._first_reordered(j, i)
            finding = self._missing_step(j, i) or Finding(j, i, "order", 0.0)
            if self.donor.value(j).role == "input" or self.gain(finding, _FAR) > 0:
                return finding
        return None

    def _reordered(self, i: int) -> int | None:
        """A partner of the same shape whose elements are in another order; None if there is one in the same order."""
        number = self.matching.class_of(i)
        if number is None or not self.matching.prints[i].telling:
            return None
        shape, own = self.recipient.value(i).shape, self.recipient.values[i]
        alike = [j for j in self.matching.index.members[number] if self.donor.value(j).shape == shape]
        if not alike or any(_equal(self.donor.values[j], own) for j in alike):
            return None
        near = [j for j in alike if self.in_donor_region.intersection(self.donor.children[j])] or alike
        return max(near, key=lambda j: (self.donor.function(j) == self.recipient.function(i), -self._apart(j, i)))

    def _first_reordered(self, j: int, i: int) -> tuple[int, int]:
        while True:
            above = [(self._reordered(p), p) for p in self.recipient.parents[i]]
            found = next(((k, p) for k, p in above if k is not None), None)
            if found is None:
                return j, i
            j, i = found

    def _missing_step(self, j: int, i: int) -> Finding | None:
        """Two equal views, of which the donor's is of numbers that a step before it, such as `roll`, put in order."""
        donor, recipient = self.donor, self.recipient
        if not donor.is_view(j) or donor.function(j) != recipient.function(i):
            return None
        if len(donor.parents[j]) != 1 or len(recipient.parents[i]) != 1:
            return None
        (before,), (own,) = donor.parents[j], recipient.parents[i]
        alike = donor.value(before).shape == recipient.value(own).shape and self._is_alike(before, own)
        if not alike or donor.is_view(before) or _equal(donor.values[before], recipient.values[own]):
            return None
        return Finding(before, own, "missing", 0.0)

    def _apart(self, j: int, i: int) -> float:
        return abs(self.donor.rank[j] / len(self.donor.ids) - self.recipient.rank[i] / len(self.recipient.ids))

    # ---- guilt ---------------------------------------------------------------------------------------------------

    def _direct(self) -> Finding | None:
        roots = [j for j in self.donor_region if not self.in_donor_region.intersection(self.donor.parents[j])]
        edge = self._constant_edge()
        taken = {j for i, j in self.matching.partner.items() if j is not None and self.matching.prints[i].telling}
        for i in self.region:
            if self.in_region.intersection(self.recipient.parents[i]):
                continue
            for j in (*roots, *edge):
                if j in edge and (self.recipient.call(i) is None or self._is_spoken_for(j, taken)):
                    continue
                if is_direct(self.matching, j, i):
                    return Finding(j, i, "operation" if self.recipient.call(i) is not None else "source", 0.0)
        return None

    def _is_spoken_for(self, j: int, taken: set[int]) -> bool:
        return self.matching.index.fingerprints[j].telling and self.donor.function(j) != "dropout" and j in taken

    def _constant_edge(self) -> list[int]:
        """What the donor's region is made of, and what constants among that are made of."""
        edge = boundary(self.donor, self.donor_region)
        for j in edge:  # grows on the way
            if not self.donor.comes_from_input(j):
                edge += [p for p in self.donor.parents[j] if p not in edge]
        return edge

    # ---- a region ------------------------------------------------------------------------------------------------

    def _region(self) -> Finding | None:
        """Smaller regions first: the largest gain would misplace the first of several differences."""
        best: tuple[tuple[float, ...], Candidate] | None = None
        for candidate in self._worth_trying():
            if best is not None and candidate.size > best[1].size:
                break
            gain = self.gain(candidate.finding, _NEAR)
            j, i = candidate.finding.donor, candidate.finding.recipient
            kind = {"order": 2, "missing": 1, "extra": 1}.get(candidate.finding.kind, 0)
            rank = (gain, kind, self.donor.function(j) == self.recipient.function(i), -j - i)
            if gain > 0 and (best is None or rank > best[0]):
                best = rank, candidate
        return None if best is None else best[1].finding

    def _worth_trying(self) -> Iterator[Candidate]:
        tried = 0
        for candidate in region_candidates(self.matching, self.donor_region, self.region):
            found = distance(self.matching, candidate.finding.donor, candidate.finding.recipient)
            if found <= self.matching.tolerance and candidate.finding.kind not in ("missing", "order"):
                continue
            tried += 1
            if tried > _MOST_TRIED:
                return
            yield candidate

    def _fallback(self) -> Finding | None:
        """Nothing heals: the first pair of one function, else what the outputs are made of."""
        counts = self.matching.index.fingerprints, self.matching.prints
        for i in self.region:
            for j in self.donor_region:
                alike = self.donor.function(j) == self.recipient.function(i) != "output"
                if alike and counts[0][j].elements == counts[1][i].elements and i not in self.matching.grafts:
                    return Finding(j, i, "unproven", 0.0)
        for output, other in self.matching.bad_outputs():
            j, i = (self.donor.parents[output] or (output,))[0], (self.recipient.parents[other] or (other,))[0]
            if j in self.in_donor_region and i in self.in_region and i not in self.matching.grafts:
                return Finding(j, i, "unproven", 0.0) if counts[0][j].elements == counts[1][i].elements else None
        return None

    def gain(self, finding: Finding, limit: int) -> int:
        """How many of the donor's values are found again after a graft, minus those that are lost."""
        return gain(self.matching, finding, limit)


def gain(matching: Matching, finding: Finding, limit: int = _NEAR) -> int:
    """What a graft would bring, in the calls that follow it."""
    tensor = placed(matching, finding)
    if tensor is None:
        return -1
    new = matching.recipient.downstream({finding.recipient: tensor}, matching.grafts, limit)
    classes = matching.index.classes
    won, lost = set(), 0
    for i, value in new.items():
        if i == finding.recipient or i not in matching.recipient.rank:
            continue
        mark = fingerprint(value)
        if not mark.telling:
            continue
        found = matching.index.find(mark)
        if found and classes[found[0]] != classes[finding.donor] and not matching.is_good_donor(found[0]):
            won.add(classes[found[0]])
        elif not found and matching.partner.get(i) is not None:
            lost += 1
    return len(won) - lost


def is_direct(matching: Matching, j: int, i: int) -> bool:
    """The same function of equal parents?"""
    donor, recipient = matching.donor, matching.recipient
    if donor.function(j) != recipient.function(i) or donor.function(j) == "output":
        return False
    if matching.index.fingerprints[j].elements != matching.prints[i].elements:
        return False
    if donor.call(j) is None or recipient.call(i) is None:
        return _are_same_source(matching, j, i)
    if donor.value(j).position != recipient.value(i).position:
        return False
    parts = donor.leaves_bias_to_add(j), recipient.leaves_bias_to_add(i)
    if (parts[0] and recipient.has_bias(i)) or (parts[1] and donor.has_bias(j)):
        return False  # `matmul` of `x @ w + b` against `linear`: a part of what the other does
    return _have_equal_parents(matching, j, i)


def _are_same_source(matching: Matching, j: int, i: int) -> bool:
    donor, recipient = matching.donor, matching.recipient
    if donor.function(j) == "input":
        return donor.inputs.index(j) == recipient.inputs.index(i)
    used = {donor.function(k) for k in donor.children[j]} & {recipient.function(k) for k in recipient.children[i]}
    return bool(used) and donor.value(j).shape == recipient.value(i).shape


def _have_equal_parents(matching: Matching, j: int, i: int) -> bool:
    donor, recipient = matching.donor, matching.recipient
    if not donor.parents[j] and not recipient.parents[i]:
        return bool(donor.params(j)) == bool(recipient.params(i))
    above_j = [p for p in donor.parents[j] if donor.comes_from_input(p)]
    above_i = [p for p in recipient.parents[i] if recipient.comes_from_input(p)]
    if not above_j or not above_i:
        above_j, above_i = list(donor.parents[j]), list(recipient.parents[i])
    elif any(not matching.is_good(p) for p in recipient.parents[i] if p not in above_i):
        return False  # constants may be parameters on one side
    classes = {matching.class_of(p) for p in above_i}
    return None not in classes and {matching.index.classes[p] for p in above_j} == classes


def distance(matching: Matching, j: int, i: int) -> float:
    """How far a value of the donor's and one of the recipient's are apart, in the layout in which they are nearest."""
    one, other = matching.donor.values[j], matching.recipient.values[i]
    if one is None or other is None:
        return float("inf")
    found = best_fit(one, other)
    return float("inf") if found is None else found.error


def _equal(one: object, other: object) -> bool:
    return one is not None and other is not None and relative_error(one, other) < _EQUAL  # type: ignore[arg-type]
