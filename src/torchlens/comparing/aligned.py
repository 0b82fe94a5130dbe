"""Two logs of one graph: operation by operation, in one sweep."""

from __future__ import annotations

import math

from torch import Tensor

from ..capture.records import argument_values
from .findings import Finding
from .layouts import relative_error
from .sides import Side


def same_graph(one: Side, other: Side) -> bool:
    """Do both have the same tensors, made of each other in the same way? The functions may differ."""
    return len(one.ids) == len(other.ids) and all(
        _shape_of_entry(one, a) == _shape_of_entry(other, b) for a, b in zip(one.ids, other.ids, strict=True)
    )


def _shape_of_entry(side: Side, i: int) -> tuple[object, ...]:
    value = side.value(i)
    parents = tuple(side.rank[p] for p in side.parents[i])
    role = "op" if value.role == "update" else value.role
    return parents, tuple(value.shape), value.position, role, len(side.params(i))


def errors(donor: Side, recipient: Side) -> dict[int, float]:
    """How far each of the recipient's values is from the donor's, both computed on the way."""
    return {i: _error(donor.values[j], recipient.values[i]) for j, i in zip(donor.ids, recipient.ids, strict=True)}


def _error(one: Tensor | None, other: Tensor | None) -> float:
    return math.inf if one is None or other is None else relative_error(one, other)


class Aligned:
    """The same interface as `Matching`, for logs of one graph: partners have the same place."""

    def __init__(self, donor: Side, recipient: Side, tolerance: float, error: dict[int, float]) -> None:
        self.donor, self.recipient, self.tolerance, self.error = donor, recipient, tolerance, error
        self.partner: dict[int, int | None] = dict(zip(recipient.ids, donor.ids, strict=True))
        self.first_partner: dict[int, int | None] = {
            i: j if self.error[i] <= tolerance else None for i, j in self.partner.items()
        }

    def findings(self) -> list[Finding]:
        """Every operation that is guilty: it differs although its inputs agree, or would if they did."""
        bad = self._bad_region()
        return [
            Finding(
                _donor(self, i),
                i,
                "operation" if self.recipient.call(i) is not None else "source",
                self.error[i],
                [_donor(self, i)],
                [i],
            )
            for i in bad
            if self.recipient.value(i).role != "output" and self._is_guilty(i)
        ]

    def bad_outputs(self) -> list[tuple[int, int]]:
        return [(_donor(self, i), i) for i in self.recipient.outputs if self.error[i] > self.tolerance]

    def _bad_region(self) -> list[int]:
        """What differs and reaches a bad output through values that differ."""
        seen: set[int] = set()
        waiting = [i for _, i in self.bad_outputs()]
        while waiting:
            i = waiting.pop()
            if i not in seen:
                seen.add(i)
                waiting += [p for p in self.recipient.parents[i] if self.error[p] > self.tolerance]
        return sorted(seen)

    def _is_guilty(self, i: int) -> bool:
        if all(self.error[p] <= self.tolerance for p in self.recipient.parents[i]):
            return True
        if _has_changed_params(self.donor, _donor(self, i)) or _has_changed_params(self.recipient, i):
            return True
        expected = self.donor.values[_donor(self, i)]
        given = {p: self.donor.values[_donor(self, p)] for p in self.recipient.parents[i]}
        made = self.recipient.recomputed(i, given)
        return made is None or expected is None or relative_error(made, expected) > self.tolerance


def _donor(aligned: Aligned, i: int) -> int:
    partner = aligned.partner[i]
    assert partner is not None
    return partner


def _has_changed_params(side: Side, i: int) -> bool:
    """Have its weights been written to since the log was made?"""
    call = side.call(i)
    changed = side.exact.changed_since
    return call is not None and any(v.role == "param" and v.index in changed for _, v in argument_values(call))
