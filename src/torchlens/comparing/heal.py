"""Put the donor's value into the recipient, go on from there, and heal the same difference wherever it comes again.

One sweep through what follows costs as much as computing it. A model with a difference in every layer would need one
for each, if those of one family were not healed on the way.
"""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from .causes import name_cause
from .findings import Finding
from .matching import Matching, boundary, placed, upstream
from .search import distance, gain, is_direct

#: How far to look for the donor's part of a difference that was seen before.
_AHEAD = 40
_FEW = 4


def graft(matching: Matching, finding: Finding, found: list[Finding]) -> None:
    """Heal a finding, and those like it or like one that was found before; these are appended to `found`."""
    tensor = placed(matching, finding)
    if tensor is None:
        return
    known = {each.family: each for each in found}
    patterns = list(known.values())
    taken = set(matching.grafts.values()) | {finding.donor}

    def heal(i: int, new: Tensor | None) -> None:
        if i not in matching.recipient.rank:
            return
        matching.update(i, new)
        alike = _alike(matching, i, patterns, taken)
        replacement = None if alike is None else placed(matching, alike)
        if alike is None or replacement is None:
            return
        found.append(alike)
        taken.add(alike.donor)
        matching.recipient.values.put(i, replacement, fixed=True)
        matching.put(i, alike.donor, replacement)

    matching.put(finding.recipient, finding.donor, tensor)
    matching.recipient.graft(finding.recipient, tensor, fixed=matching.grafts, on_value=heal)


def _alike(matching: Matching, i: int, patterns: list[Finding], taken: set[int]) -> Finding | None:
    """The same difference as one that is known, at this value of the recipient."""
    recipient = matching.recipient
    for pattern in patterns:
        matched = matching.partner.get(i) is not None
        if matched != (pattern.kind == "missing") or recipient.function(i) != recipient.function(pattern.recipient):
            continue
        if recipient.value(i).role != "op" or pattern.kind in ("source", "order", "unproven"):
            continue
        for j in _donors(matching, i, pattern, taken):
            finding = _finding(matching, pattern, j, i)
            if finding is not None:
                return finding
    return None


def _donors(matching: Matching, i: int, pattern: Finding, taken: set[int]) -> Iterator[int]:
    """Values of the donor's that may stand to this one as those of the pattern do."""
    donor = matching.donor
    own = [i] if pattern.kind == "missing" else _made_of(matching, i)
    starts = [j for p in own for j in _members(matching, p)]
    if pattern.kind == "extra":
        yield from (j for j in starts if matching.index.fingerprints[j].elements == matching.prints[i].elements)
        return
    wanted, count = donor.function(pattern.donor), matching.prints[i].elements
    found = 0
    for j in _ahead(matching, starts):
        alike = donor.function(j) == wanted and matching.index.fingerprints[j].elements == count
        if alike and j not in taken and not matching.is_good_donor(j):
            found += 1
            yield j
            if found == _FEW:
                return


def _made_of(matching: Matching, i: int) -> list[int]:
    """The nearest values above that have partners."""
    return boundary(matching.recipient, upstream(matching.recipient, [i], matching.is_good, _AHEAD))


def _members(matching: Matching, p: int) -> list[int]:
    partner, number = matching.partner.get(p), matching.class_of(p)
    if partner is None or number is None:
        return []
    others = [j for j in matching.index.members[number] if j != partner]
    return [partner, *others[:_FEW]]


def _ahead(matching: Matching, starts: list[int]) -> Iterator[int]:
    """What is made of some values, through those without a partner, nearest first."""
    seen = set(starts)
    waiting = list(starts)
    looked = 0
    while waiting and looked < _AHEAD:
        j = waiting.pop(0)
        for child in matching.donor.children[j]:
            if child in seen:
                continue
            seen.add(child)
            looked += 1
            yield child
            if not matching.is_good_donor(child):
                waiting.append(child)


def _finding(matching: Matching, pattern: Finding, j: int, i: int) -> Finding | None:
    direct = pattern.kind == "operation"
    if direct and not is_direct(matching, j, i):
        return None
    finding = Finding(j, i, pattern.kind, distance(matching, j, i), [j], [i], along_the_way=True)
    if not direct:
        finding.donor_region = upstream(matching.donor, [j], matching.is_good_donor, _AHEAD)
        if pattern.kind != "missing":
            finding.recipient_region = upstream(matching.recipient, [i], matching.is_good, _AHEAD)
    name_cause(matching, finding)
    if finding.family != pattern.family or (not direct and gain(matching, finding) <= 0):
        return None
    return finding
